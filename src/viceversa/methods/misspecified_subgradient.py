"""The misspecified (sub)gradient method for convex optimization, nonsmooth objectives included."""

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
from viceversa.symmetry import require_gradient


class SubgradientState(eqx.Module):
    """k, z_k = (x_k, λ_k), z_{k−1}, and γ_{k−1}, the weight of z_{k−1} in the average."""

    k: Int[Array, ""]
    z: Pair
    z_prev: Pair
    gamma_prev: Float[Array, ""]


class MisspecifiedSubgradient(Method):
    """Projected subgradient for min φ(·, θ*) over X, f ≤ 0; F(x, θ) ∈ ∂φ(x, θ), on z = (x, λ) as a saddle point:

        x_{k+1} = P_X[x_k − γ_k (F(x_k, θ_k) + Jf(x_k, θ_k)ᵀ λ_k)]                                  (1)
        λ_{k+1} = [λ_k + ωγ_k f(x_k, θ_k)]₊                                                         (2)
        x̄_K     = Σ_{k<K} γ_k x_k / Σ_{k<K} γ_k                                                     (3)

    φ convex with bounded subgradients, γ_k = γ_0 (k + 1)^−½: the value at (3) is within O(log K/√K) of the optimum,
    and O(1/√K) for constant γ ~ 1/√K; learning adds only a term of the order of Σ ‖θ_k − θ*‖/K. No smoothness
    is needed. F must be a (sub)gradient: an F whose Jacobian is not symmetric is refused.

    Example:
        >>> import viceversa as vv
        >>> vv.MisspecifiedSubgradient(step_size=vv.steps.Power(0.5, 0.5)).step_counts.F
        1
    """

    reference: ClassVar[str] = "ahmadi2020resolution; nedic2009subgradient"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)

    step_size: Any
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, dual_ratio=1.0, learning_rate=None, learner=None):
        self.step_size = as_steps("MisspecifiedSubgradient: step_size", step_size)
        self.dual_ratio = fraction("MisspecifiedSubgradient: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning("MisspecifiedSubgradient", learner, learning_rate)

    def check(self, problem: MisspecifiedVI) -> None:
        require_gradient("MisspecifiedSubgradient", problem)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> SubgradientState:
        z, k = Pair(x0, lam0), jnp.asarray(0)
        return SubgradientState(k=k, z=z, z_prev=z, gamma_prev=self.step_size(k))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: SubgradientState, key=None):
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        gamma = self.step_size(state.k)
        z_next = Z.project(state.z - gamma * G(state.z))  # (1), (2)
        next_state = SubgradientState(k=state.k + 1, z=z_next, z_prev=state.z, gamma_prev=gamma)
        return next_state, Info(step_size=gamma, penalty=gamma * self.dual_ratio)

    def output(self, state: SubgradientState) -> tuple[Array, Array]:
        return state.z.x, state.z.lam

    def ergodic(self, state: SubgradientState):
        return state.z_prev.x, state.gamma_prev  # (3)
