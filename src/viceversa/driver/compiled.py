"""Compile once for every structure of the arguments; call with little ado."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from viceversa import one_kernel
from viceversa.driver.one_blas_thread import factors_matrices, one_blas_thread
from viceversa.driver.packing import Packed, Packing
from viceversa.once import once_for_each

_KEPT_BYTES = 1 << 26  # data of problems up to this size stays on the device between calls
_MOST_PROGRAMS = 256
_MOST_QUESTIONS = 1 << 14  # each a fifth of a microsecond
_LARGE = 1 << 19  # numbers in an array from which compilation is short beside the solve
# XLA's thirty-two parts are many for what is compiled here, and half the width of a vector, its choice, is for processors that
# slow down in the other half.
_ALWAYS = {"xla_cpu_parallel_codegen_split_count": 4, "xla_cpu_prefer_vector_width": 512}
# Sums by YNNPACK, XLA's choice, wake up a second thread and take room for another array of the size of what is summed.
_FAST_CODE = {**_ALWAYS, "xla_cpu_experimental_ynn_fusion_type": ""}
# Of XLA's two ways to compile fused loops for a processor the one that takes half as long; YNNPACK, which needs no code,
# for long sums, and short ones in one pass instead of a tree of them.
_FAST_COMPILATION = {
    **_ALWAYS,
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}
# As fast for small arrays, compiled in nine tenths of the time.
_LITTLE_EFFORT = {"xla_backend_optimization_level": 1}


class Compiled:
    """A function of packed trees to a packed one, compiled for their structure; its callers see trees.

    The arguments are immutable objects (a problem, a scheme, settings, starts): their packed forms are remembered while they
    live; what is used once may be packed already. What is not an array is held fixed.
    """

    def __init__(self, function: Callable):
        self.function = function
        self._programs: dict[Any, _Program] = {}

    def __call__(self, problem: Any, scheme: Any, *rest: Any) -> Any:
        given = [each if type(each) is Packed else _form(each).used() for each in (problem, scheme, *rest)]
        arrays = [each.arrays for each in given]
        key = tuple([each.packing for each in given])
        known = self._programs.get(key)
        if known is None:
            while len(self._programs) >= _MOST_PROGRAMS:
                # The oldest goes: every lambda is a structure of its own.
                self._programs.pop(next(iter(self._programs)))
            quickly = getattr(scheme, "few_steps", False)
            known, found = _compile(_OnArrays(self.function, key), quickly, *arrays)
            self._programs[key] = known
        else:
            found = known(*arrays)
        packing = known.on_arrays.packing
        assert packing is not None
        if packing.is_one_vector:
            return packing.of_one_vector(np.asarray(found[0]))
        return packing.unpacked([_on_host(array) for array in found])


def _awaited(arrays: list[Any]) -> list[Any]:
    """Ask a short program for some milliseconds whether it is done: to sleep and be woken up may take longer than it does.

    One that works on large arrays can use the processor that asking keeps busy.
    """
    if not arrays or arrays[-1].is_ready():  # and the others with it
        return arrays
    if all(array.size <= one_kernel.LARGEST for array in arrays):
        for _ in range(_MOST_QUESTIONS):
            if arrays[-1].is_ready():
                break
    return arrays


def _on_host(array: jax.Array) -> Any:
    """The same memory as a NumPy array; random keys have no such form."""
    return np.asarray(array) if isinstance(array.dtype, np.dtype) else array


def _compile(function: _OnArrays, quickly: bool, *args: Any) -> tuple[_Program, Any]:
    """The compiled function, and what it returns for `args`; `quickly` where compiling it takes longer than running it."""
    largest = max((np.size(leaf) for leaf in jax.tree.leaves(args)), default=0)
    options = _FAST_COMPILATION if quickly and largest <= _LARGE else _FAST_CODE
    if largest <= one_kernel.LARGEST:
        options = options | one_kernel.COMPILER_OPTIONS | (_LITTLE_EFFORT if quickly else {})
    jitted = jax.jit(function, compiler_options=options if jax.default_backend() == "cpu" else None)
    program = _Program(jitted, function, factors_matrices(jitted.trace(*args).jaxpr.jaxpr))
    try:
        return program, program(*args)
    except jax.errors.JaxRuntimeError as error:
        if not any(known in str(error) for known in ("No such compile option", "UNIMPLEMENTED")):
            raise
    program = program._replace(function=jax.jit(function))  # another release of XLA, without these choices
    with one_kernel.through_the_queue():
        return program, program(*args)


class _Program(NamedTuple):
    """A compiled function, how it was traced, and whether it factors matrices."""

    function: Callable
    on_arrays: _OnArrays
    uses_blas: bool

    def __call__(self, *args: Any) -> list[Any]:
        """What it returns, when it is done."""
        if not self.uses_blas:
            return _awaited(self.function(*args))
        with one_blas_thread():
            return jax.block_until_ready(self.function(*args))


class _OnArrays:
    """A function of packed trees as one of their arrays; how its result is packed is known once it was traced."""

    def __init__(self, function: Callable, packings: tuple[Packing, ...]):
        self.function, self.packings = function, packings
        self.packing: Packing | None = None
        self.__name__ = getattr(function, "__name__", "compiled")

    def __call__(self, *arrays: list) -> list:
        found = self.function(*map(Packed, arrays, self.packings))
        self.packing = found.packing
        return found.arrays


class _Form:
    """An immutable value, packed. Used once, it hands its NumPy arrays to the program; used again, it has them on the device."""

    def __init__(self, packed: Packed):
        self._packed, self._n_uses = packed, 0

    def used(self) -> Packed:
        """For one more use; arrays too large to be there twice stay where they are."""
        self._n_uses += 1
        if self._n_uses == 2 and sum(array.nbytes for array in self._packed.arrays) <= _KEPT_BYTES:
            # Compiles nothing; jnp.asarray would.
            arrays = jax.device_put(self._packed.arrays, may_alias=False)
            self._packed = Packed(arrays, self._packed.packing)
        return self._packed


@once_for_each
def _form(value: Any) -> _Form:
    return _Form(Packed.on_host(value))
