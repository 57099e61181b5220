"""Averaging as a wrapper: the answer is the weighted average a theorem is about, or that of the recent past."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from viceversa.methods.base import Method, OracleCounts, one_of
from viceversa.primal_dual import Pair
from viceversa.problem import MisspecifiedVI


class AveragedState(eqx.Module):
    """The wrapped method's state and two weighted sums, of the current block of iterations and the one before."""

    inner: Any
    n_steps: Int[Array, ""]
    block_sum: Pair
    block_weight: Float[Array, ""]
    before_sum: Pair
    before_weight: Float[Array, ""]


class Averaged(Method):
    """`method` with its average as the answer:

        x̄_K = Σ w_k y_k / Σ w_k,   λ̄_K = Σ w_k λ_k / Σ w_k                                          (1)

    where y_k and w_k are the point and weight of the method's own theorem. `over="all"` sums over k = 1..K.
    `over="recent"` forgets the transient: it sums over k = 2^(m−1)..K with 2^m ≤ K < 2^(m+1), at least the last half
    and at most the last three quarters, and keeps the O(1/K) rate.

    Example:
        >>> import viceversa as vv
        >>> vv.Averaged(vv.Extragradient(step_size=0.1)).step_counts.F
        2
    """

    reference: ClassVar[str] = "bruck1977weak"

    method: Method
    over: str = eqx.field(static=True)
    learning_rate: Any
    learner: Any

    def __init__(self, method: Method, over: str = "all"):
        self.method = method
        self.over = one_of("Averaged: over", over, ("all", "recent"))
        self.learner, self.learning_rate = method.learner, method.learning_rate

    @property
    def init_counts(self) -> OracleCounts:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.init_counts

    @property
    def step_counts(self) -> OracleCounts:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.step_counts

    @property
    def stochastic(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.stochastic

    def check(self, problem: MisspecifiedVI) -> None:
        self.method.check(problem)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> AveragedState:
        nothing = Pair(jnp.zeros_like(x0), jnp.zeros_like(lam0))
        return AveragedState(
            inner=self.method.init(problem, theta, x0, lam0),
            n_steps=jnp.asarray(0),
            block_sum=nothing,
            block_weight=jnp.zeros(()),
            before_sum=nothing,
            before_weight=jnp.zeros(()),
        )

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: AveragedState, key=None):
        inner, info = self.method.step(problem, theta, state.inner, key)
        y, weight = self.method.ergodic(inner)
        _, lam = self.method.output(inner)
        n_steps = state.n_steps + 1
        # A new block begins at every power of two; the block before it stays in the average.
        begins = (n_steps & (n_steps - 1)) == 0 if self.over == "recent" else jnp.asarray(False)
        keep = jnp.where(begins, 0.0, 1.0)
        next_state = AveragedState(
            inner=inner,
            n_steps=n_steps,
            block_sum=keep * state.block_sum + weight * Pair(y, lam),
            block_weight=keep * state.block_weight + weight,
            before_sum=keep * state.before_sum + (1.0 - keep) * state.block_sum,
            before_weight=keep * state.before_weight + (1.0 - keep) * state.block_weight,
        )
        return next_state, info

    def output(self, state: AveragedState) -> tuple[Array, Array]:
        x, lam = self.method.output(state.inner)
        weight = state.block_weight + state.before_weight
        average = (1.0 / jnp.where(weight > 0.0, weight, 1.0)) * (state.block_sum + state.before_sum)  # (1)
        return jnp.where(weight > 0.0, average.x, x), jnp.where(weight > 0.0, average.lam, lam)

    def ergodic(self, state: AveragedState):
        return self.method.ergodic(state.inner)

    def counts(self, state: AveragedState, n_steps: Any) -> OracleCounts:
        return self.method.counts(state.inner, n_steps)
