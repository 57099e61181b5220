"""The part of a Jacobian's diagonal that does not pass through a sum: a cheap scale for every coordinate.

A market's marginal cost is ∂F_i/∂x_i apart from what the total output contributes; a dense matrix has its
diagonal. Both are read off the function's program, operation by operation, in one pass; what passes
through a sum over coordinates (and is of low rank, or not of the diagonal) is left out. Coordinates may be taken
apart, put in another order and joined again on the way: every number is followed with the coordinate it comes from. It is a
scale, not a derivative: preconditioners and step sizes may use it, proofs may not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa.linear_matrix import jacobian
from viceversa.operations import ELEMENTWISE, evaluated

_ALIGNED = {"reshape", "squeeze", "expand_dims"}  # the coordinates keep their order
_CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat",
    "checkpoint",
    "core_call",
}
_MOST_PATHS = 8  # through which one array is followed; further ones are left out
_NOBODY = -1
_LONG = 300  # operations: to follow each takes several, and compiling those takes long
_FEW = 300  # coordinates of which a Jacobian may be formed


class _Path(NamedTuple):
    """An array's derivative along the coordinates it comes from: `owner` has the number of each entry's coordinate.

    None stands for entries in the order of the coordinates, which most programs never leave.
    """

    owner: np.ndarray | None
    tangent: Array


_Paths = tuple[_Path, ...]


def local_derivative(function: Callable[[Array], Array], x: Float[Array, "..."]) -> Float[Array, "..."]:
    """∂_i function_i(x) for every coordinate, without the paths that go through a sum; zero where nothing is left.

    A long program of few coordinates (written out one by one, it may be) is asked for its whole Jacobian instead.
    """
    closed = jax.make_jaxpr(function)(x)
    if len(closed.jaxpr.eqns) > _LONG and x.size <= _FEW:
        flat = jacobian(lambda v: function(v.reshape(x.shape)).reshape(-1), x.reshape(-1))
        return jnp.diagonal(flat).reshape(x.shape)
    (paths,) = _walk(closed.jaxpr, closed.consts, [x], [(_Path(None, jnp.ones_like(x)),)])
    found = jnp.zeros_like(x)
    for owner, tangent in paths:
        if owner is not None:
            is_own = owner.reshape(-1) == np.arange(x.size)
            if not is_own.any():
                continue
            tangent = jnp.where(is_own.reshape(tangent.shape), tangent, 0.0)
        found = found + tangent.reshape(x.shape)
    return found


def _walk(jaxpr: Any, consts: Any, values: list, moving: list[_Paths]) -> list[_Paths]:
    """Values and paths through a program; no paths: nothing is followed."""
    known: dict[Any, Any] = {}
    followed: dict[Any, _Paths] = {}

    def value(atom):
        return atom.val if isinstance(atom, jax_core.Literal) else known[atom]

    def paths(atom) -> _Paths:
        return () if isinstance(atom, jax_core.Literal) else followed.get(atom, ())

    for var, const in zip(jaxpr.constvars, consts, strict=True):
        known[var] = const
    for var, given, along in zip(jaxpr.invars, values, moving, strict=True):
        known[var], followed[var] = given, along
    for eqn in jaxpr.eqns:
        inputs = [value(atom) for atom in eqn.invars]
        moving = [paths(atom) for atom in eqn.invars]
        outputs = evaluated(eqn, inputs)
        changes = _rule(eqn, inputs, moving) if any(moving) else [()] * len(outputs)
        for var, out, along in zip(eqn.outvars, outputs, changes, strict=True):
            known[var], followed[var] = out, along
    return [paths(atom) for atom in jaxpr.outvars]


def _rule(eqn: Any, inputs: list, moving: list[_Paths]) -> list[_Paths]:
    name, params = eqn.primitive.name, eqn.params
    if name in _CALLS:
        inner = _inner_jaxpr(eqn)
        if inner is not None:
            return _walk(inner.jaxpr, inner.consts, inputs, moving)
    if name == "split":
        cuts = np.cumsum(params["sizes"])[:-1].tolist()
        pieces = [(_split(path.owner, path.tangent, cuts, params["axis"])) for path in _explicit(moving[0])]
        return [tuple(_Path(*each) for each in piece) for piece in zip(*pieces, strict=True)]
    if len(eqn.outvars) != 1:
        return [()] * len(eqn.outvars)
    shape = eqn.outvars[0].aval.shape
    if name in ELEMENTWISE:
        return [_elementwise(eqn, inputs, moving)]
    if name in _ALIGNED:
        return [tuple(_Path(_reshaped(owner, shape), tangent.reshape(shape)) for owner, tangent in moving[0])]
    if name == "broadcast_in_dim":
        if np.size(inputs[0]) == np.prod(shape, dtype=int):
            return [
                tuple(_Path(_reshaped(owner, shape), tangent.reshape(shape)) for owner, tangent in moving[0])
            ]
        at = [slice(None) if axis in params["broadcast_dimensions"] else None for axis in range(len(shape))]
        return [_rearranged(moving[0], lambda array, module: module.broadcast_to(array[tuple(at)], shape))]
    if name == "transpose":
        order = params["permutation"]
        return [_rearranged(moving[0], lambda array, module: module.transpose(array, order))]
    if name == "rev":
        return [_rearranged(moving[0], lambda array, module: module.flip(array, params["dimensions"]))]
    if name == "slice":
        strides = params["strides"] or (1,) * len(shape)
        bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
        at = tuple(slice(*each) for each in bounds)
        return [_rearranged(moving[0], lambda array, module: array[at])]
    if name in ("concatenate", "stack"):
        axis = params["dimension" if name == "concatenate" else "axis"]
        return [_joined(inputs, moving, name, int(axis))]
    if name == "dot_general":
        return [_matrix_diagonal(eqn, inputs, moving)]
    return [()]


def _elementwise(eqn: Any, inputs: list, moving: list[_Paths]) -> _Paths:
    """The chain rule along each set of coordinates by itself, what comes from others held fixed."""
    if not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating):
        return ()
    primals = [jnp.asarray(u) for u in inputs]
    shape = eqn.outvars[0].aval.shape
    groups: list[tuple[np.ndarray | None, dict[int, Array]]] = []
    for i, (u, paths) in enumerate(zip(primals, moving, strict=True)):
        if not paths or not jnp.issubdtype(u.dtype, jnp.floating):
            continue
        if u.shape != shape:  # a single number, for all
            primals[i] = jnp.broadcast_to(u, shape)
            paths = _rearranged(paths, lambda array, module: module.broadcast_to(array, shape))
        for owner, tangent in paths:
            group = next((steps for other, steps in groups if _is_same(owner, other)), None)
            if group is None:
                groups.append((owner, group := {}))
            group[i] = group[i] + tangent if i in group else tangent

    def changed(steps: dict[int, Array]) -> Array:
        def along(*varying: Array) -> Array:
            args = list(primals)
            for i, each in zip(steps, varying, strict=True):
                args[i] = each
            return eqn.primitive.bind(*args, **eqn.params)

        return jax.jvp(along, tuple(primals[i] for i in steps), tuple(steps.values()))[1]

    return tuple([_Path(owner, changed(steps)) for owner, steps in groups[:_MOST_PATHS]])


def _is_same(owner: np.ndarray | None, other: np.ndarray | None) -> bool:
    if owner is None or other is None:
        return owner is other
    return owner is other or np.array_equal(owner, other)


def _reshaped(owner: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    return None if owner is None else owner.reshape(shape)


def _explicit(paths: _Paths) -> list[Any]:
    """Paths with their owners written out."""
    return [
        _Path(np.arange(tangent.size).reshape(tangent.shape) if owner is None else owner, tangent)
        for owner, tangent in paths
    ]


def _rearranged(paths: _Paths, arrange: Callable[[Any, Any], Any]) -> _Paths:
    """Owners and tangents after the same rearrangement, by `numpy` and `jax.numpy`."""
    return tuple(
        _Path(_in_order(arrange(owner, np)), arrange(tangent, jnp)) for owner, tangent in _explicit(paths)
    )


def _in_order(owner: np.ndarray) -> np.ndarray | None:
    """None where the entries are back in the order of the coordinates."""
    return None if np.array_equal(owner.reshape(-1), np.arange(owner.size)) else owner


def _split(owner: np.ndarray, tangent: Array, cuts: list[int], axis: int) -> list[tuple]:
    owners = map(_in_order, np.split(owner, cuts, axis))
    return list(zip(owners, jnp.split(tangent, cuts, axis), strict=True))


def _joined(inputs: list, moving: list[_Paths], how: str, axis: int) -> _Paths:
    """The first paths of all parts side by side, then the second ones, and so on; what has none is nobody's."""
    rows = [_explicit(paths) for paths in moving]
    joined = []
    for number in range(min(max(map(len, rows)), _MOST_PATHS)):
        parts = [
            paths[number]
            if number < len(paths)
            else _Path(np.full(np.shape(value), _NOBODY), jnp.zeros(np.shape(value), jnp.result_type(value)))
            for value, paths in zip(inputs, rows, strict=True)
        ]
        owner, tangent = (
            getattr(module, how)([part[i] for part in parts], axis) for i, module in enumerate((np, jnp))
        )
        joined.append(_Path(_in_order(owner), tangent))
    return tuple(joined)


def _matrix_diagonal(eqn: Any, inputs: list, moving: list[_Paths]) -> _Paths:
    """A square matrix that does not move times one axis of an array that does: the matrix's diagonal along that axis."""
    (contract, batch) = eqn.params["dimension_numbers"]
    which = 0 if moving[0] else 1
    matrix = inputs[1 - which]
    if any(batch) or moving[1 - which] or len(contract[0]) != 1:
        return ()
    if np.ndim(matrix) != 2 or matrix.shape[0] != matrix.shape[1]:
        return ()
    (axis,), ndim = contract[which], np.ndim(inputs[which])
    place = ndim - 1 if which == 0 else 0  # of that axis in the product
    scale = jnp.diagonal(matrix).reshape([-1 if i == place else 1 for i in range(ndim)])
    moved = _rearranged(moving[which], lambda array, module: module.moveaxis(array, axis, place))
    return tuple(_Path(owner, scale * tangent) for owner, tangent in moved)


def _inner_jaxpr(eqn: Any) -> Any:
    for key in ("jaxpr", "call_jaxpr"):
        inner = eqn.params.get(key)
        if isinstance(inner, jax_core.ClosedJaxpr):
            return inner
    return None
