"""Solving and learning at the same time, in Algorithm 1's order."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from viceversa.learners.base import Learner
from viceversa.methods.base import Info, Method, OracleCounts
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.average import Average
from viceversa.schemes.base import Point, Scheme


class SimultaneousState(eqx.Module):
    """The method's and the learner's states, and the average of the iterates."""

    method: Any
    learner: Any
    average: Average
    key: Any = None  # only where the method or the learner draws random numbers


class Simultaneous(Scheme):
    """One step of the method at θ_k, then one step of the learner: (x, λ)_{k+1} from θ_k, then θ_{k+1}."""

    method: Method
    learner: Learner

    def check(self, problem: MisspecifiedVI) -> None:
        self.method.check(problem)

    def init(
        self, problem: MisspecifiedVI, x0: Array, theta0: PyTree, lam0: Array, key: Array
    ) -> SimultaneousState:
        return SimultaneousState(
            method=self.method.init(problem, theta0, x0, lam0),
            learner=self.learner.init(problem.learning, theta0),
            average=Average.start(x0),
            key=key if self.method.stochastic or self.learner.stochastic else None,
        )

    def step(self, problem: MisspecifiedVI, state: SimultaneousState) -> tuple[SimultaneousState, Info]:
        theta = self.learner.theta(state.learner)
        x, _ = self.method.output(state.method)
        key, method_key, learner_key = (None,) * 3 if state.key is None else jax.random.split(state.key, 3)
        method_state, info = self.method.step(problem, theta, state.method, method_key)
        learner_state = state.learner
        if not problem.learning.is_known:
            learner_state = self.learner.step(problem.learning, state.learner, x, learner_key)
        next_state = SimultaneousState(
            method=method_state,
            learner=learner_state,
            average=state.average.add(*self.method.ergodic(method_state)),
            key=key,
        )
        return next_state, info

    def output(self, state: SimultaneousState) -> Point:
        x, lam = self.method.output(state.method)
        theta = self.learner.theta(state.learner)
        return Point(x=x, lam=lam, theta=theta, x_average=state.average.value)

    def counts(self, problem: MisspecifiedVI, state: SimultaneousState, n_steps: Any) -> OracleCounts:
        learned = 0 if problem.learning.is_known else self.learner.step_counts * n_steps
        return self.method.counts(state.method, n_steps) + OracleCounts(H=learned)
