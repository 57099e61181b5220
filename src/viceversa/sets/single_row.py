"""A box cut by one linear row: projection and linear oracle by a search over breakpoints, exact at any size."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Numbers = Array | np.ndarray


class CutBox(NamedTuple):
    """{ y : lower ≤ y ≤ upper, ⟨a, y⟩ ≤ b } with flat arrays and ‖a‖ = 1."""

    a: Float[Numbers, " n"]
    b: Float[Numbers, ""]
    lower: Float[Numbers, " n"]
    upper: Float[Numbers, " n"]


def project_inequality(x, cut: CutBox):
    """The projection on { lower ≤ y ≤ upper, ⟨a, y⟩ ≤ b }: y = clip(x − λa) with λ = [root of ⟨a, y(λ)⟩ = b]₊."""
    return _inequality(x, cut)


def project_equality(x, cut: CutBox):
    """The projection on { lower ≤ y ≤ upper, ⟨a, y⟩ = b }: y = clip(x − λa) with ⟨a, y(λ)⟩ = b."""
    return _equality(x, cut)


@jax.custom_jvp
def _inequality(x, cut):
    return _along(x, jnp.maximum(_multiplier(x, cut), 0.0), cut)


@jax.custom_jvp
def _equality(x, cut):
    return _along(x, _multiplier(x, cut), cut)


@_inequality.defjvp
def _inequality_jvp(primals, tangents):
    (x, cut), (dx, _) = primals, tangents
    lam = jnp.maximum(_multiplier(x, cut), 0.0)
    y = _along(x, lam, cut)
    row_active = (lam > 0.0) | (jnp.sum(cut.a * y) >= cut.b)
    return y, _tangent(dx, x - lam * cut.a, cut, row_active)


@_equality.defjvp
def _equality_jvp(primals, tangents):
    (x, cut), (dx, _) = primals, tangents
    lam = _multiplier(x, cut)
    return _along(x, lam, cut), _tangent(dx, x - lam * cut.a, cut, True)


def _along(x, lam, cut: CutBox):
    return jnp.clip(x - lam * cut.a, cut.lower, cut.upper)


def _tangent(dx, w, cut: CutBox, row_active):
    """The projector on the directions that leave every active bound, and the row if active, as they are."""
    free = (w > cut.lower) & (w < cut.upper)
    a = jnp.where(free & row_active, cut.a, 0.0)
    a_sq = jnp.sum(a * a)
    share = jnp.where(a_sq > 0.0, 1.0 / jnp.where(a_sq > 0.0, a_sq, 1.0), 0.0)
    return jnp.where(free, dx, 0.0) - (jnp.sum(a * dx) * share) * a


@jax.jit
def _multiplier(x, cut: CutBox):
    """A root λ of the non-increasing, piecewise linear ⟨a, clip(x − λa)⟩ − b; its sign is that of the value at 0."""
    a, b, lower, upper = cut
    slanted = a != 0.0
    divisor = jnp.where(slanted, a, 1.0)
    at_upper, at_lower = (x - upper) / divisor, (x - lower) / divisor
    # Coordinate i moves for λ between `enter` and `leave`; where a_i = 0 it never does.
    enter = jnp.where(slanted, jnp.minimum(at_upper, at_lower), jnp.inf)
    leave = jnp.where(slanted, jnp.maximum(at_upper, at_lower), jnp.inf)
    breaks = jnp.sort(jnp.concatenate([enter, leave]))
    n_breaks = breaks.size

    def before_root(k):
        t = breaks[k]
        value = jnp.sum(a * _along(x, jnp.where(jnp.isfinite(t), t, 0.0), cut)) - b
        return jnp.where(jnp.isfinite(t), value >= 0.0, t < 0.0)

    def halve(_, bracket):
        low, high = bracket  # breaks[:low] lie before the root, breaks[high:] do not
        middle = (low + high) // 2
        before = before_root(jnp.minimum(middle, n_breaks - 1)) & (middle < high)
        return jnp.where(before, middle + 1, low), jnp.where(before, high, middle)

    start = (jnp.zeros((), jnp.int32), jnp.full((), n_breaks, jnp.int32))
    count, _ = jax.lax.fori_loop(0, math.ceil(math.log2(n_breaks + 1)) + 1, halve, start)
    left = jnp.where(count > 0, breaks[jnp.maximum(count - 1, 0)], -jnp.inf)
    right = jnp.where(count < n_breaks, breaks[jnp.minimum(count, n_breaks - 1)], jnp.inf)
    # Between two neighbouring breakpoints the free coordinates do not change, so the root is one division.
    free = slanted & (enter <= left) & (leave >= right)
    held = jnp.where((leave <= left) == (a > 0.0), lower, upper)
    held = jnp.where(slanted & ~free, held, 0.0)
    a_sq = jnp.sum(jnp.where(free, a * a, 0.0))
    excess = jnp.sum(a * jnp.where(free, x, held)) - b
    flat = jnp.where(jnp.isfinite(left), left, jnp.where(jnp.isfinite(right), right, 0.0))
    root = jnp.where(a_sq > 0.0, excess / jnp.where(a_sq > 0.0, a_sq, 1.0), flat)
    return jnp.clip(root, left, right)


@functools.partial(jax.jit, static_argnames="equality")
def support_of_bounded(c, cut: CutBox, equality: bool):
    """A maximiser of ⟨c, y⟩ for finite bounds: raise ⟨a, y⟩ from its least value, best ratio c_i/a_i first."""
    a, b, lower, upper = cut
    slanted = a != 0.0
    lowest = jnp.where(slanted, jnp.where(a > 0.0, lower, upper), jnp.where(c > 0.0, upper, lower))
    room = jnp.abs(a) * (upper - lower)
    ratio = jnp.where(slanted, c / jnp.where(slanted, a, 1.0), -jnp.inf)
    order = jnp.argsort(-ratio)
    worth = slanted[order] if equality else (slanted & (ratio > 0.0))[order]
    sizes = jnp.where(worth, room[order], 0.0)
    before = jnp.cumsum(sizes) - sizes
    spent = jnp.clip(b - jnp.sum(a * lowest) - before, 0.0, sizes)
    # A full step lands on the bound itself, without rounding.
    step = jnp.where(
        spent >= sizes, (upper - lower)[order], spent / jnp.where(slanted, jnp.abs(a), 1.0)[order]
    )
    step = jnp.zeros_like(c).at[order].set(jnp.where(worth, step, 0.0))
    return jnp.clip(lowest + jnp.where(a > 0.0, step, -step), lower, upper)


def meets(cut: CutBox, equality: bool) -> bool:
    """Whether the box and the row have a point in common, up to rounding (host)."""
    a, b, lower, upper = (np.asarray(part) for part in cut)
    slanted = a != 0.0
    a, lower, upper = a[slanted], lower[slanted], upper[slanted]
    lowest, highest = a * np.where(a > 0.0, lower, upper), a * np.where(a > 0.0, upper, lower)
    # ‖a‖ = 1, so these are lengths; the margin is that of the sums themselves.
    margin = 1e-13 * (abs(b) + np.abs(a * np.where(np.isfinite(lower), lower, 0.0)).sum())
    above = np.isinf(lowest).any() or lowest.sum() <= b + margin
    below = np.isinf(highest).any() or highest.sum() >= b - margin
    return bool(above and (below or not equality))


def relative_interior(cut: CutBox, middle: np.ndarray, equality: bool) -> np.ndarray:
    """A relative interior point, from the `middle` of the box towards the side the row asks for (host)."""
    a, b, lower, upper = (np.asarray(part) for part in cut)
    value = float(a @ middle)
    if value < b and not equality:
        return middle
    sign = 1.0 if value >= b else -1.0
    corner = np.where(sign * a > 0.0, lower, upper)
    reach = abs(value - b) / float(np.sum(a[np.isinf(corner) & (a != 0.0)] ** 2) or 1.0) + 1.0
    corner = np.where(a == 0.0, middle, np.where(np.isinf(corner), middle - sign * reach * a, corner))
    far = float(a @ corner)
    if sign * (far - b) >= 0.0:
        return corner
    level = float(b) if equality else 0.5 * (float(b) + far)
    return middle + (corner - middle) * ((value - level) / (value - far))
