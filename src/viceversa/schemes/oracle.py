"""An oracle that knows θ*: what a method could do if nothing had to be learned."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from viceversa.methods.base import Info, Method, OracleCounts
from viceversa.precision import as_float64
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point, Scheme


class OracleState(eqx.Module):
    """The method's state and the weighted sum behind the average."""

    method: Any
    x_sum: Float[Array, "..."]
    weight_sum: Float[Array, ""]
    key: Any = None


class Oracle(Scheme):
    """The method at θ* from the first step on; H is never asked. Nobody has this scheme; every comparison needs it."""

    method: Method
    theta_true: PyTree

    def __init__(self, method: Method, theta_true: PyTree):
        self.method = method
        self.theta_true = jax.tree.map(lambda leaf: as_float64("Oracle: theta_true", leaf), theta_true)

    def check(self, problem: MisspecifiedVI) -> None:
        problem.check_theta("Oracle: theta_true", self.theta_true)
        self.method.check(problem)

    def init(
        self, problem: MisspecifiedVI, x0: Array, theta0: PyTree, lam0: Array, key: Array
    ) -> OracleState:
        return OracleState(
            method=self.method.init(problem, self._theta(), x0, lam0),
            x_sum=jnp.zeros_like(x0),
            weight_sum=jnp.zeros(()),
            key=key if self.method.stochastic else None,
        )

    def _theta(self) -> PyTree:
        return jax.tree.map(jnp.asarray, self.theta_true)

    def step(self, problem: MisspecifiedVI, state: OracleState) -> tuple[OracleState, Info]:
        key, method_key = (None, None) if state.key is None else jax.random.split(state.key)
        method, info = self.method.step(problem, self._theta(), state.method, method_key)
        point, weight = self.method.ergodic(method)
        return OracleState(method, state.x_sum + weight * point, state.weight_sum + weight, key), info

    def output(self, state: OracleState) -> Point:
        x, lam = self.method.output(state.method)
        started = state.weight_sum > 0
        average = jnp.where(started, state.x_sum / jnp.where(started, state.weight_sum, 1.0), x)
        return Point(x=x, lam=lam, theta=self._theta(), x_average=average)

    def counts(self, problem: MisspecifiedVI, state: OracleState, n_steps: Any) -> OracleCounts:
        return self.method.counts(state.method, n_steps)
