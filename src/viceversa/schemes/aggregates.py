"""Newton systems of problems whose coordinates meet only in totals: a diagonal, a small system, and a diagonal again.

The firms of a market know each other by the market's total. The derivative of such an F is a diagonal plus what passes
through totals, and so is that of f. Both parts are read off the program of the derivative, where totals are the *aggregates*
s. With s and the multipliers y given, every coordinate is determined by itself, which leaves equations in (s, y) alone: as
many for each market as there are kinds of totals and constraints, whatever the number of firms and however they differ in size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from viceversa.krylov import KrylovResult
from viceversa.operations import evaluated
from viceversa.schemes.newton_system import Metric

_MOST_KINDS = 4  # of totals and multipliers: each costs a product
_MOST_CORRECTIONS = 4  # of a solution by what it leaves
_SUMS = {"add", "sub", "add_any"}
_ELEMENTWISE = _SUMS | {"neg", "mul", "div", "select_n", "convert_element_type", "copy"}
_RESHAPING = {"reshape", "squeeze", "expand_dims"}
_CALLS = {"jit", "pjit", "closed_call", "core_call"}

# Along which axis of x each axis of an array runs; None: it has length 1.
_Axes = tuple[int | None, ...]


class _NotAggregative(Exception):
    """Coordinates meet otherwise than in totals."""


class _Value(NamedTuple):
    """An array of the linear program, None where it is zero; `is_local`: entry i depends on u_i itself."""

    array: Any
    axes: _Axes | None = None  # None: it does not move
    is_local: bool = False


class Aggregates:
    """(u, y) ↦ (Hu + Jᵀy, Ju) as  c∘u + R(z)  and  R_f(z),  where z = (s, y) and s = S(u) + T(z) are totals.

    All totals and the multipliers run along the same axes of x, and along no other: one small system for each place there.
    """

    def __init__(self, product: Callable, x: Array, lam: Array, axes_f: _Axes, totals_alone: bool = False):
        self._closed = jax.make_jaxpr(product)(x, lam)
        self._x, self._n_f, self._axes_f = x, lam.size, axes_f
        walk = _Walk(x.shape)
        along_x, along_f = self._walked(walk, jnp.ones_like(x), None)
        kinds = [*walk.axes, *([axes_f] if lam.size else [])]
        kept = {tuple([axis for axis in axes if axis is not None]) for axes in kinds}
        depends = along_x.is_local or totals_alone
        if not depends or along_f.is_local or len(kept) != 1 or len(kinds) > _MOST_KINDS:
            raise _NotAggregative
        (along,) = kept
        self.along = along
        if walk.summed.intersection(along) or not walk.axes:
            raise _NotAggregative
        self.shape = tuple([x.shape[axis] for axis in along])
        if lam.size and (lam.size != math.prod(self.shape) or _agreed([along_f.axes, axes_f]) != axes_f):
            raise _NotAggregative
        self.c, self.n_sums, self.n_kinds = self._array(along_x), len(walk.axes), len(kinds)

    @classmethod
    def of(cls, product: Callable, x: Array, lam: Array, totals_alone: bool = False) -> Aggregates | None:
        """None where coordinates meet otherwise; several multipliers belong to one axis of x or another.

        Without `totals_alone`, also where nothing but totals matters, so that H has no diagonal.
        """
        ways: list[_Axes] = (
            [(None,)] if lam.size <= 1 else [(i,) for i, n in enumerate(x.shape) if n == lam.size]
        )
        for axes_f in ways:
            try:
                return cls(product, x, lam, axes_f, totals_alone)
            except _NotAggregative:
                continue
        return None

    def _walked(self, walk: _Walk, u: Array | None, y: Array | None) -> list[_Value]:
        given = [_Value(u, tuple(range(self._x.ndim)), True), _Value(y, self._axes_f)]
        return walk.through(self._closed.jaxpr, self._closed.consts, given)

    def _array(self, along_x: _Value) -> Array:
        return jnp.zeros_like(self._x) if along_x.array is None else along_x.array.reshape(self._x.shape)

    def sums(self, u: Array) -> list[Array]:
        """S(u)."""
        walk = _Walk(self._x.shape)
        self._walked(walk, u, None)
        return [self._kind(found) for found in walk.found]

    def rest(self, z: Sequence[Array | None]) -> tuple[Array, list[Array]]:
        """R(z); and T(z) and R_f(z), in the order of z."""
        walk = _Walk(self._x.shape, z[: self.n_sums])
        y = z[-1] if self._n_f else None
        along_x, along_f = self._walked(walk, None, None if y is None else y.reshape(self._n_f))
        found = [*walk.found, *([along_f.array] if self._n_f else [])]
        return self._array(along_x), [self._kind(each) for each in found]

    def _kind(self, found: Any) -> Array:
        return jnp.zeros(self.shape) if found is None else found.reshape(self.shape)

    def coefficients(self) -> tuple[list[Array], list[Array]]:
        """S and R as arrays like x: what each entry adds to its total, and what its total or multiplier adds to its force."""
        S = jax.linear_transpose(self.sums, self._x)
        ones = [jnp.ones(self.shape)] * self.n_kinds
        sums = [
            S([s if i == kind else 0.0 * s for i, s in enumerate(ones[: self.n_sums])])[0]
            for kind in range(self.n_sums)
        ]
        alone: list[list[Array | None]] = [
            [z if i == kind else None for i, z in enumerate(ones)] for kind in range(self.n_kinds)
        ]
        return sums, [self.rest(z)[0] for z in alone]

    def columns(self, D: Array, C: Array) -> list[list[Array]]:
        """The small systems  s − T(z) + S(D⁻¹R(z))  and  R_f(z) − Cy,  kind by kind of z."""
        m = self.n_sums
        C = C.reshape(self.shape) if self._n_f else C

        def column(kind: int) -> list[Array]:
            z: list[Array | None] = [None] * self.n_kinds
            z[kind] = jnp.ones(self.shape)
            R, rest = self.rest(z)
            entries = [through - own for through, own in zip(self.sums(R / D), rest[:m], strict=True)]
            entries += rest[m:]
            entries[kind] = entries[kind] + (1.0 if kind < m else -C)
            return entries

        return [column(kind) for kind in range(self.n_kinds)]

    def solver(self, E: Array, C: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
        """(r, q) ↦ (u, y) with (H + E)u + Jᵀy = r and Ju − Cy = q for diagonals E and C, the small system formed once.

        u = D⁻¹(r − R(z)) with D = c + E, which leaves  s − T(z) + S(D⁻¹R(z)) = S(D⁻¹r)  and  R_f(z) − Cy = q.
        """
        D = self.c + E
        columns = self.columns(D, C)

        def solve(r: Array, q: Array) -> tuple[Array, Array]:
            given = [*self.sums(r / D), *([q.reshape(self.shape)] if self._n_f else [])]
            z = eliminated(columns, given)
            y = z[-1].reshape(q.shape) if self._n_f else q
            return (r - self.rest(z)[0]) / D, y

        return solve


def eliminated(columns: list[list[Array]], rhs: list[Array]) -> list[Array]:
    """Small systems side by side, entry by entry; totals come before multipliers, so that no pivot need be looked for."""
    n = len(rhs)
    a = [[columns[j][i] for j in range(n)] for i in range(n)]
    b = list(rhs)
    for k in range(n):
        for i in range(k + 1, n):
            share = a[i][k] / a[k][k]
            a[i] = [entry - share * upper for entry, upper in zip(a[i], a[k], strict=True)]
            b[i] = b[i] - share * b[k]
    z = list(b)
    for k in reversed(range(n)):
        z[k] = (b[k] - sum((a[k][j] * z[j] for j in range(k + 1, n)), jnp.zeros(()))) / a[k][k]
    return z


class _Correction(NamedTuple):
    """A solution, what it leaves of the right-hand side, and how often it was corrected."""

    solution: PyTree
    residual: PyTree
    n: Int[Array, ""]


def corrected(solve: Callable, matvec: Callable, rhs: PyTree, weights: PyTree, rtol) -> KrylovResult:
    """matvec(step) = rhs to a relative residual in a weighted norm, by what `solve` finds for what is left, a few times."""

    def size_sq(residual: PyTree) -> Array:
        squares = jax.tree.map(lambda weight, part: jnp.sum(weight * part**2), weights, residual)
        return sum(jax.tree.leaves(squares), jnp.zeros(()))

    def correct(now: _Correction) -> _Correction:
        solution = jax.tree.map(jnp.add, now.solution, solve(now.residual))
        return _Correction(solution, jax.tree.map(jnp.subtract, rhs, matvec(solution)), now.n + 1)

    def unfinished(now: _Correction) -> Array:
        left = size_sq(now.residual)
        return (now.n == 0) | ((now.n < _MOST_CORRECTIONS) & (left > rtol**2 * size_sq(rhs)))

    start = _Correction(jax.tree.map(jnp.zeros_like, rhs), rhs, jnp.asarray(0))
    end = jax.lax.while_loop(unfinished, correct, start)
    return KrylovResult(end.solution, 2 * end.n)


def solve_by_aggregates(
    aggregates: Aggregates,
    matvec: Callable[[PyTree], PyTree],
    rhs: tuple[Array, Array],
    diagonals: Metric,
    units: Metric,
    rtol,
) -> KrylovResult:
    """matvec(u, y) = rhs to a relative residual, by elimination, corrected by what it leaves; `diagonals` are E and C."""
    solve = aggregates.solver(diagonals.gamma, diagonals.rho)
    found = corrected(lambda left: solve(*left), matvec, rhs, (units.gamma, units.rho), rtol)
    return KrylovResult(found.solution, aggregates.n_kinds + found.n_products)


class _Walk:
    """Through the linear program, cut at its totals: what they are to be taken for (zero: None), and what they were."""

    def __init__(self, shape: tuple[int, ...], given: Sequence[Array | None] | None = None):
        self.shape, self.given = shape, given
        self.found: list[Any] = []
        self.axes: list[_Axes] = []
        self.summed: set[int] = set()  # the axes of x that something was summed over
        self._seen: dict[Any, tuple[_Value, list[_Value]]] = {}

    def through(self, jaxpr: Any, consts: Any, given: list[_Value]) -> list[_Value]:
        known = dict(zip(jaxpr.constvars, map(_Value, consts), strict=True))
        known.update(zip(jaxpr.invars, given, strict=True))

        def value(atom: Any) -> _Value:
            return _Value(atom.val) if isinstance(atom, jax_core.Literal) else known[atom]

        for eqn in _needed(jaxpr):
            values = [value(atom) for atom in eqn.invars]
            known.update(zip(eqn.outvars, self._operated(eqn, values), strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def _operated(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        """One operation, linear in what moves."""
        name, moving = eqn.primitive.name, [v for v in values if v.axes is not None]
        if not moving:
            return [_Value(out) for out in evaluated(eqn, [v.array for v in values])]
        if name in _CALLS:
            inner = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]
            return self.through(inner.jaxpr, inner.consts, values)
        if len(eqn.outvars) > 1:
            raise _NotAggregative
        # F and f often take the same total of the same array: it is one.
        key = name, str(eqn.params), tuple([id(v.array if v.axes is None else v) for v in values])
        if key not in self._seen:
            self._seen[key] = self._moved(eqn, values), values  # kept, so that identities stay what they are
        return [self._seen[key][0]]

    def _moved(self, eqn: Any, values: list[_Value]) -> _Value:
        name, moving = eqn.primitive.name, [v for v in values if v.axes is not None]
        if name == "reduce_sum":
            return self._total(eqn, values[0])
        axes, is_local = self._axes_after(eqn, values), any(v.is_local for v in moving)
        if all(v.array is None for v in moving):
            return _Value(None, axes, is_local)
        if name in _SUMS and any(v.array is None for v in values):
            return _Value(_sum_with_zero(eqn, values), axes, is_local)
        return _Value(evaluated(eqn, _without_zeros(eqn, values))[0], axes, is_local)

    def _total(self, eqn: Any, value: _Value) -> _Value:
        """A sum; if it depends on coordinates themselves, the program is cut there."""
        over, all_axes = eqn.params["axes"], value.axes or ()
        axes = tuple([axis for i, axis in enumerate(all_axes) if i not in over])
        self.summed.update(axis for i, axis in enumerate(all_axes) if i in over and axis is not None)
        found = None if value.array is None else evaluated(eqn, [value.array])[0]
        if not value.is_local:
            return _Value(found, axes)
        given = None if self.given is None else self.given[len(self.found)]
        self.axes.append(axes)
        self.found.append(found)
        return _Value(None if given is None else given.reshape(eqn.outvars[0].aval.shape), axes)

    def _axes_after(self, eqn: Any, values: list[_Value]) -> _Axes:
        """Along which axes of x the outcome runs; refused where it cannot be said."""
        name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
        moving = [
            (v, atom.aval.shape) for v, atom in zip(values, eqn.invars, strict=True) if v.axes is not None
        ]
        (value, given), *others = moving
        spreads = any(v.is_local and math.prod(given) != math.prod(shape) for v, given in moving)
        if spreads or value.axes is None:
            raise _NotAggregative
        if name in _ELEMENTWISE:
            return self._filled(_agreed([v.axes or (None,) * len(shape) for v, _ in moving]), shape)
        if others:
            raise _NotAggregative
        if name == "broadcast_in_dim":
            into = eqn.params["broadcast_dimensions"]
            fixed = {to: value.axes[i] for i, to in enumerate(into) if given[i] == shape[to]}
            return self._filled(tuple([fixed.get(i) for i in range(len(shape))]), shape)
        if name == "transpose" and not value.is_local:
            return tuple([value.axes[i] for i in eqn.params["permutation"]])
        long = [(n, axis) for n, axis in zip(given, value.axes, strict=True) if n > 1]
        if name in _RESHAPING and [n for n, _ in long] == [n for n in shape if n > 1]:
            rest = iter([axis for _, axis in long])
            return tuple([next(rest) if n > 1 else None for n in shape])
        raise _NotAggregative

    def _filled(self, axes: _Axes, shape: tuple[int, ...]) -> _Axes:
        """Axes along which something is the same all along are x's own."""
        for i, (axis, n) in enumerate(zip(axes, shape, strict=True)):
            if axis is None and n > 1 and (len(shape) != len(self.shape) or n != self.shape[i]):
                raise _NotAggregative
        return tuple([i if axis is None and shape[i] > 1 else axis for i, axis in enumerate(axes)])


