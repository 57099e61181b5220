"""Tseng's forward–backward–forward splitting: two evaluations, one projection."""

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


class TsengState(eqx.Module):
    """k, z_k (which may lie outside Z) and the last point y inside Z."""

    k: Int[Array, ""]
    z: Pair
    y: Pair


class TsengForwardBackwardForward(Method):
    """Tseng's method on z = (x, λ) with the Lagrangian's operator G and Z = X × R^J₊:

        y_k     = P_Z[z_k − τ_k G(z_k, θ_k)]                                                        (1)
        z_{k+1} = y_k − τ_k (G(y_k, θ_k) − G(z_k, θ_k))                                             (2)

    G monotone and L-Lipschitz, τ < 1/L. z_k may leave Z, so F and f must be defined (and G monotone) a little
    outside; the answer is y_k, which is inside. The average of the y_k has gap O(1/K), y_k converges.

    Example:
        >>> import viceversa as vv
        >>> vv.TsengForwardBackwardForward(step_size=0.1).step_counts.F
        2
    """

    reference: ClassVar[str] = "tseng2000modified"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=2, f=2, pullback=2)

    step_size: Any
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, dual_ratio=1.0, learning_rate=None, learner=None):
        name = "TsengForwardBackwardForward"
        self.step_size = as_steps(f"{name}: step_size", step_size)
        self.dual_ratio = fraction(f"{name}: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning(name, learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> TsengState:
        z = Pair(x0, lam0)
        return TsengState(k=jnp.asarray(0), z=z, y=z)

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: TsengState, key=None):
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        tau = self.step_size(state.k)
        G_z = G(state.z)
        y = Z.project(state.z - tau * G_z)  # (1)
        z_next = y - tau * (G(y) - G_z)  # (2)
        return TsengState(k=state.k + 1, z=z_next, y=y), Info(step_size=tau, penalty=self.dual_ratio * tau)

    def output(self, state: TsengState) -> tuple[Array, Array]:
        return state.y.x, state.y.lam

    def ergodic(self, state: TsengState):
        return state.y.x, jnp.ones(())
