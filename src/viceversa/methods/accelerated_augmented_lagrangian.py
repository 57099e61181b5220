"""Algorithm 1 accelerated for strongly monotone F: growing penalties, O(1/K²)."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI


class AcceleratedState(eqx.Module):
    """k, x_k, λ_k, F(x_{k−1}, θ_{k−1}), ρ_k, ρ_{k−1} and t_{k−1}, the weight of x_k in the average."""

    k: Int[Array, ""]
    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    F_prev: Float[Array, "..."]
    rho: Float[Array, ""]
    rho_prev: Float[Array, ""]
    weight: Float[Array, ""]


class AcceleratedAugmentedLagrangian(Method):
    """Accelerated Algorithm 1 for μ-strongly monotone F and convex f; c₀ = `inverse_step`, C₁ = `curvature`:

        1/γ_k   = c₀ + C₁ρ_k,   t_k = ρ_k/ρ_0                                                       (1)
        x_{k+1} = P_X[x_k − γ_k (F_k + (t_{k−1}/t_k)(F_k − F_{k−1}) + Jf(x_k, θ_k)ᵀ[ρ_k f(x_k, θ_k) + λ_k]₊)]  (2)
        λ_{k+1} = [λ_k + ρ_k f(x_{k+1}, θ_k)]₊                                                      (3)
        ρ_{k+1} = ρ_k + 4μρ_k / (2C₁ρ_k + c₀ + √((2C₁ρ_k + c₀)² + 8C₁μρ_k))                         (4)
        x̄_K     = Σ_{k<K} t_k x_{k+1} / Σ_{k<K} t_k                                                 (5)

    F_k = F(x_k, θ_k); (4) is the root of t_k(1/γ_k + 2μ) = t_{k+1}/γ_{k+1}, so ρ_k grows like (μ/C₁)k. With
    c₀ ≥ 2L_{F,x} + C₂(‖λ*‖ + sup‖λ_k‖), C₁ ≥ √J L_∇f D_f + M_∇f² and Σ t_k‖θ_k − θ*‖ < ∞, the gap and the infeasibility of
    (5) are O(1/K²). The last iterate is only O(1/K): for many digits of it take plain Algorithm 1, which is
    linear. A small ρ_0 is best (it grows by itself). Derived for this package; Algorithm 1 is the paper's.

    Example:
        >>> import viceversa as vv
        >>> vv.AcceleratedAugmentedLagrangian(mu=1.0, inverse_step=8.0, curvature=2.0, penalty=1e-3).step_counts.F
        1
    """

    reference: ClassVar[str] = "dey2026misspecified, Alg. 1, accelerated"
    init_counts: ClassVar[OracleCounts] = OracleCounts(F=1)
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=2, pullback=1)

    mu: np.ndarray
    inverse_step: np.ndarray
    curvature: np.ndarray
    penalty: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, mu, inverse_step, curvature, penalty=1e-3, learning_rate=None, learner=None):
        name = "AcceleratedAugmentedLagrangian"
        self.mu = fraction(f"{name}: mu", mu, 0.0, np.inf)
        self.inverse_step = fraction(f"{name}: inverse_step", inverse_step, 0.0, np.inf)
        self.curvature = fraction(f"{name}: curvature", curvature, 0.0, np.inf)
        self.penalty = fraction(f"{name}: penalty", penalty, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning(name, learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> AcceleratedState:
        rho = jnp.asarray(self.penalty)
        F_prev = problem.at(theta).F(x0)
        return AcceleratedState(jnp.asarray(0), x0, lam0, F_prev, rho, rho, jnp.ones(()))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: AcceleratedState, key=None):
        F, f, X = problem.at(theta)
        rho, mu, C1, c0 = state.rho, self.mu, self.curvature, self.inverse_step
        gamma = 1.0 / (rho * C1 + c0)  # (1)
        F_x = F(state.x)
        f_x, pullback = f.vjp(state.x)
        reflected = (state.rho_prev / rho) * (F_x - state.F_prev)
        x_next = X.project(
            state.x - gamma * (F_x + reflected + pullback(positive_part(rho * f_x + state.lam)))
        )  # (2)
        lam_next = positive_part(state.lam + rho * f(x_next))  # (3)
        b = 2.0 * C1 * rho + c0
        rho_next = rho + 4.0 * mu * rho / (b + jnp.sqrt(b * b + 8.0 * C1 * mu * rho))  # (4)
        weight = rho / self.penalty
        next_state = AcceleratedState(state.k + 1, x_next, lam_next, F_x, rho_next, rho, weight)
        return next_state, Info(step_size=gamma, penalty=rho)

    def output(self, state: AcceleratedState) -> tuple[Array, Array]:
        return state.x, state.lam

    def ergodic(self, state: AcceleratedState):
        return state.x, state.weight  # (5)
