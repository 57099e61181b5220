"""Compile once for every structure of the arguments; call with little ado."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from viceversa import one_kernel

_KEPT_BYTES = 1 << 26  # data of problems up to this size stays on the device between calls
_MOST_PROGRAMS = 256
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
_LITTLE_EFFORT = {
    "xla_backend_optimization_level": 1
}  # as fast for small arrays, compiled in nine tenths of the time


class Compiled:
    """A function of trees to a `Packed`, compiled with their arrays as arguments and everything else held fixed.

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
            return program(*arrays).on_host().whole()
        while len(self._programs) >= _MOST_PROGRAMS:
            # The oldest goes: every lambda is a structure of its own.
            self._programs.pop(next(iter(self._programs)))
        quickly = getattr(args[1], "few_steps", False)
        self._programs[key], found = _compile(_Unflatten(self.function, key), quickly, *arrays)
        return found.on_host().whole()


def _compile(function: Callable, quickly: bool, *args: Any) -> tuple[Callable, Any]:
    """The compiled function, and what it returns for `args`; `quickly` where compiling it takes longer than running it."""
    largest = max((np.size(leaf) for leaf in jax.tree.leaves(args)), default=0)
    options = _FAST_COMPILATION if quickly and largest <= _LARGE else _FAST_CODE
    if largest <= one_kernel.LARGEST:
        options = options | one_kernel.COMPILER_OPTIONS | (_LITTLE_EFFORT if quickly else {})
    program = jax.jit(function, compiler_options=options if jax.default_backend() == "cpu" else None)
    try:
        return program, program(*args)
    except jax.errors.JaxRuntimeError as error:
        if not any(known in str(error) for known in ("No such compile option", "UNIMPLEMENTED")):
            raise
    program = jax.jit(function)  # another release of XLA, without these choices
    with one_kernel.through_the_queue():
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
        return self.function(problem, scheme, *rest)


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
