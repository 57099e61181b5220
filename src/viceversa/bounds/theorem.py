"""Theorem B as numbers: infeasibility and relaxed gap after K iterations, iterations for an accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from viceversa.constants.ingredients import Ingredients
from viceversa.constants.table import Constants
from viceversa.constants.theory_steps import TITLES
from viceversa.errors import InputError

_MAX_COUNTED = 5_000_000  # iterations of the accelerated weights that are counted one by one


@dataclass(frozen=True)
class Weights:
    """T_K = Σ t_k and Q_K = Σ t_k² of the average's weights: K and K for Algorithm 1, growing for the accelerated one."""

    total: Callable[[int], float]
    squares: Callable[[int], float]
    equal: bool = True


EQUAL = Weights(total=float, squares=float)


@dataclass(frozen=True)
class Bounds:
    """What the theorem says about the average of K iterations, x̄_K, at θ* (T = Σ t_k, which is K for Algorithm 1).

        1ᵀ[f(x̄_K, θ*)]₊ ≤ C_feas/T                                                                        (1)
        sup_{y ∈ X_ε} F(y, θ*)ᵀ(x̄_K − y) ≤ (D_Λ + ‖λ*‖)ε + (ρ/2)(Q/T)ε² + (C_gap + ρεℓS)/T   for every ε ≥ 0     (2)
        ‖λ_k − λ*‖ ≤ D_Λ for every k                                                                      (3)

    These bounds hold and are loose (by 10³ to 10⁴ on the paper's market): they are no prediction.
    """

    version: str
    method: str
    K: int
    step_size: float
    penalty: float
    learning_rate: float
    D_Lambda: float
    C_feas: float
    C_gap: float
    multiplier_size: float  # D_Λ + ‖λ*‖ ≥ ‖λ_k‖
    drift: float  # ρ ℓ S, the part of (2) that is linear in ε and divided by T
    distance_constant: float | None  # C_0/μ with ‖x̄_K − x*‖² ≤ C_0/(μT), where F is proved strongly monotone
    given: Ingredients
    constants: Constants
    weights: Weights = field(default=EQUAL, repr=False)

    @property
    def title(self) -> str:
        """What kind of statement this is."""
        return TITLES[self.version]

    @property
    def infeasibility(self) -> float:
        """(1): the bound on 1ᵀ[f(x̄_K, θ*)]₊."""
        return self._infeasibility(self.K)

    def relaxed_gap(self, eps: float | None = None) -> float:
        """(2) for a given ε ≥ 0; left out, the theorem's own ε_K = C_feas/T."""
        if eps is not None and not (np.isfinite(eps) and eps >= 0):
            raise InputError(f"relaxed_gap: eps is {eps}; a number >= 0 is needed.")
        return self._gap(self.K, self.infeasibility if eps is None else float(eps))

    @property
    def distance(self) -> float | None:
        """‖x̄_K − x*‖ ≤ √(C_0/(μT)), if F is proved strongly monotone."""
        if self.distance_constant is None:
            return None
        return float(np.sqrt(self.distance_constant / self.weights.total(self.K)))

    @property
    def learning_sums(self) -> dict[str, float]:
        """Σ‖θ_k − θ*‖, Σ‖θ_k − θ*‖² and Σ(k+2)²‖θ_k − θ*‖² from the linear rate."""
        sums = self.given.sums
        return {"S1": sums.S1, "S2": sums.S2, "S_weighted": sums.S_weighted}

    def iterations(self, eps: float) -> int:
        """The number of iterations after which infeasibility and relaxed gap (at ε_K) are both proved ≤ eps."""
        if not (np.isfinite(eps) and eps > 0):
            raise InputError(f"iterations: eps is {eps}; a positive number is needed.")
        enough = lambda K: self._infeasibility(K) <= eps and self._gap(K, self._infeasibility(K)) <= eps
        high = 1
        while not enough(high):
            high *= 2
            if not self.weights.equal and high > _MAX_COUNTED:
                raise InputError(
                    f"iterations: more than {_MAX_COUNTED} would be needed for eps = {eps:g}, which is not counted here."
                )
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def _infeasibility(self, K: int) -> float:
        return self.C_feas / self.weights.total(K)

    def _gap(self, K: int, eps: float) -> float:
        T, Q = self.weights.total(K), self.weights.squares(K)
        return (
            self.multiplier_size * eps
            + 0.5 * self.penalty * (Q / T) * eps**2
            + (self.C_gap + self.drift * eps) / T
        )

    def __str__(self) -> str:
        rows = [
            f"{self.method}, {self.title}: after K = {self.K} iterations the average satisfies",
            f"  infeasibility 1ᵀ[f]₊      ≤ {self.infeasibility:.4g}   (C_feas = {self.C_feas:.4g})",
            f"  relaxed gap at ε = 0      ≤ {self.relaxed_gap(0.0):.4g}",
            f"  relaxed gap at ε = C_feas/T ≤ {self.relaxed_gap():.4g}",
        ]
        if self.distance is not None:
            rows.append(f"  ‖x̄ − x*‖                  ≤ {self.distance:.4g}   (F strongly monotone)")
        rows.append(f"  every multiplier within D_Λ = {self.D_Lambda:.4g} of λ*")
        rows.append(f"with γ = {self.step_size:.4g}, ρ = {self.penalty:.4g}, η = {self.learning_rate:.4g}")
        rows += [f"  {name}: {words}" for name, words in self.given.words.items()]
        return "\n".join(rows)
