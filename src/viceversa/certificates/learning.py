"""What not knowing θ* exactly can do: to the constraints and to the gap at a point (D.5)."""

from __future__ import annotations

import numpy as np

from viceversa.certificates.statements import Statement, refused
from viceversa.constants.table import Constant, Constants, derived
from viceversa.problem import MisspecifiedVI

_STRONG = "H is μ_H-strongly monotone and L_H-Lipschitz on Θ"


def learning_statements(
    problem: MisspecifiedVI, values: np.ndarray, error: float, constants: Constants
) -> tuple[Statement, ...]:
    """With â ≥ ‖θ − θ*‖ the certified `error` and f(x, θ) the `values`:

        1ᵀ[f(x, θ*)]₊ ≤ 1ᵀ[f(x, θ) + L_{f,θ} â]₊                                                     (1)
        Gap_ε(x, θ*) ≤ Gap_{ε'}(x, θ) + L_{F,θ} â D,   ε' = ε + J L_{f,θ} â                            (2)

    The lines are ‖θ − θ*‖, (1), what (2) adds to the gap, and what it adds to ε.
    """
    names = ("‖θ − θ*‖", "infeasibility 1ᵀ[f(x, θ*)]₊", "added to the gap", "added to ε of the gap")
    known = problem.learning.is_known
    learned = Constant(error, "exact" if known else problem.learning.provenance, "the bound on ‖θ − θ*‖")
    if not learned.is_bound:
        return tuple(refused(name, "μ_H and L_H") for name in names)
    because = () if known else (_STRONG,)
    how = (
        "θ is given"
        if known
        else "the smaller of 2(L_H/μ_H)‖θ − P_Θ(θ − H(θ)/L_H)‖ and, inside Θ, ‖H(θ)‖/μ_H"
    )
    first = Statement(names[0], error, how, because, learned.provenance)
    rate = constants.L_f_theta
    shift = derived(_times(rate.value, error), "L_{f,θ} â", learned, *([rate] if error > 0 else []))
    travel = _effect(error, constants.L_F_theta, constants.D_X)
    second = _line(
        names[1],
        derived(
            float(np.sum(np.maximum(values + shift.value, 0.0))), "1ᵀ[f(x, θ) + L_{f,θ} ‖θ − θ*‖]₊", shift
        ),
        because,
        L_f_theta=rate,
    )
    third = _line(names[2], travel, because, L_F_theta=constants.L_F_theta, D_X=constants.D_X)
    enlarged = derived(problem.n_constraints * shift.value, "J L_{f,θ} ‖θ − θ*‖", shift)
    return first, second, third, _line(names[3], enlarged, because, L_f_theta=rate)


def _effect(error: float, slope: Constant, diameter: Constant) -> Constant:
    sources = [slope, diameter] if error > 0 else []
    return derived(_times(_times(slope.value, diameter.value), error), "L_{F,θ} D ‖θ − θ*‖", *sources)


def _times(slope: float, error: float) -> float:
    return slope * error if error > 0 else 0.0  # an infinite constant multiplies no error


def _line(name: str, found: Constant, assumptions: tuple[str, ...], **needed: Constant) -> Statement:
    if not found.is_bound:
        return refused(name, *(key for key, constant in needed.items() if not constant.is_bound))
    if not np.isfinite(found.value):
        infinite = ", ".join(key for key, constant in needed.items() if not np.isfinite(constant.value))
        return Statement(name, None, f"{infinite or 'a constant'} is not finite; use bounded sets.")
    return Statement(name, found.value, found.how, assumptions, found.provenance)
