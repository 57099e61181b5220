"""The golden ratio algorithm with a fixed step."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.primal_dual import Pair, primal_dual
from viceversa.problem import MisspecifiedVI
from viceversa.steps import as_steps

_PHI = (1.0 + 5.0**0.5) / 2.0  # the golden ratio, which gives the method its name and its step range


class GoldenRatioState(eqx.Module):
    """k, z_k and the running convex combination z̄_{k−1}."""

    k: Int[Array, ""]
    z: Pair
    z_bar: Pair


class GoldenRatio(Method):
    """The golden ratio algorithm (GRAAL) on z = (x, λ) with the Lagrangian's operator G and Z = X × R^J₊:

        z̄_k     = ((φ − 1) z_k + z̄_{k−1})/φ,   φ = (1 + √5)/2                                       (1)
        z_{k+1} = P_Z[z̄_k − τ_k G(z_k, θ_k)]                                                        (2)

    with z̄_{−1} = z_0. G monotone and L-Lipschitz, τ ≤ φ/(2L); the average has gap O(1/K), the last iterate
    converges, linearly under an error bound. One evaluation, one projection.

    Example:
        >>> import viceversa as vv
        >>> vv.GoldenRatio(step_size=0.1).step_counts.F
        1
    """

    reference: ClassVar[str] = "malitsky2020golden, Sec. 2"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)

    step_size: Any
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, dual_ratio=1.0, learning_rate=None, learner=None):
        self.step_size = as_steps("GoldenRatio: step_size", step_size)
        self.dual_ratio = fraction("GoldenRatio: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning("GoldenRatio", learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> GoldenRatioState:
        z = Pair(x0, lam0)
        return GoldenRatioState(k=jnp.asarray(0), z=z, z_bar=z)

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: GoldenRatioState, key=None):
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        tau = self.step_size(state.k)
        z_bar = (1.0 / _PHI) * ((_PHI - 1.0) * state.z + state.z_bar)  # (1)
        z_next = Z.project(z_bar - tau * G(state.z))  # (2)
        next_state = GoldenRatioState(k=state.k + 1, z=z_next, z_bar=z_bar)
        return next_state, Info(step_size=tau, penalty=self.dual_ratio * tau)

    def output(self, state: GoldenRatioState) -> tuple[Array, Array]:
        return state.z.x, state.z.lam

    def ergodic(self, state: GoldenRatioState):
        return state.z.x, jnp.ones(())
