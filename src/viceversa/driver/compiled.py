"""Compile once for every structure of the arguments; call with little ado."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_KEPT_BYTES = 1 << 26  # data of problems up to this size stays on the device between calls
_MOST_PROGRAMS = 256


class Compiled:
    """A function of trees, compiled with their arrays as arguments and everything else held fixed.

    The first argument (the problem) is immutable, so its flat form is remembered while it lives.
    """

    def __init__(self, function: Callable):
        self.function = function
        self._programs: dict[Any, Callable] = {}

    def __call__(self, *args: Any) -> Any:
        first, kept = _flat_form(args[0])
        rest, tree = jax.tree.flatten(args[1:])
        is_array = tuple(isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in rest)
        arrays = [leaf for leaf, use in zip(rest, is_array, strict=True) if use]
        fixed = tuple(leaf for leaf, use in zip(rest, is_array, strict=True) if not use)
        key = (kept, tree, is_array, fixed)
        program = self._programs.get(key)
        if program is None:
            while (
                len(self._programs) >= _MOST_PROGRAMS
            ):  # the oldest goes: every lambda is a structure of its own
                self._programs.pop(next(iter(self._programs)))
            program = self._programs[key] = jax.jit(_Unflatten(self.function, kept, tree, is_array, fixed))
        return program(first, arrays).whole()


class _Kept:
    """How to rebuild the first argument from its arrays; equal when structure and fixed parts are."""

    def __init__(self, tree: Any, is_array: tuple[bool, ...], fixed: tuple):
        self.tree, self.is_array, self.fixed = tree, is_array, fixed
        self._key = (tree, is_array, fixed)
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Kept) and self._key == other._key)


class _Unflatten:
    """The function on flat arrays."""

    def __init__(self, function: Callable, kept: _Kept, tree: Any, is_array: tuple[bool, ...], fixed: tuple):
        self.function, self.kept, self.tree, self.is_array, self.fixed = function, kept, tree, is_array, fixed
        self.__name__ = getattr(function, "__name__", "compiled")

    def __call__(self, first: list, arrays: list) -> Any:
        problem = _rebuilt(self.kept.tree, self.kept.is_array, self.kept.fixed, first)
        rest = _rebuilt(self.tree, self.is_array, self.fixed, arrays)
        return _Distinct.of(self.function(problem, *rest))


@jax.tree_util.register_pytree_node_class
class _Distinct:
    """A tree in which the same array stands in several places, holding it once.

    A compiled program writes every output to memory of its own; an array that is x of the point and x of the state
    would be written twice.
    """

    def __init__(self, arrays: list, tree: Any, places: tuple[int, ...]):
        self.arrays, self.tree, self.places = arrays, tree, places

    @classmethod
    def of(cls, value: Any) -> _Distinct:
        leaves, tree = jax.tree.flatten(value)
        first = {id(leaf): n for n, leaf in reversed(list(enumerate(leaves)))}
        distinct = sorted(first.values())
        position = {n: at for at, n in enumerate(distinct)}
        return cls([leaves[n] for n in distinct], tree, tuple(position[first[id(leaf)]] for leaf in leaves))

    def whole(self) -> Any:
        """The tree itself."""
        return jax.tree.unflatten(self.tree, [self.arrays[at] for at in self.places])

    def tree_flatten(self):
        return self.arrays, (self.tree, self.places)

    @classmethod
    def tree_unflatten(cls, fixed, arrays):
        return cls(list(arrays), *fixed)


def _rebuilt(tree: Any, is_array: tuple[bool, ...], fixed: tuple, arrays: list) -> Any:
    varying, constant = iter(arrays), iter(fixed)
    return jax.tree.unflatten(tree, [next(varying) if use else next(constant) for use in is_array])


class _Flat:
    """The arrays of an immutable value and how to rebuild it.

    A value used once hands its NumPy arrays to the program as they are; one used again has them on the device.
    """

    def __init__(self, value: Any):
        leaves, tree = jax.tree.flatten(value)
        is_array = tuple(isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in leaves)
        fixed = tuple(leaf for leaf, use in zip(leaves, is_array, strict=True) if not use)
        self.arrays = [leaf for leaf, use in zip(leaves, is_array, strict=True) if use]
        self.kept = _Kept(tree, is_array, fixed)
        self.on_device = (
            sum(leaf.nbytes for leaf in self.arrays) > _KEPT_BYTES
        )  # or too large to be there twice

    def again(self) -> list:
        """The arrays, for a second and later use."""
        if not self.on_device:
            self.arrays, self.on_device = [jnp.asarray(leaf) for leaf in self.arrays], True
        return self.arrays


_flat_forms: dict[int, tuple[weakref.ref, _Flat]] = {}


def _flat_form(value: Any) -> tuple[list, _Kept]:
    """The arrays of an immutable value and how to rebuild it, remembered until the value is gone."""
    known = _flat_forms.get(id(value))
    if known is not None and known[0]() is value:
        return known[1].again(), known[1].kept
    flat, identity = _Flat(value), id(value)
    forms = _flat_forms  # the interpreter may have cleared the module when the last values go
    forms[identity] = (weakref.ref(value, lambda _: forms.pop(identity, None)), flat)
    return flat.arrays, flat.kept
