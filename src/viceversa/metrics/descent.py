"""What a Newton step needs beyond its equation: conjugate gradients, a step length, and sizes by power iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from viceversa.numerics import safe_divide, tree_norm

MAX_PRODUCTS = 300
MAX_TRIALS = 30
# The residual a system is solved to, squared and relative.
RESIDUAL_SQ = 1e-14


class _Conjugate(NamedTuple):
    solution: Float[Array, "..."]
    r: Float[Array, "..."]
    p: Float[Array, "..."]
    rz: Float[Array, ""]
    n_products: Int[Array, ""]


def conjugate_gradients(product: Callable, b: Array, diagonal: Array) -> tuple[Array, Array]:
    """The solution of a positive definite system by conjugate gradients, preconditioned by a diagonal."""

    def body(s: _Conjugate) -> _Conjugate:
        Ap = product(s.p)
        alpha = safe_divide(s.rz, jnp.sum(s.p * Ap), 0.0)
        r = s.r - alpha * Ap
        z = r / diagonal
        rz = jnp.sum(r * z)
        p = z + safe_divide(rz, s.rz, 0.0) * s.p
        return _Conjugate(s.solution + alpha * s.p, r, p, rz, s.n_products + 1)

    z = b / diagonal
    start = _Conjugate(jnp.zeros_like(b), b, z, jnp.sum(b * z), jnp.asarray(0))
    enough = RESIDUAL_SQ * start.rz
    end = jax.lax.while_loop(lambda s: (s.rz > enough) & (s.n_products < MAX_PRODUCTS), body, start)
    return end.solution, end.n_products


class _Search(NamedTuple):
    """A bracket [low, high] of the zero of the increasing slope φ'(α) = ∇φ(y + αd)ᵀd; G = ∇φ at the last α tried."""

    low: Float[Array, ""]
    high: Float[Array, ""]
    slope_low: Float[Array, ""]
    slope_high: Float[Array, ""]
    alpha: Float[Array, ""]
    G: Float[Array, "..."]
    n_trials: Int[Array, ""]


def step_length(gradient: Callable, y: Array, d: Array, G: Array) -> tuple[Array, Array]:
    """(α, ∇φ(y + αd)): 1 when the full step pays, else where the slope along d nearly vanishes."""
    slope, size = jnp.sum(G * d), tree_norm(G)

    def unfinished(s: _Search) -> Array:
        now = jnp.sum(s.G * d)
        flat_enough = jnp.where(s.alpha == 1.0, 0.5, 0.1)
        pays = (
            (jnp.abs(now) <= flat_enough * jnp.abs(slope)) | (tree_norm(s.G) <= 0.5 * size) | (slope >= 0.0)
        )
        # φ still falls at α = 1: the whole step is taken.
        pays = pays | ((s.alpha == 1.0) & (now <= 0.0))
        return (s.n_trials == 0) | (~pays & (s.n_trials < MAX_TRIALS))

    def body(s: _Search) -> _Search:
        secant = s.low - s.slope_low * safe_divide(s.high - s.low, s.slope_high - s.slope_low, 0.5)
        alpha = jnp.where(s.n_trials % 2 == 1, secant, 0.5 * (s.low + s.high))
        alpha = jnp.where(s.n_trials == 0, 1.0, alpha)
        G_now = gradient(y + alpha * d)
        now = jnp.sum(G_now * d)
        low, slope_low = jnp.where(now > 0.0, s.low, alpha), jnp.where(now > 0.0, s.slope_low, now)
        high, slope_high = jnp.where(now > 0.0, alpha, s.high), jnp.where(now > 0.0, now, s.slope_high)
        return _Search(low, high, slope_low, slope_high, alpha, G_now, s.n_trials + 1)

    one, zero = jnp.ones(()), jnp.zeros(())
    end = jax.lax.while_loop(unfinished, body, _Search(zero, one, slope, -slope, one, G, jnp.asarray(0)))
    return end.alpha, end.G


def largest_eigenvalue(product: Callable, v: Array, n_steps: int = 12) -> Array:
    """The largest |eigenvalue| of a symmetric product, by power iterations."""

    def body(_, carry):
        v, _size = carry
        w = product(v)
        size = tree_norm(w)
        return safe_divide(w, size, 0.0), size

    return jax.lax.fori_loop(0, n_steps, body, (safe_divide(v, tree_norm(v), 0.0), jnp.zeros(())))[1]


def alternating_signs(y: Array) -> Array:
    """±1 in an order without pattern, of the shape of y."""
    i = jnp.arange(y.size, dtype=y.dtype)
    return jnp.where(jnp.sin(i * i) > 0.0, 1.0, -1.0).reshape(y.shape)
