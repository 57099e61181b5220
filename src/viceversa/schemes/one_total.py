"""Affine problems on a box whose coordinates meet in one total: a search in one number for each market.

The firms of a market know each other by its total alone. Whatever the others do, coordinate i is determined by itself as soon as
the total's change σ and the multiplier's change μ are given. At (x_0, λ_0), with G = F + Jfᵀλ_0 and f there, R how the total and P
how the multiplier presses on each coordinate, c each coordinate's own slope and φ the total's in f:

    x(σ, μ) = P_X[x_0 − (G + Rσ + Pμ)/c],    σ = S(x(σ, μ) − x_0),    0 ≤ λ_0 + μ ⊥ f + φσ ≤ 0.                           (1)

One evaluation of (1) at λ = 0 and the σ̂ with f + φσ̂ = 0 tells on which side of σ̂ the market would come to rest without the
constraint: on the right one, μ = −λ_0 and σ is searched for; on the wrong one, σ = σ̂ and μ is. Both ways what is left is a
piecewise linear equation in one number τ,

    g(τ) = aτ + b − e S(x(τ) − x_0) = 0,    x(τ) = P_X(start − wτ),                                                     (2)

increasing where F is monotone, and Newton's method within a bracket solves it, in every market at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from viceversa.numerics import positive_part, safe_divide
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.aggregates import Aggregates
from viceversa.schemes.newton_system import KKT, kkt_at, read_off
from viceversa.sets.intervals import ends

_MOST_EVALUATIONS = 100
_ROUNDING = 4e-16  # of every number in (2), relative to it
_ON_THE_PIECE = 1e-12  # of |g|: what a full step leaves at most if no coordinate has met a bound on the way
_SLOW = 0.5  # of the last step: a longer one halves the bracket instead
_CORNER = 8 * 2.0**-52  # of the numbers in it: how well a corner is known
_FAR = 1e7  # times a coordinate's number at the answer that numbers at the start may be: what they lose by rounding is nothing


class OneTotal(NamedTuple):
    """The answer, whether it is one and the start was near enough for all its digits, and how often (2) was evaluated."""

    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    solved: Bool[Array, ""]
    settled: Bool[Array, ""]
    n_evaluations: Int[Array, ""]


class _Equation(NamedTuple):
    """(2): `start` and `w` are like x; for each market a, b, e, and the least τ; the last τ at which x(τ) meets or leaves a bound
    lies between `near` and `last`, as far as rounding tells."""

    start: Array
    w: Array
    a: Array
    b: Array
    e: Array
    least: Array
    near: Array
    last: Array


class _Search(NamedTuple):
    """For each market τ, its bracket, the last step's length, the piece of g it was taken on and |g| there; whether τ is a root."""

    tau: Array
    low: Array
    high: Array
    length: Array
    piece: Array
    value: Array
    found: Array
    n: Int[Array, ""]


def has_one_total(problem: MisspecifiedVI) -> bool:
    """Whether coordinates of an affine problem meet in one total, which constraints may be on, or in none."""

    def has(product: Callable, x: Array, lam: Array) -> bool:
        totals = _totals(product, x, lam)
        return totals is not None and totals.n_sums <= 1

    return read_off(problem, has)


def solve_one_total(problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree) -> OneTotal:
    """Solve an affine VI on a box at a fixed θ, from (x, λ); the caller judges the answer by its certificate."""
    kkt = kkt_at(problem, x, lam, theta)
    totals, bounds = _totals(kkt.product, x, lam), ends(problem.set)
    assert totals is not None
    if not totals.n_sums:
        v = x - kkt.G / totals.c
        x_found = jnp.clip(v, *bounds)
        solved = jnp.all(totals.c > 0) & jnp.all(jnp.isfinite(x_found))
        return OneTotal(x_found, lam, solved, jnp.all(jnp.abs(x) <= _FAR * jnp.abs(v)), jnp.asarray(0))
    (size,) = totals.sums(jnp.abs(x))
    equation, is_held, numbers = _equation(totals, kkt, bounds, x, lam, size)

    def step(now: _Search) -> _Search:
        tau = now.tau
        sigma, piece = _total(totals, bounds, equation, x, tau)
        _, _, a, b, e, *_ = equation
        g, slope = a * tau + b - e * sigma, a + e * piece
        nothing = _ROUNDING * (
            a * jnp.abs(tau)
            + jnp.abs(b)
            + jnp.abs(e) * (jnp.abs(size) + jnp.abs(sigma) + jnp.abs(tau * piece))
        )
        change = -g / slope
        low, high = jnp.where(g < 0, tau, now.low), jnp.where(g > 0, tau, now.high)
        middle, ahead = 0.5 * (low + high), tau + change
        # Where nothing moves the step is infinite, but not all of them need be at rest for ever; and where they all meet their
        # bounds, they are to lie on them.
        ahead = jnp.where((tau < equation.near) & (ahead >= equation.near), equation.last, ahead)
        is_bracketed = jnp.isfinite(middle)
        helps = (low < ahead) & (ahead < high) & (jnp.abs(change) <= _SLOW * now.length)
        halves = ~helps & is_bracketed
        ahead = jnp.where(halves, middle, ahead)
        closed = is_bracketed & (high - low <= _ROUNDING * (jnp.abs(low) + jnp.abs(high)))
        exact = (piece == now.piece) & (jnp.abs(g) <= _ON_THE_PIECE * now.value)
        found = now.found | (jnp.abs(g) <= nothing) | exact | closed | ~jnp.isfinite(ahead)
        return _Search(
            tau=jnp.where(found, tau, ahead),
            low=low,
            high=high,
            length=jnp.abs(ahead - tau),
            piece=piece,
            value=jnp.abs(g),
            found=found,
            n=now.n + 1,
        )

    tau = jnp.zeros(totals.shape)
    endless = jnp.full(tau.shape, jnp.inf)
    begin = _Search(tau, equation.least, endless, endless, endless, endless, tau > 0, jnp.asarray(0))
    end = jax.lax.while_loop(lambda now: jnp.any(~now.found) & (now.n < _MOST_EVALUATIONS), step, begin)
    pressed = equation.w * totals.spread(end.tau)
    v = equation.start - pressed
    x_found = jnp.clip(v, *bounds)
    # A market where nothing but rounding has moved rests: beside x = x_0 = 0 nothing would say how small 1e-17 is.
    still = jnp.abs(x_found - x) <= _ROUNDING * (jnp.abs(equation.start) + jnp.abs(pressed))
    x_found = jnp.where(totals.spread(totals.place_reduced(still, jnp.all)), x, x_found)
    lam_found = (
        jnp.where(is_held, positive_part(lam.reshape(tau.shape) + end.tau), 0.0).reshape(lam.shape)
        if lam.size
        else lam
    )
    solved = jnp.all(totals.c > 0) & jnp.all(end.found) & jnp.all(jnp.isfinite(end.tau) & (end.tau < jnp.inf))
    solved = solved & jnp.all(jnp.isfinite(x_found))
    settled = jnp.all(numbers <= _FAR * jnp.abs(v))
    return OneTotal(x_found, lam_found, solved, settled, end.n + (1 if lam.size else 0))


