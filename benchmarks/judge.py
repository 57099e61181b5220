"""The judge of the corpus: plain NumPy that shares no code with the package, against the planted answer.

Numbers about an answer (x, λ, θ), all relative to the problem's own units:

- `residual`: the largest violation of the inequalities behind `solved` (docs/solver.md), from formulas of its own;
- `theta_error`: the distance to the planted θ*;
- `true_residual`: the largest KKT violation at θ* instead of θ, relative to the forces at x alone (`solved` also looks at
  those at the start, which may be thousands of times larger);
- `disagreement`: ⟨F(x, θ*) − F(x*, θ*), x − x*⟩, which is zero at every solution of a monotone problem, unique or not;
- `x_error`: the distance to the planted x*, in natural units and only where F is strongly monotone, beside `x_bound`, what
  the residuals prove about it (see `_distance_bound`). A larger error would convict the residuals themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import viceversa as vv
from benchmarks import corpus, corpus_functions

_EPS = np.finfo(float).eps
_ROUNDED = 1.001  # two evaluations of one formula differ by rounding


class Verdict(NamedTuple):
    """What the planted answer says about a returned one; NaN where it says nothing (see the module)."""

    residual: float
    theta_error: float
    true_residual: float
    disagreement: float
    x_error: float
    x_bound: float

    def is_wrong(self, tol: float) -> bool:
        """Whether a point with these numbers may not be called solved to `tol`.

        The first two are what `solved` promises. The next two are stricter in their units, so they get a hundred times
        that; they are here to catch a promise that means nothing.
        """
        promised = max(self.residual, self.theta_error) <= _ROUNDED * tol
        meant = max(self.true_residual, self.disagreement) <= 100.0 * tol
        return not (promised and meant) or bool(self.x_error > self.x_bound)


def judge(planted: corpus.Planted, x: np.ndarray, multiplier: np.ndarray, theta: np.ndarray) -> Verdict:
    """Judge an answer against the planted one."""
    far = float(np.linalg.norm(theta - planted.theta_true) / np.linalg.norm(planted.theta_true))
    if not all(np.isfinite(part).all() for part in (x, multiplier, theta)):
        return Verdict(np.inf, np.inf, np.inf, np.inf, np.inf, np.nan)
    here = Forces(planted, x, multiplier, planted.theta_true)
    there = Forces(planted, planted.x_true, planted.multiplier_true, planted.theta_true)
    size = np.maximum(np.abs(planted.x_true), np.abs(x))
    budget = max(np.abs(here.F).max(), np.abs(here.pulled).max(initial=0.0)) * size.sum()
    x_error, x_bound = np.nan, np.nan
    modulus = strong_monotonicity(planted)
    if modulus > 0:
        x_error = float(np.linalg.norm((x - planted.x_true) / planted.problem.operator.x_unit))
        x_bound = _distance_bound(planted, here, modulus)
    return Verdict(
        residual=promised_residual(planted, Forces(planted, x, multiplier, theta)),
        theta_error=far,
        true_residual=here.relative_residual(),
        disagreement=float(abs((here.F - there.F) @ (x - planted.x_true)) / budget),
        x_error=x_error,
        x_bound=x_bound,
    )


def promised_residual(planted: corpus.Planted, here: Forces) -> float:
    """The largest relative part of `solved` other than learning, in the units that docs/solver.md defines."""
    x, multiplier, X = here.x, here.multiplier, planted.problem.set
    x0 = project(X, np.zeros(x.size))
    start = Forces(planted, x0, multiplier, planted.theta0)
    x_hat = np.minimum(np.maximum(np.abs(x), np.abs(x - x0)), width(X))
    F_hat = max(np.abs(start.F).max(), np.abs(here.F).max())
    f_hat = np.maximum(np.abs(start.f), np.abs(here.jacobian) @ x_hat)
    reach, strongest = x_hat.max(), max(F_hat, np.abs(here.pulled).max(initial=0.0))
    parts = (
        np.abs(here.moved(reach / strongest)).max() / reach,
        (np.maximum(here.f, 0.0) / f_hat).max(initial=0.0),
        (multiplier * np.abs(here.f)).max(initial=0.0) / (multiplier @ f_hat + F_hat * x_hat.sum()),
        np.inf if multiplier.min(initial=0.0) < 0 else 0.0,
    )
    return float(max(parts))


def strong_monotonicity(planted: corpus.Planted) -> float:
    """μ with ⟨F(x) − F(y), x − y⟩ ≥ μ‖(x − y) ⊘ unit‖², 0 for the merely monotone families."""
    if planted.family.rank is not None:
        return 0.0
    M = planted.problem.operator.function.M
    return _scale_of_force(planted) * float(np.linalg.eigvalsh(0.5 * (M + M.T)).min())


def _scale_of_force(planted: corpus.Planted) -> float:
    op = planted.problem.operator
    return float((op.value * op.x_unit)[0])


class Forces:
    """F, f and their Lagrangian at a point."""

    def __init__(self, planted: corpus.Planted, x: np.ndarray, multiplier: np.ndarray, theta: np.ndarray):
        problem = planted.problem
        self.set, self.x, self.multiplier = problem.set, x, multiplier
        self.F = force(problem.operator, x, theta)
        self.rounding = 16.0 * _EPS * force_before_cancellation(problem.operator, x, theta)
        self.f, self.jacobian = constraints(problem.constraints, x, theta)
        self.pulled = self.jacobian.T @ multiplier
        self.G = self.F + self.pulled

    def relative_residual(self) -> float:
        """The largest KKT violation in units of the forces and of the constraints' variation at the point."""
        x, multiplier = self.x, self.multiplier
        force_unit = max(np.abs(self.F).max(), np.abs(self.pulled).max(initial=0.0))
        size = float(np.abs(x).max())
        moved = np.abs(self.moved(size / force_unit)).max() / size
        unit = np.maximum(np.abs(self.jacobian) @ np.maximum(np.abs(x), np.finfo(float).tiny), 1e-300)
        violated = (np.maximum(self.f, 0.0) / unit).max(initial=0.0)
        slack = (multiplier * np.abs(self.f)).max(initial=0.0) / (force_unit * size)
        negative = (np.maximum(-multiplier, 0.0) * unit).max(initial=0.0) / (force_unit * size)
        outside = np.abs(x - project(self.set, x)).max() / size
        return float(max(moved, violated, slack, negative, outside))

    def moved(self, t: float) -> np.ndarray:
        """r = x − P_X(x − tG)."""
        return self.x - project(self.set, self.x - t * self.G)


