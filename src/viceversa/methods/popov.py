"""Popov's method, also known as optimistic gradient descent–ascent: extragradient with one evaluation."""

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


class PopovState(eqx.Module):
    """k, z_k, the extrapolated point y_k and G(y_k, θ_{k−1})."""

    k: Int[Array, ""]
    z: Pair
    y: Pair
    G_y: Pair


class Popov(Method):
    """Popov's (optimistic) method on z = (x, λ) with the Lagrangian's operator G and Z = X × R^J₊:

        y_{k+1} = P_Z[z_k − τ_k G(y_k, θ_{k−1})]                                                    (1)
        z_{k+1} = P_Z[z_k − τ_k G(y_{k+1}, θ_k)]                                                    (2)

    with y_0 = z_0 and θ_{−1} = θ_0. (1) reuses the last evaluation, old θ included, so a step costs one. G monotone and
    L-Lipschitz, τ < 1/(3L) (1/(2L) without X); the average of the y_k has gap O(1/K), the last iterate converges.

    Example:
        >>> import viceversa as vv
        >>> vv.Popov(step_size=0.1).step_counts.F
        1
    """

    reference: ClassVar[str] = "popov1980modification"
    init_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)

    step_size: Any
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, dual_ratio=1.0, learning_rate=None, learner=None):
        self.step_size = as_steps("Popov: step_size", step_size)
        self.dual_ratio = fraction("Popov: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning("Popov", learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> PopovState:
        G, _ = primal_dual(problem, theta, self.dual_ratio)
        z = Pair(x0, lam0)
        return PopovState(k=jnp.asarray(0), z=z, y=z, G_y=G(z))  # y_0 = z_0

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: PopovState, key=None):
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        tau = self.step_size(state.k)
        y_next = Z.project(state.z - tau * state.G_y)  # (1)
        G_next = G(y_next)
        z_next = Z.project(state.z - tau * G_next)  # (2)
        next_state = PopovState(k=state.k + 1, z=z_next, y=y_next, G_y=G_next)
        return next_state, Info(step_size=tau, penalty=self.dual_ratio * tau)

    def output(self, state: PopovState) -> tuple[Array, Array]:
        return state.z.x, state.z.lam

    def ergodic(self, state: PopovState):
        return state.y.x, jnp.ones(())
