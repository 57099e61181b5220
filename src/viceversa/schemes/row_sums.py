"""The Newton system of a smoothed map whose rows have given sums: one equation and one free multiplier more for each row.

With B the sums of rows, t the change of their multipliers (`smoothed_projection`) and E, C diagonal, a step is

    (H + E) u + Jᵀy + Bᵀt = r,     J u − C y = q,     B u = a.                                            (1)

Where coordinates meet only in totals (`aggregates`), H u + Jᵀy = c∘u + R(z) with z = (s, y), s = S(u) + T(z) and J u = R_f(z). The
diagonal D = c + E goes first, u = D⁻¹(r − R(z) − Bᵀt), which leaves

    z_s − T(z) + S(D⁻¹R(z)) + S(D⁻¹Bᵀt) = S(D⁻¹r)         and  R_f(z) − C y = q:    A z + P t = g         (2)
                  B D⁻¹R(z)  +  B D⁻¹Bᵀt = B D⁻¹r − a:                              Q z + β t = h         (3)

A is a small matrix for each place that has a total and β a number for each row: whichever of z and t is longer goes next, and a
matrix of the other's length is formed. Multipliers y that belong to no total go last, one solution of the rest for each.

Where coordinates meet otherwise, u is sought among those with Bu = a by a Krylov method to which diagonal and sums are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from viceversa.krylov import KrylovResult
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.aggregates import Aggregates, corrected, eliminated
from viceversa.schemes.newton_system import Metric, sign_of_constraints, solve_in_units

_LARGEST_FORMED = 3000  # unknowns of the matrix that is formed
_MOST_COLUMNS = 2e7  # numbers in the gradients of constraints that belong to no total


class RowStep(NamedTuple):
    """The unknowns of (1), or its right-hand side; t and a have an axis of length 1 where x has its rows."""

    u: Float[Array, "..."]
    y: Float[Array, " J"]
    t: Float[Array, "... 1"]


def sums_of_rows(u: Array) -> Array:
    """B u."""
    return jnp.sum(u, axis=-1, keepdims=True)


def solve_with_row_sums(
    problem: MisspecifiedVI, product: Callable, rhs: RowStep, diagonals: Metric, units: Metric, rtol
) -> KrylovResult:
    """(u, y) of (1) to a relative residual; `diagonals` are E and C, and `product` is (u, y) ↦ (Hu + Jᵀy, Ju)."""
    solve = elimination(product, rhs, diagonals)
    if solve is None:
        return _among_the_balanced(problem, product, rhs, diagonals, units, rtol)
    weights = RowStep(units.gamma, units.rho, 1.0 / sums_of_rows(jnp.broadcast_to(units.gamma, rhs.u.shape)))
    found = corrected(solve, row_system(product, diagonals), rhs, weights, rtol)
    return KrylovResult((found.solution.u, found.solution.y), found.n_products)


def row_system(product: Callable, diagonals: Metric) -> Callable[[RowStep], RowStep]:
    """The left-hand side of (1)."""

    def matvec(step: RowStep) -> RowStep:
        Hu, Ju = product(step.u, step.y)
        return RowStep(
            Hu + diagonals.gamma * step.u + step.t, Ju - diagonals.rho * step.y, sums_of_rows(step.u)
        )

    return matvec


# -- by elimination ------------------------------------------------------------------------------
def elimination(product: Callable, like: RowStep, diagonals: Metric) -> Callable[[RowStep], RowStep] | None:
    """The solution of (1) as a function of its right-hand side, or None where coordinates meet otherwise."""
    aggregates = Aggregates.of(product, like.u, like.y, totals_alone=True)
    if aggregates is not None:
        places = _Places.of(aggregates, like.u.shape)
        return None if places is None else _through_totals(aggregates, places, diagonals)
    if like.y.size == 0 or like.y.size * like.u.size > _MOST_COLUMNS:
        return None
    none, zero = jnp.zeros(0), jnp.zeros_like(like.y)
    alone = Aggregates.of(lambda u, _: (product(u, zero)[0], none), like.u, none, totals_alone=True)
    places = None if alone is None else _Places.of(alone, like.u.shape)
    if alone is None or places is None:
        return None
    rest = _through_totals(alone, places, Metric(diagonals.gamma, none))
    return _with_constraints(rest, product, like, diagonals.rho)


class _Places(NamedTuple):
    """How arrays like x lie in (2)–(3): (side by side, rows, places), and what of it an array of totals has."""

    axes: tuple[int, ...]
    n_beside: int
    n_rows: int
    n_last: int
    n_places: int

    @classmethod
    def of(cls, aggregates: Aggregates, shape: tuple[int, ...]) -> _Places | None:
        """Axes of rows that totals keep lie side by side; None where the longer block is too large to form the other."""
        *leading, last = range(len(shape))
        if list(aggregates.along) != sorted(aggregates.along):
            return None
        beside = [axis for axis in leading if axis in aggregates.along]
        rows = [axis for axis in leading if axis not in aggregates.along]
        n_beside, n_rows = (math.prod(shape[axis] for axis in axes) for axes in (beside, rows))
        n_places = shape[last] if last in aggregates.along else 1
        formed = min(n_rows, n_places * aggregates.n_kinds)
        if formed > _LARGEST_FORMED or n_beside * formed**2 > _MOST_COLUMNS:
            return None
        return cls((*beside, *rows, last), n_beside, n_rows, shape[last], n_places)

    def like_x(self, u: Array) -> Array:
        return jnp.transpose(u, self.axes).reshape(self.n_beside, self.n_rows, self.n_last)

    def by_place(self, u: Array) -> Array:
        """Sums of what one row has at one place: (side by side, rows, places)."""
        u = self.like_x(u)
        return u if self.n_places == self.n_last else jnp.sum(u, axis=-1, keepdims=True)

    def totals(self, s: Array) -> Array:
        return s.reshape(self.n_beside, self.n_places)

    def rows(self, t: Array) -> Array:
        return jnp.transpose(t, self.axes).reshape(self.n_beside, self.n_rows)

    def back(self, t: Array, like: Array) -> Array:
        """An array of rows as x has it."""
        turned = t.reshape([like.shape[axis] for axis in self.axes])
        return jnp.transpose(turned, [self.axes.index(axis) for axis in range(like.ndim)])


def _through_totals(
    aggregates: Aggregates, places: _Places, diagonals: Metric
) -> Callable[[RowStep], RowStep]:
    """(2)–(3), with one of z and t eliminated and the other's matrix factored, once."""
    D = aggregates.c + diagonals.gamma
    m = aggregates.n_sums
    A = [[places.totals(entry) for entry in column] for column in aggregates.columns(1.0 / D, diagonals.rho)]
    sums, rest = aggregates.coefficients()
    P = [
        jnp.swapaxes(places.by_place(S / D), 1, 2) for S in sums
    ]  # (side by side, places, rows) for each kind
    Q = [places.by_place(R / D) for R in rest]
    beta = places.rows(sums_of_rows(1.0 / D))
    solve_small = (_places_formed if places.n_places * aggregates.n_kinds <= places.n_rows else _rows_formed)(
        A, P, Q, beta
    )

    def solve(rhs: RowStep) -> RowStep:
        over_D = rhs.u / D
        g = [places.totals(each) for each in aggregates.sums(over_D)]
        g += [places.totals(rhs.y)] if aggregates.n_kinds > m else []
        z, t = solve_small(g, places.rows(sums_of_rows(over_D) - rhs.t))
        z = [each.reshape(aggregates.shape) for each in z]
        t = places.back(t, rhs.t)
        y = z[-1].reshape(rhs.y.shape) if aggregates.n_kinds > m else rhs.y
        return RowStep((rhs.u - aggregates.rest(z)[0] - t) / D, y, t)  # (1)

    return solve


