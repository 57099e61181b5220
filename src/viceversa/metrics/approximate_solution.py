"""The paper's measure of a point: the smallest ε for which it is an ε-approximate solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from viceversa import precision
from viceversa.errors import InputError
from viceversa.metrics.affine_gap import AffineGap
from viceversa.metrics.gap import checked_modulus, gap_at
from viceversa.metrics.intervals import EpsilonInterval, GapInterval
from viceversa.metrics.nonlinear_gap import IN_SET
from viceversa.metrics.residuals import infeasibility
from viceversa.problem import MisspecifiedVI

MAX_ROUNDS = 60
AT_INFEASIBILITY = "the infeasibility of x, below which no ε is allowed"
BY_TANGENT = (
    "Gap_ε ≤ C + ε‖μ‖∞ for every ε (the certificate U(ŷ, μ) at one ε), which is at most ε from here on"
)
BY_CHORD = (
    "Gap_ε is concave in ε (F affine), above ε at the infeasibility of x and on the chord to the upper end"
)
BY_STAIRS = "Gap_ε does not decrease in ε: a value above ε rules out every ε up to that value"
NEVER = "none: the gap has no finite upper bound"


def epsilon(problem: MisspecifiedVI, x: Any, theta: Any = None, *, mu: Any = None) -> EpsilonInterval:
    """The smallest ε ≥ 1ᵀ[f(x, θ)]₊ with Gap_ε(x, θ) ≤ ε: the paper's ε-approximate solution, with one ε for both.

    An interval [lower, upper]: x is a certified `upper`-approximate solution, and is none for any ε < lower. For affine
    F, Gap_ε is concave in ε with slope ‖μ‖∞, so the ε that qualify are the infeasibility itself (perhaps) and all from
    some point on. Where a multiplier exceeds 1 even an exact solution qualifies for ε = 0 and then not again for small
    ε > 0: Gap_ε(x*) ≈ ε‖λ*‖∞. Measure f in units that make its multipliers less than 1 to compare points by this ε.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [4.0]), learning=vv.Known(1.0))
        >>> round(vv.epsilon(problem, [3.0]).upper, 6)
        1.0
    """
    x, theta = problem.check_x("x", x), problem.theta_or_known(theta)
    modulus = checked_modulus(mu)
    outside = float(problem.set.violation(x))
    if outside > IN_SET * (1.0 + np.abs(x).max(initial=0.0)):
        raise InputError(
            f"epsilon: x is outside the set by {outside:.3g}, and an ε-approximate solution is a point of it. Project x."
        )
    v = infeasibility(problem, x, theta)
    with precision.double():
        gap = gap_at(problem, theta, modulus)
        at = lambda e: gap(x, e)
        first = at(v)
        if first.upper <= v:
            return EpsilonInterval(v, v, AT_INFEASIBILITY, "Gap_ε ≤ ε at the infeasibility of x itself")
        upper, last = _by_tangents(at, v, first)
        concave = isinstance(gap, AffineGap)
        lower, lower_rule = _by_chord(v, first, upper, last) if concave else _by_stairs(at, v, first)
    return EpsilonInterval(min(lower, upper), upper, lower_rule, BY_TANGENT if np.isfinite(upper) else NEVER)


def _by_tangents(
    at: Callable[[float], GapInterval], v: float, first: GapInterval
) -> tuple[float, GapInterval]:
    """An ε with a certified Gap_ε ≤ ε, from the right: each certificate is a line above Gap_ε, its crossing the next ε."""
    upper, last = np.inf, first
    for _ in range(MAX_ROUNDS):
        tried = at(upper)
        slope = float(tried.multiplier.max(initial=0.0))
        constant = tried.upper - (upper * slope if slope > 0.0 else 0.0)
        if slope >= 1.0 or not np.isfinite(constant):
            break
        last, crossing = tried, max(v, constant / (1.0 - slope))
        done = upper - crossing <= 1e-13 * (1.0 + upper) if np.isfinite(upper) else False
        upper = min(upper, crossing)
        if done or upper == v:
            break
    return upper, last


def _by_chord(v: float, first: GapInterval, upper: float, last: GapInterval) -> tuple[float, str]:
    """Where the chord of the concave Gap_ε between ε = v and ε = upper crosses the diagonal."""
    above, below = first.lower - v, upper - last.lower
    if above <= 0.0:
        return v, AT_INFEASIBILITY
    if below <= 0.0:
        return upper, BY_CHORD
    if not np.isfinite(below):
        return v + above, BY_STAIRS
    return v + (upper - v) * above / (above + below), BY_CHORD


def _by_stairs(at: Callable[[float], GapInterval], v: float, first: GapInterval) -> tuple[float, str]:
    lower, gap = v, first
    for _ in range(MAX_ROUNDS):
        if gap.lower <= lower * (1.0 + 1e-10):
            break
        lower = gap.lower
        gap = at(lower)
    return lower, BY_STAIRS if lower > v else AT_INFEASIBILITY
