"""An interior-point method for boxes with as many coordinates as one likes, where these meet only in totals.

Every such problem has the form

    F(x) + Jf(x)ᵀλ − w_l + w_u = 0,    f(x) + s = 0,    x − l ⟂ w_l,    u − x ⟂ w_u,    s ⟂ λ,    all six ≥ 0,    (1)

and a direction along its central path (`central_path`), (x − l)dw_l + w_l dx = t_l, (u − x)dw_u − w_u dx = t_u and
s dλ + λ ds = q, is

    (H + w_l/(x − l) + w_u/(u − x)) dx + Jᵀdλ = −r_d + t_l/(x − l) − t_u/(u − x),    J dx − (s/λ) dλ = −r_f − q/λ,    (2)

which `aggregates` eliminates. Smoothed maps take short steps, or none, where slopes and totals' weights differ by decades; this takes
ten to forty.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from viceversa.numerics import max_abs, positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.aggregates import Aggregates, corrected
from viceversa.schemes.central_path import CentralPath, Pair, follow
from viceversa.schemes.interior_start import place_inside, tame_point, units_of
from viceversa.schemes.newton_system import kkt_map, read_off
from viceversa.sets.intervals import ends

_RTOL = 1e-12  # of the linear system, as far as corrections go
_PROX = 1e-14  # of an energy over a length squared, added to the diagonal: harmless to the answer, which is judged by residuals
_FIXED = 1e14  # times the largest other diagonal entry: of a coordinate whose bounds are one
_LEAST_SLACK = 0.1  # of a constraint's variation
_PRODUCTS = 0.1  # of the energy that a coordinate's force has over its unit: its pairs' products at the start
_LEAST_ENERGY = 1e-3  # of the largest


class _Iterate(NamedTuple):
    """The unknowns of (1)."""

    x: Float[Array, "..."]
    w_low: Float[Array, "..."]
    w_high: Float[Array, "..."]
    lam: Float[Array, " J"]
    s: Float[Array, " J"]


class InteriorOfBox(NamedTuple):
    """The answer, and how many steps it took."""

    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    n_steps: Int[Array, ""]


def box_meets_in_totals(problem: MisspecifiedVI) -> bool:
    """Whether this method knows the problem: coordinates meet only in totals, and constraints belong to those."""
    return read_off(problem, lambda product, x, lam: Aggregates.of(product, x, lam) is not None)


def box_interior_point(problem: MisspecifiedVI, x0: Array, theta: PyTree) -> InteriorOfBox:
    """Solve the VI on a box at a fixed θ from the neighbourhood of x_0, or of P_X(0); the caller judges the answer."""
    F, f, X = problem.at(theta)
    lower, upper = (jnp.broadcast_to(jnp.asarray(end, x0.dtype), x0.shape) for end in ends(X))
    fixed = upper <= lower
    has_low, has_high = jnp.isfinite(lower) & ~fixed, jnp.isfinite(upper) & ~fixed
    n_pairs = jnp.sum(has_low) + jnp.sum(has_high) + problem.n_constraints
    kkt = kkt_map(problem, theta)

    def slacks(x: Array) -> tuple[Array, Array]:
        return jnp.where(has_low, x - lower, 1.0), jnp.where(has_high, upper - x, 1.0)

    def residuals(now: _Iterate, G: Array, f_x: Array) -> tuple[Array, Array]:
        return jnp.where(fixed, 0.0, G - now.w_low + now.w_high), f_x + now.s

    def pairs(now: _Iterate) -> list[Pair]:
        low, high = slacks(now.x)
        return [Pair(low, now.w_low), Pair(high, now.w_high), Pair(now.s, now.lam)]

    def changes(d: _Iterate) -> list[Pair]:
        low, high = jnp.where(has_low, d.x, 0.0), jnp.where(has_high, -d.x, 0.0)
        return [Pair(low, d.w_low), Pair(high, d.w_high), Pair(d.s, d.lam)]

    def directions(now: _Iterate):
        (G, f_x), product = jax.linearize(kkt, now.x, now.lam)
        (r_d, r_f), (low, high) = residuals(now, G, f_x), slacks(now.x)
        E, C = now.w_low / low + now.w_high / high + _PROX * energy / unit**2, now.s / now.lam
        E = jnp.where(fixed, _FIXED * jnp.max(E), E)
        totals = Aggregates.of(product, now.x, now.lam)
        assert totals is not None, "box_interior_point: coordinates meet otherwise than in totals"
        solve = totals.solver(E, C)

        def matvec(step: tuple[Array, Array]) -> tuple[Array, Array]:
            (Hu, Ju), (u, y) = product(*step), step
            return Hu + E * u, Ju - C * y

        def direction(targets: list[Array]) -> _Iterate:
            t_low, t_high, q = targets
            rhs = (jnp.where(fixed, 0.0, t_low / low - t_high / high - r_d), -r_f - q / now.lam)
            step = corrected(lambda left: solve(*left), matvec, rhs, (1.0 / E, 1.0 / C), _RTOL)
            dx, dlam = step.solution  # (2)
            dx = jnp.where(fixed, 0.0, dx)
            ds = -r_f - product(dx, jnp.zeros_like(now.lam))[1]
            return _Iterate(
                x=dx,
                w_low=jnp.where(has_low, (t_low - now.w_low * dx) / low, 0.0),
                w_high=jnp.where(has_high, (t_high + now.w_high * dx) / high, 0.0),
                lam=dlam,
                s=ds,
            )

        return direction

    def error(now: _Iterate) -> Array:
        r_d, r_f = residuals(now, *kkt(now.x, now.lam))
        mu = sum([jnp.sum(pair.product) for pair in pairs(now)], jnp.zeros(())) / jnp.maximum(n_pairs, 1)
        parts = [max_abs(r_d * reach) / energy, max_abs(r_f / variation), mu / energy]
        return jnp.max(jnp.stack(parts))

    start = tame_point(problem, x0, theta)
    unit = units_of(F, start, upper - lower)
    x = unit * place_inside(F, start, unit, lower / unit, upper / unit, fixed)
    x = jnp.where(fixed, lower, x)
    energy = jnp.maximum(max_abs(jnp.where(fixed, 0.0, F(x) * unit)), 1e-300)
    reach = jnp.where(fixed, 0.0, unit)
    f_x, (slopes,) = f.of_gradients(x, (lambda gradient: jnp.abs(gradient) * reach, jnp.sum))
    variation = jnp.maximum(jnp.abs(f_x), slopes)
    variation = jnp.where(variation > 0, variation, 1.0)
    (low, high), s = slacks(x), jnp.maximum(-f_x, _LEAST_SLACK * variation)
    each = _PRODUCTS * jnp.maximum(jnp.abs(F(x)) * unit, _LEAST_ENERGY * energy)
    w_low, w_high = jnp.where(has_low, each / low, 0.0), jnp.where(has_high, each / high, 0.0)
    begin = _Iterate(x, w_low, w_high, _PRODUCTS * energy / s, s)
    found = follow(CentralPath(pairs, changes, directions, error, n_pairs), begin)
    return InteriorOfBox(X.project(found.best.x), positive_part(found.best.lam), found.n_steps)
