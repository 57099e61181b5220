"""Suprema of norms of derivatives over X × Θ: exact where the structure shows it, else certified, else sampled."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from viceversa.constants.derivatives import Argument, Derivative, Domain
from viceversa.constants.interval import ROUNDING, Interval, NotCertified
from viceversa.constants.table import Constant

N_SAMPLES = 64
_ATTAINED = 1e-9  # a certified bound this close to a value that is attained is the supremum itself
_VERTEX_WORK = 1 << 22  # entries evaluated over all vertices of a box before enumeration is given up
_MAX_FREE = 6  # coordinates of a box, or entries of a matrix, whose vertices are enumerated
_MANY = 100_000  # entries of a derivative from which fewer points are tried

Norm = Callable[[np.ndarray], float]


# -- norms ---------------------------------------------------------------------------------------------
def spectral(A: np.ndarray) -> float:
    """‖A‖₂, from the smaller Gram matrix (its largest eigenvalue keeps its relative accuracy)."""
    if A.size == 0:
        return 0.0
    if min(A.shape) == 1:
        return float(np.linalg.norm(A))
    if A.shape[0] == A.shape[1]:
        if np.array_equal(A, A.T):
            smallest, largest = _extreme_eigenvalues(A)
            return max(-smallest, largest, 0.0)
        blocks = _blocks(A)
        if len(blocks) > 1:
            return max(spectral(A[np.ix_(block, block)]) for block in blocks)
    gram = A @ A.T if A.shape[0] <= A.shape[1] else A.T @ A
    scale = float(np.abs(gram).max())
    return float(np.sqrt(scale * max(np.linalg.eigvalsh(gram / scale)[-1], 0.0))) if scale > 0.0 else 0.0


def largest_row(A: np.ndarray) -> float:
    """max_j ‖A_j‖ over the rows."""
    return float(np.sqrt(np.max(np.sum(A * A, axis=1), initial=0.0)))


def largest_slice(A: np.ndarray) -> float:
    """max_j ‖A_j‖₂ over the matrices A_j."""
    return max((spectral(slab) for slab in A), default=0.0)


def positive_norm(f: np.ndarray) -> float:
    """‖[f]₊‖."""
    return float(np.linalg.norm(np.maximum(f, 0.0)))


def smallest_eigenvalue(A: np.ndarray) -> float:
    """λ_min of (A + Aᵀ)/2."""
    return _extreme_eigenvalues(0.5 * (A + A.T))[0] if A.size else 0.0


def _extreme_eigenvalues(S: np.ndarray) -> tuple[float, float]:
    """(λ_min, λ_max) of a symmetric matrix, block by block; the last few are remembered (‖·‖ and λ_min ask alike)."""
    key = (S.shape, hash(S.tobytes()))
    if key not in _remembered:
        values = [np.linalg.eigvalsh(S[np.ix_(block, block)])[[0, -1]] for block in _blocks(S)]
        while len(_remembered) >= 8:
            _remembered.pop(next(iter(_remembered)))
        _remembered[key] = (float(min(v[0] for v in values)), float(max(v[1] for v in values)))
    return _remembered[key]


_remembered: dict[Any, tuple[float, float]] = {}


def _blocks(A: np.ndarray) -> list[np.ndarray]:
    """The index sets of the diagonal blocks a square matrix falls into; markets that do not interact are such blocks."""
    n = A.shape[0]
    if n < 32:
        return [np.arange(n)]
    linked = (A != 0.0) | (A.T != 0.0)
    unseen, blocks = np.ones(n, dtype=bool), []
    while unseen.any():
        block = np.zeros(n, dtype=bool)
        fresh = np.zeros(n, dtype=bool)
        fresh[np.argmax(unseen)] = True
        while fresh.any():
            block |= fresh
            fresh = linked[fresh].any(axis=0) & ~block
        blocks.append(np.flatnonzero(block))
        unseen &= ~block
    return blocks


# -- suprema -------------------------------------------------------------------------------------------
def supremum(what: str, make: Callable[[], Derivative], domain: Domain, norm: Norm) -> Constant:
    """sup of norm(D(x, θ)) over X × Θ for a norm that does not decrease in the absolute values of the entries."""
    try:
        D = make()
        enclosed = D.over(domain)
        if enclosed.is_point or np.array_equal(enclosed.lo, enclosed.hi):
            return Constant(norm(enclosed.lo), "exact", f"{what}: constant")
        by_vertices = _at_vertices(D, domain, norm, max)
        if by_vertices is not None:
            sure = "exact" if domain.boxes else "certified"
            return Constant(_up(by_vertices), sure, f"{what}: affine, so at a vertex of the box")
        upper = _upper(D, domain, enclosed, norm)
        if not np.isfinite(upper):
            raise NotCertified("an unbounded domain")
    except NotCertified as reason:
        return _sampled(what, make, domain, norm, max, str(reason))
    attained = max(norm(D.at(x, t)) for x, t in domain.corners(few=enclosed.lo.size > _MANY))
    if upper <= attained * (1.0 + _ATTAINED):
        return Constant(_up(upper), "exact", f"{what}: interval bound, attained at a point of X × Θ")
    return Constant(_up(upper), "certified", f"{what}: interval bound (a point attains {attained:.6g})")


def supremum_of_positive_part(make: Callable[[], Derivative], domain: Domain) -> Constant:
    """D_f = sup ‖[f(x, θ)]₊‖ over X × Θ."""
    try:
        f = make()
        enclosed = f.over(domain)
        upper = positive_norm(enclosed.hi)
        if not np.isfinite(upper):
            raise NotCertified("an unbounded domain")
    except NotCertified as reason:
        return _sampled("[f]₊", make, domain, positive_norm, max, str(reason))
    attained = max(positive_norm(f.at(x, t)) for x, t in domain.corners())
    if upper <= attained * (1.0 + _ATTAINED):
        return Constant(_up(upper), "exact", "[f]₊: interval bound, attained at a point of X × Θ")
    return Constant(_up(upper), "certified", f"[f]₊: interval bound (a point attains {attained:.6g})")


def monotonicity_modulus(make: Callable[[], Derivative], domain: Domain) -> Constant:
    """μ_F = inf λ_min((J + Jᵀ)/2) over X × Θ, or a proved lower bound of it (negative: monotone is not proved)."""
    what = "the symmetrised Jacobian of F"
    try:
        J = make()
        enclosed = J.over(domain)
        if not np.isfinite(enclosed.magnitude).all():
            raise NotCertified("an unbounded domain")
    except NotCertified as reason:
        return _sampled(what, make, domain, smallest_eigenvalue, min, str(reason))
    scale = float(np.abs(enclosed.magnitude).sum(axis=1).max(initial=0.0))

    def tidy(value: float) -> float:  # 0 is 0 up to rounding: a skew Jacobian is merely monotone
        return 0.0 if abs(value) <= 1e-12 * scale else value

    if enclosed.is_point or np.array_equal(enclosed.lo, enclosed.hi):
        return Constant(tidy(smallest_eigenvalue(enclosed.lo)), "exact", f"{what}: constant")
    by_vertices = _at_vertices(J, domain, smallest_eigenvalue, min)
    if by_vertices is not None:
        sure = "exact" if domain.boxes else "certified"
        return Constant(tidy(by_vertices), sure, f"{what}: affine, so at a vertex of the box")
    lower = max(_eigenvalue_bounds(J, domain, enclosed))
    attained = min(smallest_eigenvalue(J.at(x, t)) for x, t in domain.corners(few=enclosed.lo.size > _MANY))
    if lower >= attained - _ATTAINED * scale:
        return Constant(tidy(lower), "exact", f"{what}: interval bound, attained at a point of X × Θ")
    return Constant(
        tidy(lower), "certified", f"{what}: interval bound of its eigenvalues (a point has {attained:.6g})"
    )


def _up(value: float) -> float:
    return value * (1.0 + ROUNDING)


def _at_vertices(D: Derivative, domain: Domain, measure: Norm, best: Callable) -> float | None:
    """The extreme over the vertices of the box of what D reads, if D is affine in x and in θ apart and they are few.

    A convex measure of something affine is convex in x and in θ, so its supremum over a box is at a vertex
    (and the infimum of a concave one).
    """
    read = _moved_by(D, domain)
    free = [np.flatnonzero(getattr(domain, name).lo != getattr(domain, name).hi) for name in read]
    n_free = sum(map(len, free))
    if n_free > _MAX_FREE or int(np.prod(D.shape)) << n_free > _VERTEX_WORK:
        return None
    if not all(np.isfinite(getattr(domain, name).magnitude).all() for name in read):
        return None
    if not all(D.affine_in(name) for name in read):
        return None
    found = []
    for choice in itertools.product((False, True), repeat=n_free):
        point = {"x": domain.x.middle, "t": domain.t.middle}
        remaining = np.asarray(choice, dtype=bool)
        for name, where in zip(read, free, strict=True):
            side, remaining = remaining[: len(where)], remaining[len(where) :]
            box, corner = getattr(domain, name), getattr(domain, name).lo.copy()
            corner[where] = np.where(side, box.hi[where], box.lo[where])
            point[name] = corner
        finite = {name: np.where(np.isfinite(value), value, 0.0) for name, value in point.items()}
        found.append(measure(D.at(finite["x"], finite["t"])))
    return best(found)


def _moved_by(D: Derivative, domain: Domain) -> list[Argument]:
    """Which of x and θ the derivative reads and the domain lets vary."""
    arguments: tuple[Argument, ...] = ("x", "t")
    return [name for name in arguments if D.reads(name) and not getattr(domain, name).is_point]


def _upper(D: Derivative, domain: Domain, enclosed: Interval, norm: Norm) -> float:
    """The smallest of several proved bounds; each sees a different kind of structure."""
    if not np.isfinite(enclosed.magnitude).all():
        return np.inf
    bounds = [norm(enclosed.magnitude)]
    bounds.append(norm(enclosed.middle) + norm(enclosed.radius))
    varying = np.argwhere(enclosed.radius > 0.0)
    if len(varying) <= _MAX_FREE:
        bounds.append(max(norm(A) for A in _vertices_of_entries(enclosed, varying)))
    terms = _affine_terms(D, domain)
    if terms is not None:
        middle, moves = terms
        bounds.append(norm(middle) + sum(norm(move) for move in moves))
    return min(bounds)


def _eigenvalue_bounds(J: Derivative, domain: Domain, enclosed: Interval) -> list[float]:
    """Proved lower bounds of λ_min of the symmetric part of every matrix in an interval matrix."""
    S = Interval(0.5 * (enclosed.lo + enclosed.lo.T), 0.5 * (enclosed.hi + enclosed.hi.T))
    n = S.lo.shape[0]
    diagonal = np.eye(n, dtype=bool)
    # Raising the diagonal raises every eigenvalue, so the lower ends of the diagonal are the worst case.
    base = np.where(diagonal, S.lo, S.middle)
    bounds = [smallest_eigenvalue(base) - spectral(np.where(diagonal, 0.0, S.radius))]
    varying = [(i, j) for i, j in np.argwhere(S.radius > 0.0) if i < j]
    if len(varying) <= _MAX_FREE:
        matrices = _vertices_of_entries(Interval(base, np.where(diagonal, S.lo, S.hi)), np.array(varying))
        bounds.append(min(smallest_eigenvalue(np.triu(A) + np.triu(A, 1).T) for A in matrices))
    terms = _affine_terms(J, domain)
    if terms is not None:
        middle, moves = terms
        symmetric = [0.5 * (move + move.T) for move in moves]
        bounds.append(smallest_eigenvalue(middle) - sum(spectral(move) for move in symmetric))
        spread = np.sum(np.abs(symmetric), axis=0)
        bounds.append(smallest_eigenvalue(middle) - spectral(np.asarray(spread)))
    return bounds


def _vertices_of_entries(enclosed: Interval, varying: np.ndarray):
    """All matrices with the varying entries at either end; a convex function is largest at one of them."""
    where = tuple(varying.T) if len(varying) else None
    for choice in itertools.product((False, True), repeat=len(varying)):
        A = enclosed.middle.copy()
        if where is not None:
            A[where] = np.where(choice, enclosed.hi[where], enclosed.lo[where])
        yield A


def _affine_terms(D: Derivative, domain: Domain) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """(D at the middle, [D's change as one coordinate goes to its end]) if D is affine in the one thing it reads."""
    read = _moved_by(D, domain)
    if len(read) != 1 or not D.affine_in(read[0]):
        return None
    box = getattr(domain, read[0])
    if box.lo.size > 256 or int(np.prod(D.shape)) * box.lo.size > _VERTEX_WORK:
        return None
    point = {
        name: np.where(np.isfinite(getattr(domain, name).middle), getattr(domain, name).middle, 0.0)
        for name in ("x", "t")
    }
    middle = D.at(point["x"], point["t"])
    moves = []
    for i in np.flatnonzero(box.radius > 0.0):
        moved = dict(point)
        moved[read[0]] = point[read[0]].copy()
        moved[read[0]][i] = box.hi[i]
        moves.append(D.at(moved["x"], moved["t"]) - middle)
    return middle, moves


def _sampled(
    what: str, make: Callable[[], Derivative], domain: Domain, measure: Norm, best: Callable, why: str
) -> Constant:
    """The extreme of samples, which bounds nothing and says so."""
    D = make()
    points = [*domain.corners(few=True), *domain.samples(N_SAMPLES if np.prod(D.shape) <= _MANY else 8)]
    value = best(measure(D.at(x, t)) for x, t in points)
    return Constant(
        value, "estimated", f"{len(points)} samples of {what} (not certified: {why})", len(points)
    )
