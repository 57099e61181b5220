"""A problem whose x lies as XLA's loops like it: its longest axis last and, where it is not large, in one long vector.

A market of a thousand firms and ten products has x of shape (1000, 10). Loops run along the last axis, and those of ten fill no
vector registers, so that every operation on such arrays takes two to five times as long as on arrays of shape (10, 1000). A
user's functions are evaluated operation by operation on arrays that lie the other way; what cannot be is given its arrays
as they were. A loop within a loop takes twice as long to compile as one, so the solver itself sees vectors, which only the
user's functions fold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import one_kernel
from viceversa.driver.recording import Row, Truth
from viceversa.operations import ELEMENTWISE, evaluated
from viceversa.problem import MisspecifiedVI
from viceversa.quick_module import QuickModule
from viceversa.schemes.base import Point, Scheme
from viceversa.sets import Box, Free, NonNegative
from viceversa.sets.intervals import is_box

# Numbers in x from which it is done (short loops are compiled to no loops at all) and up to which (there a second copy of the
# data is nothing, and memory not yet the bound).
_SMALLEST, _LARGEST = 1 << 7, 1 << 19
_LARGEST_VECTOR = one_kernel.LARGEST  # beyond, threads share the rows
_ELEMENTWISE = ELEMENTWISE | set("and ceil eq floor ge gt is_finite le lt ne not or round sign xor".split())
_REDUCTIONS = {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"}


class View:
    """How the arrays of a problem lie for a scheme.

    `order` are x's own axes as they follow one another there, and `shape` is what they make, one axis where x is a vector; both
    are None where x lies as it did.
    """

    def __init__(self, problem: MisspecifiedVI, scheme: Scheme):
        self.order = self.turned_shape = self.shape = None
        given, size = problem.shape, math.prod(problem.shape)
        is_plain = is_box(problem.set) and not (problem.runs_on_host or problem.learning.depends_on_x)
        if not (scheme.takes_any_axes and is_plain and len(given) > 1 and _SMALLEST <= size <= _LARGEST):
            return
        axes = range(len(given))
        longest = max(reversed(axes), key=given.__getitem__)
        order = (*(axis for axis in axes if axis != longest), longest)
        is_vector = size <= _LARGEST_VECTOR
        if is_vector or order != tuple(axes):
            self.order, self.turned_shape = order, tuple([given[axis] for axis in order])
            self.shape = (size,) if is_vector else self.turned_shape

    def problem(self, problem: MisspecifiedVI) -> MisspecifiedVI:
        """The same problem for x as the scheme sees it."""
        if self.order is None or self.shape is None:
            return problem
        X, f = problem.set, problem.constraints
        assert isinstance(X, (Box, NonNegative, Free))
        is_vector = self.shape != self.turned_shape
        return eqx.tree_at(
            lambda p: (p.operator, p.set, p.constraints, p.x_width),
            problem,
            (
                TurnedFunction.of(problem.operator, problem, self.order, is_vector),
                X.rearranged(self.x, self.shape),
                None if f is None else TurnedFunction.of(f, problem, self.order, is_vector),
                self.x(problem.x_width) if np.ndim(problem.x_width) else problem.x_width,
            ),
            is_leaf=lambda part: part is None,
        )

    def x(self, x: Any) -> Any:
        """x as the scheme sees it."""
        return x if self.order is None else x.transpose(self.order).reshape(self.shape)

    def back(self, x: Any) -> Any:
        """x as the user sees it."""
        return x if self.order is None else x.reshape(self.turned_shape).transpose(_inverse(self.order))

    def point(self, point: Point) -> Point:
        """A scheme's point as the user sees it."""
        return point._replace(x=self.back(point.x), x_average=self.back(point.x_average))

    def row(self, row: Row) -> Row:
        """A recorded row as the user sees it."""
        return row if row.points is None else row._replace(points=self.point(row.points))

    def truth(self, truth: Truth | None) -> Truth | None:
        """The known answer as the scheme sees it."""
        return truth if truth is None or truth.x is None else Truth(truth.theta, self.x(truth.x))


class _Value(NamedTuple):
    """An array of a program; `is_turned`: its axes are those of x in the scheme's order."""

    array: Any
    is_turned: bool


