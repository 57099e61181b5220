"""A tree as few arrays: every array that goes in or out of a compiled function costs some microseconds."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from viceversa.flattened import ARRAYS, Flat, Form
from viceversa.problem import MisspecifiedVI

_SMALL = 1024  # numbers in an array up to which it lies side by side with others
_FLOAT, _WHOLE = np.dtype(np.float64), np.dtype(np.int64)
# The type of the vector that small arrays share; among floats, whole numbers lie bit by bit.
_SHARED = {_FLOAT: _FLOAT, _WHOLE: _WHOLE, np.dtype(np.bool_): _WHOLE}
_SHARED_BY_ALL = dict.fromkeys(_SHARED, _FLOAT)


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
    """Where a leaf is: in which array, and from where to where if it shares that array."""

    array: int
    offset: int | None
    end: int
    shape: tuple[int, ...]
    dtype: Any

    def found(self, arrays: list) -> Any:
        array = arrays[self.array]
        if self.offset is None:
            return array
        if isinstance(array, np.ndarray):
            part = array[..., self.offset : self.end]
        else:  # the same, traced with less ado
            part = jax.lax.slice_in_dim(array, self.offset, self.end, axis=-1)
        if len(self.shape) != 1:
            part = part.reshape((*array.shape[:-1], *self.shape))
        return _restored(part, self.dtype)


def _restored(part: Any, dtype: np.dtype) -> Any:
    """A part of a shared vector with its own type."""
    if part.dtype == dtype:
        return part
    if part.dtype == _FLOAT:
        part = part.view(_WHOLE)
    return part if dtype == _WHOLE else part.astype(dtype)


class _Fixed(NamedTuple):
    """A leaf that is not an array and the same in every tree packed alike; 1, 1.0 and True are equal, but not the same."""

    kind: type
    leaf: Any

    def found(self, _arrays: list) -> Any:
        return self.leaf


def _is_in_first(place: Any) -> bool:
    """Whether a leaf, or all leaves of a part for later, lie in the first array, which others share."""
    if isinstance(place, Packing):
        return place.is_one_vector
    return isinstance(place, _Fixed) or (place.array == 0 and place.offset is not None)


class Packing:
    """Which leaf of a tree goes where: small ones into a vector of floats and one of integers, each other into its own array.

    Arrays with one axis more in front (a table of packed rows) are unpacked to leaves with that axis.
    """

    def __init__(self, tree: Any, places: tuple):
        self.tree, self.places = tree, places
        self._hash = hash((tree, places))
        self.is_one_vector = all(map(_is_in_first, places))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Packing) and self.places == other.places and self.tree == other.tree

    def unpacked(self, arrays: list) -> Any:
        """The tree of some arrays."""
        return self.tree.unflatten([place.found(arrays) for place in self.places])

    def of_one_vector(self, vector: np.ndarray) -> Any:
        """The tree of small arrays that share one vector, with little ado: every solve ends here."""
        leaves = []
        for place in self.places:
            if type(place) is _Place:
                _, offset, end, shape, dtype = place
                part = vector[offset:end]
                part = part if len(shape) == 1 else part.reshape(shape)
                leaves.append(part if dtype is _FLOAT else _restored(part, dtype))
            else:
                leaves.append(place.found([vector]))
        return self.tree.unflatten(leaves)

    def found(self, arrays: list) -> Later:
        """As a part of another tree."""
        return Later(Packed(arrays, self))


class _Placing:
    """Finds a place for one leaf after another; `once` keeps a leaf that stands in several places only once."""

    def __init__(self, once: bool, shared: dict[np.dtype, np.dtype] = _SHARED):
        self.once, self.shared = once, shared
        self.known: dict[int, _Place] = {}
        self.vectors: dict[np.dtype, int] = {}
        self.ends: dict[int, int] = {}
        self.parts: list[list] = []  # what each array is put together from

    def packing(self, value: Any) -> Packing:
        leaves, tree = jax.tree.flatten(value)
        return Packing(tree, tuple([self.place(leaf) for leaf in leaves]))

    def place(self, leaf: Any) -> Packing | _Place | _Fixed:
        if not isinstance(leaf, ARRAYS):
            return self.packing(leaf.tree) if isinstance(leaf, Later) else _Fixed(type(leaf), leaf)
        place = self.known.get(id(leaf)) if self.once else None
        if place is None:
            place = self.known[id(leaf)] = self.new_place(leaf)
        return place

    def new_place(self, leaf: Any) -> _Place:
        vector = self.shared.get(leaf.dtype) if leaf.size <= _SMALL else None
        if vector is None:
            self.parts.append([leaf])
            return _Place(len(self.parts) - 1, None, leaf.size, leaf.shape, leaf.dtype)
        array = self.vectors.get(vector)
        if array is None:
            array = self.vectors[vector] = len(self.parts)
            self.parts.append([])
            self.ends[array] = 0
        offset = self.ends[array]
        self.ends[array] = end = offset + leaf.size
        self.parts[array].append(leaf)
        return _Place(array, offset, end, leaf.shape, leaf.dtype)

    def arrays(self) -> list:
        """The arrays of a program."""
        shared = {array: dtype for dtype, array in self.vectors.items()}
        return [_joined(parts, shared[i]) if i in shared else parts[0] for i, parts in enumerate(self.parts)]


class Layout(NamedTuple):
    """How trees of one form are packed outside a program: for each array its leaves' numbers, and its type if they share it, and
    whether that is the type of each of them."""

    packing: Packing
    arrays: tuple[tuple[np.dtype | None, bool, tuple[int, ...]], ...]

    @classmethod
    def of(cls, value: Any) -> Layout:
        placing = _Placing(once=False)
        packing = placing.packing(value)
        members: list[list[int]] = [[] for _ in placing.parts]
        for number, place in enumerate(packing.places):
            assert not isinstance(place, Packing), "parts for later come out of programs"
            if isinstance(place, _Place):
                members[place.array].append(number)
        shared = {array: dtype for dtype, array in placing.vectors.items()}
        dtypes = [{packing.places[number].dtype for number in each} for each in members]
        return cls(
            packing,
            tuple(
                [(shared.get(i), dtypes[i] == {shared.get(i)}, tuple(each)) for i, each in enumerate(members)]
            ),
        )

    def packed(self, leaves: list) -> Packed:
        """The tree of this form with these leaves."""
        arrays = [
            _end_to_end([leaves[i] for i in numbers], dtype, alike) if dtype else leaves[numbers[0]]
            for dtype, alike, numbers in self.arrays
        ]
        return Packed(arrays, self.packing)

    def repacked(self, packed: Packed, leaves: dict[int, Any]) -> Packed:
        """A packed tree of this form with other leaves, by their numbers."""
        arrays, copied = list(packed.arrays), set()
        for number, leaf in leaves.items():
            place = self.packing.places[number]
            if not isinstance(place, _Place):
                continue  # the same in every tree of this form
            if place.offset is None:
                arrays[place.array] = leaf
                continue
            if place.array not in copied:
                arrays[place.array] = arrays[place.array].copy()
                copied.add(place.array)
            arrays[place.array][place.offset : place.end] = leaf.reshape(-1)
        return Packed(arrays, self.packing)


def _end_to_end(leaves: list, dtype: np.dtype, are_alike: bool) -> np.ndarray:
    """Small arrays in one vector; those of its own type as they lie in memory, which takes a fifth of the time."""
    if are_alike:
        try:
            return np.frombuffer(b"".join(leaves), dtype)
        except (TypeError, BufferError):  # one does not lie in one piece
            pass
    return np.concatenate(leaves, axis=None, dtype=dtype)


_MOST_LAYOUTS = 256
_layouts: dict[Any, Layout] = {}


def layout_of(value: Any, form: Form | tuple) -> Layout:
    """The layout of trees of one form, found once: a solve packs a dozen small arrays, and others the next time."""
    known = _layouts.get(form)
    if known is None:
        while len(_layouts) >= _MOST_LAYOUTS:
            _layouts.pop(next(iter(_layouts)))
        known = _layouts[form] = Layout.of(value)
    return known


def leaves_and_layout(value: Any) -> tuple[list, Layout]:
    """The leaves of a tree and how they are packed; a problem is put together from its parts, most of which were seen before."""
    if type(value) is not MisspecifiedVI:
        leaves, form = Flat.of(value)
        return leaves, layout_of(value, form)
    parts = value.parts().values()
    said = value.constraint_names, value.n_constraints, value.symmetric
    layout = layout_of(value, (said, *[part.form for part in parts]))
    return [leaf for part in parts for leaf in part.leaves], layout


@jax.tree_util.register_pytree_node_class
class Packed:
    """A tree in its arrays."""

    def __init__(self, arrays: list, packing: Packing):
        self.arrays, self.packing = arrays, packing

    @classmethod
    def of(cls, value: Any) -> Packed:
        """A tree within a program, on its way out: one vector of floats, in which a leaf that stands in several places is once."""
        placing = _Placing(once=True, shared=_SHARED_BY_ALL)
        packing = placing.packing(value)
        return cls(placing.arrays(), packing)

    @classmethod
    def like(cls, value: Any) -> Packed:
        """A tree within a program, as every other with leaves of these shapes, whether some are the same or not."""
        placing = _Placing(once=False)
        packing = placing.packing(value)
        return cls(placing.arrays(), packing)

    @classmethod
    def on_host(cls, value: Any) -> Packed:
        """A tree outside a program, as every other with leaves of these shapes: another such tree needs no other program."""
        leaves, layout = leaves_and_layout(value)
        return layout.packed(leaves)

    def whole(self) -> Any:
        """The tree itself."""
        return self.packing.unpacked(self.arrays)

    def tree_flatten(self):
        return self.arrays, self.packing

    @classmethod
    def tree_unflatten(cls, packing, arrays):
        return cls(list(arrays), packing)


def _joined(parts: list, dtype: np.dtype) -> jax.Array:
    """Leaves of one vector within a program, end to end, as numbers of one type."""
    # `jnp.ravel` takes far longer to trace.
    flat = [jax.lax.reshape(part, (part.size,)) for part in parts]
    wide = [part.astype(np.int64) if part.dtype == np.bool_ else part for part in flat]
    like = [part if part.dtype == dtype else jax.lax.bitcast_convert_type(part, dtype) for part in wide]
    return like[0] if len(like) == 1 else jnp.concatenate(like)