_Small = Callable[[list[Array], Array], tuple[list[Array], Array]]


def _places_formed(A: list[list[Array]], P: list[Array], Q: list[Array], beta: Array) -> _Small:
    """(A − Pβ⁻¹Q) z = g − Pβ⁻¹h,  t = β⁻¹(h − Qz)."""
    n_kinds, (n_beside, n) = len(A), A[0][0].shape
    none = jnp.zeros((n_beside, n, n))
    whole = jnp.block(
        [
            [
                jax.vmap(jnp.diag)(A[j][i]) - (P[i] / beta[:, None, :] @ Q[j] if i < len(P) else none)
                for j in range(n_kinds)
            ]
            for i in range(n_kinds)
        ]
    )
    factors = jax.vmap(jax.scipy.linalg.lu_factor)(whole)

    def solve(g: list[Array], h: Array) -> tuple[list[Array], Array]:
        given = [each - (_times(P[i], h / beta) if i < len(P) else 0.0) for i, each in enumerate(g)]
        z = jnp.split(
            jax.vmap(jax.scipy.linalg.lu_solve)(factors, jnp.concatenate(given, axis=1)), n_kinds, axis=1
        )
        return z, (h - sum(_times(Q_k, z_k) for Q_k, z_k in zip(Q, z, strict=True))) / beta

    return solve


