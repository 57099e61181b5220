"""The projection method: one step against the operator, the oldest VI method and the least robust one."""

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


class ProjectionState(eqx.Module):
    """k and z_k = (x_k, λ_k)."""

    k: Int[Array, ""]
    z: Pair


class ProjectionMethod(Method):
    """Projected gradient for VIs, on z = (x, λ) with the Lagrangian's operator G and Z = X × R^J₊:

        z_{k+1} = P_Z[z_k − τ_k G(z_k, θ_k)]                                                        (1)

    Linear for strongly monotone, Lipschitz G and 0 < τ < 2μ/L²; convergent for cocoercive G and τ < 2/L. On a
    merely monotone operator it need not converge: on a rotation every step moves away from the solution, and
    so it does in λ as soon as f ≤ 0 is present. (The learner of the same step is `vv.ProjectedGradient`.)

    Example:
        >>> import viceversa as vv
        >>> vv.ProjectionMethod(step_size=0.1).step_counts.F
        1
    """

    reference: ClassVar[str] = "facchinei2003finite, Alg. 12.1.1"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)

    step_size: Any
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, dual_ratio=1.0, learning_rate=None, learner=None):
        self.step_size = as_steps("ProjectionMethod: step_size", step_size)
        self.dual_ratio = fraction("ProjectionMethod: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning("ProjectionMethod", learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> ProjectionState:
        return ProjectionState(k=jnp.asarray(0), z=Pair(x0, lam0))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: ProjectionState, key=None):
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        tau = self.step_size(state.k)
        z_next = Z.project(state.z - tau * G(state.z))  # (1)
        return ProjectionState(k=state.k + 1, z=z_next), Info(step_size=tau, penalty=self.dual_ratio * tau)

    def output(self, state: ProjectionState) -> tuple[Array, Array]:
        return state.z.x, state.z.lam

    def ergodic(self, state: ProjectionState):
        return state.z.x, jnp.ones(())
