"""The contract of a closed convex set that is easy to project on."""

from __future__ import annotations

import functools
import operator
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from viceversa import numerics, precision
from viceversa.errors import InputError
from viceversa.quick_module import QuickModule


def point_method(method: Callable) -> Callable:
    """Give a method of a point NumPy in, NumPy out in double precision, and refuse a wrong shape in a sentence.

    A point that already lives in JAX (a tracer, a JAX array) stays there: inside a compiled loop the method
    is its plain body. Kernels with loops are compiled functions of their own, so that all callers share them.
    """

    @functools.wraps(method)
    def call(self, x):
        if lives_in_jax((self, x)):
            check_point(self, x)
            return method(self, x)
        x = _as_point(self, x)
        with precision.double():
            return to_numpy(method(self, jax.tree.map(jnp.asarray, x)))

    return call


def sample_method(method: Callable) -> Callable:
    """Let `sample(key)` called by the host return NumPy arrays in double precision."""

    @functools.wraps(method)
    def call(self, key):
        if lives_in_jax((self, key)):
            return method(self, key)
        with precision.double():
            return to_numpy(method(self, key))

    return call


class ConvexSet(QuickModule):
    """A nonempty closed convex set S of arrays (or of trees of arrays, for a parameter with several parts).

    Everything traced (`project`, `support`, `violation`, `sample`) may be called inside a compiled
    loop; everything else is called by the host. Called by the host on NumPy arrays, they answer in NumPy
    float64. Subclasses are final.

    The derivative of `project` is an element of the B-subdifferential: at a tie every constraint that holds
    with equality counts as active, which is the limit of derivatives at points just outside. The fields of a
    set are constants of that derivative.
    """

    @property
    @abstractmethod
    def shape(self) -> Any:
        """The shape of a point: a tuple, or a tree of tuples for a set of trees."""

    @abstractmethod
    def project(self, x: PyTree) -> PyTree:
        """P_S(x) = argmin_{y ∈ S} ‖x − y‖, with a derivative that is an element of the B-subdifferential."""

    @abstractmethod
    def support(self, c: PyTree) -> tuple[Float[Array | np.ndarray, ""], PyTree]:
        """(max_{y ∈ S} ⟨c, y⟩, a maximiser); +∞ where S is unbounded along c (the point is then any of S)."""

    @abstractmethod
    def diameter(self) -> float:
        """max ‖x − y‖ over S, or a proved upper bound for it (the docstring says which); ∞ if unbounded."""

    @abstractmethod
    def width(self) -> PyTree:
        """max x_i − min x_i over S for every coordinate (an upper bound where that is not closed form), ∞ allowed."""

    @abstractmethod
    def sample(self, key: Array) -> PyTree:
        """A random point of S that reaches every part of a bounded S (a unit-scale one if S is unbounded)."""

    @abstractmethod
    def interior_point(self) -> PyTree:
        """A point of the relative interior, as NumPy arrays."""

    @point_method
    def violation(self, x: PyTree) -> Float[Array | np.ndarray, ""]:
        """‖x − P_S(x)‖∞: zero exactly on S."""
        return numerics.tree_max_abs(numerics.tree_subtract(x, self.project(x)))

    def zeros(self) -> PyTree:
        """The origin of the space S lies in, as NumPy float64 arrays."""
        return jax.tree.map(np.zeros, self.shape, is_leaf=is_shape)

    def affine_image(self) -> Any:
        """(description, map) with S = { map(u) : u in the description }, or None: the set has rows of its own, or no rows.

        For sets such as { y : ‖y − c‖₁ ≤ t } that need a row for every vertex in y, but few in other coordinates.
        """
        return None

    @property
    def bounded(self) -> bool:
        """Whether S has a finite diameter."""
        return bool(np.isfinite(self.diameter()))


def is_shape(node: Any) -> bool:
    """Whether a node of a tree of shapes is one shape."""
    return isinstance(node, tuple) and all(isinstance(n, int) for n in node)


