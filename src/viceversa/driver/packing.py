"""A tree as few arrays: every array that goes in or out of a compiled function costs some microseconds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_SMALL = 1024  # numbers in an array up to which it lies side by side with others
_VECTORS = {np.dtype(np.float64): "floats", np.dtype(np.int64): "integers", np.dtype(np.bool_): "integers"}
_ARRAYS = (np.ndarray, np.generic, jax.Array, jax.ShapeDtypeStruct)


class Later:
    """A part of a result that few callers look into, put together only when it is asked for."""

    def __init__(self, tree: Any):
        self.tree = tree

    def whole(self) -> Any:
        """The tree itself, unpacked."""
        tree = self.tree
        while isinstance(tree, Packed):
            tree = tree.whole()
        return tree


class _Place(NamedTuple):
    """Where a leaf is: in which array, and from where on if it shares that array."""

    array: int
    offset: int | None
    shape: tuple[int, ...]
    dtype: Any

    def found(self, arrays: list) -> Any:
        array = arrays[self.array]
        if self.offset is None:
            return array
        end = self.offset + math.prod(self.shape)
        if isinstance(array, np.ndarray):
            part = array[..., self.offset : end]
        else:  # the same, traced with less ado
            part = jax.lax.slice_in_dim(array, self.offset, end, axis=-1)
        part = part.reshape((*array.shape[:-1], *self.shape))
        return part if part.dtype == self.dtype else part.astype(self.dtype)


class _Fixed(NamedTuple):
    """A leaf that is not an array and the same in every tree packed alike."""

    leaf: Any

    def found(self, _arrays: list) -> Any:
        return self.leaf


class Packing:
    """Which leaf of a tree goes where: small ones into a vector of floats and one of integers, each other into its own array.

    Arrays with one axis more in front (a table of packed rows) are unpacked to leaves with that axis.
    """

    def __init__(self, tree: Any, places: tuple):
        self.tree, self.places = tree, places
        self._hash = hash((tree, places))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Packing) and self.places == other.places and self.tree == other.tree

    @classmethod
    def of(cls, value: Any) -> Packing:
        """For trees like `value`, of arrays or of their shapes; a leaf that stands in several places is kept once."""
        return _Placing().packing(value)

    @classmethod
    def like(cls, value: Any) -> Packing:
        """For trees with leaves of these shapes, each in a place of its own."""
        return cls.of(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), value))

    def packed(self, value: Any) -> list:
        """The arrays of a tree, within a program."""
        parts: dict[int, list] = {}
        self._collect(value, parts)
        return [_joined(parts[i], jnp) for i in range(len(parts))]

    def _collect(self, value: Any, parts: dict[int, list]) -> None:
        for leaf, place in zip(jax.tree.leaves(value, is_leaf=_is_later), self.places, strict=True):
            if isinstance(place, _Place):
                if place.offset is None:
                    parts[place.array] = [leaf]
                elif place.offset == sum(part.size for part in parts.setdefault(place.array, [])):
                    parts[place.array].append(jax.lax.reshape(leaf, (leaf.size,)))  # else it is there already
            elif isinstance(place, Packing):
                place._collect(leaf.tree, parts)

    def unpacked(self, arrays: list) -> Any:
        """The tree of some arrays."""
        leaves = [
            Later(Packed(arrays, place)) if isinstance(place, Packing) else place.found(arrays)
            for place in self.places
        ]
        return jax.tree.unflatten(self.tree, leaves)


class _Placing:
    """Finds a place for one leaf after another."""

    def __init__(self):
        self.known: dict[int, _Place] = {}
        self.vectors: dict[str, int] = {}
        self.ends: dict[int, int] = {}
        self.n_arrays = 0

    def packing(self, value: Any) -> Packing:
        leaves, tree = jax.tree.flatten(value, is_leaf=_is_later)
        return Packing(tree, tuple([self.place(leaf) for leaf in leaves]))

    def place(self, leaf: Any) -> Packing | _Place | _Fixed:
        if isinstance(leaf, Later):
            return self.packing(leaf.tree)
        if not isinstance(leaf, _ARRAYS):
            return _Fixed(leaf)
        place = self.known.get(id(leaf))
        if place is None:
            place = self.known[id(leaf)] = self.new_place(leaf)
        return place

    def new_place(self, leaf: Any) -> _Place:
        vector = _VECTORS.get(leaf.dtype) if leaf.size <= _SMALL else None
        if vector is None:
            return _Place(self.new_array(), None, leaf.shape, leaf.dtype)
        if vector not in self.vectors:
            self.vectors[vector] = self.new_array()
        array = self.vectors[vector]
        offset = self.ends.get(array, 0)
        self.ends[array] = offset + leaf.size
        return _Place(array, offset, leaf.shape, np.dtype(leaf.dtype))

    def new_array(self) -> int:
        self.n_arrays += 1
        return self.n_arrays - 1


@jax.tree_util.register_pytree_node_class
class Packed:
    """A tree in its arrays."""

    def __init__(self, arrays: list, packing: Packing):
        self.arrays, self.packing = arrays, packing

    @classmethod
    def of(cls, value: Any) -> Packed:
        """A tree; a leaf that stands in several places is there once."""
        packing = Packing.of(value)
        return cls(packing.packed(value), packing)

    @classmethod
    def on_host(cls, value: Any) -> Packed:
        """A tree outside a program, by NumPy. This is on the way of every solve, so it is one loop without calls."""
        leaves, tree = jax.tree.flatten(value)
        arrays: list = []
        at = {"floats": -1, "integers": -1}
        ends, places = {"floats": 0, "integers": 0}, []
        for leaf in leaves:
            if not isinstance(leaf, _ARRAYS):
                places.append(_Fixed(leaf))
                continue
            dtype, size = leaf.dtype, leaf.size
            vector = _VECTORS.get(dtype) if size <= _SMALL else None
            if vector is None:
                places.append(_Place(len(arrays), None, leaf.shape, dtype))
                arrays.append(leaf)
                continue
            if at[vector] < 0:
                at[vector] = len(arrays)
                arrays.append([])
            places.append(_Place(at[vector], ends[vector], leaf.shape, dtype))
            arrays[at[vector]].append(np.asarray(leaf).reshape(-1))
            ends[vector] += size
        for vector in at.values():
            if vector >= 0:
                arrays[vector] = _joined(arrays[vector], np)
        return cls(arrays, Packing(tree, tuple(places)))

    @classmethod
    def like(cls, value: Any) -> Packed:
        """A tree as every other with leaves of these shapes, whether some of them are the same or not."""
        packing = Packing.like(value)
        return cls(packing.packed(value), packing)

    def whole(self) -> Any:
        """The tree itself."""
        return self.packing.unpacked(self.arrays)

    def tree_flatten(self):
        return self.arrays, self.packing

    @classmethod
    def tree_unflatten(cls, packing, arrays):
        return cls(list(arrays), packing)


def _joined(parts: list, module: Any) -> Any:
    parts = [
        part.astype(np.int64) if part.dtype == np.bool_ and part.size <= _SMALL else part for part in parts
    ]
    return parts[0] if len(parts) == 1 else module.concatenate(parts)


def _is_later(node: Any) -> bool:
    return isinstance(node, Later)
