"""A dense primal–dual interior-point method for small monotone VIs that other phases find too hard.

The set is written as bounds, linear rows and balls, so that every problem has the form

    G(x, λ, ν, w) = F(x) + Jc(x)ᵀλ + Aᵀν − w_l + w_u = 0,   c(x) + s = 0,   Ax = b,
    s ⟂ λ,   x − l ⟂ w_l,   u − x ⟂ w_u,   all six ≥ 0,

with c the user's constraints and the curved parts of the set; `central_path` follows sλ = (x − l)w_l = (u − x)w_u = μ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from viceversa.errors import InputError
from viceversa.linear_matrix import jacobian
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.central_path import CentralPath, Pair, follow
from viceversa.schemes.interior_start import place_inside, tame_point, units_of
from viceversa.sets import Ball, Intersection, Product
from viceversa.sets.base import ConvexSet
from viceversa.sets.intersection import describe

LARGEST = 1500  # unknowns: beyond it a dense factor costs more than first-order iterations
_PROX = 1e-13  # added to the scaled diagonal: harmless to the answer, which is judged by residuals


class Lifted(eqx.Module):
    """X as bounds, rows and balls over the ravelled x; arrays are NumPy.

    Where X has no rows in x but is the image of a polyhedron, everything is over that one's points u and `embedding`
    is the affine map u ↦ x.
    """

    lower: np.ndarray
    upper: np.ndarray
    A: np.ndarray
    b: np.ndarray
    C: np.ndarray
    d: np.ndarray
    centers: np.ndarray
    radii: np.ndarray
    members: np.ndarray  # (n_balls, n) 0/1: the coordinates each ball is about
    embedding: Any = None


def lift(X: ConvexSet) -> Lifted | None:
    """The description of X, or None for a set this method does not know."""
    n = int(np.prod(X.shape))
    description, embedding = X.affine_image() or (None, None)
    if description is not None:
        n = description.lower.size
    try:
        linear, balls = _parts(X, n) if description is None else ([(slice(0, n), description)], [])
    except (InputError, TypeError):
        return None
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    A, b, C, d = [np.zeros((0, n))], [np.zeros(0)], [np.zeros((0, n))], [np.zeros(0)]
    for where, part in linear:
        lower[where], upper[where] = part.lower, part.upper
        for rows, into in ((part.A, A), (part.C, C)):
            placed = np.zeros((rows.shape[0], n))
            placed[:, where] = rows
            into.append(placed)
        b.append(np.asarray(part.b))
        d.append(np.asarray(part.d))
    members = np.array([m for m, _, _ in balls]).reshape(len(balls), n)
    centers = np.array([c for _, c, _ in balls]).reshape(len(balls), n)
    radii = np.array([r for _, _, r in balls]).reshape(len(balls))
    return Lifted(
        lower,
        upper,
        np.vstack(A),
        np.concatenate(b),
        np.vstack(C),
        np.concatenate(d),
        centers,
        radii,
        members,
        embedding,
    )


def _parts(X: ConvexSet, n: int, start: int = 0, total: int | None = None) -> tuple[list, list]:
    """Linear parts with the coordinates they are about, and balls as (members, center, radius)."""
    total = n if total is None else total
    where = slice(start, start + n)
    if isinstance(X, Ball):
        member, center = np.zeros(total), np.zeros(total)
        member[where], center[where] = 1.0, np.broadcast_to(X.center, X.shape).ravel()
        return [], [(member, center, float(X.radius))]
    if isinstance(X, Intersection):
        linear, balls = _parts(X.rest, n, start, total)
        more = [] if X.ball is None else _parts(X.ball, n, start, total)[1]
        return linear, balls + more
    if isinstance(X, Product):
        linear, balls = [], []
        for block in X.blocks:
            size = int(np.prod(block.shape))
            inner = _parts(block, size, start, total)
            linear, balls, start = linear + inner[0], balls + inner[1], start + size
        return linear, balls
    return [(where, describe(X))], []


class _Iterate(NamedTuple):
    """The scaled unknowns."""

    x: Array
    lam: Array
    nu: Array
    s: Array
    w_low: Array
    w_high: Array


class Interior(NamedTuple):
    """The answer in the user's units, and how many steps it took."""

    x: Array
    lam: Array
    n_steps: Int[Array, ""]


