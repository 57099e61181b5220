"""What the theorem is evaluated with: distances at the start, learning sums, the size of λ*, and D_Λ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from viceversa import precision
from viceversa.constants.derivatives import bounding_box
from viceversa.constants.multiplier_bound import MultiplierBound, learning_error, multiplier_bound
from viceversa.constants.table import Constants
from viceversa.errors import InputError
from viceversa.learning import CoupledLearning
from viceversa.problem import MisspecifiedVI


@dataclass(frozen=True)
class LearningSums:
    """Sums of a_k = ‖θ_k − θ*‖ ≤ q^k a_0 over k ≥ 0, from the linear rate; S_1, S_2 and Σ(k+2)²a_k²."""

    a0: float
    q: float

    @property
    def S1(self) -> float:
        """Σ a_k ≤ a_0/(1 − q)."""
        return self.a0 / (1.0 - self.q)

    @property
    def S2(self) -> float:
        """Σ a_k² ≤ a_0²/(1 − q²)."""
        return self.a0**2 / (1.0 - self.q**2)

    @property
    def S_weighted(self) -> float:
        """Σ (k+2)² a_k² ≤ a_0² (4 − 3z + z²)/(1 − z)³, z = q²."""
        z = self.q**2
        return self.a0**2 * (4.0 - 3.0 * z + z * z) / (1.0 - z) ** 3

    def growing(self, kappa: float) -> tuple[float, float, float]:
        """(Σ t_k a_k, Σ t_k² a_k, Σ t_k² a_k²) for weights t_k ≤ 1 + κk."""

        def second(r: float) -> float:  # Σ (1 + κk)² r^k
            return (
                1.0 / (1.0 - r) + 2.0 * kappa * r / (1.0 - r) ** 2 + kappa**2 * r * (1.0 + r) / (1.0 - r) ** 3
            )

        first = 1.0 / (1.0 - self.q) + kappa * self.q / (1.0 - self.q) ** 2
        return self.a0 * first, self.a0 * second(self.q), self.a0**2 * second(self.q**2)


@dataclass(frozen=True)
class Ingredients:
    """‖x_0 − x*‖ ≤ `x_reach`, D = diam X, the learning sums and ‖λ*‖ ≤ `multiplier`; `words` say where each is from."""

    x_reach: float
    D: float
    sums: LearningSums
    multiplier: MultiplierBound
    learning_rate: float
    words: dict[str, str] = field(default_factory=dict)


def ingredients(
    problem: MisspecifiedVI,
    constants: Constants,
    *,
    x0: Any = None,
    theta0: Any = None,
    learning_rate: float | None = None,
    multiplier_norm: float | None = None,
    x_true: Any = None,
    theta_true: Any = None,
) -> Ingredients:
    """Everything but the steps; what is not given is bounded, never guessed from a solution."""
    if isinstance(problem.learning, CoupledLearning):
        raise InputError("the theorem does not cover coupled learning, where H depends on x.")
    constants.require_bounds("the theorem", "D_X", "L_H", "mu_H")
    x0, theta0 = start(problem, x0, theta0)
    rate = float(problem.learning.default_rate()) if learning_rate is None else float(learning_rate)
    q = 0.0 if problem.learning.is_known else problem.learning.contraction(rate)
    if not 0.0 <= q < 1.0:
        limit = "2/L_H" if problem.learning.is_gradient else "2μ_H/L_H²"
        raise InputError(
            f"learning_rate: with {rate:.6g} learning is not proved to contract (factor {q:.6g}). Take it below {limit}."
        )
    D = float(constants.D_X)
    words = {"D": "the diameter of X"}
    if x_true is None:
        lower, upper, _ = bounding_box(problem.set)
        x = x0.ravel()
        x_reach = min(D, float(np.linalg.norm(np.maximum(x - lower, upper - x))))
        words["‖x₀ − x*‖"] = "x* unknown: the farthest point of X from x₀"
    else:
        x_reach = float(np.linalg.norm(x0 - problem.check_x("x_true", x_true)))
        words["‖x₀ − x*‖"] = "from x_true"
    if theta_true is None:
        a0 = learning_error(problem, theta0)
        words["‖θ₀ − θ*‖"] = "θ* unknown: the residual of H at θ₀, or the diameter of Θ"
    else:
        given = jax.tree.leaves(problem.check_theta("theta_true", theta_true))
        a0 = float(
            np.sqrt(sum(np.sum((p - s) ** 2) for p, s in zip(given, jax.tree.leaves(theta0), strict=True)))
        )
        words["‖θ₀ − θ*‖"] = "from theta_true"
    if multiplier_norm is None:
        bound = multiplier_bound(problem, constants, theta0, rate)
    else:
        bound = MultiplierBound(float(multiplier_norm), "given")
    words["‖λ*‖"] = bound.how
    return Ingredients(x_reach, D, LearningSums(a0, q), bound, rate, words)


def start(problem: MisspecifiedVI, x0: Any, theta0: Any) -> tuple[np.ndarray, PyTree]:
    """(x_0, θ_0) as `solve` takes them: P_X(0) and P_Θ(0) where left out."""
    x = np.zeros(problem.shape) if x0 is None else problem.check_x("x0", x0)
    theta = problem.learning.set.zeros() if theta0 is None else problem.check_theta("theta0", theta0)
    with precision.double():
        return np.asarray(problem.set.project(x)), jax.tree.map(
            np.asarray, problem.learning.set.project(theta)
        )


def dual_radius(
    constants: Constants,
    given: Ingredients,
    rho: float,
    inverse_step: float | None = None,
    kappa: float = 0.0,
) -> float:
    """D_Λ with ‖λ_k − λ*‖ ≤ D_Λ for all k (THEORY.md B.3; B.5 for penalties growing like 1 + κk).

        D_Λ = (B + √(B² + 4A))/2                                                                     (1)
        B = 2ρℓS₁ + ρC₂‖x₀ − x*‖²                                                                    (2)
        A = ‖λ*‖² + ρ‖x₀ − x*‖²(ρC₁ + C₂‖λ*‖ + 2L_{F,x}) + 2ρ(3L_{F,θ}D + 2ℓ‖λ*‖)S₁ + ρ²ℓ²S₂           (3)

    (2) and (3) are for 1/γ = ρC₁ + C₂(‖λ*‖ + D_Λ) + 2L_{F,x}; for another 1/γ (`inverse_step`) the second term of (3)
    is (ρ/γ)‖x₀ − x*‖² and the C₂ term of (2) is absent.
    """
    c, size = constants, given.multiplier.value
    ell, S1, S2 = float(c.ell), *_sums(given, kappa)
    B = 2.0 * rho * ell * S1
    A = size**2 + 2.0 * rho * (3.0 * drift(c, given) + 2.0 * ell * size) * S1 + (rho * ell) ** 2 * S2
    if inverse_step is None:
        B += rho * float(c.C2) * given.x_reach**2
        A += rho * given.x_reach**2 * (rho * float(c.C1) + float(c.C2) * size + 2.0 * float(c.L_F_x))
    else:
        A += rho * inverse_step * given.x_reach**2
    return float(0.5 * (B + np.sqrt(B * B + 4.0 * A)))


def _sums(given: Ingredients, kappa: float) -> tuple[float, float]:
    if kappa == 0.0:
        return given.sums.S1, given.sums.S2
    first, _, second = given.sums.growing(kappa)
    return first, second


def drift(constants: Constants, given: Ingredients) -> float:
    """L_{F,θ} D, or 0 where nothing is learned (then it multiplies S₁ = 0)."""
    return float(constants.L_F_theta) * given.D if given.sums.a0 > 0 else 0.0


def printed_dual_radius(
    constants: Constants, given: Ingredients, D_Theta: float, rho: float, J: int
) -> float:
    """D_Λ = B + √A as the paper's Lemma 5 prints A and B, with D_X = diam X; not proved.

    The paper treats L^Φ_xθ = ρC₃ + (D_Λ + ‖λ*‖)C₄ as a constant although it holds D_Λ; here its D_Λ part is moved into
    B, where it is linear, so that the formula can be evaluated at all.
    """
    c, size, D, sums = constants, given.multiplier.value, given.D, given.sums
    root_J, L_Ft, L_ft = float(np.sqrt(J)), float(c.L_F_theta), float(c.L_f_theta)
    L_xt = rho * float(c.C3) + size * float(c.C4)
    B = 2.0 * rho * float(c.C2) * given.x_reach**2 + 8.0 * rho * root_J * L_ft * sums.S1
    B += 12.0 * rho * float(c.C4) * D * sums.S1
    curvature = rho * float(c.C1_paper) + size * float(c.C2) + 2.0 * float(c.L_F_x) + L_Ft
    per_error = L_Ft * D + 3.0 * L_xt * D + 2.0 * J * rho * float(c.D_f) * L_ft + 2.0 * root_J * L_ft * size
    A = 2.0 * size**2 + 2.0 * rho * given.x_reach**2 * curvature + 8.0 * rho * L_Ft * D_Theta**2
    A += (
        4.0
        * rho
        * (
            per_error * sums.S1
            + L_Ft * (D_Theta**2 + 2.0 * sums.S2)
            + 0.5 * float(c.L_Phi_lambda_theta) * sums.S_weighted
            + 0.5 * J * rho * L_ft**2 * sums.S2
        )
    )
    return float(B + np.sqrt(A))
