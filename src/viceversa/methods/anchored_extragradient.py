"""Extragradient pulled back to its start (Halpern-type anchoring): a rate for the last iterate."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.primal_dual import Pair, primal_dual
from viceversa.problem import MisspecifiedVI
from viceversa.steps import as_steps


class AnchoredState(eqx.Module):
    """k, z_k, the anchor z_0 and c_k, an element of the normal cone of Z at z_k."""

    k: Int[Array, ""]
    z: Pair
    anchor: Pair
    normal: Pair


class AnchoredExtragradient(Method):
    """Extra anchored gradient on z = (x, λ) with the Lagrangian's operator G and Z = X × R^J₊:

        a       = (z_0 − z_k)/(k + 1)                                                               (1)
        ẑ       = z_k − τ_k G(z_k, θ_k) − τ_k c_k + a                                               (2)
        v       = z_k − τ_k G(ẑ, θ_k) + a                                                           (3)
        z_{k+1} = P_Z[v],   c_{k+1} = (v − z_{k+1})/τ_k,   c_0 = 0                                  (4)

    G monotone and L-Lipschitz, τ ≤ 1/(√3 L) constant: the residual of the *last* iterate is O(1/k), against
    O(1/√k) for extragradient; learning must satisfy Σ k‖θ_k − θ*‖ < ∞. ẑ may leave Z, so F and f must be
    defined a little outside. Worst-case insurance: on sharp problems extragradient overtakes it.

    Example:
        >>> import viceversa as vv
        >>> vv.AnchoredExtragradient(step_size=0.1).step_counts.F
        2
    """

    reference: ClassVar[str] = "cai2022accelerated; yoon2021accelerated"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=2, f=2, pullback=2)

    step_size: Any
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, dual_ratio=1.0, learning_rate=None, learner=None):
        self.step_size = as_steps("AnchoredExtragradient: step_size", step_size)
        self.dual_ratio = fraction("AnchoredExtragradient: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning("AnchoredExtragradient", learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> AnchoredState:
        z = Pair(x0, lam0)
        return AnchoredState(k=jnp.asarray(0), z=z, anchor=z, normal=jax.tree.map(jnp.zeros_like, z))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: AnchoredState, key=None):
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        z, tau = state.z, self.step_size(state.k)
        a = (1.0 / (state.k + 1.0)) * (state.anchor - z)  # (1)
        z_hat = z - tau * G(z) - tau * state.normal + a  # (2)
        v = z - tau * G(z_hat) + a  # (3)
        z_next = Z.project(v)  # (4)
        normal = (1.0 / tau) * (v - z_next)
        next_state = AnchoredState(k=state.k + 1, z=z_next, anchor=state.anchor, normal=normal)
        return next_state, Info(step_size=tau, penalty=self.dual_ratio * tau)

    def output(self, state: AnchoredState) -> tuple[Array, Array]:
        return state.z.x, state.z.lam

    def ergodic(self, state: AnchoredState):
        return state.z.x, jnp.ones(())
