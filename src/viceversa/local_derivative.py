"""The part of a Jacobian's diagonal that does not pass through a sum: a cheap scale for every coordinate.

A market's marginal cost is ∂F_i/∂x_i apart from what the total output contributes; a dense matrix has its
diagonal. Both are read off the function's program, operation by operation, in one pass; what passes
through a sum over coordinates (and is of low rank, or not of the diagonal) is left out. It is a scale, not a
derivative: preconditioners and step sizes may use it, proofs may not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
from jaxtyping import Array, Float

# Operations that act on every coordinate by itself, so that the chain rule holds coordinate by coordinate.
_ELEMENTWISE = set(
    "add sub mul div neg exp log log1p exp2 expm1 sqrt rsqrt cbrt tanh sin cos tan atan asin acos sinh cosh logistic "
    "integer_pow pow abs max min square erf select_n clamp convert_element_type copy stop_gradient add_any "
    "mul_any reduce_precision".split()
)
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


def local_derivative(function: Callable[[Array], Array], x: Float[Array, "..."]) -> Float[Array, "..."]:
    """∂_i function_i(x) for every coordinate, without the paths that go through a sum; zero where nothing is left."""
    closed = jax.make_jaxpr(function)(x)
    (tangent,) = _walk(closed.jaxpr, closed.consts, [x], [jnp.ones_like(x)], x.size)
    return jnp.zeros_like(x) if tangent is None else tangent.reshape(x.shape)


def _walk(jaxpr: Any, consts: Any, values: list, tangents: list, size: int) -> list:
    """Values and coordinate tangents through a program; a tangent of None means nothing is tracked."""
    known: dict[Any, Any] = {}
    local: dict[Any, Any] = {}

    def value(atom):
        return atom.val if isinstance(atom, jax_core.Literal) else known[atom]

    def tangent(atom):
        return None if isinstance(atom, jax_core.Literal) else local.get(atom)

    for var, const in zip(jaxpr.constvars, consts, strict=True):
        known[var] = const
    for var, given, moving in zip(jaxpr.invars, values, tangents, strict=True):
        known[var], local[var] = given, moving
    for eqn in jaxpr.eqns:
        inputs = [value(atom) for atom in eqn.invars]
        moving = [tangent(atom) for atom in eqn.invars]
        found: Any = eqn.primitive.get_bind_params(eqn.params)
        functions, params = found if isinstance(found, tuple) else ((), found)  # a pair before JAX 0.9
        outputs = eqn.primitive.bind(*functions, *inputs, **params)
        outputs = list(outputs) if eqn.primitive.multiple_results else [outputs]
        changes = (
            _rule(eqn, inputs, moving, size) if any(m is not None for m in moving) else [None] * len(outputs)
        )
        for var, out, change in zip(eqn.outvars, outputs, changes, strict=True):
            known[var], local[var] = out, change
    return [tangent(atom) for atom in jaxpr.outvars]


def _rule(eqn: Any, inputs: list, moving: list, size: int) -> list:
    name = eqn.primitive.name
    if name in _CALLS:
        inner = _inner_jaxpr(eqn)
        if inner is not None:
            return _walk(inner.jaxpr, inner.consts, inputs, moving, size)
    shape = eqn.outvars[0].aval.shape
    if len(eqn.outvars) != 1 or eqn.outvars[0].aval.size != size:
        return [None] * len(eqn.outvars)
    if name in _ELEMENTWISE:
        primals = [jnp.asarray(u) for u in inputs]
        floating = [jnp.issubdtype(u.dtype, jnp.floating) for u in primals]
        aligned = [
            m is not None and u.size == size and ok
            for u, m, ok in zip(primals, moving, floating, strict=True)
        ]

        def along(*varying):
            it = iter(varying)
            args = [next(it) if use else u for use, u in zip(aligned, primals, strict=True)]
            return eqn.primitive.bind(*args, **eqn.params)

        if not any(aligned):
            return [None]
        used = [u for u, use in zip(primals, aligned, strict=True) if use]
        steps = [m.reshape(u.shape) for u, m, use in zip(primals, moving, aligned, strict=True) if use]
        return [jax.jvp(along, tuple(used), tuple(steps))[1]]
    if name in _ALIGNED:
        return [moving[0].reshape(shape)]
    if name == "broadcast_in_dim" and jnp.size(inputs[0]) == size:
        return [moving[0].reshape(shape)]
    if name == "dot_general":
        return [_matrix_diagonal(eqn, inputs, moving, shape)]
    return [None]


def _matrix_diagonal(eqn: Any, inputs: list, moving: list, shape: tuple[int, ...]):
    """M·v or v·M with a square matrix that does not move: the matrix's diagonal times v's tangent."""
    (contract, batch) = eqn.params["dimension_numbers"]
    if any(batch) or sum(m is not None for m in moving) != 1:
        return None
    which = 0 if moving[0] is not None else 1
    vector, matrix = inputs[which], inputs[1 - which]
    (axis,), _ = (contract[which], contract[1 - which]) if len(contract[0]) == 1 else ((None,), (None,))
    if axis is None or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or vector.ndim != 1:
        return None
    return jnp.diagonal(matrix) * moving[which]


def _inner_jaxpr(eqn: Any) -> Any:
    for key in ("jaxpr", "call_jaxpr"):
        inner = eqn.params.get(key)
        if isinstance(inner, jax_core.ClosedJaxpr):
            return inner
    return None