class TurnedFunction(QuickModule):
    """A user's function of (x, θ) for turned x, folded if it is a vector: its program, and its arrays, those of x's shape turned."""

    arrays: list[Any]
    are_turned: tuple[bool, ...] = eqx.field(static=True)
    jaxpr: Any = eqx.field(static=True)
    order: tuple[int, ...] = eqx.field(static=True)
    folded: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(self, arrays: list, are_turned: tuple, jaxpr: Any, order: tuple, folded: tuple | None):
        self.set_fields(arrays=arrays, are_turned=are_turned, jaxpr=jaxpr, order=order, folded=folded)

    @classmethod
    def of(
        cls, function: Any, problem: MisspecifiedVI, order: tuple[int, ...], is_vector: bool
    ) -> TurnedFunction:
        leaves, tree = jax.tree.flatten(function)
        is_array = [hasattr(leaf, "dtype") for leaf in leaves]
        arrays = [leaf for leaf, yes in zip(leaves, is_array, strict=True) if yes]

        def call(arrays: list, x: Array, theta: PyTree) -> Array:
            rest = iter(arrays)
            whole = [next(rest) if yes else leaf for leaf, yes in zip(leaves, is_array, strict=True)]
            return jax.tree.unflatten(tree, whole)(x, theta)

        likes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a), a.dtype), arrays)
        theta = problem.learning.set.zeros()
        closed = jax.make_jaxpr(call)(likes, jax.ShapeDtypeStruct(problem.shape, np.float64), theta)
        arrays = [*closed.consts, *arrays]
        are_turned = tuple([np.shape(array) == problem.shape for array in arrays])
        lying = [a.transpose(order) if turn else a for a, turn in zip(arrays, are_turned, strict=True)]
        folded = tuple([problem.shape[axis] for axis in order]) if is_vector else None
        return cls(lying, are_turned, closed.jaxpr, order, folded)

    def __call__(self, x: Array, theta: PyTree) -> Array:
        arrays = [_Value(*each) for each in zip(self.arrays, self.are_turned, strict=True)]
        turned = x if self.folded is None else x.reshape(self.folded)
        given = [*arrays, _Value(turned, True), *(_Value(leaf, False) for leaf in jax.tree.leaves(theta))]
        (found,) = _evaluate(self.jaxpr, given, self.order)
        return (
            found.array if np.ndim(found.array) < turned.ndim else _turned(found, self.order).reshape(x.shape)
        )


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(np.argsort(order).tolist())


def _turned(value: _Value, order: Sequence[int]) -> Any:
    return value.array if value.is_turned else jnp.transpose(value.array, order)


def _as_it_was(value: _Value, order: Sequence[int]) -> Any:
    return jnp.transpose(value.array, _inverse(order)) if value.is_turned else value.array


def _evaluate(jaxpr: Any, given: list[_Value], order: tuple[int, ...]) -> list[_Value]:
    """A program on arrays of which some are turned; constants come first."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), given, strict=True))

    def value(atom: Any) -> _Value:
        return _Value(atom.val, False) if isinstance(atom, jax_core.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        values = [value(atom) for atom in eqn.invars]
        found = _turned_operation(eqn, values, order) if any(v.is_turned for v in values) else None
        if found is None:
            out = evaluated(eqn, [_as_it_was(v, order) for v in values])
            found = [_Value(each, False) for each in out]
        known.update(zip(eqn.outvars, found, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _turned_operation(eqn: Any, values: list[_Value], order: tuple[int, ...]) -> list[_Value] | None:
    """One operation on turned arrays; None: it needs them as they were."""
    name, params, ndim = eqn.primitive.name, eqn.params, len(order)
    if name in ("jit", "pjit"):
        inner = params["jaxpr"]
        return _evaluate(inner.jaxpr, [*(_Value(const, False) for const in inner.consts), *values], order)
    if name in _ELEMENTWISE:
        arrays = [_turned(v, order) if np.ndim(v.array) == ndim else v.array for v in values]
        return [_Value(eqn.primitive.bind(*arrays, **params), True)]
    if name in _REDUCTIONS:
        summed = [place for place, axis in enumerate(order) if axis in params["axes"]]
        left = [axis for axis in order if axis not in params["axes"]]
        found = eqn.primitive.bind(values[0].array, **params | {"axes": tuple(summed)})
        return [_Value(jnp.transpose(found, _inverse(left)) if len(left) > 1 else found, False)]
    if name == "broadcast_in_dim" and tuple(params["broadcast_dimensions"]) == tuple(range(ndim)):
        shape = tuple([params["shape"][axis] for axis in order])
        return [_Value(jnp.broadcast_to(values[0].array, shape), True)] if len(shape) == ndim else None
    return None
