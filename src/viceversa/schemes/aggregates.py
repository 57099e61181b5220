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
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from viceversa.krylov import KrylovResult
from viceversa.schemes.newton_system import Metric
from viceversa.totals import ALL, Axes, OtherwiseThanInTotals, Value, Walk, agreed, axes_of, shapes_of

_MOST_KINDS = 4  # of totals and multipliers: each costs a product
_MOST_CORRECTIONS = 4  # of a solution by what it leaves


class Aggregates:
    """(u, y) ↦ (Hu + Jᵀy, Ju) as  c∘u + R(z)  and  R_f(z),  where z = (s, y) and s = S(u) + T(z) are totals.

    All totals and the multipliers run along the same axes of x, and along no other: one small system for each place there. Where x
    is one long vector that the program folds, those are the axes of `folded`.
    """

    def __init__(
        self,
        program: Any,
        x: Array,
        lam: Array,
        folded: tuple[int, ...],
        axes_f: Axes,
        totals_alone: bool,
        coordinates_alone: bool,
    ):
        self._closed, self._folded = program, folded
        self._x, self._n_f, self._axes_f = x, lam.size, axes_f
        walk = Walk(folded)
        along_x, along_f = self._walked(walk, jnp.ones_like(x), None)
        kinds = [*walk.axes, *([axes_f] if lam.size else [])]
        kept = {tuple([axis for axis in axes if axis is not None]) for axes in kinds}
        depends, meets = along_x.is_local or totals_alone, len(walk.axes) > 0
        if not depends or along_f.is_local or len(kept) > 1 or len(kinds) > _MOST_KINDS:
            raise OtherwiseThanInTotals
        if not meets and (lam.size or not coordinates_alone):
            raise OtherwiseThanInTotals
        along = kept.pop() if kept else ()
        self.along = along
        own = axes_of(x.shape, folded)
        if walk.summed.intersection(along) or ALL[0] in along:
            raise OtherwiseThanInTotals
        if along_x.axes is not None and agreed([along_x.axes, own]) != own:
            raise OtherwiseThanInTotals
        self.shape = tuple([folded[axis] for axis in along])
        if lam.size and (lam.size != math.prod(self.shape) or agreed([along_f.axes, axes_f]) != axes_f):
            raise OtherwiseThanInTotals
        self.c, self.n_sums, self.n_kinds = self._array(along_x), len(walk.axes), len(kinds)

    @classmethod
    def of(
        cls,
        product: Callable,
        x: Array,
        lam: Array,
        *,
        totals_alone: bool = False,
        coordinates_alone: bool = False,
    ) -> Aggregates | None:
        """None where coordinates meet otherwise; several multipliers belong to one axis of x or another.

        Without `totals_alone`, also where nothing but totals matters, so that H has no diagonal; without `coordinates_alone`,
        also where there are none, so that H is nothing else.
        """
        program = jax.make_jaxpr(product)(x, lam)
        for folded in shapes_of(program.jaxpr, x.shape):
            ways: list[Axes] = (
                [(None,)] if lam.size <= 1 else [(i,) for i, n in enumerate(folded) if n == lam.size]
            )
            for axes_f in ways:
                try:
                    return cls(program, x, lam, folded, axes_f, totals_alone, coordinates_alone)
                except OtherwiseThanInTotals:
                    continue
        return None

    def _walked(self, walk: Walk, u: Array | None, y: Array | None) -> list[Value]:
        given = [Value(u, axes_of(self._x.shape, self._folded), True), Value(y, self._axes_f)]
        return walk.through(self._closed.jaxpr, self._closed.consts, given)

    def _array(self, along_x: Value) -> Array:
        return jnp.zeros_like(self._x) if along_x.array is None else along_x.array.reshape(self._x.shape)

    def sums(self, u: Array) -> list[Array]:
        """S(u)."""
        walk = Walk(self._folded)
        self._walked(walk, u, None)
        return [self._kind(found) for found in walk.found]

    def rest(self, z: Sequence[Array | None]) -> tuple[Array, list[Array]]:
        """R(z); and T(z) and R_f(z), in the order of z."""
        walk = Walk(self._folded, z[: self.n_sums])
        y = z[-1] if self._n_f else None
        along_x, along_f = self._walked(walk, None, None if y is None else y.reshape(self._n_f))
        found = [*walk.found, *([along_f.array] if self._n_f else [])]
        return self._array(along_x), [self._kind(each) for each in found]

    def _kind(self, found: Any) -> Array:
        return jnp.zeros(self.shape) if found is None else found.reshape(self.shape)

    def place_sums(self, u: Array) -> Array:
        """Of what an array like x has in each place."""
        return self.place_reduced(u, jnp.sum)

    def place_reduced(self, u: Array, reduce: Callable) -> Array:
        """`reduce` (`jnp.sum`, `jnp.max`) of what an array like x has in each place."""
        others = tuple([axis for axis in range(len(self._folded)) if axis not in self.along])
        return reduce(u.reshape(self._folded), axis=others)

    def spread(self, s: Array) -> Array:
        """What each place has, in every coordinate there."""
        shape = [n if axis in self.along else 1 for axis, n in enumerate(self._folded)]
        return jnp.broadcast_to(s.reshape(shape), self._folded).reshape(self._x.shape)

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

    def columns(self, by_D: Array, C: Array) -> list[list[Array]]:
        """The small systems  s − T(z) + S(D⁻¹R(z))  and  R_f(z) − Cy,  kind by kind of z, from D⁻¹ and C."""
        m = self.n_sums
        C = C.reshape(self.shape) if self._n_f else C

        def column(kind: int) -> list[Array]:
            z: list[Array | None] = [None] * self.n_kinds
            z[kind] = jnp.ones(self.shape)
            R, rest = self.rest(z)
            entries = [through - own for through, own in zip(self.sums(by_D * R), rest[:m], strict=True)]
            entries += rest[m:]
            entries[kind] = entries[kind] + (1.0 if kind < m else -C)
            return entries

        return [column(kind) for kind in range(self.n_kinds)]

    def solver(self, E: Array, C: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
        """(r, q) ↦ (u, y) with (H + E)u + Jᵀy = r and Ju − Cy = q for diagonals E and C, the small system formed once.

        u = D⁻¹(r − R(z)) with D = c + E, which leaves  s − T(z) + S(D⁻¹R(z)) = S(D⁻¹r)  and  R_f(z) − Cy = q.
        """
        by_D = 1.0 / (self.c + E)
        columns = self.columns(by_D, C)

        def solve(r: Array, q: Array) -> tuple[Array, Array]:
            given = [*self.sums(by_D * r), *([q.reshape(self.shape)] if self._n_f else [])]
            z = eliminated(columns, given)
            y = z[-1].reshape(q.shape) if self._n_f else q
            return by_D * (r - self.rest(z)[0]), y

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
