"""Compile once for every structure of the arguments; call with little ado."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_KEPT_BYTES = 1 << 26  # data of problems up to this size stays on the device between calls
_MOST_PROGRAMS = 256
_SMALL = 1024  # numbers in an array up to which it shares an output
_LARGE = 1 << 19  # numbers in an array from which compilation is short beside the solve
_IN_FOUR_PARTS = {
    "xla_cpu_parallel_codegen_split_count": 4
}  # XLA's thirty-two are many for what is compiled here
# Sums by YNNPACK, XLA's choice, wake up a second thread and take room for another array of the size of what is summed.
_FAST_CODE = {**_IN_FOUR_PARTS, "xla_cpu_experimental_ynn_fusion_type": ""}
# Of XLA's two ways to compile fused loops for a processor the one that takes half as long; YNNPACK, which needs no code,
# for long sums, and short ones in one pass instead of a tree of them.
_FAST_COMPILATION = {
    **_IN_FOUR_PARTS,
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}


class Compiled:
    """A function of trees, compiled with their arrays as arguments and everything else held fixed.

    The first two arguments (the problem and the scheme) are immutable: their flat forms are remembered while they live.
    """

    def __init__(self, function: Callable):
        self.function = function
        self._programs: dict[Any, Callable] = {}

    def __call__(self, *args: Any) -> Any:
        forms = _flat_form(args[0]), _flat_form(args[1]), _Flat(args[2:])
        arrays = [form.arrays for form in forms]
        key = tuple(form.kept for form in forms)
        program = self._programs.get(key)
        if program is not None:
            return program(*arrays).whole()
        while len(self._programs) >= _MOST_PROGRAMS:
            # The oldest goes: every lambda is a structure of its own.
            self._programs.pop(next(iter(self._programs)))
        quickly = getattr(args[1], "few_steps", False)
        self._programs[key], found = _compile(_Unflatten(self.function, key), quickly, *arrays)
        return found.whole()


def _compile(function: Callable, quickly: bool, *args: Any) -> tuple[Callable, Any]:
    """The compiled function, and what it returns for `args`; `quickly` where compiling it takes longer than running it."""
    largest = max((np.size(leaf) for leaf in jax.tree.leaves(args)), default=0)
    options = _FAST_COMPILATION if quickly and largest <= _LARGE else _FAST_CODE
    program = jax.jit(function, compiler_options=options if jax.default_backend() == "cpu" else None)
    try:
        return program, program(*args)
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
    program = jax.jit(function)  # another release of XLA, without this choice
    return program, program(*args)


class _Kept:
    """How to rebuild a remembered argument from its arrays; equal when structure and fixed parts are."""

    def __init__(self, tree: Any, is_array: tuple[bool, ...], fixed: tuple):
        self.tree, self.is_array, self.fixed = tree, is_array, fixed
        self._key = (tree, is_array, fixed)
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Kept) and self._key == other._key)

    def rebuilt(self, arrays: list) -> Any:
        """The argument with these arrays."""
        varying, constant = iter(arrays), iter(self.fixed)
        return jax.tree.unflatten(
            self.tree, [next(varying) if use else next(constant) for use in self.is_array]
        )


class _Unflatten:
    """The function on flat arrays."""

    def __init__(self, function: Callable, kept: tuple[_Kept, ...]):
        self.function, self.kept = function, kept
        self.__name__ = getattr(function, "__name__", "compiled")

    def __call__(self, *arrays: list) -> Any:
        problem, scheme, rest = (kept.rebuilt(own) for kept, own in zip(self.kept, arrays, strict=True))
        return _Packed.of(self.function(problem, scheme, *rest))


class Later:
    """A part of a result that few callers look into, put together only when it is asked for."""

    def __init__(self, tree: Any):
        self._tree = tree

    def whole(self) -> Any:
        """The tree itself."""
        return self._tree.whole() if isinstance(self._tree, _Unpacked) else self._tree


class _Place(NamedTuple):
    """Where an array of a result is: which of the program's outputs, and from where on if it shares that output."""

    output: int
    offset: int | None
    shape: tuple[int, ...]
    dtype: Any


