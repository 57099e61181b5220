"""Step sizes that satisfy the theorem's conditions, and which constant made them small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from viceversa.constants.compute import constants as compute_constants
from viceversa.constants.ingredients import Ingredients, dual_radius, ingredients, printed_dual_radius
from viceversa.constants.table import Constants
from viceversa.errors import InputError
from viceversa.problem import MisspecifiedVI

TITLES: dict[str, str] = {"corrected": "proved (corrected analysis)", "paper": "as printed, not proved"}
_BALANCE = 0.2  # ρC₁ as a fraction of 2L_{F,x}: in the middle of the range that works well (THEORY.md B.7)


@dataclass(frozen=True)
class TheorySteps:
    """γ, ρ and η, the parts of 1/γ, and the one that made γ small.

    corrected:  1/γ = ρC₁ + C₂(‖λ*‖ + D_Λ) + 2L_{F,x},  any ρ > 0                          (1)
    paper:      1/γ = ρC₁ + C₂(‖λ*‖ + D_Λ) + 2L_{F,x} + L_{F,θ},  ρ = 1/L^Φ_λθ             (2)
    """

    version: str
    step_size: float
    penalty: float
    learning_rate: float
    parts: dict[str, float]
    dual_radius: float | None
    given: Ingredients | None
    constants: Constants

    @property
    def title(self) -> str:
        """What kind of statement these steps are."""
        return TITLES[self.version]

    @property
    def limiting_constant(self) -> str:
        """The part of 1/γ that is largest."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def learner_steps(self) -> int:
        """How many learning steps the bound on ‖λ*‖ needed first (0 when it was not needed)."""
        return 0 if self.given is None else self.given.multiplier.learner_steps

    def __str__(self) -> str:
        total = sum(self.parts.values()) or 1.0
        rows = [
            f"Steps from theory, {self.title}",
            f"γ = {self.step_size:.6g}, ρ = {self.penalty:.6g}, η = {self.learning_rate:.6g}",
            f"1/γ = {total:.6g} = "
            + " + ".join(f"{name} ({value:.4g})" for name, value in self.parts.items()),
            f"{self.limiting_constant} made γ small: {self.parts[self.limiting_constant] / total:.0%} of 1/γ",
        ]
        if self.given is not None:
            bound = self.given.multiplier
            rows.append(f"‖λ*‖ ≤ {bound.value:.4g} ({bound.how}); D_Λ = {self.dual_radius:.4g}")
        return "\n".join(rows)


def theory_steps(
    problem: MisspecifiedVI,
    version: str = "corrected",
    *,
    penalty: float | None = None,
    learning_rate: float | None = None,
    x0: Any = None,
    theta0: Any = None,
    multiplier_norm: float | None = None,
    declared: Mapping[str, float] | None = None,
    constants: Constants | None = None,
) -> TheorySteps:
    """ρ, γ and η of Algorithm 1 that satisfy the theorem's conditions for this problem.

    `penalty` is free in the corrected analysis; left out, ρC₁ = 0.2 · 2L_{F,x}. ‖λ*‖ enters only where f is curved in x
    (C₂ > 0); it is then bounded by Slater's condition, or by `multiplier_norm` if you can prove one.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [4.0]), learning=vv.Known(2.0),
        ...                             constraints=lambda x, t: x - 1.0)
        >>> steps = vv.theory_steps(problem)
        >>> round(1 / steps.step_size, 6), round(steps.penalty, 6), steps.limiting_constant
        (2.4, 0.4, '2L_F,x')
    """
    check_version(version)
    c = compute_constants(problem, declared) if constants is None else constants
    if version == "paper":
        return _printed(problem, c, penalty, learning_rate, x0, theta0, multiplier_norm)
    c.require_bounds("step sizes from theory", "L_F_x", "C1", "C2")
    rho = _balanced(c) if penalty is None else _positive("penalty", penalty)
    parts = {"ρC₁": rho * float(c.C1), "2L_F,x": 2.0 * float(c.L_F_x)}
    given, radius = None, None
    if float(c.C2) > 0.0:
        c.require_bounds("step sizes from theory", "L_F_theta", "ell", "D_X", "L_H", "mu_H")
        given = ingredients(
            problem, c, x0=x0, theta0=theta0, learning_rate=learning_rate, multiplier_norm=multiplier_norm
        )
        radius = dual_radius(c, given, rho)
        parts["C₂(‖λ*‖ + D_Λ)"] = float(c.C2) * (given.multiplier.value + radius)
    return _steps("corrected", problem, parts, rho, learning_rate, radius, given, c)


def _printed(problem, c: Constants, penalty, learning_rate, x0, theta0, multiplier_norm) -> TheorySteps:
    c.require_bounds("the paper's step sizes", "L_F_x", "L_F_theta", "C1_paper", "C2", "L_Phi_lambda_theta")
    limit = float(c.L_Phi_lambda_theta)
    if penalty is None and not limit > 0.0:
        raise InputError(
            "version='paper': ρ = 1/L^Φ_λθ is not defined, because the constraints do not depend on θ (or there are none). "
            "Use version='corrected', or give penalty."
        )
    rho = 1.0 / limit if penalty is None else _positive("penalty", penalty)
    parts = {"ρC₁": rho * float(c.C1_paper), "2L_F,x": 2.0 * float(c.L_F_x), "L_F,θ": float(c.L_F_theta)}
    given, radius = None, None
    if float(c.C2) > 0.0:
        c.require_bounds("the paper's step sizes", "C3", "C4", "D_f", "D_X", "D_Theta", "L_H", "mu_H")
        given = ingredients(
            problem, c, x0=x0, theta0=theta0, learning_rate=learning_rate, multiplier_norm=multiplier_norm
        )
        radius = printed_dual_radius(c, given, float(c.D_Theta), rho, problem.n_constraints)
        parts["C₂(‖λ*‖ + D_Λ)"] = float(c.C2) * (given.multiplier.value + radius)
    return _steps("paper", problem, parts, rho, learning_rate, radius, given, c)


def _steps(version: str, problem, parts, rho, learning_rate, radius, given, c: Constants) -> TheorySteps:
    eta = (
        problem.learning.default_rate()
        if learning_rate is None
        else _positive("learning_rate", learning_rate)
    )
    total = sum(parts.values())
    # A constant F without constraints allows every step.
    gamma = 1.0 / total if total > 0.0 else 1.0
    return TheorySteps(version, gamma, rho, float(eta), parts, radius, given, c)


def _balanced(c: Constants) -> float:
    """ρ with ρC₁ = 0.2 · 2L_{F,x}; where one of them is 0 there is nothing to balance, and ρ = 1 (in units of 1/C₁)."""
    C1, L = float(c.C1), float(c.L_F_x)
    if C1 > 0.0 and L > 0.0:
        return _BALANCE * 2.0 * L / C1
    return 1.0 / C1 if C1 > 0.0 else 1.0


def check_version(version: str) -> None:
    """Refuse a version that does not exist."""
    if version not in TITLES:
        raise InputError(f"version is {version!r}; 'corrected' or 'paper' is needed.")


def _positive(name: str, value: Any) -> float:
    if not (value is not None and float(value) > 0.0 and float(value) < float("inf")):
        raise InputError(f"{name} is {value}; one positive finite number is needed.")
    return float(value)
