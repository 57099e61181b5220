"""The matrix of a linear function, read off its program.

The usual way is one product for each unknown: a matrix times the identity, n³ multiplications to find what is there already.
Here every array of the program is followed with what it is made of. As long as each of its numbers is a multiple of one
unknown (`_Owned`: parts of the unknowns, scaled and rearranged), a product with a constant matrix is that matrix with its
columns scaled. Whatever is not of this kind is carried in full (`_Full`), by JAX's own rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa.operations import evaluated

_CALLS = {"jit", "pjit", "closed_call", "core_call"}
_SUMS = {"add", "sub", "add_any"}
_SCALING = {"mul", "div", "neg", "select_n", "convert_element_type", "copy"} | _SUMS
_LONG = 300  # operations: to follow each by itself takes longer than one product for each unknown saves
_RESHAPING = {"reshape", "squeeze", "expand_dims"}


class _Owned(NamedTuple):
    """Entry e is weight[e]·v[owner[e]]; owners are known while the program is traced."""

    weight: Array
    owner: np.ndarray


class _Full(NamedTuple):
    """The derivative along one unknown after the other; unknowns run along the first axis."""

    rows: Array


def matrix_of(function: Callable[[Array], Array], n: int) -> Float[Array, "m n"]:
    """A with function(v) = Av for vectors of n numbers; `function` is linear, which nobody checks.

    Example:
        >>> import jax.numpy as jnp
        >>> from viceversa.linear_matrix import matrix_of
        >>> print(matrix_of(lambda v: jnp.array([[1.0, 2.0], [0.0, 3.0]]) @ v - v, 2))
        [[0. 2.]
         [0. 2.]]
    """
    like = jnp.zeros(n)
    closed = jax.make_jaxpr(function)(like)
    if len(closed.jaxpr.eqns) > _LONG:
        return jax.vmap(function)(jnp.eye(n)).T
    unknowns = _Owned(jnp.ones_like(like), np.arange(n))
    (out,) = _walk(closed.jaxpr, closed.consts, [unknowns], n)
    if not isinstance(out, (_Owned, _Full)):  # nothing moves
        return jnp.zeros((*np.shape(out), n))
    return _in_full(out, n).T


def jacobian(function: Callable[[Array], Array], x: Float[Array, " n"]) -> Float[Array, "m n"]:
    """The derivative of a function of a vector."""
    return matrix_of(jax.linearize(function, x)[1], x.size)


def _walk(jaxpr: Any, consts: Any, given: list, n: int) -> list:
    known = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, given, strict=True))

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, jax_core.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        values = [value(atom) for atom in eqn.invars]
        known.update(zip(eqn.outvars, _operated(eqn, values, n), strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _operated(eqn: Any, values: list, n: int) -> list:
    """One operation on what is constant, owned or full."""
    moving = [v for v in values if isinstance(v, (_Owned, _Full))]
    if not moving:
        return evaluated(eqn, values)
    if eqn.primitive.name in _CALLS:
        inner = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]
        return _walk(inner.jaxpr, inner.consts, values, n)
    found = None
    if all(isinstance(v, _Owned) for v in moving):
        found = _scaled(eqn, values) or _rearranged(eqn, values) or _columns(eqn, values, n)
    return found or _by_each(eqn, values, n)


def _scaled(eqn: Any, values: list) -> list | None:
    """Entries that keep their owners: multiples and sums of equals. A constant in a sum or a choice is 0 by linearity."""
    owners = [v.owner for v in values if isinstance(v, _Owned)]
    if eqn.primitive.name not in _SCALING or not all(np.array_equal(owners[0], each) for each in owners):
        return None
    if owners[0].shape != eqn.outvars[0].aval.shape:
        return None
    is_sum = eqn.primitive.name in _SUMS
    weights = [v.weight if isinstance(v, _Owned) else jnp.zeros_like(v) if is_sum else v for v in values]
    return [_Owned(evaluated(eqn, weights)[0], owners[0])]


def _rearranged(eqn: Any, values: list) -> list | None:
    """Entries that change their places."""
    if not all(isinstance(v, _Owned) for v in values):
        return None
    if eqn.primitive.name == "split":
        cuts = np.cumsum(eqn.params["sizes"])[:-1].tolist()
        owners = np.split(values[0].owner, cuts, axis=eqn.params["axis"])
    else:
        owner = _owners_after(eqn, [v.owner for v in values])
        if owner is None:
            return None
        owners = [owner]
    weights = evaluated(eqn, [v.weight for v in values])
    return [_Owned(weight, owner) for weight, owner in zip(weights, owners, strict=True)]


def _owners_after(eqn: Any, owners: list[np.ndarray]) -> np.ndarray | None:
    name, params, shape = eqn.primitive.name, eqn.params, eqn.outvars[0].aval.shape
    owner = owners[0]
    if name in _RESHAPING and not params.get("dimensions_are_permuted"):
        return owner.reshape(shape)
    if name == "transpose":
        return owner.transpose(params["permutation"])
    if name == "rev":
        return np.flip(owner, params["dimensions"])
    if name == "concatenate":
        return np.concatenate(owners, axis=params["dimension"])
    if name == "slice":
        steps = params["strides"] or (1,) * owner.ndim
        return owner[tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]
    if name == "broadcast_in_dim" and math.prod(shape) == owner.size:  # only axes of length 1 are new
        return owner.reshape(shape)
    return None


def _columns(eqn: Any, values: list, n: int) -> list | None:
    """A constant array times unknowns, each once and all summed over: the array's columns, scaled."""
    if eqn.primitive.name != "dot_general":
        return None
    contracted, batch = eqn.params["dimension_numbers"]
    which = 0 if isinstance(values[0], _Owned) else 1
    owned, constant = values[which], values[1 - which]
    if isinstance(constant, _Owned) or batch[0] or len(contracted[which]) != owned.owner.ndim:
        return None
    # The constant with the summed axes first, in the order of the unknowns' own.
    order = [contracted[1 - which][contracted[which].index(axis)] for axis in range(owned.owner.ndim)]
    rest = [axis for axis in range(constant.ndim) if axis not in order]
    free = [constant.shape[axis] for axis in rest]
    columns = jnp.transpose(constant, (*order, *rest)).reshape((owned.owner.size, *free))
    weight, owner = owned.weight.reshape((-1, *[1] * len(free))), owned.owner.reshape(-1)
    if np.unique(owner).size < owner.size:
        return None
    return [_Full(_placed(columns * weight, owner, n).astype(eqn.outvars[0].aval.dtype))]