@jax.tree_util.register_pytree_node_class
class _Packed:
    """A tree as few outputs of a program: every output costs its caller some microseconds.

    Small arrays lie side by side in two vectors, one of floats and one of integers. An array that stands in several places
    (x of the point and x of the state) is written once.
    """

    def __init__(self, outputs: list, tree: Any, places: tuple):
        self.outputs, self.tree, self.places = outputs, tree, places

    @classmethod
    def of(cls, value: Any) -> _Packed:
        outputs: list = [[], []]
        ends = [0, 0]
        known: dict[int, _Place] = {}

        def place(leaf: Any) -> Any:
            if isinstance(leaf, Later):
                leaves, tree = jax.tree.flatten(leaf.whole())
                return tree, tuple(place(each) for each in leaves)
            if id(leaf) in known:
                return known[id(leaf)]
            vector = 0 if leaf.dtype == jnp.float64 else 1 if leaf.dtype in (jnp.int64, jnp.bool_) else None
            if vector is None or leaf.size > _SMALL:
                known[id(leaf)] = _Place(len(outputs), None, leaf.shape, leaf.dtype)
                outputs.append(leaf)
            else:
                known[id(leaf)] = _Place(vector, ends[vector], leaf.shape, np.dtype(leaf.dtype))
                outputs[vector].append(leaf)
                ends[vector] += leaf.size
            return known[id(leaf)]

        leaves, tree = jax.tree.flatten(value, is_leaf=lambda node: isinstance(node, Later))
        places = tuple(place(leaf) for leaf in leaves)
        for vector, dtype in enumerate((jnp.float64, jnp.int64)):
            parts = [part.reshape(-1).astype(dtype) for part in outputs[vector]]
            outputs[vector] = jnp.concatenate(parts) if parts else jnp.zeros(0, dtype)
        return cls(outputs, tree, places)

    def whole(self) -> Any:
        """The tree itself; what was packed comes as NumPy arrays."""
        outputs = [*map(np.asarray, self.outputs[:2]), *self.outputs[2:]]
        return _Unpacked(outputs, self.tree, self.places).whole()

    def tree_flatten(self):
        return self.outputs, (self.tree, self.places)

    @classmethod
    def tree_unflatten(cls, fixed, outputs):
        return cls(list(outputs), *fixed)


class _Unpacked(NamedTuple):
    """What a tree is put together from."""

    outputs: list
    tree: Any
    places: tuple

    def whole(self) -> Any:
        return jax.tree.unflatten(self.tree, [self._at(place) for place in self.places])

    def _at(self, place: Any) -> Any:
        if not isinstance(place, _Place):
            return Later(_Unpacked(self.outputs, *place))
        output, offset, shape, dtype = place
        if offset is None:
            return self.outputs[output]
        part = self.outputs[output][offset : offset + math.prod(shape)].reshape(shape)
        return part if dtype == part.dtype else part.astype(dtype)


class _Flat:
    """The arrays of a value and how to rebuild it.

    An immutable value used once hands its NumPy arrays to the program as they are; one used again has them on the device.
    """

    def __init__(self, value: Any):
        leaves, tree = jax.tree.flatten(value)
        is_array = tuple(isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in leaves)
        fixed = tuple(leaf for leaf, use in zip(leaves, is_array, strict=True) if not use)
        self.arrays = [leaf for leaf, use in zip(leaves, is_array, strict=True) if use]
        self.kept = _Kept(tree, is_array, fixed)
        self.is_settled = False

    def again(self) -> _Flat:
        """The same, for a second and later use; arrays too large to be there twice stay where they are."""
        if not self.is_settled and sum(leaf.nbytes for leaf in self.arrays) <= _KEPT_BYTES:
            self.arrays = jax.device_put(self.arrays, may_alias=False)  # compiles nothing; jnp.asarray would
        self.is_settled = True
        return self


_flat_forms: dict[int, tuple[weakref.ref, _Flat]] = {}


def _flat_form(value: Any) -> _Flat:
    """The flat form of an immutable value, remembered until the value is gone."""
    known = _flat_forms.get(id(value))
    if known is not None and known[0]() is value:
        return known[1].again()
    flat, identity = _Flat(value), id(value)
    forms = _flat_forms  # the interpreter may have cleared the module when the last values go
    forms[identity] = (weakref.ref(value, lambda _: forms.pop(identity, None)), flat)
    return flat
