"""One player's best reply to fixed others, by SciPy's sequential quadratic programming: no part of the VI solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from viceversa.errors import MissingExtra
from viceversa.schemes.interior_point import Lifted

_SMALLEST = 1e-15  # SciPy's stopping tolerance on the scaled cost: as far as rounding allows
_FEASIBLE = 1e-8  # how far a reply may miss its constraints, relative to their size, and still count
_SHARE = 1e-3  # of the largest strategy: the least size of one, so that a player who all but stays out is not held to rounding
_MAX_ITER = 500

Look = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray, np.ndarray]]


class Reply(NamedTuple):
    """The player's cost now and at the best reply, that reply, and what relative numbers are measured by.

    `slope` is Σ_i |∂_i cost| s_i with s_i = |x_i|, or 10⁻³ of the largest strategy where that is more; `reach` is
    Σ_i |∂_i f_j| |x_i| over the player's own coordinates, for every shared f_j.
    """

    cost: float
    best_cost: float
    own: np.ndarray
    slope: float
    reach: np.ndarray


def best_reply(look: Look, own: np.ndarray, x: np.ndarray, middle: np.ndarray, X: Lifted) -> Reply:
    """min cost over the player's own strategy, the others as in x; NaN where no feasible reply was found.

    `look(y)` gives the cost, its gradient, the shared constraints and their Jacobian at the player's y; `own` is where
    y lies in the ravelled x.
    """
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise MissingExtra("Game.best_responses", "scipy", "certify") from None
    here = x[own]
    cost, gradient, f, jacobian = look(here)
    slack = np.maximum(f, 0.0)  # what x itself exceeds a shared constraint by is allowed to the reply as well
    size = max(abs(cost), float(np.abs(gradient) @ np.abs(here)), float(np.linalg.norm(gradient)), 1e-300)
    rules = _rules(look, own, x, X, slack)
    bounds = np.column_stack([X.lower[own], X.upper[own]])
    best, reply = np.nan, here
    reach = np.maximum(np.abs(here), _SHARE * np.abs(x).max(initial=0.0))
    for start in (middle[own], here):
        found: Any = minimize(
            lambda y: look(y)[0] / size,
            np.clip(start, *bounds.T),
            jac=lambda y: look(y)[1] / size,
            bounds=bounds,
            constraints=rules,
            method="SLSQP",
            options={"maxiter": _MAX_ITER, "ftol": _SMALLEST},
        )
        y = np.clip(found.x, *bounds.T)
        value = look(y)[0]
        if _misses(rules, y, reach) <= _FEASIBLE and np.isfinite(value) and not value >= best:
            best, reply = value, y
    return Reply(cost, float(best), reply, float(np.abs(gradient) @ reach), np.abs(jacobian) @ np.abs(here))


def _rules(look: Look, own: np.ndarray, x: np.ndarray, X: Lifted, slack: np.ndarray) -> list[dict[str, Any]]:
    """SciPy's constraints: rows and balls of the joint set with the others fixed, and the shared f ≤ slack."""
    others = x.copy()
    others[own] = 0.0
    rules: list[dict[str, Any]] = []
    for rows, sides, kind in ((X.A, X.b, "ineq"), (X.C, X.d, "eq")):
        mine = np.any(rows[:, own] != 0, axis=1)
        if mine.any():
            A, left = rows[mine][:, own], sides[mine] - rows[mine] @ others
            if kind == "ineq":
                left = np.maximum(left, A @ x[own])
            else:
                left = A @ x[own]
            rules.append(
                {"type": kind, "fun": lambda y, A=A, left=left: left - A @ y, "jac": lambda y, A=A: -A}
            )
    for member, center, radius in zip(X.members, X.centers, X.radii, strict=True):
        if member[own].any():
            rest = float((member * (others - center) ** 2 * ~np.isin(np.arange(x.size), own)).sum())
            weight, middle = member[own], center[own]
            room = max(radius**2 - rest, float(weight @ (x[own] - middle) ** 2))
            rules.append(
                {
                    "type": "ineq",
                    "fun": lambda y, w=weight, c=middle, r=room: np.array([r - w @ (y - c) ** 2]),
                    "jac": lambda y, w=weight, c=middle: -2.0 * (w * (y - c))[None, :],
                }
            )
    if slack.size:
        rules.append({"type": "ineq", "fun": lambda y: slack - look(y)[2], "jac": lambda y: -look(y)[3]})
    return rules


def _misses(rules: list[dict[str, Any]], y: np.ndarray, reach: np.ndarray) -> float:
    """The largest violation of the rules at y, relative to what their values change by over a strategy of size `reach`."""
    worst, reach = 0.0, np.maximum(np.abs(y), reach)
    for rule in rules:
        value = np.asarray(rule["fun"](y))
        missing = np.abs(value) if rule["type"] == "eq" else np.maximum(-value, 0.0)
        unit = np.abs(np.asarray(rule["jac"](y))) @ reach
        worst = max(worst, float(np.max(missing / np.maximum(unit, 1e-12), initial=0.0)))
    return worst