def _placed(rows: Array, owner: np.ndarray, n: int) -> Array:
    """Rows where their owners say, zeros elsewhere."""
    first = _first_of_a_row(owner)
    if first is not None:
        edges = [(first, n - first - owner.size, 0)] + [(0, 0, 0)] * (rows.ndim - 1)
        return jax.lax.pad(rows, jnp.zeros((), rows.dtype), edges)
    place = np.full(n, owner.size)
    place[owner] = np.arange(owner.size)
    return jnp.concatenate([rows, jnp.zeros((1, *rows.shape[1:]), rows.dtype)])[place]


def _by_each(eqn: Any, values: list, n: int) -> list:
    """The operation along every unknown, as `vmap` does it."""
    moving = [i for i, v in enumerate(values) if isinstance(v, (_Owned, _Full))]

    def along(*rows: Array) -> list:
        whole = list(values)
        for i, row in zip(moving, rows, strict=True):
            whole[i] = row
        return evaluated(eqn, whole)

    return [_Full(rows) for rows in jax.vmap(along)(*[_in_full(values[i], n) for i in moving])]


def _in_full(value: _Owned | _Full, n: int) -> Array:
    if isinstance(value, _Full):
        return value.rows
    first = _first_of_a_row(value.owner)
    # Computed where it can be: one native function (`one_kernel`) captures no arrays.
    owner = value.owner if first is None else first + jnp.arange(value.owner.size).reshape(value.owner.shape)
    unknown = jnp.arange(n).reshape((n, *[1] * value.owner.ndim))
    return jnp.where(owner[None] == unknown, value.weight[None], 0.0)


def _first_of_a_row(owner: np.ndarray) -> int | None:
    """The first of unknowns that stand in a row; None where they do not."""
    first = int(owner.flat[0]) if owner.size else 0
    return first if np.array_equal(owner.reshape(-1), np.arange(first, first + owner.size)) else None
