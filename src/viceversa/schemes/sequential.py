"""Learn first, solve afterwards: the decoupled scheme the paper argues against."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from viceversa.certificates.residuals import learning_error_bound
from viceversa.errors import InputError
from viceversa.learners.base import Learner
from viceversa.methods.base import Info, Method, OracleCounts
from viceversa.numerics import cond, tree_max_abs, tree_norm, tree_subtract
from viceversa.precision import as_float64
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point, Scheme


class SequentialState(eqx.Module):
    """The method's and the learner's states, whether θ is learned, how many steps that took, and the average's sums."""

    method: Any
    learner: Any
    learned: Bool[Array, ""]
    n_learning: Int[Array, ""]
    x_sum: Float[Array, "..."]
    weight_sum: Float[Array, ""]
    key: Any = None


class Sequential(Scheme):
    """Learn θ until its certified error is `learn_tol`, then run the method at that θ:

        while ‖θ_k − θ*‖ > learn_tol·max(‖θ_k‖, width of Θ) is not excluded:  one learner's step, x at rest    (1)
        afterwards:                                                          one method's step at the last θ  (2)

    A step is one or the other. The bound in (1) is the certificate's; the H(θ_k) in it is the one the next learning step
    begins with and is counted once. Learning also ends when θ no longer moves at all. However long (2)
    runs, x cannot come closer to x* than the learning error left by (1) allows.
    """

    learner: Learner
    method: Method
    learn_tol: np.ndarray

    def __init__(self, learner: Learner, method: Method, learn_tol: float = 1e-8):
        if not (isinstance(learner, Learner) and isinstance(method, Method)):
            raise InputError(
                f"Sequential: learner is {type(learner).__name__} and method is {type(method).__name__}; a learner such as "
                "vv.NewtonLearner() and a method such as vv.AdaptiveAugmentedLagrangian() are needed. A scheme such as "
                "vv.SemismoothNewton() learns by itself."
            )
        self.learner, self.method = learner, method
        self.learn_tol = as_float64("Sequential: learn_tol", learn_tol)
        if self.learn_tol.shape != () or not self.learn_tol > 0:
            raise InputError(f"Sequential: learn_tol is {learn_tol}; one number > 0 is needed.")

    def check(self, problem: MisspecifiedVI) -> None:
        self.method.check(problem)

    def init(
        self, problem: MisspecifiedVI, x0: Array, theta0: PyTree, lam0: Array, key: Array
    ) -> SequentialState:
        learned = jnp.asarray(problem.learning.is_known) | self._is_learned(problem, theta0, x0)
        return SequentialState(
            method=self.method.init(problem, theta0, x0, lam0),
            learner=self.learner.init(problem.learning, theta0),
            learned=learned,
            n_learning=jnp.asarray(0),
            x_sum=jnp.zeros_like(x0),
            weight_sum=jnp.zeros(()),
            key=key if self.method.stochastic or self.learner.stochastic else None,
        )

    def _is_learned(self, problem: MisspecifiedVI, theta: PyTree, x: Array) -> Array:
        bound = learning_error_bound(problem.learning, theta, x)
        return bound <= self.learn_tol * jnp.maximum(tree_norm(theta), problem.theta_width)

    def step(self, problem: MisspecifiedVI, state: SequentialState) -> tuple[SequentialState, Info]:
        return cond(
            state.learned,
            lambda s: self._solve(problem, s),
            lambda s: self._learn(problem, s),
            state,
            on_host=problem.runs_on_host,
        )

    def _learn(self, problem: MisspecifiedVI, state: SequentialState) -> tuple[SequentialState, Info]:
        key, learner_key = (None, None) if state.key is None else jax.random.split(state.key)
        x, lam = self.method.output(state.method)
        learner = self.learner.step(problem.learning, state.learner, x, learner_key)  # (1)
        theta, theta_old = self.learner.theta(learner), self.learner.theta(state.learner)
        at_rest = tree_max_abs(tree_subtract(theta, theta_old)) == 0.0
        learned = self._is_learned(problem, theta, x) | at_rest
        # What a method remembers from its start (F at θ_0) belongs to the θ it is run at.
        method = cond(
            learned,
            lambda old: self.method.init(problem, theta, x, lam),
            lambda old: old,
            state.method,
            on_host=problem.runs_on_host,
        )
        next_state = SequentialState(
            method, learner, learned, state.n_learning + 1, state.x_sum, state.weight_sum, key
        )
        return next_state, Info(step_size=jnp.zeros(()), penalty=jnp.zeros(()))

    def _solve(self, problem: MisspecifiedVI, state: SequentialState) -> tuple[SequentialState, Info]:
        key, method_key = (None, None) if state.key is None else jax.random.split(state.key)
        theta = self.learner.theta(state.learner)
        method, info = self.method.step(problem, theta, state.method, method_key)  # (2)
        point, weight = self.method.ergodic(method)
        next_state = SequentialState(
            method,
            state.learner,
            state.learned,
            state.n_learning,
            state.x_sum + weight * point,
            state.weight_sum + weight,
            key,
        )
        return next_state, Info(*(jnp.asarray(value) for value in info))

    def output(self, state: SequentialState) -> Point:
        x, lam = self.method.output(state.method)
        started = state.weight_sum > 0
        average = jnp.where(started, state.x_sum / jnp.where(started, state.weight_sum, 1.0), x)
        return Point(x=x, lam=lam, theta=self.learner.theta(state.learner), x_average=average)

    def phase(self, state: SequentialState) -> Array:
        # The step that completed the learning is still one of learning.
        return jnp.asarray(state.weight_sum > 0, jnp.int64)

    def phases(self, problem: MisspecifiedVI) -> tuple[str, ...]:
        return "learning: θ", "solving: x and λ" if problem.n_constraints else "solving: x"

    def counts(self, problem: MisspecifiedVI, state: SequentialState, n_steps: Any) -> OracleCounts:
        n_learning = jnp.minimum(n_steps, state.n_learning)
        solved = self.method.counts(state.method, n_steps - n_learning)
        # The method begins twice: at θ_0, to have a state at all, and at the learned θ.
        begun = self.method.init_counts.times((n_learning > 0) & state.learned)
        return solved + begun + OracleCounts(H=self.learner.step_counts * n_learning)
