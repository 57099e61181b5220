"""Linear programs about a polyhedron, solved by the host with HiGHS: support, emptiness, a relative interior point."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from viceversa.errors import MissingExtra


class Description(NamedTuple):
    """{ y : A y ≤ b, C y = d, lower ≤ y ≤ upper } over the ravelled point, as NumPy arrays."""

    A: np.ndarray
    b: np.ndarray
    C: np.ndarray
    d: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def maximise(c: np.ndarray, rows: Description) -> np.ndarray | None:
    """A maximiser of ⟨c, y⟩, or None where the program is unbounded."""
    # Scaling c keeps its size out of HiGHS's absolute tolerances.
    size = float(np.max(np.abs(c), initial=0.0)) or 1.0
    answer = _linprog(-c / size, rows.A, rows.b, rows.C, rows.d, np.column_stack([rows.lower, rows.upper]))
    return answer.x if answer.status == 0 else None


def relative_interior(rows: Description) -> np.ndarray | None:
    """A relative interior point, or None when the polyhedron is empty.

    max Σ t_i over A y + t ≤ αb, C y = αd, 0 ≤ t ≤ 1, α ≥ 1 leaves t_i > 0 exactly for the rows that some point
    satisfies strictly (Freund, Roundy and Todd 1985); the point is y/α.
    """
    from scipy import sparse

    n = rows.lower.size
    identity = np.eye(n)
    A = np.vstack([rows.A, identity[np.isfinite(rows.upper)], -identity[np.isfinite(rows.lower)]])
    b = np.concatenate([rows.b, rows.upper[np.isfinite(rows.upper)], -rows.lower[np.isfinite(rows.lower)]])
    m = len(b)
    inequality = sparse.hstack([sparse.csr_matrix(A), sparse.identity(m), sparse.csr_matrix(-b[:, None])])
    equality = sparse.hstack(
        [sparse.csr_matrix(rows.C), sparse.csr_matrix((len(rows.d), m)), sparse.csr_matrix(-rows.d[:, None])]
    )
    cost = np.concatenate([np.zeros(n), -np.ones(m), [0.0]])
    bounds = np.array([(-np.inf, np.inf)] * n + [(0.0, 1.0)] * m + [(1.0, np.inf)])
    answer = _linprog(cost, inequality, np.zeros(m), equality, np.zeros(len(rows.d)), bounds)
    return answer.x[:n] / answer.x[-1] if answer.status == 0 else None


def tightened_bounds(rows: Description, n_sweeps: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Bounds implied by each row with the other coordinates at their bounds: valid always, exact for one row."""
    A = np.vstack([rows.A, rows.C, -rows.C])
    b = np.concatenate([rows.b, rows.d, -rows.d])
    lower, upper = rows.lower.copy(), rows.upper.copy()
    for _ in range(n_sweeps if len(b) > 1 else 1):
        old_lower, old_upper = lower.copy(), upper.copy()
        for a, offset in zip(A, b, strict=True):
            slanted = a != 0.0
            divisor = np.where(slanted, a, 1.0)
            least = np.where(slanted, divisor * np.where(a > 0.0, old_lower, old_upper), 0.0)
            n_infinite = int(np.isinf(least).sum())
            others = np.sum(least[np.isfinite(least)]) - np.where(np.isfinite(least), least, 0.0)
            others = np.where(n_infinite - np.isinf(least) > 0, -np.inf, others)
            limit = np.where(slanted, (offset - others) / divisor, np.inf)
            upper = np.where(slanted & (a > 0.0), np.minimum(upper, limit), upper)
            lower = np.where(slanted & (a < 0.0), np.maximum(lower, limit), lower)
    return lower, np.maximum(upper, lower)


def exact_widths(rows: Description) -> np.ndarray:
    """max y_i − min y_i for every coordinate, by two linear programs each."""
    widths = np.zeros(rows.lower.size)
    for i, direction in enumerate(np.eye(rows.lower.size)):
        high, low = maximise(direction, rows), maximise(-direction, rows)
        widths[i] = np.inf if high is None or low is None else max(high[i] - low[i], 0.0)
    return widths


def _linprog(c, A, b, C, d, bounds):
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtra("A polyhedron with more than one row", "scipy", "certify") from None
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    return linprog(
        c,
        A_ub=A if len(b) else None,
        b_ub=b if len(b) else None,
        A_eq=C if len(d) else None,
        b_eq=d if len(d) else None,
        bounds=bounds,
        method="highs",
        options=options,
    )
