"""A tree as few arrays: every array that goes in or out of a compiled function costs some microseconds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_SMALL = 1024  # numbers in an array up to which it lies side by side with others
_FLOATS, _INTEGERS = 0, 1


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
        part = array[..., self.offset : self.offset + math.prod(self.shape)]
        part = part.reshape((*array.shape[:-1], *self.shape))
        return part if part.dtype == self.dtype else part.astype(self.dtype)


class Packing(NamedTuple):
    """Which leaf of a tree goes where: small ones into a vector of floats and one of integers, each other into its own array.

    Arrays with one axis more in front (a table of packed rows) are unpacked to leaves with that axis.
    """

    tree: Any
    places: tuple

    @classmethod
    def of(cls, value: Any) -> Packing:
        """For trees like `value`, of arrays or of their shapes; a leaf that stands in several places is kept once."""
        known: dict[int, _Place] = {}
        ends, n_arrays = [0, 0], 2

        def place(leaf: Any) -> Any:
            nonlocal n_arrays
            if isinstance(leaf, Later):
                leaves, tree = jax.tree.flatten(leaf.tree)
                return tree, tuple(place(each) for each in leaves)
            if id(leaf) not in known:
                shared = _shared_array(leaf)
                if shared is None:
                    known[id(leaf)] = _Place(n_arrays, None, leaf.shape, leaf.dtype)
                    n_arrays += 1
                else:
                    known[id(leaf)] = _Place(shared, ends[shared], leaf.shape, np.dtype(leaf.dtype))
                    ends[shared] += leaf.size
            return known[id(leaf)]

        leaves, tree = jax.tree.flatten(value, is_leaf=_is_later)
        return cls(tree, tuple(place(leaf) for leaf in leaves))

    @classmethod
    def like(cls, value: Any) -> Packing:
        """For trees with leaves of these shapes, each in a place of its own."""
        return cls.of(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), value))

    def packed(self, value: Any) -> list:
        """The arrays of a tree."""
        arrays: dict[int, Any] = {_FLOATS: [], _INTEGERS: []}
        ends = [0, 0]

        def put(leaf: Any, place: Any) -> None:
            if isinstance(leaf, Later):
                for each, own in zip(jax.tree.leaves(leaf.tree), place[1], strict=True):
                    put(each, own)
            elif place.offset is None:
                arrays[place.array] = leaf
            elif place.offset == ends[place.array]:  # else it is there already
                arrays[place.array].append(jnp.reshape(leaf, -1))
                ends[place.array] += leaf.size

        for leaf, place in zip(jax.tree.leaves(value, is_leaf=_is_later), self.places, strict=True):
            put(leaf, place)
        for shared, dtype in ((_FLOATS, jnp.float64), (_INTEGERS, jnp.int64)):
            parts = [part.astype(dtype) for part in arrays[shared]]
            arrays[shared] = jnp.concatenate(parts) if parts else jnp.zeros(0, dtype)
        return [arrays[i] for i in range(len(arrays))]

    def unpacked(self, arrays: list) -> Any:
        """The tree of some arrays."""
        return jax.tree.unflatten(
            self.tree,
            [
                place.found(arrays) if isinstance(place, _Place) else Later(Packed(arrays, Packing(*place)))
                for place in self.places
            ],
        )


@jax.tree_util.register_pytree_node_class
class Packed:
    """A tree in its arrays."""

    def __init__(self, arrays: list, packing: Packing):
        self.arrays, self.packing = arrays, packing

    @classmethod
    def of(cls, value: Any) -> Packed:
        packing = Packing.of(value)
        return cls(packing.packed(value), packing)

    @classmethod
    def like(cls, value: Any) -> Packed:
        """As every tree with leaves of these shapes, whether some of them are the same or not."""
        packing = Packing.like(value)
        return cls(packing.packed(value), packing)

    def whole(self) -> Any:
        """The tree itself."""
        return self.packing.unpacked(self.arrays)

    def on_host(self) -> Packed:
        """The same with the shared arrays as NumPy's."""
        return Packed([*map(np.asarray, self.arrays[:2]), *self.arrays[2:]], self.packing)

    def tree_flatten(self):
        return self.arrays, self.packing

    @classmethod
    def tree_unflatten(cls, packing, arrays):
        return cls(list(arrays), packing)


def _shared_array(leaf: Any) -> int | None:
    if leaf.size > _SMALL:
        return None
    return (
        _FLOATS if leaf.dtype == jnp.float64 else _INTEGERS if leaf.dtype in (jnp.int64, jnp.bool_) else None
    )


def _is_later(node: Any) -> bool:
    return isinstance(node, Later)
