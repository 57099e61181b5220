"""Forward–reflected–backward splitting: one evaluation and one projection, with the reflected difference."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.primal_dual import Pair, primal_dual
from viceversa.problem import MisspecifiedVI
from viceversa.steps import as_steps


class ForwardReflectedBackwardState(eqx.Module):
    """k, z_k, G(z_{k−1}, θ_{k−1}) and τ_{k−1}."""

    k: Int[Array, ""]
    z: Pair
    G_prev: Pair
    tau_prev: Float[Array, ""]


class ForwardReflectedBackward(Method):
    """Forward–reflected–backward on z = (x, λ) with the Lagrangian's operator G and Z = X × R^J₊:

        z_{k+1} = P_Z[z_k − τ_k G_k − τ_{k−1} (G_k − G_{k−1})],   G_k = G(z_k, θ_k)                 (1)

    with G_{−1} = G_0. G monotone and L-Lipschitz, τ < 1/(2L); the average has gap O(1/K), the last iterate
    converges, linearly under an error bound. The old value keeps its old θ: its drift is summable.

    Example:
        >>> import viceversa as vv
        >>> vv.ForwardReflectedBackward(step_size=0.1).step_counts.F
        1
    """

    reference: ClassVar[str] = "malitsky2020forward, Alg. 1"
    init_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)

    step_size: Any
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, dual_ratio=1.0, learning_rate=None, learner=None):
        name = "ForwardReflectedBackward"
        self.step_size = as_steps(f"{name}: step_size", step_size)
        self.dual_ratio = fraction(f"{name}: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning(name, learner, learning_rate)

    def init(
        self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array
    ) -> ForwardReflectedBackwardState:
        G, _ = primal_dual(problem, theta, self.dual_ratio)
        z, k = Pair(x0, lam0), jnp.asarray(0)
        return ForwardReflectedBackwardState(k=k, z=z, G_prev=G(z), tau_prev=self.step_size(k))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: ForwardReflectedBackwardState, key=None):
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        tau = self.step_size(state.k)
        G_z = G(state.z)
        z_next = Z.project(state.z - tau * G_z - state.tau_prev * (G_z - state.G_prev))  # (1)
        next_state = ForwardReflectedBackwardState(k=state.k + 1, z=z_next, G_prev=G_z, tau_prev=tau)
        return next_state, Info(step_size=tau, penalty=self.dual_ratio * tau)

    def output(self, state: ForwardReflectedBackwardState) -> tuple[Array, Array]:
        return state.z.x, state.z.lam

    def ergodic(self, state: ForwardReflectedBackwardState):
        return state.z.x, jnp.ones(())
