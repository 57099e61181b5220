"""Small reductions of a program without a function of their own, for programs that take no longer than they take to call.

XLA makes a function of what a reduction does with two numbers, with a buffer for each and for the outcome, and a call of a
program asks for the memory of every buffer in it: a fifth of a microsecond for each reduction, more than it takes to sum up some
hundreds of numbers. The product of a matrix and a vector has no such function, nor have comparisons of one half of an array with the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.extend.core as jax_core
import numpy as np
from jaxtyping import Array

_MOST_SUMMED = 512  # numbers; with more, it is summing that takes the time
_FEW = 8  # numbers that are taken one after another
_OF_TWO = {"reduce_sum": jax.lax.add, "reduce_max": jax.lax.max, "reduce_min": jax.lax.min}


def with_plain_sums(program: Any) -> Any:
    """The same closed program with its small reductions, and those of the programs within it, written otherwise."""
    return _Rewriting().closed(program)


class _Rewriting:
    """Rewrites every program once, so that what is shared stays shared."""

    def __init__(self):
        self.known: dict[
            int, tuple[Any, Any]
        ] = {}  # with the program itself, whose number is taken while it lives

    def closed(self, program: Any) -> Any:
        if id(program) not in self.known:
            self.known[id(program)] = program, program.replace(jaxpr=self.program(program.jaxpr))
        return self.known[id(program)][1]

    def program(self, jaxpr: Any) -> Any:
        return jaxpr.replace(eqns=[new for eqn in jaxpr.eqns for new in self.operations(eqn)])

    def operations(self, eqn: Any) -> list[Any]:
        """What stands in the place of an operation."""
        if eqn.primitive.name.startswith("reduce_") and "axes" in eqn.params:
            array = eqn.invars[0].aval
            plain = _plain(eqn.primitive.name, array.shape, array.dtype, tuple(map(int, eqn.params["axes"])))
            return [eqn] if plain is None else _in_place_of(eqn, plain)
        within = {key: self.parameter(value) for key, value in eqn.params.items()}
        return [eqn.replace(params=within)]

    def parameter(self, value: Any) -> Any:
        if isinstance(value, jax_core.ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, jax_core.Jaxpr):
            return self.program(value)
        if type(value) is tuple and any(isinstance(each, jax_core.ClosedJaxpr) for each in value):
            return tuple(map(self.parameter, value))
        return value


def _in_place_of(eqn: Any, plain: Any) -> list[Any]:
    """The operations of a program of one array, in variables of their own."""
    known = dict(zip((*plain.invars, *plain.outvars), (eqn.invars[0], *eqn.outvars), strict=True))

    def own(atom: Any) -> Any:
        if isinstance(atom, jax_core.Literal):
            return atom
        if atom not in known:
            known[atom] = type(atom)(atom.aval)
        return known[atom]

    return [
        each.replace(
            invars=[own(atom) for atom in each.invars],
            outvars=[own(atom) for atom in each.outvars],
            source_info=eqn.source_info,
        )
        for each in plain.eqns
    ]


@lru_cache(maxsize=4096)
def _plain(name: str, shape: tuple[int, ...], dtype: Any, axes: tuple[int, ...]) -> Any | None:
    """The program that stands for a reduction; None: it stays."""
    function = _without_reduction(name, shape, dtype, axes)
    if function is None:
        return None
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct(shape, dtype)).jaxpr


def _without_reduction(
    name: str, shape: tuple[int, ...], dtype: Any, axes: tuple[int, ...]
) -> Callable[[Array], Array] | None:
    n = math.prod([shape[axis] for axis in axes])
    if n <= 1 or not 0 < math.prod(shape) <= _MOST_SUMMED:
        return None
    if name in _OF_TWO and len(axes) == len(shape) == 1 and n <= _FEW:
        return lambda array: _one_after_another(array, _OF_TWO[name])
    if name in ("reduce_max", "reduce_min"):
        return lambda array: _compared_by_halves(array, axes, _OF_TWO[name])
    if name == "reduce_sum" and dtype == np.float64:
        return lambda array: _summed(array, axes)
    if name == "reduce_or" and dtype == np.bool_:
        return lambda array: jax.lax.gt(_counted(array, axes), 0.0)
    if name == "reduce_and" and dtype == np.bool_:
        return lambda array: jax.lax.eq(_counted(jax.lax.bitwise_not(array), axes), 0.0)
    return None


def _counted(array: Array, axes: tuple[int, ...]) -> Array:
    return _summed(jax.lax.convert_element_type(array, np.float64), axes)


def _summed(array: Array, axes: tuple[int, ...]) -> Array:
    left = [axis for axis in range(array.ndim) if axis not in axes]
    shape = [array.shape[axis] for axis in left]
    size = math.prod(shape)
    n = array.size // size
    if size > 1 and left == list(range(len(left))):  # what is summed lies side by side
        return jax.lax.reshape(_product(jax.lax.reshape(array, (size, n)), jax.lax.full((n,), 1.0)), shape)
    if size > 1:
        matrix = jax.lax.reshape(jax.lax.transpose(array, (*axes, *left)), (n, size))
        return jax.lax.reshape(_product(jax.lax.full((n,), 1.0), matrix), shape)
    # A product of two vectors would become a reduction again.
    twice = _product(jax.lax.full((2, n), 1.0), jax.lax.reshape(array, (n,)))
    return jax.lax.reshape(jax.lax.slice(twice, [0], [1]), shape)


def _product(a: Array, b: Array) -> Array:
    """In full precision, whatever `jax.default_matmul_precision` says: it stands for a sum."""
    return jax.lax.dot(a, b, precision=jax.lax.Precision.HIGHEST)


def _one_after_another(array: Array, of_two: Callable[[Array, Array], Array]) -> Array:
    parts = [jax.lax.slice(array, [i], [i + 1]) for i in range(array.size)]
    while len(parts) > 1:
        rest = parts[-1:] if len(parts) % 2 else []
        parts = [*map(of_two, parts[0::2], parts[1::2]), *rest]
    return jax.lax.reshape(parts[0], ())


def _compared_by_halves(
    array: Array, axes: tuple[int, ...], of_two: Callable[[Array, Array], Array]
) -> Array:
    """The largest or least of the first half and the second, which may share a number in the middle, until one is left."""
    left = [axis for axis in range(array.ndim) if axis not in axes]
    shape = [array.shape[axis] for axis in left]
    size = math.prod(shape)
    rows = jax.lax.reshape(jax.lax.transpose(array, (*left, *axes)), (size, array.size // size))
    while (n := rows.shape[1]) > 1:
        half = -(-n // 2)
        first, second = (jax.lax.slice_in_dim(rows, at, at + half, axis=1) for at in (0, n - half))
        rows = of_two(first, second)
    return jax.lax.reshape(rows, shape)
