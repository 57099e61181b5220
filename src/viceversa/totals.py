"""Where coordinates meet in a linear program, such as that of a derivative: in totals along axes of x, or otherwise.

A program is walked through operation by operation, and every array in it known by the axes of x that it runs along. Totals are
where it can be cut: what they are can be asked, and what follows from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
from jaxtyping import Array

from viceversa.operations import evaluated, inner_programs

_SUMS = {"add", "sub", "add_any"}
_ELEMENTWISE = _SUMS | {"neg", "mul", "div", "select_n", "convert_element_type", "copy"}
_RESHAPING = {"reshape", "squeeze", "expand_dims"}
_CALLS = {"jit", "pjit", "closed_call", "core_call"}

# Along which axis of x each axis of an array runs; None: it has length 1.
Axes = tuple[int | None, ...]
ALL: Axes = (-1,)  # of an array with one axis, which runs along all those of a folded x, one after another


class OtherwiseThanInTotals(Exception):
    """Coordinates meet otherwise than in totals."""


class Value(NamedTuple):
    """An array of the linear program, None where it is zero; `is_local`: entry i depends on u_i itself."""

    array: Any
    axes: Axes | None = None  # None: it does not move
    is_local: bool = False


class Owners(NamedTuple):
    """Whose every coordinate of x is: the shape that x is folded to, and the axis of it that says so; None: each its own."""

    folded: tuple[int, ...]
    axis: int | None

    def reduced(self, entries: Array, total: Callable) -> Array:
        """`total` (`jnp.sum` or `jnp.max`) of what each owner has of an array like x."""
        if self.axis is None:
            return entries.reshape(-1)
        others = tuple([axis for axis in range(len(self.folded)) if axis != self.axis])
        return total(entries.reshape(self.folded), axis=others)


def owners(function: Callable[[Array], Array], x: Array, n: int) -> Owners | None:
    """To which of a function's n entries each coordinate belongs; None where one may matter for several of them."""
    found: list[Owners] = []

    def look(x: Array) -> None:
        program = jax.make_jaxpr(lambda u: jax.jvp(function, (x,), (u,))[1])(x)
        for folded in shapes_of(program.jaxpr, x.shape):
            walk = Walk(folded)
            try:
                (out,) = walk.through(
                    program.jaxpr, program.consts, [Value(None, axes_of(x.shape, folded), True)]
                )
            except OtherwiseThanInTotals:
                continue
            if out.axes == ALL:
                if n == x.size and not walk.summed:
                    found.append(Owners(folded, None))
            elif out.axes is not None and len(out.axes) == 1:
                (axis,) = out.axes
                if axis is not None and n == folded[axis] and axis not in walk.summed:
                    found.append(Owners(folded, axis))

    jax.eval_shape(look, x)  # whatever is computed on the way is not wanted
    return found[0] if found else None


