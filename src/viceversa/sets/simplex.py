"""Simplices over the last axis, batched over the leading ones."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.sets.base import ConvexSet, as_finite, as_shape, point_method, sample_method, where_first


class Simplex(ConvexSet):
    """Non-negative rows with a given sum: flows of a demand over its routes, weights of a portfolio.

        S = { y ≥ 0 : Σ_i y_{…,i} = total,  y_i = 0 where mask is False }                         (1)
        P_S(x)_i = [x_i − τ]₊ with the one τ per row that makes the sum `total`                   (2)

    `total` is one number or one per row; `mask` is a boolean array that broadcasts to `shape`.
    The threshold τ comes from sorting the row (Held, Wolfe and Crowder 1974), then from the mean over the support it names.

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import Simplex
        >>> Simplex(3, total=2.0).project(np.array([3.0, 2.0, 0.0]))
        array([1.5, 0.5, 0. ])
    """

    total: Any
    mask: Any
    _shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, shape: Any, total: Any = 1.0, mask: Any = None):
        self._shape = as_shape("Simplex", shape)
        if self._shape == ():
            raise InputError(
                "Simplex: shape is (), but a simplex needs a last axis to sum over. Pass shape=(n,)."
            )
        self.total = _checked_total(total, self._shape[:-1])
        self.mask = None if mask is None else _checked_mask(mask, self._shape)
        empty = (self._allowed().sum(-1) == 0) & (self.total > 0.0)
        if empty.any():
            where = f" (first: {where_first(empty)})" if empty.ndim else ""
            raise InputError(
                f"Simplex: {int(empty.sum())} of {empty.size} rows{where} have a positive total and no entry that "
                "may carry it, so the set is empty. Allow an entry in mask or set that total to 0."
            )

    def _allowed(self) -> np.ndarray:
        return np.broadcast_to(True if self.mask is None else self.mask, self._shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """(2); the derivative is v ↦ v − mean(v) on the entries that stay positive and 0 on the others."""
        return _project(x, self.total, True if self.mask is None else self.mask)

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """total·max over the allowed entries, summed over rows; everything on the first best entry."""
        allowed = jnp.broadcast_to(True if self.mask is None else self.mask, c.shape)
        if c.shape[-1] == 0:
            return jnp.zeros(()), jnp.zeros_like(c)
        best = jnp.argmax(jnp.where(allowed, c, -jnp.inf), axis=-1)
        y = jax.nn.one_hot(best, c.shape[-1], dtype=c.dtype) * jnp.asarray(self.total)[..., None]
        return jnp.sum(c * y), y

    def diameter(self) -> float:
        """√2·‖totals of the rows with two or more allowed entries‖, exactly."""
        spread = np.where(self._allowed().sum(-1) > 1, self.total, 0.0)
        return float(np.sqrt(2.0) * np.linalg.norm(spread))

    def width(self) -> np.ndarray:
        """The row's total where an entry may vary, 0 elsewhere, exactly."""
        allowed = self._allowed()
        free = allowed & (allowed.sum(-1, keepdims=True) > 1)
        return np.where(free, np.expand_dims(self.total, -1), 0.0)

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """Uniform on the simplex: independent exponentials divided by their sum."""
        allowed = jnp.broadcast_to(True if self.mask is None else self.mask, self._shape)
        weight = jnp.where(allowed, jax.random.exponential(key, self._shape), 0.0)
        whole = jnp.sum(weight, axis=-1, keepdims=True)
        return weight / jnp.where(whole > 0.0, whole, 1.0) * jnp.asarray(self.total)[..., None]

    def interior_point(self) -> np.ndarray:
        """The same share for every allowed entry."""
        allowed = self._allowed()
        return allowed / np.maximum(allowed.sum(-1, keepdims=True), 1) * np.expand_dims(self.total, -1)


@jax.custom_jvp
def _project(x, total, mask):
    return _threshold(x, total, mask)


@jax.jit
def _threshold(x, total, mask):
    n = x.shape[-1]
    if n == 0:
        return x
    allowed = jnp.broadcast_to(mask, x.shape)
    total = jnp.asarray(total)[..., None]
    peak = jnp.max(jnp.where(allowed, x, -jnp.inf), axis=-1, keepdims=True)
    # Measured from the row's largest entry every number that matters lies in [−total, 0]: no cancellation.
    s = jnp.where(allowed, x - jnp.where(jnp.isfinite(peak), peak, 0.0), -jnp.inf)
    u = -jnp.sort(-s, axis=-1)
    usable = jnp.isfinite(u)
    k = jnp.arange(1, n + 1)
    partial = jnp.cumsum(jnp.where(usable, u, 0.0), axis=-1) - total
    n_support = jnp.maximum(jnp.sum(usable & (k * u > partial), axis=-1, keepdims=True), 1)
    threshold = jnp.take_along_axis(partial, n_support - 1, axis=-1) / n_support
    support = s > threshold
    # Rounding may put a tie on either side of the threshold: the same entries are summed and counted.
    n_kept = jnp.maximum(jnp.sum(support, axis=-1, keepdims=True), 1)
    tau = (jnp.sum(jnp.where(support, s, 0.0), axis=-1, keepdims=True) - total) / n_kept
    return jnp.where(support, jnp.maximum(s - tau, 0.0), 0.0)


@_project.defjvp
def _project_jvp(primals, tangents):
    y = _project(*primals)
    support = y > 0.0
    v = jnp.where(support, tangents[0], 0.0)
    mean = jnp.sum(v, axis=-1, keepdims=True) / jnp.maximum(jnp.sum(support, axis=-1, keepdims=True), 1)
    return y, jnp.where(support, v - mean, 0.0)


def _checked_total(total: Any, batch: tuple[int, ...]) -> np.ndarray:
    array = as_finite("Simplex: total", total)
    if array.shape not in ((), batch):
        raise InputError(
            f"Simplex: total has shape {array.shape}; one number or one per row, shape {batch}, is needed."
        )
    if (array < 0.0).any():
        first = f" (first: {where_first(array < 0.0)})" if array.ndim else ""
        raise InputError(
            f"Simplex: total is negative at {int((array < 0.0).sum())} of {array.size} rows{first}, so the set is "
            "empty. Totals must be at least 0."
        )
    return array


def _checked_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.array(mask)
    if array.dtype != bool:
        raise InputError(
            f"Simplex: mask has dtype {array.dtype}; booleans are needed (True where an entry may vary)."
        )
    try:
        np.broadcast_to(array, shape)
    except ValueError:
        raise InputError(
            f"Simplex: mask of shape {array.shape} does not broadcast to shape {shape}."
        ) from None
    return array