def _totals(product: Callable, x: Array, lam: Array) -> Aggregates | None:
    return Aggregates.of(product, x, lam, coordinates_alone=True)


def _equation(
    totals: Aggregates, kkt: KKT, bounds: tuple, x: Array, lam: Array, size: Array
) -> tuple[_Equation, Array, Array]:
    """(2), whether the constraint of each market holds its total at σ̂, and how large numbers are that x_0 and λ_0 bring into x."""
    ones = jnp.ones(totals.shape)
    none, everywhere, by_c = 0.0 * ones, jnp.inf * ones, 1.0 / totals.c
    rest = x - by_c * kkt.G
    if not lam.size:
        R = by_c * totals.rest([ones])[0]
        numbers = jnp.abs(x) + jnp.abs(R * totals.spread(size))
        return _Equation(rest, R, ones, none, ones, -everywhere, *[everywhere] * 2), none > 0, numbers
    lam_0, f = lam.reshape(totals.shape), kkt.f.reshape(totals.shape)
    (R, (*_, phi)), (P, _) = totals.rest([ones, None]), totals.rest([None, ones])
    R, P, sigma_hat = by_c * R, by_c * P, safe_divide(-f, phi, 0.0)
    pressed = P * totals.spread(lam_0)
    numbers = jnp.abs(x) + jnp.abs(R * totals.spread(size)) + jnp.abs(pressed)
    free = _Equation(rest + pressed, R, ones, none, ones, -everywhere, *[everywhere] * 2)
    sigma, _ = _total(totals, bounds, free, x, sigma_hat)
    is_held = phi * (sigma_hat - sigma) < 0
    start = rest - R * totals.spread(sigma_hat)
    near, last = _last_corner(totals, bounds, start, P)
    held = _Equation(start, P, none, -f, phi, -lam_0, near, last)
    there = totals.spread(is_held)
    which = _Equation(there, there, *([is_held] * 6))
    return jax.tree.map(jnp.where, which, held, free), is_held, numbers


def _last_corner(totals: Aggregates, bounds: tuple, start: Array, w: Array) -> tuple[Array, Array]:
    """Between which two τ each market's last coordinate meets or leaves a bound: beyond the second they all lie on theirs."""
    corners = [safe_divide(start - bound, w, -jnp.inf) for bound in bounds]
    rounding = [_CORNER * safe_divide(jnp.abs(start) + jnp.abs(bound), jnp.abs(w), 0.0) for bound in bounds]

    def latest(sign: float) -> Array:
        found = [corner + sign * off for corner, off in zip(corners, rounding, strict=True)]
        return totals.place_reduced(
            jnp.maximum(*[jnp.where(jnp.isfinite(each), each, -jnp.inf) for each in found]), jnp.max
        )

    return latest(-1.0), latest(1.0)


def _point(totals: Aggregates, bounds: tuple, equation: _Equation, tau: Array) -> tuple[Array, Array]:
    """x(τ), and whether each coordinate moves with τ; those that have just met a bound, or leave it, may."""
    v = equation.start - equation.w * totals.spread(tau)
    return jnp.clip(v, *bounds), (v >= bounds[0]) & (v <= bounds[1])


def _total(
    totals: Aggregates, bounds: tuple, equation: _Equation, x: Array, tau: Array
) -> tuple[Array, Array]:
    """S(x(τ) − x_0), and how fast it falls with τ: S(w) of the coordinates that move."""
    here, moves = _point(totals, bounds, equation, tau)
    (sigma,), (piece,) = totals.sums(here - x), totals.sums(jnp.where(moves, equation.w, 0.0))
    return sigma, piece
