"""The gap of the paper between two proved bounds: over X(θ), and over its ε-enlargement X_ε(θ)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from viceversa import functions, precision
from viceversa.errors import InputError
from viceversa.metrics.certified_maximum import TIGHT, CertifiedMaximiser
from viceversa.metrics.concave_program import Bounds
from viceversa.metrics.intervals import GapInterval, GapIntervals
from viceversa.metrics.objectives import Minty
from viceversa.metrics.residuals import infeasibility, known_theta
from viceversa.problem import MisspecifiedVI

AT_A_POINT = "F(y)ᵀ(x − y) at a point y of X_ε, which is `point`"
BY_CERTIFICATE = (
    "the certificate U(ŷ, μ) = ε‖μ‖∞ + h(ŷ) + max over X of ∇h(ŷ)ᵀ(y − ŷ), h = F(y)ᵀ(x − y) − μᵀf(y): F is affine in x "
    "(proved from its program), monotone and f convex (assumed)"
)
UNBOUNDED = "none: X is unbounded, so the certificate (and possibly the gap) is infinite"
NO_POINT = "none: no point of X_ε was found"
EMPTY = "X_ε is empty (proved: some μ ≥ 0 has μᵀf > ε‖μ‖∞ on all of X), and a supremum over nothing is −∞"


def minty_gap(problem: MisspecifiedVI, x: Any, theta: Any = None, *, mu: float | None = None) -> GapInterval:
    """Gap(x, θ) = max { F(y, θ)ᵀ(x − y) : y ∈ X, f(y, θ) ≤ 0 }, as an interval.

    Negative values are possible at an infeasible x. `mu` is a *proved* modulus of strong monotonicity of F(·, θ) on X.
    """
    return relaxed_gap(problem, x, 0.0, theta, mu=mu)


def relaxed_gap(
    problem: MisspecifiedVI,
    x: Any,
    epsilon: float | None = None,
    theta: Any = None,
    *,
    mu: float | None = None,
) -> GapInterval:
    """Gap_ε(x, θ) = max { F(y, θ)ᵀ(x − y) : y ∈ X, 1ᵀ[f(y, θ)]₊ ≤ ε }, as an interval.

    `epsilon` left out is the infeasibility of x itself, the least for which the gap cannot be negative. `theta` may be
    left out when it is known. `mu` is a *proved* modulus of strong monotonicity of F(·, θ) on X; it tightens the upper
    side, and makes it finite on an unbounded X.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [4.0]), learning=vv.Known(1.0))
        >>> round(vv.relaxed_gap(problem, [3.0], 0.0).upper, 6)  # max (y − 1)(3 − y), at y = 2
        1.0
    """
    x = problem.check_x("x", x)
    epsilons = None if epsilon is None else [epsilon]
    return relaxed_gaps(problem, x[None], epsilons, theta, mu=mu)[0]


def relaxed_gaps(
    problem: MisspecifiedVI, xs: Any, epsilons: Any = None, theta: Any = None, *, mu: float | None = None
) -> GapIntervals:
    """`relaxed_gap` for a stack of points, each started where the one before ended; one ε each, or one for all."""
    points = [problem.check_x(f"xs[{i}]", x) for i, x in enumerate(xs)]
    theta = known_theta(problem, theta)
    epsilons = _checked_epsilons(problem, points, epsilons, theta)
    modulus = _checked_modulus(mu)
    with precision.double():
        theta = jax.tree.map(jnp.asarray, theta)
        if not points:
            return GapIntervals(())
        if not _is_affine(problem, theta):
            raise InputError("relaxed_gap: F is not affine in x.")
        return GapIntervals(tuple(_affine_gaps(problem, points, epsilons, theta, modulus)))


def _affine_gaps(
    problem: MisspecifiedVI, points: list[np.ndarray], epsilons: np.ndarray, theta: PyTree, modulus: float
) -> list[GapInterval]:
    objective = lambda x: Minty(problem.operator, theta, jnp.asarray(x))
    maximiser = CertifiedMaximiser(problem, theta, objective(points[0]), modulus)
    intervals = []
    for x, epsilon in zip(points, epsilons, strict=True):
        bounds = maximiser(objective(x), epsilon)
        empty = not np.isfinite(bounds.lower) and maximiser.is_empty(objective(x), epsilon)
        intervals.append(_interval(bounds, BY_CERTIFICATE, problem.set.bounded or modulus > 0.0, empty))
    return intervals


def _interval(bounds: Bounds, upper_rule: str, finite: bool, empty: bool) -> GapInterval:
    lower, upper = float(bounds.lower), float(bounds.upper)
    lower_rule = AT_A_POINT if np.isfinite(lower) else NO_POINT
    if not finite:
        upper, upper_rule = np.inf, UNBOUNDED
    if empty:
        lower, upper, lower_rule, upper_rule = -np.inf, -np.inf, EMPTY, EMPTY
    # Both sides are computed with rounding; where they cross by it, the larger is the honest upper end.
    upper = max(lower, upper)
    return GapInterval(
        lower=lower,
        upper=upper,
        lower_rule=lower_rule,
        upper_rule=upper_rule,
        point=np.asarray(bounds.y_lower),
        multiplier=np.asarray(bounds.mu),
        exact=bool(lower == upper or upper - lower <= TIGHT * (1.0 + abs(upper))),
    )


def _is_affine(problem: MisspecifiedVI, theta: PyTree) -> bool:
    """Whether F(·, θ) is proved affine at this θ."""
    if isinstance(problem.operator, functions.Callback):
        return False
    return functions.is_affine_in(lambda x: problem.operator(x, theta), 0, np.zeros(problem.shape))


def _checked_epsilons(problem: MisspecifiedVI, points: list, epsilons: Any, theta: PyTree) -> np.ndarray:
    if epsilons is None:
        return np.array([infeasibility(problem, x, theta) for x in points])
    given = precision.as_float64("epsilon", epsilons)
    if given.shape not in ((), (1,), (len(points),)):
        raise InputError(
            f"epsilons has shape {given.shape}; one number, or one for each of the {len(points)} points, is needed."
        )
    if (given < 0.0).any():
        raise InputError(
            f"epsilon is {given.min():g}; it is the size of an enlargement and cannot be negative."
        )
    return np.broadcast_to(given, (len(points),))


def _checked_modulus(mu: float | None) -> float:
    if mu is None:
        return 0.0
    modulus = precision.as_float64("mu", mu)
    if modulus.shape != () or not np.isfinite(modulus) or modulus < 0.0:
        raise InputError(f"mu is {mu}; one proved modulus of strong monotonicity, at least 0, is needed.")
    return float(modulus)
