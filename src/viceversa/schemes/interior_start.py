"""Where an interior-point method begins: inside the bounds, in units of what happens there, and where forces are tame."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from viceversa.local_derivative import local_derivative
from viceversa.numerics import max_abs, safe_divide
from viceversa.problem import MisspecifiedVI

_MARGIN = 0.1  # of a unit: how far from its bounds the start is
_FAR = 100.0  # times what happens: no answer is expected beyond it
_ASTRAY = 100.0  # times the force at P_X(0): a point with more of it is not where to begin
# Times the force at the point given: where F grows faster than that inside X, the start stays closer.
_STEEPER = 1e3
_CLOSER = 0.1
_MOST_TRIALS = 20
_LEAST_UNIT = 1e-4  # of the width of X


def tame_point(problem: MisspecifiedVI, x: Array, theta: PyTree) -> Array:
    """x, or P_X(0) where forces are far smaller than at an x that has gone astray."""
    F, _, X = problem.at(theta)
    other = X.project(jnp.zeros_like(x))
    is_astray = ~(max_abs(F(x)) <= _ASTRAY * max_abs(F(other))) & jnp.all(jnp.isfinite(F(other)))
    return jnp.where(is_astray, other, x)


def units_of(
    operator: Callable[[Array], Array], v: Float[Array, "..."], width: Float[Array, "..."]
) -> Float[Array, "..."]:
    """What coordinates are measured in: the width of X, or less where X is far wider than anything that happens in it.

    What happens is told by v itself and by how far its force would drive it against its own slope.
    """
    driven = safe_divide(jnp.abs(operator(v)), local_derivative(operator, v), 0.0)
    happens = _FAR * jnp.maximum(jnp.abs(v), jnp.where(jnp.isfinite(driven), driven, 0.0))
    bounded = jnp.clip(happens, _LEAST_UNIT * width, width)
    beyond = jnp.where(happens > 0, happens, 1.0)
    return jnp.where(jnp.isfinite(width) & (width > 0), bounded, beyond)


def place_inside(
    operator: Callable[[Array], Array],
    v: Float[Array, "..."],
    unit: Float[Array, "..."],
    low: Float[Array, "..."],
    high: Float[Array, "..."],
    fixed: Bool[Array, "..."],
) -> Float[Array, "..."]:
    """The point next to v that is well inside the bounds, all in the given units, and less so where F would be far steeper."""
    has_low, has_high = jnp.isfinite(low) & ~fixed, jnp.isfinite(high) & ~fixed

    def inside(margin: Array) -> Array:
        margin = margin * jnp.where(has_low & has_high, jnp.minimum(high - low, 1.0), 1.0)
        inside_low = jnp.where(has_low, low + margin, -jnp.inf)
        inside_high = jnp.where(has_high, high - margin, jnp.inf)
        return jnp.where(fixed, low, jnp.clip(v / unit, inside_low, inside_high))

    def steep(margin: Array) -> Array:
        return ~(_largest_force(operator, unit * inside(margin)) <= _STEEPER * at_start)

    at_start = _largest_force(operator, v)
    at_start = jnp.where(jnp.isfinite(at_start) & (at_start > 0), at_start, jnp.inf)
    _, margin = jax.lax.while_loop(
        lambda trial: (trial[0] < _MOST_TRIALS) & steep(trial[1]),
        lambda trial: (trial[0] + 1, _CLOSER * trial[1]),
        (jnp.asarray(0), jnp.asarray(_MARGIN)),
    )
    return inside(margin)


def _largest_force(operator: Callable[[Array], Array], v: Array) -> Float[Array, ""]:
    return jnp.max(jnp.abs(operator(v)), initial=0.0)
