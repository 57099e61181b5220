"""Polyhedra: linear inequalities, linear equations and bounds."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import precision
from viceversa.errors import InputError
from viceversa.sets import active_set, linear_program, single_row
from viceversa.sets.affine import checked_rows, orthonormal_rows
from viceversa.sets.base import (
    ConvexSet,
    check_point,
    is_tracing,
    point_method,
    sample_method,
    to_numpy,
    unit_box_bounds,
    where_first,
)
from viceversa.sets.box import Box, clip, support_of_bounds
from viceversa.sets.linear_program import Description

# Beyond these sizes the dense factorisations of the active-set method do not belong inside an iteration.
MAX_COORDINATES = 300
MAX_ROWS = 5000
# Two bounds that cross by no more than this, relative to their size, are the same number written twice.
SAME_BOUND = 1e-12
# Points the constructor projects, to refuse rows that rounding spoils before a solve meets them.
N_PROBES = 2
# Widths come from 2n linear programs up to this many coordinates, from bound propagation beyond.
MAX_WIDTH_PROGRAMS = 100


class Polyhedron(ConvexSet):
    """The points that satisfy linear inequalities, linear equations and bounds.

        S = { y : A y ≤ b,  C y = d,  lower ≤ y ≤ upper }   on the ravelled y                           (1)

    With one row beside the bounds the projection is a search over breakpoints, at any size; otherwise it is the
    dual active-set method of Goldfarb and Idnani (1983), up to 300 coordinates and 5000 rows; more are refused:
    pass such rows as constraints. Both are exact to 1e-12 of the numbers in a row; where rounding prevents that
    the answer is NaN, never an approximation. Emptiness is checked at construction by a linear program.

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import Polyhedron
        >>> triangle = Polyhedron(A=[[1.0, 1.0]], b=[1.0], lower=0.0)
        >>> triangle.project(np.array([2.0, -1.0]))
        array([1., 0.])
    """

    rows: Any
    center: Any
    reach: Any
    kind: str = eqx.field(static=True)
    compact: bool = eqx.field(static=True)
    _shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        A: Any = None,
        b: Any = None,
        C: Any = None,
        d: Any = None,
        shape: Any = None,
        lower: Any = None,
        upper: Any = None,
    ):
        for pair, first, second in (("A and b", A, b), ("C and d", C, d)):
            if (first is None) != (second is None):
                raise InputError(f"Polyhedron: {pair} belong together. Give both or neither.")
        if A is None and C is None:
            raise InputError("Polyhedron: neither A nor C is given. Give rows, or use Box for bounds alone.")
        n = np.shape(C if A is None else A)[-1:]
        A, b = (np.zeros((0, *n)), np.zeros(0)) if A is None else (A, b)
        C, d = (np.zeros((0, *n)), np.zeros(0)) if C is None else (C, d)
        A, b, self._shape = checked_rows("Polyhedron", "A", A, "b", b, shape)
        C, d, _ = checked_rows("Polyhedron", "C", C, "d", d, self._shape)
        low, high = _checked_bounds(lower, upper, self._shape)
        given = _simplified(Description(A, b, C, d, low, high))
        basis, level = orthonormal_rows("Polyhedron: C x = d", given.C, given.d)
        self.kind = _kind(len(given.b), len(level), given.lower.size)
        self.compact = bool(np.all(np.isfinite(given.lower)) and np.all(np.isfinite(given.upper)))
        self.rows = _rows(self.kind, given, basis, level)
        lowest, highest = linear_program.tightened_bounds(self.description())
        size = float(np.linalg.norm(highest - lowest))
        self.reach = np.asarray(size if np.isfinite(size) else 1.0)
        self.center = _relative_interior(self.kind, self.rows, self.description())
        if self.kind == "rows":
            _check_accuracy(self.rows, self.center, self.reach)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def description(self) -> Description:
        """The set as rows over the ravelled point: unit inequalities, orthonormal equations, bounds."""
        rows = self.rows
        r = rows.e.size
        return Description(rows.A, rows.b, rows.basis[:, :r].T, rows.e, rows.lower, rows.upper)

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """The exact projection; the derivative removes the span of all rows and bounds active at P_S(x)."""
        return _project(self.kind, jnp.ravel(x), self.rows).reshape(self._shape)

    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """max ⟨c, y⟩: closed form for bounds alone or finite bounds and one row, else a linear program (HiGHS).

        The linear program runs on the host, so inside a compiled function that case is refused.
        """
        if self.kind == "bounds" or (self.compact and self.kind != "rows"):
            return self._closed_form_support(c)
        if is_tracing((self, c)):
            raise InputError(
                "Polyhedron.support: with several rows or infinite bounds this is a linear program, which runs on "
                "the host and not inside a compiled function. Call it outside jit, or pass the rows as constraints."
            )
        c = precision.as_float64("Polyhedron.support: c", c)
        check_point(self, c)
        y = linear_program.maximise(c.ravel(), self.description())
        if y is None:
            return np.asarray(np.inf), self.interior_point()
        # From a maximiser known to 1e-9 one projected step along c ends in the exact one.
        stride = (np.linalg.norm(y) + self.reach) / (np.linalg.norm(c) or 1.0)
        y = self.project(y.reshape(self._shape) + stride * c)
        return to_numpy(((c * y).sum(), y))

    @point_method
    def _closed_form_support(self, c: PyTree) -> tuple[Any, PyTree]:
        if self.kind == "bounds":
            value, y = support_of_bounds(jnp.ravel(c), self.rows.lower, self.rows.upper)
            return value, y.reshape(self._shape)
        cut = _cut(self.kind, self.rows)
        y = single_row.support_of_bounded(jnp.ravel(c), cut, equality=self.kind == "equation")
        return jnp.sum(jnp.ravel(c) * y), y.reshape(self._shape)

    def diameter(self) -> float:
        """‖width()‖, an upper bound (exact for a box)."""
        return float(np.linalg.norm(self.width()))

    def width(self) -> np.ndarray:
        """Exact with at most one row or up to 100 coordinates (two linear programs each); else an upper bound."""
        lower, upper = linear_program.tightened_bounds(self.description())
        if self.kind == "rows" and lower.size <= MAX_WIDTH_PROGRAMS:
            return np.minimum(upper - lower, linear_program.exact_widths(self.description())).reshape(
                self._shape
            )
        return (upper - lower).reshape(self._shape)

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """The projection of a random point around a relative interior one, at a random distance."""
        key_point, key_size = jax.random.split(key)
        offset = jax.random.uniform(key_point, self.center.shape, minval=-1.0, maxval=1.0)
        x = self.center + self.reach * jax.random.uniform(key_size) * offset
        return _project(self.kind, x, self.rows).reshape(self._shape)

    def interior_point(self) -> np.ndarray:
        """A relative interior point found at construction, to the accuracy of the projection."""
        return self.project(self.center.reshape(self._shape))


def _project(kind: str, x, rows: active_set.Rows):
    if kind == "bounds":
        return clip(x, rows.lower, rows.upper)
    if kind == "inequality":
        return single_row.project_inequality(x, _cut(kind, rows))
    if kind == "equation":
        return single_row.project_equality(x, _cut(kind, rows))
    return active_set.project(x, rows)


def _cut(kind: str, rows: active_set.Rows) -> single_row.CutBox:
    a, b = (rows.A[0], rows.b[0]) if kind == "inequality" else (rows.basis[:, 0], rows.e[0])
    return single_row.CutBox(a, b, rows.lower, rows.upper)


def _kind(n_inequalities: int, n_equations: int, n: int) -> str:
    if n_inequalities + n_equations == 0:
        return "bounds"
    if n_inequalities + n_equations == 1:
        return "inequality" if n_inequalities else "equation"
    if n > MAX_COORDINATES or n_inequalities + n_equations > MAX_ROWS:
        raise InputError(
            f"Polyhedron: {n_inequalities + n_equations} rows over {n} coordinates cannot be projected on exactly "
            f"inside an iteration (the limit is {MAX_ROWS} rows and {MAX_COORDINATES} coordinates, or one row at any "
            "size). Pass the rows as constraints and keep the bounds as the set."
        )
    return "rows"


def _rows(kind: str, given: Description, basis: np.ndarray, level: np.ndarray) -> active_set.Rows:
    if kind == "rows":
        columns, _ = np.linalg.qr(basis.T, mode="complete")
        r = len(level)
        # The factorisation may turn the basis; the level turns with it.
        level, basis = columns[:, :r].T @ (basis.T @ level), columns.T
    return active_set.Rows(given.A, given.b, level, basis.T, given.lower, given.upper)


def _checked_bounds(lower: Any, upper: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    box = Box(-np.inf if lower is None else lower, np.inf if upper is None else upper, shape=shape)
    return box.lower.ravel(), box.upper.ravel()


def _simplified(given: Description) -> Description:
    """Unit rows without those that say nothing; a row about one coordinate becomes a bound."""
    A, b, C, d, lower, upper = given
    if not np.all(np.isfinite(d)):
        raise InputError(f"Polyhedron: d is infinite (first: {where_first(np.isinf(d))}). Make it finite.")
    length = np.linalg.norm(A, axis=1)
    impossible = (b == -np.inf) | ((length == 0.0) & (b < 0.0))
    if impossible.any():
        raise InputError(
            f"Polyhedron: row {where_first(impossible)} of A x ≤ b holds nowhere (a zero row with b < 0, or b = −∞), so "
            "the set is empty. Remove or correct it."
        )
    useful = (length > 0.0) & np.isfinite(b)
    A, b = A[useful] / length[useful, None], b[useful] / length[useful]
    lower, upper = lower.copy(), upper.copy()
    alone = np.count_nonzero(A, axis=1) == 1
    for a, offset in zip(A[alone], b[alone], strict=True):
        (i,) = np.flatnonzero(a)
        if a[i] > 0.0:
            upper[i] = min(upper[i], offset)
        else:
            lower[i] = max(lower[i], -offset)
    fixed = np.count_nonzero(C, axis=1) == 1
    for row, value in zip(C[fixed], d[fixed], strict=True):
        (i,) = np.flatnonzero(row)
        lower[i], upper[i] = max(lower[i], value / row[i]), min(upper[i], value / row[i])
    _check_bounds_meet(lower, upper)
    return Description(A[~alone], b[~alone], C[~fixed], d[~fixed], np.minimum(lower, upper), upper)


def _check_bounds_meet(lower: np.ndarray, upper: np.ndarray) -> None:
    crossed = lower - upper > SAME_BOUND * (np.abs(lower) + np.abs(upper))
    if crossed.any():
        raise InputError(
            f"Polyhedron: rows and bounds leave coordinate {where_first(crossed)} no value (at least "
            f"{lower[crossed][0]:.6g} and at most {upper[crossed][0]:.6g}), so the set is empty. Relax or remove one."
        )


def _relative_interior(kind: str, rows: active_set.Rows, given: Description) -> np.ndarray:
    """A relative interior point; refuses an empty set."""
    empty = InputError(
        "Polyhedron: no point satisfies all of A x ≤ b, C x = d and the bounds, so the set is empty. "
        "Relax or remove some of them."
    )
    low, high = unit_box_bounds(rows.lower, rows.upper)
    middle = 0.5 * low + 0.5 * high
    if kind == "bounds":
        return middle
    if kind != "rows":
        cut = _cut(kind, rows)
        if not single_row.meets(cut, equality=kind == "equation"):
            raise empty
        return single_row.relative_interior(cut, middle, equality=kind == "equation")
    center = linear_program.relative_interior(given)
    if center is None:
        raise empty
    return center


def _check_accuracy(rows: active_set.Rows, center: np.ndarray, reach: np.ndarray) -> None:
    random = np.random.default_rng(0)
    offsets = np.vstack([np.zeros(center.size), random.standard_normal((N_PROBES, center.size))])
    with precision.double():
        answers = [np.asarray(_project("rows", jnp.asarray(center + reach * step), rows)) for step in offsets]
    if np.isnan(answers).any():
        raise InputError(
            "Polyhedron: its projection cannot be computed to 1e-12: the rows are nearly dependent, or they leave no "
            "point beyond rounding. Remove redundant rows, or pass them as constraints."
        )
