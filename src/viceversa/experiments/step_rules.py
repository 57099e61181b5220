"""Step sizes of the three methods: (a) the paper's theory, (b) the corrected theory, (c) candidates for tuning.

What a rule may use is `Moduli`, the constants of an instance over all of X and Θ (never the truth θ*).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from viceversa.errors import InputError
from viceversa.experiments.curves import EXTRAGRADIENT, OURS, TIKHONOV
from viceversa.methods import AugmentedLagrangian, ExtragradientLagrangian, TikhonovLagrangian
from viceversa.steps import Power

RULES = {"paper": "(a) the paper's theory", "corrected": "(b) the corrected theory", "tuned": "(c) tuned"}

INSIDE = 0.99  # the theorems' intervals are open: how far inside them a step is taken
# Of 1/step, what rule (b) leaves to the constraints: ρC₁ = ½L_F. Theory leaves it free, and the margin of the verdicts
# depends on it (docs/reproduction.md has the range).
SHARE = 0.2
# Tikhonov's exponents: 0 < β < α and α + β < 1 make γ_k = γ₀(k+1)^−α, ε_k = ε₀(k+1)^−β converge.
ALPHA, BETA = 0.5, 0.45


class Moduli(NamedTuple):
    """Constants of F and f over X × Θ, under the paper's names."""

    L_F: float  # L_{F,x}
    L_F_theta: float  # L_{F,θ}
    L_f: float  # L_{f,x}, of one f_j
    L_f_theta: float  # L_{f,θ}, of one f_j
    M: float  # M_∇f = sup ‖Jf‖
    n_constraints: int  # J
    n_players: int  # N


@dataclass(frozen=True)
class Steps:
    """The step sizes of one run, by their columns in the table; nan where the method has no such number."""

    method: str
    step_size: float
    step_exponent: float = 0.0
    penalty: float = np.nan
    dual_ratio: float = np.nan
    regularization: float = np.nan
    regularization_exponent: float = np.nan
    multipliers: str = "shared"

    def build(self, learning_rate: float) -> Any:
        """The method with these steps; every field is an array leaf, so other numbers do not recompile."""
        if self.method == OURS:
            return AugmentedLagrangian(self.step_size, self.penalty, learning_rate=learning_rate)
        options = {"multipliers": self.multipliers, "learning_rate": learning_rate}
        if self.method == EXTRAGRADIENT:
            return ExtragradientLagrangian(self.step_size, self.dual_ratio, **options)
        if self.method == TIKHONOV:
            gamma = Power(self.step_size, self.step_exponent)
            eps = Power(self.regularization, self.regularization_exponent)
            return TikhonovLagrangian(gamma, eps, self.dual_ratio, **options)
        raise InputError(f"method is {self.method!r}; one of {OURS}, {TIKHONOV}, {EXTRAGRADIENT} is needed.")


def paper_steps(method: str, m: Moduli, multipliers: str = "shared") -> Steps:
    """Rule (a), as printed. f is affine in x, so C₂ = 0 and D_Λ drops out:

        ALM       ρ = 1/L^Φ_{λθ},  L^Φ_{λθ} = √J L_{f,θ},  γ < 1/(ρC₁ + 2L_{F,x} + L_{F,θ}),  C₁ = √J L_{f,x} M_∇f     (1)
        EG        τ < 1/L_G,  L_G = L_{F,x} + M_∇f                                                                   (2)
        Tikhonov  γ_k = γ₀(k+1)^−α, ε_k = (k+1)^−β,  γ₀ = 1/(L_G + 1)²                                                (3)

    (3): constant steps, which the paper says it used, cannot converge here, so the schedule is the one its
    reference proves, with γ_k ≤ ε_k/(L_G + ε_k)² from the first iteration on. One multiplier per player
    repeats f N times: the block of the operator below the diagonal grows to √N M_∇f.
    """
    root_J = np.sqrt(m.n_constraints)
    below = m.M * (np.sqrt(m.n_players) if multipliers == "per_player" else 1.0)
    L_G = m.L_F + below
    if method == OURS:
        rho = 1.0 / (root_J * m.L_f_theta)
        C1 = root_J * m.L_f * m.M
        return Steps(method, INSIDE / (rho * C1 + 2 * m.L_F + m.L_F_theta), penalty=rho)  # (1)
    if method == EXTRAGRADIENT:
        return Steps(method, INSIDE / L_G, dual_ratio=1.0, multipliers=multipliers)  # (2)
    return _tikhonov(1.0 / (L_G + 1.0) ** 2, 1.0, 1.0, multipliers=multipliers)  # (3)


def constant_tikhonov_steps(m: Moduli) -> Steps:
    """Tikhonov with constant γ and ε, the paper's words taken literally: ε = 1, γ = ε/(L_G + ε)²."""
    return _tikhonov(1.0 / (m.L_F + m.M + 1.0) ** 2, 1.0, 1.0, exponents=(0.0, 0.0))


def corrected_steps(method: str, m: Moduli) -> Steps:
    """Rule (b): ρ is free, L_{F,θ} leaves the step size, and the dual steps get a share s of 1/step:

    ALM       γ = 1/(ρC₁ + 2L_{F,x}),  C₁ = M_∇f²,  ρC₁ = s/(1−s)·2L_{F,x}                                       (1)
    EG        τ < 1/(L_{F,x} + √ω M_∇f),  √ω M_∇f = s/(1−s)·L_{F,x}                                              (2)
    Tikhonov  as in rule (a) with ε₀ = L_G, which makes the provable γ₀ = ε₀/(L_G + ε₀)² largest                    (3)
    """
    return _shared_steps(method, m, SHARE, 1.0) if method != TIKHONOV else _best_provable_tikhonov(m)


def candidates(method: str, m: Moduli) -> list[Steps]:
    """Rule (c)'s candidates, sixteen for every method: steps beyond what is proved, and how they are shared.

    ALM and EG: step = scale × rule (b)'s with share s. Tikhonov: γ₀ = scale/L_G, its ε₀ and its dual ratio.
    """
    if method == TIKHONOV:
        grid = itertools.product((3.0, 10.0, 30.0, 100.0), (0.01, 0.1), (10.0, 30.0))
        return [_tikhonov(scale / (m.L_F + m.M), eps, ratio) for scale, eps, ratio in grid]
    grid = itertools.product((2.0, 2.5, 3.0, 4.0), (0.1, 0.2, 0.4, 0.6))
    return [_shared_steps(method, m, share, scale) for scale, share in grid]


def _shared_steps(method: str, m: Moduli, share: float, scale: float) -> Steps:
    if method == OURS:
        rho = share / (1 - share) * 2 * m.L_F / m.M**2
        return Steps(method, scale * (1 - share) / (2 * m.L_F), penalty=rho)  # (1)
    ratio = (share / (1 - share) * m.L_F / m.M) ** 2
    return Steps(method, scale * INSIDE * (1 - share) / m.L_F, dual_ratio=ratio)  # (2)


def _best_provable_tikhonov(m: Moduli) -> Steps:
    L_G = m.L_F + m.M
    return _tikhonov(1.0 / (4.0 * L_G), L_G, 1.0)  # (3)


def _tikhonov(gamma, eps, ratio, exponents=(ALPHA, BETA), multipliers="shared") -> Steps:
    alpha, beta = exponents
    return Steps(
        TIKHONOV,
        step_size=gamma,
        step_exponent=alpha,
        dual_ratio=ratio,
        regularization=eps,
        regularization_exponent=beta,
        multipliers=multipliers,
    )
