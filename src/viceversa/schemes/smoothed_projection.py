"""Projections whose corners are rounded: onto boxes, onto the signs of multipliers, and onto simplices through their row sums.

A simplex is the orthant x ≥ 0 with Bx = b, where B sums every row. With multipliers τ of these sums its projection in the metric γ
is the orthant's for a force with Bᵀτ added,

    p(v − γBᵀτ),    where τ is such that  B p(v − γBᵀτ) = b,                                              (2)

rounded as the orthant's is: entries that a row does not use leave it gradually, and none is guessed wrongly.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from viceversa.numerics import safe_divide
from viceversa.sets import Box, NonNegative, Simplex
from viceversa.sets.base import ConvexSet

_LEAST_SLOPE = 1e-14  # of the smoothed projection: a coordinate below it stays on its bound to rounding
_TINY = 1e-300  # 0/0 becomes 0 where a coordinate lies on its bound and nothing is smoothed
_MOST_STEPS = 100  # for a multiplier: about five where nothing is smoothed, a dozen where much is
_ROUNDING = 4e-16  # of a row's sum, or of its multiplier


class Smoothed(NamedTuple):
    """A smoothed projection, its slope, in [10⁻¹⁴, 1], and its derivative in m²."""

    value: Float[Array, "..."]
    slope: Float[Array, "..."]
    by_m_sq: Float[Array, "..."]


def smoothed_projection(X: ConvexSet, v: Array, m_sq) -> Smoothed:
    """P_X(v) of a box with its corners rounded over the length m, given as m² (Chen–Harker–Kanzow–Smale):

    p(v) = v + e(v − l) − e(u − v),    e(w) = (√(w² + 4m²) − w)/2                                  (1)

    p increases, lies strictly inside the box for m > 0, and is P_X for m = 0. A simplex is taken for the orthant it lies in.
    """
    if isinstance(X, Simplex):
        rounded, free = smoothed_positive_part(v, m_sq), may_vary(X)
        parts = zip(rounded, (0.0, _LEAST_SLOPE, 0.0), strict=True)
        return Smoothed(*(jnp.where(free, part, fixed) for part, fixed in parts))
    low, high = (X.low, X.high) if isinstance(X, Box) else (-jnp.inf, jnp.inf)
    if isinstance(X, NonNegative):
        low = 0.0
    below, above = _excess(v - low, m_sq), _excess(high - v, m_sq)
    slope = jnp.clip(1.0 - below.slope - above.slope, _LEAST_SLOPE, 1.0)
    return Smoothed(v + below.value - above.value, slope, below.by_m_sq - above.by_m_sq)


def smoothed_positive_part(v: Array, m_sq) -> Smoothed:
    """[v]₊ with its corner rounded over the length m, given as m²."""
    excess = _excess(v, m_sq)
    return Smoothed(v + excess.value, jnp.clip(1.0 - excess.slope, _LEAST_SLOPE, 1.0), excess.by_m_sq)


def _excess(w: Array, m_sq) -> Smoothed:
    """e(w) of (1), −e′(w) = e(w)/√(w² + 4m²) and 1/√(w² + 4m²), without cancellation; all 0 without a bound (w = ∞)."""
    square = w * w + 4.0 * m_sq
    # One root and one quotient for each bound: they are what this costs.
    by_root = jnp.where((square > 0) & (square < jnp.inf), jax.lax.rsqrt(square), 0.0)
    root = jnp.where(square < jnp.inf, square * by_root, jnp.inf)
    less = 2.0 * m_sq / (root + jnp.abs(w) + _TINY)  # e(|w|)
    share = less * by_root
    # A choice, where a maximum would do: sums of what follows end here instead of taking the roots one at a time.
    value, slope = jnp.where(w >= 0, less, less - w), jnp.where(w >= 0, share, 1.0 - share)
    return Smoothed(value, slope, by_root)


def has_row_sums(X: ConvexSet) -> bool:
    """Whether X is an orthant whose rows have given sums."""
    return isinstance(X, Simplex)


class _Sought(NamedTuple):
    """A multiplier below the one sought, how far Newton's next step goes, and the number of steps."""

    tau: Float[Array, "... 1"]
    change: Float[Array, "... 1"]
    k: Array


def row_multipliers(X: ConvexSet, v: Array, gamma, m_sq) -> Array:
    """τ of (2), one for each row; 0 for a box.

    Row sums are convex and decrease in τ. From a τ at which one entry alone has the row's whole sum, Newton's steps therefore
    lead upwards to the one sought and never beyond.
    """
    if not isinstance(X, Simplex):
        return jnp.zeros(())
    total, free = jnp.asarray(X.total)[..., None], may_vary(X)

    def sought(tau: Array, k) -> _Sought:
        p = smoothed_projection(X, v - gamma * tau, m_sq)
        left = jnp.sum(p.value, axis=-1, keepdims=True) - total
        change = safe_divide(
            left, jnp.sum(jnp.where(free, gamma * p.slope, 0.0), axis=-1, keepdims=True), 0.0
        )
        settled = (left <= _ROUNDING * total) | (change <= _ROUNDING * jnp.abs(tau))
        return _Sought(tau, jnp.where(settled, 0.0, change), k)

    highest = jnp.max(jnp.where(free, (v - total) / gamma, -jnp.inf), axis=-1, keepdims=True)
    start = sought(jnp.where(jnp.isfinite(highest), highest, 0.0), jnp.asarray(0))
    return jax.lax.while_loop(
        lambda now: jnp.any(now.change > 0) & (now.k < _MOST_STEPS),
        lambda now: sought(now.tau + now.change, now.k + 1),
        start,
    ).tau


def may_vary(X: Simplex) -> Array:
    return (jnp.asarray(X.total)[..., None] > 0) & (True if X.mask is None else jnp.asarray(X.mask))
