"""Boxes: bounds on every coordinate, the non-negative orthant and the whole space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import numerics, precision
from viceversa.errors import InputError
from viceversa.sets.base import ConvexSet, as_shape, point_method, sample_method, unit_box_bounds, where_first


class Box(ConvexSet):
    """The points between two bounds, coordinate by coordinate.

        S = { y : lower ≤ y ≤ upper },   P_S(x) = min(max(x, lower), upper)                     (1)

    Bounds broadcast to one shape, may be ±∞ and may coincide. Scalar bounds take `shape=` and stay scalar
    (`low`, `high`), so a box over 10⁷ coordinates holds two numbers; `lower` and `upper` show them in full shape.

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import Box
        >>> box = Box(0.0, [1.0, 2.0, np.inf])
        >>> box.project(np.array([-1.0, 3.0, 5.0]))
        array([0., 2., 5.])
    """

    low: Any
    high: Any
    _shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, lower: Any, upper: Any, shape: Any = None):
        low, high = precision.as_float64("Box: lower", lower), precision.as_float64("Box: upper", upper)
        self._shape = _shape_of_bounds(low, high, shape)
        self.low, self.high = low, high
        self._check_nonempty()

    def _check_nonempty(self) -> None:
        crossed = np.broadcast_to(self.low > self.high, self._shape)
        if crossed.any():
            raise InputError(
                f"Box: lower exceeds upper at {int(crossed.sum())} of {crossed.size} coordinates "
                f"(first: {where_first(crossed)}). Swap or relax them."
            )
        absent = np.broadcast_to((self.low == np.inf) | (self.high == -np.inf), self._shape)
        if absent.any():
            raise InputError(
                f"Box: lower is +∞ or upper is −∞ at {int(absent.sum())} of {absent.size} coordinates "
                f"(first: {where_first(absent)}), so the box is empty. Use lower=-inf and upper=inf for no bound."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def lower(self) -> Any:
        """The lower bounds in the shape of a point."""
        return _broadcast(self.low, self._shape)

    @property
    def upper(self) -> Any:
        """The upper bounds in the shape of a point."""
        return _broadcast(self.high, self._shape)

    def rearranged(self, arrange: Callable[[Any], Any], shape: tuple[int, ...]) -> Box:
        """The same box where x lies otherwise, in this shape; also within a compiled program."""

        def lying(bound: Any) -> Any:
            return arrange(_broadcast(bound, self._shape)) if bound.ndim else bound

        made = object.__new__(Box)
        made.set_fields(low=lying(self.low), high=lying(self.high), _shape=shape)
        return made

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """min(max(x, lower), upper); the derivative is 1 strictly between the bounds and 0 elsewhere."""
        return clip(x, self.low, self.high)

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """Σ_i max(c_i lower_i, c_i upper_i); a zero c_i takes the point of the interval nearest to 0."""
        return support_of_bounds(c, self.low, self.high)

    def diameter(self) -> float:
        """‖upper − lower‖, exactly."""
        return float(np.linalg.norm(self.width()))

    def width(self) -> np.ndarray:
        """upper − lower, exactly."""
        return np.broadcast_to(self.high - self.low, self._shape).copy()

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """Uniform between the bounds (within one unit of the finite bound, or on [−1, 1], where unbounded)."""
        low, high = unit_box_bounds(self.low, self.high)
        return jnp.clip(low + (high - low) * jax.random.uniform(key, self._shape), low, high)

    def interior_point(self) -> np.ndarray:
        """The midpoint, with infinite bounds replaced as in `sample`."""
        low, high = unit_box_bounds(self.low, self.high)
        return np.broadcast_to(0.5 * low + 0.5 * high, self._shape).copy()


class NonNegative(ConvexSet):
    """The non-negative orthant S = { y : y ≥ 0 }, with P_S(x) = [x]₊.

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import NonNegative
        >>> NonNegative(2).project(np.array([-1.0, 3.0]))
        array([0., 3.])
    """

    _shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, shape: Any):
        self._shape = as_shape("NonNegative", shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def rearranged(self, _arrange: Callable[[Any], Any], shape: tuple[int, ...]) -> NonNegative:
        """The same set where x lies otherwise, in this shape."""
        return NonNegative(shape)

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """[x]₊, with derivative 0 at x_i = 0."""
        return numerics.positive_part(x)

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """0 at the origin when c ≤ 0, +∞ otherwise."""
        return jnp.where(jnp.any(c > 0.0), jnp.inf, 0.0), jnp.zeros_like(c)

    def diameter(self) -> float:
        """∞ (0 without coordinates)."""
        return float(np.linalg.norm(self.width()))

    def width(self) -> np.ndarray:
        """∞ for every coordinate."""
        return np.full(self._shape, np.inf)

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """Uniform on [0, 1]."""
        return jax.random.uniform(key, self._shape)

    def interior_point(self) -> np.ndarray:
        """½ in every coordinate."""
        return np.full(self._shape, 0.5)


class Free(ConvexSet):
    """The whole space: no bound on any coordinate, P_S(x) = x.

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import Free
        >>> Free(2).project(np.array([-1.0, 3.0]))
        array([-1.,  3.])
    """

    _shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, shape: Any):
        self._shape = as_shape("Free", shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def rearranged(self, _arrange: Callable[[Any], Any], shape: tuple[int, ...]) -> Free:
        """The same space where x lies otherwise, in this shape."""
        return Free(shape)

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """x itself."""
        return x

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """0 at the origin when c = 0, +∞ otherwise."""
        return jnp.where(jnp.any(c != 0.0), jnp.inf, 0.0), jnp.zeros_like(c)

    def diameter(self) -> float:
        """∞ (0 without coordinates)."""
        return float(np.linalg.norm(self.width()))

    def width(self) -> np.ndarray:
        """∞ for every coordinate."""
        return np.full(self._shape, np.inf)

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """Uniform on [−1, 1]."""
        return jax.random.uniform(key, self._shape, minval=-1.0, maxval=1.0)

    def interior_point(self) -> np.ndarray:
        """The origin."""
        return np.zeros(self._shape)


@jax.custom_jvp
def clip(x, low, high):
    """min(max(x, low), high) with derivative 1 strictly between the bounds and 0 elsewhere."""
    # Comparisons keep a NaN as jnp.clip does; an iteration of Algorithm 1 was a few percent faster with them.
    return jnp.where(x <= low, low, jnp.where(x >= high, high, x))


@clip.defjvp
def _clip_jvp(primals, tangents):
    x, low, high = primals
    return clip(x, low, high), jnp.where((x > low) & (x < high), tangents[0], 0.0)


def support_of_bounds(c, low, high):
    """(max ⟨c, y⟩, a maximiser) over low ≤ y ≤ high."""
    nearest_to_zero = jnp.clip(jnp.zeros_like(c), low, high)
    bound = jnp.where(c > 0.0, high, jnp.where(c < 0.0, low, nearest_to_zero))
    y = jnp.where(jnp.isfinite(bound), bound, nearest_to_zero)
    return jnp.where(jnp.all(jnp.isfinite(bound)), jnp.sum(c * y), jnp.inf), y


def _shape_of_bounds(low: np.ndarray, high: np.ndarray, shape: Any) -> tuple[int, ...]:
    try:
        common = np.broadcast_shapes(low.shape, high.shape)
    except ValueError:
        raise InputError(
            f"Box: lower has shape {low.shape} and upper has shape {high.shape}, which do not broadcast to one "
            "shape. Give bounds of one shape, or scalars with shape=."
        ) from None
    if shape is None:
        if common == ():
            raise InputError("Box: both bounds are scalars, so the shape of a point is unknown. Pass shape=.")
        return common
    wanted = as_shape("Box", shape)
    try:
        fits = np.broadcast_shapes(common, wanted) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise InputError(
            f"Box: bounds of shape {common} do not broadcast to shape={wanted}. Make them agree."
        )
    return wanted


def _broadcast(bound: Any, shape: tuple[int, ...]) -> Any:
    return jnp.broadcast_to(bound, shape) if isinstance(bound, jax.Array) else np.broadcast_to(bound, shape)