def _needed(jaxpr: Any) -> list[Any]:
    """The operations that the outcome depends on: others may do what they like."""
    wanted, found = {atom for atom in jaxpr.outvars if not isinstance(atom, jax_core.Literal)}, []
    for eqn in reversed(jaxpr.eqns):
        if wanted.intersection(eqn.outvars):
            wanted.update(atom for atom in eqn.invars if not isinstance(atom, jax_core.Literal))
            found.append(eqn)
    return found[::-1]


def _agreed(several: list[Any]) -> _Axes:
    """Axes that all agree on, where None agrees with any."""
    found = []
    for together in zip(*several, strict=True):
        known = {axis for axis in together if axis is not None}
        if len(known) > 1:
            raise _NotAggregative
        found.append(known.pop() if known else None)
    return tuple(found)


def _sum_with_zero(eqn: Any, values: list[_Value]) -> Array:
    """a + 0, 0 + b, a − 0 or 0 − b."""
    left, right = values
    array = left.array if right.array is None else right.array
    array = -array if left.array is None and eqn.primitive.name == "sub" else array
    return jnp.broadcast_to(array, eqn.outvars[0].aval.shape)


def _without_zeros(eqn: Any, values: list[_Value]) -> list[Any]:
    return [
        jnp.zeros(atom.aval.shape, atom.aval.dtype) if v.array is None else v.array
        for atom, v in zip(eqn.invars, values, strict=True)
    ]
