"""Compile once for every structure of the arguments; call with little ado."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_KEPT_BYTES = 1 << 26  # data of problems up to this size stays on the device between calls
_MOST_PROGRAMS = 256
_SMALL = 1024  # numbers in an array up to which it shares an output and is not given away
# Both ask for the program in four parts: XLA's thirty-two are many for what is compiled here.
# Sums by YNNPACK, XLA's choice, wake up a second thread and take room for another array of the size of what is summed.
_FAST_CODE = {"xla_cpu_experimental_ynn_fusion_type": "", "xla_cpu_parallel_codegen_split_count": 4}
# Of XLA's two ways to compile fused loops for a processor the one that takes half as long, and YNNPACK, which needs no code.
_FAST_COMPILATION = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 4}
_LARGE = 1 << 19  # numbers in an array from which compilation is short beside the solve


class Compiled:
    """A function of trees, compiled with their arrays as arguments and everything else held fixed.

    The first two arguments (the problem and the scheme) are immutable: their flat forms are remembered while they live. With
    `gives_away`, large arrays of the others are the program's: it may put its results where they were. Each must then stand
    in one place only.
    """

    def __init__(self, function: Callable, *, gives_away: bool = False):
        self.function, self.gives_away = function, gives_away
        self._programs: dict[Any, Callable] = {}

    def __call__(self, *args: Any) -> Any:
        (problem, scheme), kept = zip(*(_flat_form(arg) for arg in args[:2]), strict=True)
        leaves, tree = jax.tree.flatten(args[2:])
        kinds = tuple(_kind(leaf, self.gives_away) for leaf in leaves)
        sorted_out: dict[str, list] = {"fixed": [], "kept": [], "given away": []}
        for leaf, kind in zip(leaves, kinds, strict=True):
            sorted_out[kind].append(leaf)
        fixed, own, given = tuple(sorted_out["fixed"]), sorted_out["kept"], sorted_out["given away"]
        key = (kept, tree, kinds, fixed)
        program = self._programs.get(key)
        if program is not None:
            return program(problem, scheme, own, given).whole()
        while (
            len(self._programs) >= _MOST_PROGRAMS
        ):  # the oldest goes: every lambda is a structure of its own
            self._programs.pop(next(iter(self._programs)))
        function = _Unflatten(self.function, kept, tree, kinds, fixed)
        quickly = getattr(args[1], "few_steps", False)
        self._programs[key], found = _compile(function, quickly, problem, scheme, own, given)
        return found.whole()


def _kind(leaf: Any, gives_away: bool) -> str:
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return "fixed"
    return "given away" if gives_away and leaf.size > _SMALL else "kept"


def _compile(function: Callable, quickly: bool, *args: Any) -> tuple[Callable, Any]:
    """The compiled function, and what it returns for `args`; `quickly` where compiling it takes longer than running it."""
    largest = max((np.size(leaf) for leaf in jax.tree.leaves(args)), default=0)
    options = _FAST_COMPILATION if quickly and largest <= _LARGE else _FAST_CODE
    program = jax.jit(
        function, compiler_options=options if jax.default_backend() == "cpu" else None, donate_argnums=3
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        try:
            return program, program(*args)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
        program = jax.jit(function, donate_argnums=3)  # another release of XLA, without this choice
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


class _Unflatten:
    """The function on flat arrays."""

    def __init__(
        self, function: Callable, kept: tuple[_Kept, ...], tree: Any, kinds: tuple[str, ...], fixed: tuple
    ):
        self.function, self.kept, self.tree, self.kinds, self.fixed = function, kept, tree, kinds, fixed
        self.__name__ = getattr(function, "__name__", "compiled")

    def __call__(self, problem: list, scheme: list, own: list, given: list) -> Any:
        first = [
            _rebuilt(kept.tree, kept.is_array, kept.fixed, arrays)
            for kept, arrays in zip(self.kept, (problem, scheme), strict=True)
        ]
        sources = {"fixed": iter(self.fixed), "kept": iter(own), "given away": iter(given)}
        rest = jax.tree.unflatten(self.tree, [next(sources[kind]) for kind in self.kinds])
        return _Packed.of(self.function(*first, *rest))


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