def as_shape(name: str, shape: Any) -> tuple[int, ...]:
    """`shape` as a tuple of non-negative integers; one integer n means (n,)."""
    try:
        sizes = tuple(operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    except TypeError:
        raise InputError(
            f"{name}: shape is {shape!r}; a tuple of integers is needed, such as (3,)."
        ) from None
    if any(n < 0 for n in sizes):
        raise InputError(f"{name}: shape is {sizes}; sizes cannot be negative.")
    return sizes


def as_finite(name: str, value: Any) -> np.ndarray:
    """`value` as a float64 array without NaN and without ±∞, or a sentence."""
    array = precision.as_float64(name, value)
    n_infinite = int(np.isinf(array).sum())
    if n_infinite:
        first = where_first(np.isinf(array))
        raise InputError(
            f"{name} is infinite at {n_infinite} of {array.size} entries (first: {first}). Make it finite."
        )
    return array


def where_first(mask: Any) -> Any:
    """The index of the first True of a mask: an integer for a vector, a list otherwise."""
    index = np.argwhere(mask)[0].tolist()
    return index[0] if len(index) == 1 else index


def check_point(convex_set: ConvexSet, x: PyTree) -> None:
    """Refuse, in a sentence, a point whose structure or shapes are not those of the set."""
    name, shape = type(convex_set).__name__, convex_set.shape
    if is_shape(shape):
        if not hasattr(x, "shape") or tuple(x.shape) != shape:
            given = f"shape {tuple(x.shape)}" if hasattr(x, "shape") else f"a {type(x).__name__}"
            raise InputError(f"{name}: the point given has {given}; this set has points of shape {shape}.")
        return
    wanted = jax.tree.structure(shape, is_leaf=is_shape)
    if jax.tree.structure(x) != wanted:
        raise InputError(
            f"{name}: the point given is the tree {jax.tree.structure(x)}; this set has points of the shapes {shape}."
        )
    given = [tuple(np.shape(leaf)) for leaf in jax.tree.leaves(x)]
    if given != jax.tree.leaves(shape, is_leaf=is_shape):
        raise InputError(
            f"{name}: the parts given have shapes {given}; this set has points of the shapes {shape}."
        )


def unit_box_bounds(lower, upper):
    """Finite stand-ins for infinite bounds: one unit from the finite side, or [−1, 1] where there is none."""
    xp: Any = jnp if isinstance(lower, jax.Array) or isinstance(upper, jax.Array) else np
    low = xp.where(xp.isfinite(lower), lower, xp.where(xp.isfinite(upper), upper - 1.0, -1.0))
    high = xp.where(xp.isfinite(upper), upper, xp.where(xp.isfinite(lower), lower + 1.0, 1.0))
    return low, high


def is_tracing(tree: PyTree) -> bool:
    """Whether any number in the tree is still a symbol of a function being traced."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def lives_in_jax(tree: PyTree) -> bool:
    """Whether the numbers of a tree are JAX's already, so that its precision is the caller's choice."""
    # A concrete PRNG key is a JAX array of integers: it does not decide the precision.
    return any(
        isinstance(leaf, Tracer) or (isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating))
        for leaf in jax.tree.leaves(tree)
    )


def _as_point(convex_set: ConvexSet, x: PyTree) -> PyTree:
    name = f"{type(convex_set).__name__}: the point given"
    if is_shape(convex_set.shape):
        x = precision.as_float64(name, x)
    else:
        x = jax.tree.map(lambda leaf: precision.as_float64(name, leaf), x)
    check_point(convex_set, x)
    return x


def to_numpy(tree: PyTree) -> PyTree:
    """Every finished number of a tree as a NumPy array of its own."""
    # Under someone else's trace even concrete arguments give tracers; those stay.
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, Tracer) else np.array(leaf), tree)


__all__ = ["ConvexSet", "unit_box_bounds"]
