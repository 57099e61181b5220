"""Euclidean balls."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import numerics
from viceversa.errors import InputError
from viceversa.sets.base import ConvexSet, as_finite, as_shape, point_method, sample_method


class Ball(ConvexSet):
    """The points within a radius of a centre, in the Euclidean norm over all coordinates.

        S = { y : ‖y − center‖ ≤ radius },   P_S(x) = center + min(1, radius/‖x − center‖)·(x − center)      (1)

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import Ball
        >>> Ball(0.0, radius=5.0, shape=(2,)).project(np.array([6.0, 8.0]))
        array([3., 4.])
    """

    center: Any
    radius: Any
    _shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, center: Any, radius: Any, shape: Any = None):
        self.center, self.radius = as_finite("Ball: center", center), as_finite("Ball: radius", radius)
        if self.radius.shape != ():
            raise InputError(f"Ball: radius has shape {self.radius.shape}; one positive number is needed.")
        if self.radius <= 0.0:
            raise InputError(f"Ball: radius is {float(self.radius)}; a positive number is needed.")
        if shape is None and self.center.shape == ():
            raise InputError("Ball: center is a scalar, so the shape of a point is unknown. Pass shape=.")
        self._shape = self.center.shape if shape is None else as_shape("Ball", shape)
        try:
            np.broadcast_to(self.center, self._shape)
        except ValueError:
            raise InputError(
                f"Ball: center of shape {self.center.shape} does not broadcast to shape={self._shape}. Make them agree."
            ) from None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """(1); the derivative is the identity inside and (radius/‖d‖)(I − ddᵀ/‖d‖²), d = x − center, elsewhere."""
        return _project(x, self.center, self.radius)

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """⟨c, center⟩ + radius·‖c‖ at center + radius·c/‖c‖."""
        y = self.center + self.radius * numerics.safe_divide(c, _norm(c), 0.0)
        return jnp.sum(c * y), y

    def diameter(self) -> float:
        """2·radius, exactly."""
        return float(np.max(self.width(), initial=0.0))

    def width(self) -> np.ndarray:
        """2·radius for every coordinate, exactly."""
        return np.full(self._shape, 2.0 * self.radius)

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """Uniform in the ball."""
        key_direction, key_length = jax.random.split(key)
        d = jax.random.normal(key_direction, self._shape)
        length = jax.random.uniform(key_length) ** (1.0 / max(d.size, 1))
        return self.center + self.radius * length * numerics.safe_divide(d, _norm(d), 0.0)

    def interior_point(self) -> np.ndarray:
        """The centre."""
        return np.broadcast_to(self.center, self._shape).copy()


def _norm(d):
    return jnp.sqrt(jnp.sum(d * d))


@jax.custom_jvp
def _project(x, center, radius):
    d = x - center
    length = _norm(d)
    return jnp.where(length > radius, center + d * numerics.safe_divide(radius, length, 1.0), x)


@_project.defjvp
def _project_jvp(primals, tangents):
    (x, center, radius), (dx, _, _) = primals, tangents
    d = x - center
    length_sq = jnp.sum(d * d)
    # The sphere itself takes the outer derivative; a positive radius keeps the division away from 0 there.
    outside = length_sq >= radius * radius
    length_sq = jnp.where(outside, length_sq, 1.0)
    bent = (radius / jnp.sqrt(length_sq)) * (dx - d * (jnp.sum(d * dx) / length_sq))
    return _project(x, center, radius), jnp.where(outside, bent, dx)