def _distance_bound(planted: corpus.Planted, here: Forces, modulus: float) -> float:
    """An upper bound on ‖(x − x*) ⊘ unit‖ that the KKT residuals prove.

    With r = x − P_X(x − tG), d = x − x* and f convex, the projection's inequality at x* gives

        μ‖d ⊘ unit‖² ≤ ⟨F(x) − F(x*), d⟩ ≤ ⟨r, d⟩/t + ⟨G, r⟩ + Σ_j λ_j [−f_j]₊ + Σ_j λ*_j [f_j]₊,

    a quadratic inequality in ‖d ⊘ unit‖. It holds for every t > 0; the best of a few is taken. What rounding can hide
    in r, in F and in the planted answer is added to its terms.
    """
    unit = planted.problem.operator.x_unit
    fixed = here.multiplier @ np.maximum(-here.f, 0.0) + planted.multiplier_true @ np.maximum(here.f, 0.0)
    force_unit = max(float(np.abs(here.G).max()), float(np.abs(here.F).max()))
    best = np.inf
    hidden = 4.0 * _EPS * np.abs(here.x).max()
    for t in np.geomspace(1e-6, 1e6, 25) * np.abs(here.x).max() / force_unit:
        r = here.moved(t)
        linear = np.linalg.norm(unit * (np.abs(r) + hidden)) / t + np.linalg.norm(unit * here.rounding)
        constant = max(here.G @ r + fixed, 0.0) + np.abs(here.G).sum() * hidden
        best = min(best, (linear + np.sqrt(linear**2 + 4.0 * modulus * constant)) / (2.0 * modulus))
    return float(best)