def interior_point(problem: MisspecifiedVI, lifted: Lifted, x0: Array, theta: PyTree) -> Interior:
    """Solve the VI at a fixed θ from the neighbourhood of x_0, or of P_X(0); the caller judges the answer by its certificate."""
    from jax.scipy.linalg import lu_factor, lu_solve  # late: most problems never come here

    F, f, X = problem.at(theta)
    x0 = tame_point(problem, jnp.asarray(x0), theta)
    n_user, n_balls = problem.n_constraints, lifted.radii.shape[0]
    A_rows = jnp.asarray(lifted.A)

    def point(v: Array) -> Array:
        return (v if lifted.embedding is None else lifted.embedding(v)).reshape(X.shape)

    def constraints(v: Array) -> Array:
        balls = 0.5 * (jnp.sum(lifted.members * jnp.square(v - lifted.centers), axis=1) - lifted.radii**2)
        return jnp.concatenate([f(point(v)), A_rows @ v - lifted.b, balls])

    def operator(v: Array) -> Array:
        """Eᵀ F(x) at x = point(v), with E the linear part of `point`: the VI in v."""
        if lifted.embedding is None:
            return F(point(v)).ravel()
        x, pullback = jax.vjp(point, v)
        return pullback(F(x))[0]

    def force(v: Array, lam: Array) -> Array:
        _, pullback = jax.vjp(constraints, v)
        return operator(v) + pullback(lam)[0]

    # Units: widths for x, the largest force for F, first-order variation for c.
    width = jnp.asarray(lifted.upper - lifted.lower)
    start = jnp.ravel(jnp.asarray(x0))
    if lifted.embedding is not None:  # Eᵀ(x_0 − point(0)): moved inside the bounds below
        centre, pullback = jax.vjp(point, jnp.zeros_like(lifted.lower))
        start = pullback(jnp.asarray(x0) - centre)[0]
    unit_x = units_of(operator, start, width)
    low, high = jnp.asarray(lifted.lower) / unit_x, jnp.asarray(lifted.upper) / unit_x
    fixed = jnp.asarray(lifted.upper <= lifted.lower)
    has_low, has_high = jnp.isfinite(low) & ~fixed, jnp.isfinite(high) & ~fixed

    u_start = place_inside(operator, start, unit_x, low, high, fixed)
    start = unit_x * u_start  # at a bound F and f may have poles
    unit_F = jnp.maximum(jnp.max(jnp.abs(jnp.where(fixed, 0.0, operator(start) * unit_x))), 1e-300)
    J0 = jacobian(constraints, start)
    unit_c = jnp.maximum(jnp.abs(constraints(start)), jnp.sum(jnp.abs(J0) * unit_x, axis=1))
    unit_c = jnp.where(unit_c > 0, unit_c, 1.0)
    C_rows = jnp.asarray(lifted.C) * unit_x
    unit_e = jnp.maximum(jnp.max(jnp.abs(C_rows), axis=1, initial=1e-300), 1e-300)
    C_rows, d_rows = C_rows / unit_e[:, None], jnp.asarray(lifted.d) / unit_e

    def scaled_force(u: Array, lam: Array) -> Array:
        return force(unit_x * u, lam * unit_F / unit_c) * unit_x / unit_F

    def scaled_constraints(u: Array) -> Array:
        return constraints(unit_x * u) / unit_c

    def slacks(u: Array) -> tuple[Array, Array]:
        return jnp.where(has_low, u - low, 1.0), jnp.where(has_high, high - u, 1.0)

    n_comp = n_user + A_rows.shape[0] + n_balls + jnp.sum(has_low) + jnp.sum(has_high)

    def residuals(now: _Iterate):
        r_d = scaled_force(now.x, now.lam) + C_rows.T @ now.nu - now.w_low + now.w_high
        r_p = scaled_constraints(now.x) + now.s
        r_e = C_rows @ now.x - d_rows
        d_low, d_high = slacks(now.x)
        comp = jnp.sum(now.s * now.lam) + jnp.sum(jnp.where(has_low, d_low * now.w_low, 0.0))
        comp = comp + jnp.sum(jnp.where(has_high, d_high * now.w_high, 0.0))
        return jnp.where(fixed, 0.0, r_d), r_p, r_e, comp / jnp.maximum(n_comp, 1)

    def error(now: _Iterate) -> Array:
        r_d, r_p, r_e, mu = residuals(now)
        parts = [jnp.max(jnp.abs(r), initial=0.0) for r in (r_d, r_p, r_e)]
        return jnp.max(jnp.stack([*parts, mu]))

    def pairs(now: _Iterate) -> list[Pair]:
        d_low, d_high = slacks(now.x)
        return [Pair(now.s, now.lam), Pair(d_low, now.w_low), Pair(d_high, now.w_high)]

    def changes(d: _Iterate) -> list[Pair]:
        low, high = jnp.where(has_low, d.x, 0.0), jnp.where(has_high, -d.x, 0.0)
        return [Pair(d.s, d.lam), Pair(low, d.w_low), Pair(high, d.w_high)]

    def directions(now: _Iterate) -> Callable[[list[Array]], _Iterate]:
        r_d, r_p, r_e, _ = residuals(now)
        d_low, d_high = slacks(now.x)
        H = jacobian(lambda u: scaled_force(u, now.lam), now.x)
        J = jacobian(scaled_constraints, now.x)
        barrier = jnp.where(has_low, now.w_low / d_low, 0.0) + jnp.where(has_high, now.w_high / d_high, 0.0)
        K = H + (J.T * (now.lam / now.s)) @ J + jnp.diag(barrier + _PROX)
        K = jnp.where(fixed[:, None] | fixed[None, :], 0.0, K) + jnp.diag(jnp.where(fixed, 1.0, 0.0))
        rows = jnp.where(fixed, 0.0, C_rows)
        n_e = rows.shape[0]
        saddle = jnp.block([[K, rows.T], [rows, -_PROX * jnp.eye(n_e)]])
        factor = lu_factor(saddle)

        def direction(targets: list[Array]) -> _Iterate:
            t_s, t_low, t_high = targets
            rhs = -r_d - J.T @ ((t_s + now.lam * r_p) / now.s)
            rhs = rhs + jnp.where(has_low, t_low / d_low, 0.0) - jnp.where(has_high, t_high / d_high, 0.0)
            full = jnp.concatenate([jnp.where(fixed, 0.0, rhs), -r_e])
            both = lu_solve(factor, full)
            both = both + lu_solve(factor, full - saddle @ both)  # one step of refinement
            du, dnu = both[: now.x.size], both[now.x.size :]
            ds = -r_p - J @ du
            return _Iterate(
                x=du,
                lam=(t_s - now.lam * ds) / now.s,
                nu=dnu,
                s=ds,
                w_low=jnp.where(has_low, (t_low - now.w_low * du) / d_low, 0.0),
                w_high=jnp.where(has_high, (t_high + now.w_high * du) / d_high, 0.0),
            )

        return direction

    begin = _start(u_start, scaled_constraints(u_start), has_low, has_high, n_rows=C_rows.shape[0])
    found = follow(CentralPath(pairs, changes, directions, error, n_comp), begin)
    x = point(found.best.x * unit_x)
    lam = positive_part(found.best.lam * unit_F / unit_c)[:n_user]
    return Interior(X.project(x), lam, found.n_steps)


def _start(u: Array, c: Array, has_low, has_high, n_rows: int) -> _Iterate:
    """This point, where the constraints are c, with unit multipliers (the units are the problem's own)."""
    s = jnp.maximum(-c, 0.1)
    ones = jnp.ones_like(u)
    return _Iterate(
        x=u,
        lam=0.1 / s,
        nu=jnp.zeros(n_rows),
        s=s,
        w_low=jnp.where(has_low, 0.1 * ones, 0.0),
        w_high=jnp.where(has_high, 0.1 * ones, 0.0),
    )


interior_point_compiled = eqx.filter_jit(interior_point)
