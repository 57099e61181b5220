"""An interior-point method for simplices with as many entries as one likes, where coordinates meet only in totals.

With B the sums of rows, every such problem has the form

    F(x) + Jf(x)ᵀλ + Bᵀτ − w = 0,    f(x) + s = 0,    Bx = b,    x ⟂ w,    s ⟂ λ,    all four ≥ 0,          (1)

and a direction along its central path (`central_path`), x dw + w dx = t and s dλ + λ ds = q, is

    (H + w/x) dx + Jᵀdλ + Bᵀdτ = −r_d + t/x,      J dx − (s/λ) dλ = −r_f − q/λ,      B dx = −r_b,          (2)

which `row_sums` eliminates. Nothing here has a unit: where F depends on totals alone, so that no coordinate has a slope of its
own to be scaled by, this takes ten to thirty steps where a smoothed map takes hundreds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from viceversa.numerics import max_abs, positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.aggregates import corrected
from viceversa.schemes.central_path import CentralPath, Pair, follow
from viceversa.schemes.newton_system import Metric, kkt_map, read_off
from viceversa.schemes.row_sums import RowStep, elimination, row_system, sums_of_rows
from viceversa.schemes.smoothed_projection import may_vary
from viceversa.sets import Simplex

_RTOL = 1e-12  # of the linear system, as far as corrections go
_PROX = 1e-14  # of a force over a length, added to the diagonal: harmless to the answer, which is judged by residuals
_FIXED = 1e14  # times the largest other diagonal entry: of an entry that stays 0
_LEAST_SLACK = 0.1  # of a constraint's variation
_LEAST_SPREAD = 1e-8  # of the forces: what differs less does not differ


class _Iterate(NamedTuple):
    """The unknowns of (1)."""

    x: Float[Array, "..."]
    w: Float[Array, "..."]
    tau: Float[Array, "... 1"]
    lam: Float[Array, " J"]
    s: Float[Array, " J"]


class InteriorOfRows(NamedTuple):
    """The answer, and how many steps it took."""

    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    n_steps: Int[Array, ""]


def meets_in_totals(problem: MisspecifiedVI) -> bool:
    """Whether this method knows the problem: coordinates meet only in totals, and constraints are few or belong to those."""

    def does(product: Callable, x: Array, lam: Array) -> bool:
        diagonals = Metric(jnp.ones_like(x), jnp.ones_like(lam))
        return elimination(product, RowStep(x, lam, sums_of_rows(x)), diagonals) is not None

    return read_off(problem, does)


def row_interior_point(problem: MisspecifiedVI, theta: PyTree) -> InteriorOfRows:
    """Solve the VI on a simplex at a fixed θ, from its centre; the caller judges the answer by its certificate."""
    _, f, X = problem.at(theta)
    assert isinstance(X, Simplex)
    total = jnp.asarray(X.total)[..., None]
    free = jnp.broadcast_to(may_vary(X), X.shape)
    n_pairs = jnp.sum(free) + problem.n_constraints
    kkt = kkt_map(problem, theta)

    def over_x(part: Array, now: _Iterate) -> Array:
        return jnp.where(free, part / jnp.where(free, now.x, 1.0), 0.0)

    def residuals(now: _Iterate, G: Array, f_x: Array) -> tuple[Array, Array, Array]:
        return jnp.where(free, G + now.tau - now.w, 0.0), f_x + now.s, sums_of_rows(now.x) - total

    def pairs(now: _Iterate) -> list[Pair]:
        return [Pair(jnp.where(free, now.x, 1.0), now.w), Pair(now.s, now.lam)]

    def changes(d: _Iterate) -> list[Pair]:
        return [Pair(d.x, d.w), Pair(d.s, d.lam)]

    def directions(now: _Iterate):
        (G, f_x), product = jax.linearize(kkt, now.x, now.lam)
        r_d, r_f, r_b = residuals(now, G, f_x)
        E, C = over_x(now.w, now) + _PROX * force / length, now.s / now.lam
        diagonals = Metric(jnp.where(free, E, _FIXED * jnp.max(E)), C)
        like = RowStep(now.x, now.lam, now.tau)
        solve, matvec = elimination(product, like, diagonals), row_system(product, diagonals)
        assert solve is not None, "row_interior_point: coordinates meet otherwise than in totals"
        weights = RowStep(
            1.0 / diagonals.gamma, 1.0 / diagonals.rho, 1.0 / sums_of_rows(1.0 / diagonals.gamma)
        )

        def direction(targets: list[Array]) -> _Iterate:
            t, q = targets
            rhs = RowStep(over_x(t, now) - r_d, -r_f - q / now.lam, -r_b)
            step = corrected(solve, matvec, rhs, weights, _RTOL).solution  # (2)
            dx = jnp.where(free, step.u, 0.0)
            ds = -r_f - product(dx, jnp.zeros_like(now.lam))[1]
            return _Iterate(dx, over_x(t - now.w * dx, now), step.t, step.y, ds)

        return direction

    def error(now: _Iterate) -> Array:
        G, f_x = kkt(now.x, now.lam)
        r_d, r_f, r_b = residuals(now, G, f_x)
        parts = [max_abs(r_d) / force, max_abs(r_f / variation), max_abs(r_b) / length]
        mu = sum([jnp.sum(pair.product) for pair in pairs(now)], jnp.zeros(())) / n_pairs
        return jnp.max(jnp.stack([*parts, mu / energy]))

    # The centre, with τ so large that every w is positive: products differ by no more than forces do.
    x = free * total / jnp.maximum(jnp.sum(free, axis=-1, keepdims=True), 1)
    G, f_x = kkt(x, jnp.zeros(problem.n_constraints))
    _, (slopes,) = f.of_gradients(x, (lambda gradient: jnp.abs(gradient) * x, jnp.sum))
    variation = jnp.maximum(jnp.abs(f_x), slopes)
    variation = jnp.where(variation > 0, variation, 1.0)
    force, length = _or_one(max_abs(jnp.where(free, G, 0.0))), _or_one(max_abs(total))
    spread = jnp.maximum(jnp.max(_highest(G, free) + _highest(-G, free)), _LEAST_SPREAD * force)
    energy = jnp.sum(x) * spread / n_pairs
    s = jnp.maximum(-f_x, _LEAST_SLACK * variation)
    lam = energy / s
    G, _ = kkt(x, lam)
    tau = spread + _highest(-G, free)
    start = _Iterate(x, jnp.where(free, G + tau, 0.0), tau, lam, s)

    found = follow(CentralPath(pairs, changes, directions, error, n_pairs), start)
    return InteriorOfRows(X.project(found.best.x), positive_part(found.best.lam), found.n_steps)


def _highest(G: Array, free: Array) -> Array:
    """The largest entry of each row, 0 where a row has none."""
    highest = jnp.max(jnp.where(free, G, -jnp.inf), axis=-1, keepdims=True)
    return jnp.where(jnp.isfinite(highest), highest, 0.0)


def _or_one(unit: Array) -> Array:
    return jnp.where((unit > 0) & jnp.isfinite(unit), unit, 1.0)
