"""F, f and their derivatives as programs of two flat vectors, and the box they are studied over."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import PyTree

from viceversa import precision
from viceversa.constants.enclosure import enclose
from viceversa.constants.interval import Interval, NotCertified
from viceversa.problem import MisspecifiedVI
from viceversa.sets import Ball, Box, Product
from viceversa.sets.base import ConvexSet

Argument = Literal["x", "t"]
Word = Literal["", "x", "t", "xx", "xt"]  # which derivatives: value, ∂ₓ, ∂_θ, ∂ₓ∂ₓ, ∂_θ∂ₓ

MAX_ENTRIES = 12_000_000  # a derivative with more entries than this is never written out
_N_CACHED = 256


# -- the box -------------------------------------------------------------------------------------------
def bounding_box(convex_set: ConvexSet) -> tuple[np.ndarray, np.ndarray, bool]:
    """(lower, upper, whether the set is exactly this box), over the raveled coordinates."""
    if isinstance(convex_set, Box):
        return np.ravel(convex_set.lower).astype(float), np.ravel(convex_set.upper).astype(float), True
    if isinstance(convex_set, Ball):
        center = np.broadcast_to(convex_set.center, convex_set.shape).ravel()
        return center - float(convex_set.radius), center + float(convex_set.radius), False
    if isinstance(convex_set, Product):
        parts = jax.tree.leaves(convex_set.blocks, is_leaf=lambda node: isinstance(node, ConvexSet))
        boxes = [bounding_box(part) for part in parts]
        lower, upper = (np.concatenate([box[i] for box in boxes]) for i in (0, 1))
        return lower, upper, all(box[2] for box in boxes)
    return (*_box_by_support(convex_set), False)


def _box_by_support(convex_set: ConvexSet) -> tuple[np.ndarray, np.ndarray]:
    origin, unravel = _flat(convex_set.zeros())
    if origin.size**2 > MAX_ENTRIES:
        return np.full(origin.size, -np.inf), np.full(origin.size, np.inf)
    with precision.double():
        eye = jnp.eye(origin.size)
        highest = jax.jit(jax.vmap(lambda c: convex_set.support(unravel(c))[0]))
        return -np.asarray(highest(-eye)), np.asarray(highest(eye))


def _flat(tree: PyTree) -> tuple[np.ndarray, Callable]:
    with precision.double():
        vector, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, tree))
        return np.asarray(vector), unravel


@dataclass(frozen=True)
class Domain:
    """X × Θ seen as boxes of flat vectors, with the sets themselves for points that must lie in them."""

    X: ConvexSet
    Theta: ConvexSet
    x: Interval
    t: Interval
    boxes: bool  # X and Θ are exactly these boxes

    @classmethod
    def of(cls, problem: MisspecifiedVI) -> Domain:
        """The domain of a problem."""
        x_lo, x_hi, x_is_box = bounding_box(problem.set)
        t_lo, t_hi, t_is_box = bounding_box(problem.learning.set)
        x, t = Interval(x_lo, x_hi), Interval(t_lo, t_hi)
        if np.array_equal(t_lo, t_hi):
            t = Interval(t_lo)
        return cls(problem.set, problem.learning.set, x, t, x_is_box and t_is_box)

    @property
    def bounded(self) -> bool:
        """Whether both boxes are."""
        return bool(np.isfinite(self.x.magnitude).all() and np.isfinite(self.t.magnitude).all())

    def corners(self, few: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Points of X × Θ where extremes are likely: both ends and the middle of each box, projected on the sets."""
        x_mid, t_mid = self.inside()
        xs = [end for end in (self.x.lo, self.x.hi) if np.isfinite(end).all()]
        ts = [end for end in (self.t.lo, self.t.hi) if np.isfinite(end).all()]
        if self.t.is_point or not ts:
            ts = [t_mid]
        pairs = [(x, t) for x in xs for t in ts]
        pairs += [(x_mid, t_mid)] if few else [(x, t_mid) for x in xs] + [(x_mid, t) for t in [*ts, t_mid]]
        for x, t in pairs:
            yield (x, t) if self.boxes else (self._into(self.X, x), self._into(self.Theta, t))

    def inside(self) -> tuple[np.ndarray, np.ndarray]:
        """A point of the relative interior of X × Θ."""
        return _flat(self.X.interior_point())[0], _flat(self.Theta.interior_point())[0]

    def samples(self, n: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """`n` random points of X × Θ."""
        for key in jax.random.split(jax.random.key(seed), n):
            key_x, key_t = jax.random.split(key)
            yield _flat(self.X.sample(key_x))[0], _flat(self.Theta.sample(key_t))[0]

    @staticmethod
    def _into(convex_set: ConvexSet, vector: np.ndarray) -> np.ndarray:
        unravel = _flat(convex_set.zeros())[1]
        with precision.double():
            point = jax.tree.map(np.asarray, unravel(jnp.asarray(vector)))
        return _flat(convex_set.project(point))[0]


# -- the programs --------------------------------------------------------------------------------------
class Derivative:
    """One derivative of one function of (x, θ), as a program of flat vectors; the data are its arguments."""

    def __init__(self, traced: _Traced, data: list[np.ndarray]):
        self._traced, self._data = traced, data

    @property
    def shape(self) -> tuple[int, ...]:
        """(outputs, …): one axis for every derivative taken."""
        return self._traced.shape

    def reads(self, which: Argument) -> bool:
        """Whether the program still reads x (or θ) once dead code is removed; `False` is a proof."""
        return self._traced.reads["xt".index(which)]

    def affine_in(self, which: Argument) -> bool:
        """Whether its own derivative in x (or θ) provably does not read it; `False` means "not proved"."""
        return not self.reads(which) or self._traced.affine(which)

    def over(self, domain: Domain) -> Interval:
        """Bounds of every entry over the domain."""
        return self._enclose(domain.x, domain.t)

    def at(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Its value at a point."""
        return self._enclose(Interval(x), Interval(t)).lo

    def _enclose(self, x: Interval, t: Interval) -> Interval:
        (found,) = enclose(self._traced.closed, self._data, x, t)
        return found


class _Traced:
    """The program itself, without data, so that problems of one shape share it."""

    def __init__(self, function: Callable, avals: tuple, data_avals: Any):
        self._function, self._avals, self._data_avals = function, avals, data_avals
        with precision.double():
            closed = jax.make_jaxpr(function)(data_avals, *avals)
        _, used = partial_eval.dce_jaxpr(closed.jaxpr, [True])
        self.reads = (used[-2], used[-1])
        # Without the value itself, which a derivative's program computes too and which may be unbounded.
        needed, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True], instantiate=True)
        self.closed = closed.replace(jaxpr=needed)
        self.shape = tuple(closed.out_avals[0].shape)
        self._affine: dict[str, bool] = {}

    def affine(self, which: str) -> bool:
        if which not in self._affine:
            position = "xt".index(which)

            def along(direction, data, *args):
                def moved(value):
                    return self._function(data, *args[:position], value, *args[position + 1 :])

                return jax.jvp(moved, (args[position],), (direction,))[1]

            with precision.double():
                closed = jax.make_jaxpr(along)(self._avals[position], self._data_avals, *self._avals)
            _, used = partial_eval.dce_jaxpr(closed.jaxpr, [True])
            self._affine[which] = not used[-2 + position]
        return self._affine[which]


@functools.lru_cache(maxsize=_N_CACHED)
def _traced(structure: Any, leaves: tuple, x_shape: tuple, theta_key: tuple, word: Word) -> _Traced:
    """Traced once for every kind of function: structure and static parts in the key, arrays as arguments."""
    theta_tree, theta_shapes = theta_key
    sizes = [int(np.prod(shape)) for shape in theta_shapes]

    def unravel(t):
        parts = jnp.split(t, np.cumsum(sizes)[:-1]) if sizes else []
        shaped = [part.reshape(shape) for part, shape in zip(parts, theta_shapes, strict=True)]
        return jax.tree.unflatten(theta_tree, shaped)

    def value(data, x, t):
        given = iter(data)
        filled = [next(given) if isinstance(leaf, _Slot) else leaf for leaf in leaves]
        function = jax.tree.unflatten(structure, filled)
        return jnp.ravel(function(x.reshape(x_shape), unravel(t)))

    data_avals = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves if isinstance(leaf, _Slot)]
    n, m = int(np.prod(x_shape)), sum(sizes)
    avals = (jax.ShapeDtypeStruct((n,), np.float64), jax.ShapeDtypeStruct((m,), np.float64))
    function: Callable = value
    with precision.double():
        n_out = jax.eval_shape(value, data_avals, *avals).shape[0]
    for letter in word:
        argument = 1 + "xt".index(letter)
        n_in = avals[argument - 1].shape[0]
        transform = jax.jacrev if function is value and n_out < n_in else jax.jacfwd
        function = transform(function, argnums=argument)
    return _Traced(function, avals, data_avals)


@dataclass(frozen=True)
class _Slot:
    shape: tuple[int, ...]
    dtype: Any


def derivative(function: Any, problem: MisspecifiedVI, word: Word) -> Derivative:
    """The derivative `word` of a function of (x, θ) of this problem.

    Raises `NotCertified` where it cannot be traced, or has too many entries to be written out.
    """
    if problem.runs_on_host:
        raise NotCertified("a callback, which has no program")
    theta_leaves, theta_tree = jax.tree.flatten(problem.learning.set.zeros())
    theta_key = (theta_tree, tuple(tuple(leaf.shape) for leaf in theta_leaves))
    n, m = int(np.prod(problem.shape)), sum(leaf.size for leaf in theta_leaves)
    n_out = n if function is problem.operator else problem.n_constraints
    if n_out * int(np.prod([n if letter == "x" else m for letter in word])) > MAX_ENTRIES:
        raise NotCertified(f"a derivative with more than {MAX_ENTRIES:.0e} entries")
    leaves, structure = jax.tree.flatten(function)
    slots = tuple(
        _Slot(np.shape(leaf), np.result_type(leaf)) if eqx.is_array_like(leaf) else leaf for leaf in leaves
    )
    data = [np.asarray(leaf) for leaf in leaves if eqx.is_array_like(leaf)]
    try:
        return Derivative(_traced(structure, slots, tuple(problem.shape), theta_key, word), data)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        made = _traced.__wrapped__(structure, slots, tuple(problem.shape), theta_key, word)
        return Derivative(made, data)
