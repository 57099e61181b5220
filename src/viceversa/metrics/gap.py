"""The gap of the paper between two proved bounds: over X(θ), and over its ε-enlargement X_ε(θ)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from viceversa import functions, precision
from viceversa.errors import InputError
from viceversa.metrics.affine_gap import AffineGap
from viceversa.metrics.intervals import GapInterval, GapIntervals
from viceversa.metrics.nonlinear_gap import NonlinearGap
from viceversa.metrics.residuals import infeasibilities
from viceversa.problem import MisspecifiedVI


def minty_gap(problem: MisspecifiedVI, x: Any, theta: Any = None, *, mu: Any = None) -> GapInterval:
    """Gap(x, θ) = max { F(y, θ)ᵀ(x − y) : y ∈ X, f(y, θ) ≤ 0 }, as an interval.

    It can be negative at an infeasible x. `mu` as in `relaxed_gap`.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [4.0]), learning=vv.Known(1.0))
        >>> round(vv.minty_gap(problem, [3.0]).lower, 6)  # max (y − 1)(3 − y), at y = 2
        1.0
    """
    return relaxed_gap(problem, x, 0.0, theta, mu=mu)


def relaxed_gap(
    problem: MisspecifiedVI, x: Any, epsilon: Any = None, theta: Any = None, *, mu: Any = None
) -> GapInterval:
    """Gap_ε(x, θ) = max { F(y, θ)ᵀ(x − y) : y ∈ X, 1ᵀ[f(y, θ)]₊ ≤ ε }, as an interval.

    `epsilon` left out is the infeasibility of x itself, the least for which the gap cannot be negative. `theta` may be
    left out when it is known. `mu` is a *proved* modulus of strong monotonicity of F(·, θ) on X (never an estimated
    one): it tightens the upper side for a nonlinear F, and makes it finite on an unbounded X.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [4.0]),
        ...                             constraints=lambda x, t: x[0] - 1.5, learning=vv.Known(1.0))
        >>> round(vv.relaxed_gap(problem, [3.0], epsilon=0.25).upper, 6)  # (y − 1)(3 − y) at y = 1.75
        0.9375
    """
    x = problem.check_x("x", x)
    epsilons = None if epsilon is None else [epsilon]
    return relaxed_gaps(problem, x[None], epsilons, theta, mu=mu)[0]


def relaxed_gaps(
    problem: MisspecifiedVI, xs: Any, epsilons: Any = None, theta: Any = None, *, mu: Any = None
) -> GapIntervals:
    """`relaxed_gap` for a stack of points, each started where the one before ended; one ε each, or one for all."""
    points = [problem.check_x(f"xs[{i}]", x) for i, x in enumerate(xs)]
    theta = problem.theta_or_known(theta)
    epsilons = _checked_epsilons(problem, points, epsilons, theta)
    modulus = checked_modulus(mu)
    if not points:
        return GapIntervals(())
    with precision.double():
        gap = gap_at(problem, theta, modulus)
        return GapIntervals(
            tuple(gap(x, epsilon) for x, epsilon in zip(points, epsilons.tolist(), strict=True))
        )


def gap_at(problem: MisspecifiedVI, theta: PyTree, modulus: float) -> AffineGap | NonlinearGap:
    """Gap_ε(·, θ) as a function of (x, ε) that returns intervals; to be used within `precision.double()`."""
    if isinstance(problem.constraints, functions.Callback):
        raise InputError(
            "relaxed_gap: constraints is a callback, and the gap is a maximum over { f ≤ ε } that needs f inside a "
            "compiled program. Write f with numpy or jax.numpy."
        )
    theta = jax.tree.map(jnp.asarray, theta)
    return (AffineGap if is_affine(problem, theta) else NonlinearGap)(problem, theta, modulus)


def is_affine(problem: MisspecifiedVI, theta: PyTree) -> bool:
    """Whether F(·, θ) is proved affine in x at this θ."""
    if isinstance(problem.operator, functions.Callback):
        return False
    return functions.is_affine_in(lambda x: problem.operator(x, theta), 0, np.zeros(problem.shape))


def checked_modulus(mu: Any) -> float:
    """A modulus of strong monotonicity as a float; 0 where none is given."""
    if mu is None:
        return 0.0
    modulus = precision.as_float64("mu", mu)
    if modulus.shape != () or not np.isfinite(modulus) or modulus < 0.0:
        raise InputError(f"mu is {mu}; one proved modulus of strong monotonicity, at least 0, is needed.")
    return float(modulus)


def _checked_epsilons(problem: MisspecifiedVI, points: list, epsilons: Any, theta: PyTree) -> np.ndarray:
    if epsilons is None:
        return np.array(infeasibilities(problem, points, theta))
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