def _rows_formed(A: list[list[Array]], P: list[Array], Q: list[Array], beta: Array) -> _Small:
    """(β − QA⁻¹P) t = h − QA⁻¹g,  z = A⁻¹(g − Pt)."""
    n_kinds = len(A)
    wide = [[entry[:, :, None] for entry in column] for column in A]
    none = jnp.zeros_like(P[0])
    A_P = eliminated(wide, [*P, *([none] * (n_kinds - len(P)))])
    whole = jax.vmap(jnp.diag)(beta) - sum(Q_k @ each for Q_k, each in zip(Q, A_P, strict=True))
    factors = jax.vmap(jax.scipy.linalg.lu_factor)(whole)

    def solve(g: list[Array], h: Array) -> tuple[list[Array], Array]:
        A_g = eliminated(A, g)
        left = h - sum(_times(Q_k, each) for Q_k, each in zip(Q, A_g, strict=True))
        t = jax.vmap(jax.scipy.linalg.lu_solve)(factors, left)
        return [each - _times(along, t) for each, along in zip(A_g, A_P, strict=True)], t

    return solve


def _times(matrices: Array, vectors: Array) -> Array:
    return jnp.einsum("bij,bj->bi", matrices, vectors)


def _with_constraints(
    rest: Callable[[RowStep], RowStep], product: Callable, like: RowStep, C: Array
) -> Callable[[RowStep], RowStep]:
    """u = u₀ − Uy, where u₀ is the answer to (r, a) and U the answers to Jᵀ: (JU + C) y = Ju₀ − q."""
    none = jnp.zeros(0)
    nothing = jnp.zeros_like(like.u)
    J = jax.vmap(lambda y: product(nothing, y)[0])(jnp.eye(like.y.size))
    U = jax.vmap(lambda gradient: rest(RowStep(gradient, none, jnp.zeros_like(like.t))))(J)
    flat = J.reshape(like.y.size, -1)
    factors = jax.scipy.linalg.lu_factor(flat @ U.u.reshape(like.y.size, -1).T + jnp.diag(C))

    def solve(rhs: RowStep) -> RowStep:
        first = rest(RowStep(rhs.u, none, rhs.t))
        y = jax.scipy.linalg.lu_solve(factors, flat @ first.u.ravel() - rhs.y)
        return RowStep(first.u - jnp.tensordot(y, U.u, 1), y, first.t - jnp.tensordot(y, U.t, 1))

    return solve


# -- by products ---------------------------------------------------------------------------------
def _among_the_balanced(
    problem: MisspecifiedVI, product: Callable, rhs: RowStep, diagonals: Metric, units: Metric, rtol
) -> KrylovResult:
    """u = ΠᵀÛ + D⁻¹Bᵀβ⁻¹a with D = 1/units: the equations in u are taken up to Bᵀt, by the projector Π = 1 − Bᵀβ⁻¹BD⁻¹."""
    inverse = jnp.broadcast_to(units.gamma, rhs.u.shape)
    beta = sums_of_rows(inverse)
    flip = sign_of_constraints(problem)

    def balanced(u: Array) -> Array:
        return u - inverse * (sums_of_rows(u) / beta)

    def up_to_rows(force: Array) -> Array:
        return force - sums_of_rows(inverse * force) / beta

    def matvec(step: PyTree) -> PyTree:
        u, y = balanced(step[0]), step[1]
        Hu, Ju = product(u, y)
        along = up_to_rows(Hu + diagonals.gamma * u) + (step[0] - u) / inverse
        return along, flip * (Ju - diagonals.rho * y)

    given = inverse * (rhs.t / beta)
    H_given, J_given = product(given, jnp.zeros_like(rhs.y))
    left = up_to_rows(rhs.u - H_given - diagonals.gamma * given), flip * (rhs.y - J_given)
    found = solve_in_units(problem, matvec, left, units, rtol)
    u, y = found.solution
    return KrylovResult((balanced(u) + given, y), found.n_products + 1)