# -- the corpus's functions once more, from their formulas ----------------------------------------
def force(op: corpus_functions.InUnits, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """F from its formula."""
    inner, y, at = op.function, x / op.x_unit, theta / op.theta_unit
    skew = sum(at[i] * inner.K[i] @ y for i in range(inner.K.shape[0]))
    grown = inner.exponential * np.exp(inner.steepness * y) + inner.softplus * np.logaddexp(0.0, y)
    logs = np.array([w * np.log(v - low) if w > 0 else 0.0 for w, v, low in zip(inner.logarithm, y, inner.floor, strict=True)])  # fmt: skip
    return op.value * (inner.M @ y + skew + grown + logs + inner.q1 @ at + inner.q0)


def force_before_cancellation(op: corpus_functions.InUnits, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The sizes of the terms that F is the sum of: what its rounding is relative to."""
    inner, y, at = op.function, np.abs(x / op.x_unit), np.abs(theta / op.theta_unit)
    skew = sum(at[i] * np.abs(inner.K[i]) @ y for i in range(inner.K.shape[0]))
    return op.value * (np.abs(inner.M) @ y + skew + np.abs(inner.q1) @ at + np.abs(inner.q0))


def constraints(given: Any, x: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and Jacobian of the constraints, from their formulas."""
    if given is None:
        return np.zeros(0), np.zeros((0, x.size))
    values, jacobian = _natural_constraints(given.function, x / given.x_unit, theta / given.theta_unit)
    return given.value * values, given.value[:, None] * jacobian / given.x_unit


def _natural_constraints(f: Any, x: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(f, corpus_functions.QuadraticConstraints):
        linear = f.c + np.einsum("jnm,m->jn", f.C, theta)
        Bx = np.einsum("jrn,n->jr", f.B, x)
        values = 0.5 * (Bx**2).sum(1) + linear @ x - f.d
        return values, np.einsum("jr,jrn->jn", Bx, f.B) + linear
    inner = np.einsum("jrn,n->jr", f.B, x) + np.einsum("jrm,m->jr", f.C, theta)
    if isinstance(f, corpus_functions.NormConstraints):
        root = np.sqrt(1.0 + (inner**2).sum(1))
        return root - f.d, np.einsum("jr,jrn->jn", inner / root[:, None], f.B)
    peak = inner.max(1, keepdims=True)
    weights = np.exp(inner - peak)
    total = weights.sum(1, keepdims=True)
    return (np.log(total) + peak)[:, 0] - f.d, np.einsum("jr,jrn->jn", weights / total, f.B)


def width(X: Any) -> np.ndarray:
    """How far each coordinate can move in X."""
    if isinstance(X, vv.Product):
        return np.concatenate([width(block) for block in X.blocks])
    if isinstance(X, vv.Box):
        return np.asarray(X.upper) - np.asarray(X.lower)
    sizes = {
        vv.Free: lambda: np.inf,
        vv.NonNegative: lambda: np.inf,
        vv.Ball: lambda: 2.0 * float(X.radius),
        vv.Simplex: lambda: float(X.total),
    }
    return np.full(X.shape, sizes[type(X)]())


def project(X: Any, v: np.ndarray) -> np.ndarray:
    """P_X(v) by bisection and formulas of its own."""
    if isinstance(X, vv.Box):
        return np.minimum(np.maximum(v, X.lower), X.upper)
    if isinstance(X, vv.Free):
        return v
    if isinstance(X, vv.NonNegative):
        return np.maximum(v, 0.0)
    if isinstance(X, vv.Ball):
        d = v - X.center
        return X.center + d * min(1.0, float(X.radius) / max(float(np.linalg.norm(d)), 1e-300))
    if isinstance(X, vv.Simplex):
        low, high = v.min() - float(X.total), v.max()
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if np.maximum(v - middle, 0).sum() > X.total else (low, middle)
        return np.maximum(v - high, 0.0)
    sizes = [int(np.prod(block.shape)) for block in X.blocks]
    parts = np.split(v, np.cumsum(sizes)[:-1])
    return np.concatenate([project(block, part) for block, part in zip(X.blocks, parts, strict=True)])


# -- the gallery's published answers ----------------------------------------------------------------
def published_error(instance: vv.gallery.Instance, x: np.ndarray) -> float:
    """The relative distance to the known answer, or of the aggregates that every solution shares."""
    if instance.x_unique:
        return relative_error(x, instance.x_true)
    if instance.aggregates is not None:
        found, known = instance.aggregates(x), instance.aggregates(instance.x_true)
        return max(relative_error(found[name], known[name]) for name in known)
    others = [np.asarray(instance.published[name]) for name in instance.published if name.startswith("x")]
    return min(relative_error(x, answer) for answer in others)


def relative_error(found: np.ndarray, known: np.ndarray) -> float:
    """max|found − known| over max|known|."""
    unit = float(np.abs(known).max())
    return float(np.abs(np.asarray(found) - np.asarray(known)).max()) / (unit if unit > 0 else 1.0)