class Walk:
    """Through the linear program, cut at its totals: what they are to be taken for (zero: None), and what they were."""

    def __init__(self, shape: tuple[int, ...], given: Sequence[Array | None] | None = None):
        self.shape, self.flat, self.given = shape, (math.prod(shape),), given
        self.folds = len(shape) > 1
        self.found: list[Any] = []
        self.axes: list[Axes] = []
        self.summed: set[int] = set()  # the axes of x that something was summed over
        self._seen: dict[Any, tuple[Value, list[Value]]] = {}

    def through(self, jaxpr: Any, consts: Any, given: list[Value]) -> list[Value]:
        known = dict(zip(jaxpr.constvars, map(Value, consts), strict=True))
        known.update(zip(jaxpr.invars, given, strict=True))

        def value(atom: Any) -> Value:
            return Value(atom.val) if isinstance(atom, jax_core.Literal) else known[atom]

        for eqn in _needed(jaxpr):
            values = [value(atom) for atom in eqn.invars]
            known.update(zip(eqn.outvars, self._operated(eqn, values), strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def _operated(self, eqn: Any, values: list[Value]) -> list[Value]:
        """One operation, linear in what moves."""
        name, moving = eqn.primitive.name, [v for v in values if v.axes is not None]
        if not moving:
            return [Value(out) for out in evaluated(eqn, [v.array for v in values])]
        if name in _CALLS:
            inner = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]
            return self.through(inner.jaxpr, inner.consts, values)
        if len(eqn.outvars) > 1:
            raise OtherwiseThanInTotals
        # F and f often take the same total of the same array: it is one.
        key = name, str(eqn.params), tuple([id(v.array if v.axes is None else v) for v in values])
        if key not in self._seen:
            self._seen[key] = self._moved(eqn, values), values  # kept, so that identities stay what they are
        return [self._seen[key][0]]

    def _moved(self, eqn: Any, values: list[Value]) -> Value:
        name, moving = eqn.primitive.name, [v for v in values if v.axes is not None]
        if name == "reduce_sum":
            return self._total(eqn, values[0])
        axes, is_local = self._axes_after(eqn, values), any(v.is_local for v in moving)
        if all(v.array is None for v in moving):
            return Value(None, axes, is_local)
        if name in _SUMS and any(v.array is None for v in values):
            return Value(_sum_with_zero(eqn, values), axes, is_local)
        return Value(evaluated(eqn, _without_zeros(eqn, values))[0], axes, is_local)

    def _total(self, eqn: Any, value: Value) -> Value:
        """A sum; if it depends on coordinates themselves, the program is cut there."""
        over, all_axes = eqn.params["axes"], value.axes or ()
        axes = tuple([axis for i, axis in enumerate(all_axes) if i not in over])
        for i, axis in enumerate(all_axes):
            if i in over and axis is not None:
                self.summed.update(range(len(self.shape)) if (axis,) == ALL else [axis])
        found = None if value.array is None else evaluated(eqn, [value.array])[0]
        if not value.is_local:
            return Value(found, axes)
        given = None if self.given is None else self.given[len(self.found)]
        self.axes.append(axes)
        self.found.append(found)
        return Value(None if given is None else given.reshape(eqn.outvars[0].aval.shape), axes)

    def _axes_after(self, eqn: Any, values: list[Value]) -> Axes:
        """Along which axes of x the outcome runs; refused where it cannot be said."""
        name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
        moving = [
            (v, atom.aval.shape) for v, atom in zip(values, eqn.invars, strict=True) if v.axes is not None
        ]
        (value, given), *others = moving
        spreads = any(v.is_local and math.prod(given) != math.prod(shape) for v, given in moving)
        if spreads or value.axes is None:
            raise OtherwiseThanInTotals
        if name in _ELEMENTWISE:
            return self._filled(agreed([v.axes or (None,) * len(shape) for v, _ in moving]), shape)
        if others:
            raise OtherwiseThanInTotals
        if name == "broadcast_in_dim":
            into = eqn.params["broadcast_dimensions"]
            fixed = {to: value.axes[i] for i, to in enumerate(into) if given[i] == shape[to]}
            return self._filled(tuple([fixed.get(i) for i in range(len(shape))]), shape)
        if name == "transpose" and not value.is_local:
            return tuple([value.axes[i] for i in eqn.params["permutation"]])
        every = axes_of(self.shape, self.shape)
        if (
            name == "reshape"
            and self.folds
            and (value.axes, shape) in ((every, self.flat), (ALL, self.shape))
        ):
            return ALL if shape == self.flat else every
        long = [(n, axis) for n, axis in zip(given, value.axes, strict=True) if n > 1]
        if name in _RESHAPING and [n for n, _ in long] == [n for n in shape if n > 1]:
            rest = iter([axis for _, axis in long])
            return tuple([next(rest) if n > 1 else None for n in shape])
        raise OtherwiseThanInTotals

    def _filled(self, axes: Axes, shape: tuple[int, ...]) -> Axes:
        """Axes along which something is the same all along are x's own."""
        if self.folds and shape == self.flat:
            return ALL
        for i, (axis, n) in enumerate(zip(axes, shape, strict=True)):
            if axis is None and n > 1 and (len(shape) != len(self.shape) or n != self.shape[i]):
                raise OtherwiseThanInTotals
        return tuple([i if axis is None and shape[i] > 1 else axis for i, axis in enumerate(axes)])


def shapes_of(jaxpr: Any, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes that x may be thought to have: its own and, where it is one long vector, those that the program folds it to."""
    return [shape, *(_folds(jaxpr, shape) if len(shape) == 1 else [])]


def axes_of(shape: tuple[int, ...], folded: tuple[int, ...]) -> Axes:
    """Those of x itself."""
    return tuple([i if n > 1 else None for i, n in enumerate(shape)]) if shape == folded else ALL


def _folds(jaxpr: Any, flat: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes with several axes that a program gives to arrays of one."""
    found = [
        eqn.outvars[0].aval.shape
        for eqn in jaxpr.eqns
        if eqn.primitive.name == "reshape" and eqn.invars[0].aval.shape == flat
    ]
    found += [
        shape for eqn in jaxpr.eqns for inner in inner_programs(eqn.params) for shape in _folds(inner, flat)
    ]
    return [shape for shape in dict.fromkeys(found) if len(shape) > 1]


def _needed(jaxpr: Any) -> list[Any]:
    """The operations that the outcome depends on: others may do what they like."""
    wanted, found = {atom for atom in jaxpr.outvars if not isinstance(atom, jax_core.Literal)}, []
    for eqn in reversed(jaxpr.eqns):
        if wanted.intersection(eqn.outvars):
            wanted.update(atom for atom in eqn.invars if not isinstance(atom, jax_core.Literal))
            found.append(eqn)
    return found[::-1]


def agreed(several: list[Any]) -> Axes:
    """Axes that all agree on, where None agrees with any."""
    found = []
    for together in zip(*several, strict=True):
        known = {axis for axis in together if axis is not None}
        if len(known) > 1:
            raise OtherwiseThanInTotals
        found.append(known.pop() if known else None)
    return tuple(found)


def _sum_with_zero(eqn: Any, values: list[Value]) -> Array:
    """a + 0, 0 + b, a − 0 or 0 − b."""
    left, right = values
    array = left.array if right.array is None else right.array
    array = -array if left.array is None and eqn.primitive.name == "sub" else array
    return jnp.broadcast_to(array, eqn.outvars[0].aval.shape)


def _without_zeros(eqn: Any, values: list[Value]) -> list[Any]:
    return [
        jnp.zeros(atom.aval.shape, atom.aval.dtype) if v.array is None else v.array
        for atom, v in zip(eqn.invars, values, strict=True)
    ]
