"""Bounds of a traced function over a box: its program run in interval arithmetic, primitive by primitive."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, no_type_check

import numpy as np
from jax import lax
from jax.extend import core as jax_core

from viceversa import precision
from viceversa.constants import interval as arithmetic
from viceversa.constants.interval import Interval, NotCertified, hull

_MAX_STEPS = 10_000  # of a loop inside the user's function; longer ones are not enclosed

Rule = Callable[..., Interval]


def enclose(closed: jax_core.ClosedJaxpr, data: Sequence[Any], *arguments: Interval) -> list[Interval]:
    """Bounds of every output of a traced program over the given intervals (`data` first, as points)."""
    with precision.double(), np.errstate(all="ignore"):
        return _run(closed.jaxpr, closed.consts, [*(Interval(np.asarray(d)) for d in data), *arguments])


@no_type_check
def _run(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Interval]) -> list[Interval]:
    known: dict[Any, Interval] = {}
    known.update(zip(jaxpr.constvars, (Interval(np.asarray(c)) for c in consts), strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Interval:
        return Interval(np.asarray(atom.val)) if isinstance(atom, jax_core.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        results = _apply(eqn, [read(atom) for atom in eqn.invars])
        known.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


@no_type_check
def _apply(eqn: Any, values: list[Interval]) -> list[Interval]:
    name = eqn.primitive.name
    if name in _CALLS:
        inner = eqn.params[_CALLS[name]]
        jaxpr, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
        return _run(jaxpr, consts, values)
    if name in _CONTROL:
        return _CONTROL[name](eqn, values)
    if len(values) == 2 and eqn.invars[0] is eqn.invars[1]:
        known = _of_itself(name, values[0], eqn.params)
        if known is not None:
            return [known]
    if name == "split":
        ends = np.cumsum(eqn.params["sizes"])[:-1]
        return [
            values[0].map(lambda end, i=i: np.split(end, ends, axis=eqn.params["axis"])[i])
            for i in range(len(eqn.params["sizes"]))
        ]
    rule = _RULES.get(name)
    if rule is not None:
        return [rule(*values, **eqn.params)]
    if name in _MOVES and all(value.is_point for value in values[1:]):
        rest = [value.lo for value in values[1:]]
        return [values[0].map(lambda end: np.asarray(eqn.primitive.bind(end, *rest, **eqn.params)))]
    if all(value.is_point for value in values):
        found = eqn.primitive.bind(*(value.lo for value in values), **eqn.params)
        return [Interval(np.asarray(one)) for one in (found if eqn.primitive.multiple_results else [found])]
    raise NotCertified(f"the primitive {name}")


def _of_itself(name: str, a: Interval, params: dict) -> Interval | None:
    """What is known of a ∘ a and two separate factors cannot know: a·a ≥ 0, a − a = 0, a = a."""
    if name == "mul":
        return arithmetic.integer_power(a, 2)
    if name == "dot_general" and a.lo.ndim == 1 and not params["dimension_numbers"][1][0]:
        return arithmetic.integer_power(a, 2).map(np.sum)
    if name == "sub" and np.isfinite(a.magnitude).all():
        return Interval(np.zeros_like(a.lo))
    if name in ("eq", "ne"):
        return Interval(np.full(a.lo.shape, name == "eq"))
    return None


# -- calls and control flow --------------------------------------------------------------------------
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}


def _cond(eqn: Any, values: list[Interval]) -> list[Interval]:
    index, *operands = values
    branches = eqn.params["branches"]
    if index.is_point:
        branches = [branches[int(np.clip(int(index.lo), 0, len(branches) - 1))]]
    results = [_run(branch.jaxpr, branch.consts, operands) for branch in branches]
    return [hull(*parts) for parts in zip(*results, strict=True)]


def _scan(eqn: Any, values: list[Interval]) -> list[Interval]:
    p = eqn.params
    if p["length"] > _MAX_STEPS:
        raise NotCertified(f"a loop of {p['length']} steps")
    n_consts, n_carry = p["num_consts"], p["num_carry"]
    consts, carry, stacked = (
        values[:n_consts],
        values[n_consts : n_consts + n_carry],
        values[n_consts + n_carry :],
    )
    order = range(p["length"] - 1, -1, -1) if p["reverse"] else range(p["length"])
    rows: dict[int, list[Interval]] = {}
    for i in order:
        taken = [value.map(lambda end, i=i: end[i]) for value in stacked]
        out = _run(p["jaxpr"].jaxpr, p["jaxpr"].consts, [*consts, *carry, *taken])
        carry, rows[i] = out[:n_carry], out[n_carry:]
    columns = zip(*(rows[i] for i in range(p["length"])), strict=True)
    return [*carry, *(_stack(*column, axis=0) for column in columns)]


def _while(eqn: Any, values: list[Interval]) -> list[Interval]:
    p = eqn.params
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    cond_consts, body_consts, carry = (
        values[:n_cond],
        values[n_cond : n_cond + n_body],
        values[n_cond + n_body :],
    )
    for _ in range(_MAX_STEPS):
        (go_on,) = _run(p["cond_jaxpr"].jaxpr, p["cond_jaxpr"].consts, [*cond_consts, *carry])
        if not go_on.is_point and go_on.lo != go_on.hi:
            raise NotCertified("a loop whose end depends on the point")
        if not go_on.lo:
            return carry
        carry = _run(p["body_jaxpr"].jaxpr, p["body_jaxpr"].consts, [*body_consts, *carry])
    raise NotCertified(f"a loop of more than {_MAX_STEPS} steps")


_CONTROL = {"cond": _cond, "scan": _scan, "while": _while}


# -- arithmetic ----------------------------------------------------------------------------------------
@no_type_check
def _dot_general(a: Interval, b: Interval, dimension_numbers, **_) -> Interval:
    (contract_a, contract_b), (batch_a, batch_b) = dimension_numbers
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    names_b: list[str] = [""] * b.lo.ndim
    names_a = [next(letters) for _ in range(a.lo.ndim)]
    for i, j in [*zip(contract_a, contract_b, strict=True), *zip(batch_a, batch_b, strict=True)]:
        names_b[j] = names_a[i]
    names_b = [name or next(letters) for name in names_b]
    out = [names_a[i] for i in batch_a]
    out += [c for i, c in enumerate(names_a) if i not in contract_a and i not in batch_a]
    out += [c for j, c in enumerate(names_b) if j not in contract_b and j not in batch_b]
    formula = f"{''.join(names_a)},{''.join(names_b)}->{''.join(out)}"
    large = a.lo.size * b.lo.size > 100_000  # below, planning the contraction costs more than doing it
    return arithmetic.contract(a, b, lambda u, v: np.einsum(formula, u, v, optimize=large))


def _compare(below: Callable, a: Interval, b: Interval) -> Interval:
    """`below(u, v)` for a relation that holds surely if it holds for (a.hi, b.lo), possibly if for (a.lo, b.hi)."""
    if a.is_point and b.is_point:
        return Interval(below(a.lo, b.lo))
    sure, possible = below(a.hi, b.lo), below(a.lo, b.hi)
    return Interval(sure) if np.array_equal(sure, possible) else Interval(sure, possible)


def _equal(a: Interval, b: Interval, **_) -> Interval:
    if a.is_point and b.is_point:
        return Interval(a.lo == b.lo)
    sure = (a.lo == a.hi) & (b.lo == b.hi) & (a.lo == b.lo)
    possible = (a.lo <= b.hi) & (b.lo <= a.hi)
    return Interval(sure) if np.array_equal(sure, possible) else Interval(sure, possible)


def _not(a: Interval, **_) -> Interval:
    return Interval(~a.lo) if a.is_point else Interval(~a.hi, ~a.lo)


@no_type_check
def _both_ends(function: Callable, a: Interval, b: Interval) -> Interval:
    """A function that does not decrease in either argument, at both ends."""
    if a.is_point and b.is_point:
        return Interval(function(a.lo, b.lo))
    return Interval(function(a.lo, b.lo), function(a.hi, b.hi))


@no_type_check
def _select(which: Interval, *cases: Interval, **_) -> Interval:
    if which.is_point and which.lo.dtype != bool:
        index = np.broadcast_to(which.lo, cases[0].lo.shape)
        lo, hi = (np.choose(index, [getattr(c, end) for c in cases]) for end in ("lo", "hi"))
        return Interval(lo) if all(c.is_point for c in cases) else Interval(lo, hi)
    no, yes = cases
    lo = np.where(which.lo, yes.lo, np.where(which.hi, np.minimum(no.lo, yes.lo), no.lo))
    hi = np.where(which.lo, yes.hi, np.where(which.hi, np.maximum(no.hi, yes.hi), no.hi))
    point = which.is_point and no.is_point and yes.is_point
    return Interval(lo) if point or np.array_equal(lo, hi) else Interval(lo, hi)


def _clamp(low: Interval, a: Interval, high: Interval, **_) -> Interval:
    return _both_ends(np.minimum, _both_ends(np.maximum, a, low), high)


def _sign(a: Interval, **_) -> Interval:
    return a.map(np.sign)


def _concatenate(*parts: Interval, dimension: int, **_) -> Interval:
    lo = np.concatenate([part.lo for part in parts], axis=dimension)
    if all(part.is_point for part in parts):
        return Interval(lo)
    return Interval(lo, np.concatenate([part.hi for part in parts], axis=dimension))


def _stack(*parts: Interval, axis: int, **_) -> Interval:
    lo = np.stack([part.lo for part in parts], axis=axis)
    if all(part.is_point for part in parts):
        return Interval(lo)
    return Interval(lo, np.stack([part.hi for part in parts], axis=axis))


def _reduce_prod(a: Interval, axes, **_) -> Interval:
    for axis in sorted(axes, reverse=True):
        columns = [a.map(lambda end, i=i, axis=axis: np.take(end, i, axis)) for i in range(a.lo.shape[axis])]
        one = Interval(np.ones(np.delete(a.lo.shape, axis)))
        a = functools.reduce(arithmetic.multiply, columns, one)
    return a


def _add_any(a: Interval, b: Interval, **_) -> Interval:
    return arithmetic.add(a, b)


# -- entries moved around --------------------------------------------------------------------------------
@no_type_check
def _broadcast(a: Interval, shape, broadcast_dimensions, **_) -> Interval:
    expanded = [1] * len(shape)
    for i, d in enumerate(broadcast_dimensions):
        expanded[d] = a.lo.shape[i]
    return a.map(lambda end: np.broadcast_to(np.reshape(end, expanded), shape))


@no_type_check
def _slice(a: Interval, start_indices, limit_indices, strides, **_) -> Interval:
    strides = strides or (1,) * len(start_indices)
    index = tuple(slice(*s) for s in zip(start_indices, limit_indices, strides, strict=True))
    return a.map(lambda end: end[index])


@no_type_check
def _pad(a: Interval, value: Interval, padding_config, **_) -> Interval:
    simple = all(low >= 0 and high >= 0 and inner == 0 for low, high, inner in padding_config)

    def pad(end, fill):
        if simple:
            around = [(int(low), int(high)) for low, high, _ in padding_config]
            return np.pad(end, around, constant_values=fill)
        return np.asarray(lax.pad_p.bind(end, fill, padding_config=padding_config))

    return _both_ends(pad, a, value)


def _scatter_add(a: Interval, index: Interval, update: Interval, **params) -> Interval:
    if not index.is_point:
        raise NotCertified("an index that depends on the point")
    return _both_ends(lambda u, v: np.asarray(lax.scatter_add_p.bind(u, index.lo, v, **params)), a, update)


def _scatter(a: Interval, index: Interval, update: Interval, **params) -> Interval:
    if not index.is_point:
        raise NotCertified("an index that depends on the point")
    return _both_ends(lambda u, v: np.asarray(lax.scatter_p.bind(u, index.lo, v, **params)), a, update)


def _dynamic_update(a: Interval, update: Interval, *starts: Interval, **params) -> Interval:
    if not all(start.is_point for start in starts):
        raise NotCertified("an index that depends on the point")
    where = [start.lo for start in starts]
    return _both_ends(
        lambda u, v: np.asarray(lax.dynamic_update_slice_p.bind(u, v, *where, **params)), a, update
    )


def _sort(first: Interval, *others: Interval, dimension: int, **_) -> Interval:
    if others:
        raise NotCertified("a sort of several arrays by one key")
    return first.map(lambda end: np.sort(end, axis=dimension))


def _reduced(function: Callable) -> Rule:
    return lambda a, axes, **_: a.map(lambda end: function(end, axis=tuple(axes)))


def _binary(function: Callable[[Interval, Interval], Interval]) -> Rule:
    return lambda a, b, **_: function(a, b)


def _increasing(name: str, function: Callable, domain: float = -np.inf) -> Rule:
    rule = arithmetic.increasing(name, function, domain)
    return lambda a, **_: rule(a)


def _unary(function: Callable[[Interval], Interval]) -> Rule:
    return lambda a, **_: function(a)


# Primitives that only move or copy entries of their first operand: applied to both ends as they are.
_MOVES = {"gather", "dynamic_slice", "real", "cummax", "cummin", "reduce_precision"}

_RULES: dict[str, Rule] = {
    "add": _binary(arithmetic.add),
    "add_any": _add_any,
    "sub": _binary(arithmetic.subtract),
    "mul": _binary(arithmetic.multiply),
    "div": _binary(arithmetic.divide),
    "neg": _unary(arithmetic.negative),
    "abs": _unary(arithmetic.absolute),
    "square": lambda a, **_: arithmetic.integer_power(a, 2),
    "integer_pow": lambda a, y, **_: arithmetic.integer_power(a, y),
    "pow": _binary(arithmetic.power),
    "dot_general": _dot_general,
    "exp": _increasing("exp", np.exp),
    "exp2": _increasing("exp2", np.exp2),
    "expm1": _increasing("expm1", np.expm1),
    "log": _increasing("log", np.log, 0.0),
    "log1p": _increasing("log1p", np.log1p, -1.0),
    "sqrt": _increasing("sqrt", np.sqrt, 0.0),
    "rsqrt": _unary(arithmetic.reciprocal_root),
    "cbrt": _increasing("cbrt", np.cbrt),
    "tanh": _increasing("tanh", np.tanh),
    "sinh": _increasing("sinh", np.sinh),
    "asinh": _increasing("asinh", np.arcsinh),
    "atan": _increasing("atan", np.arctan),
    "logistic": _increasing("logistic", lambda u: 0.5 * (1.0 + np.tanh(0.5 * u))),
    "erf": _increasing("erf", arithmetic.error_function),
    "cosh": lambda a, **_: arithmetic.absolute(a).map(np.cosh),
    "sin": _unary(arithmetic.sine),
    "cos": _unary(arithmetic.cosine),
    "sign": _sign,
    "floor": _increasing("floor", np.floor),
    "ceil": _increasing("ceil", np.ceil),
    "max": _binary(lambda a, b: _both_ends(np.maximum, a, b)),
    "min": _binary(lambda a, b: _both_ends(np.minimum, a, b)),
    "clamp": _clamp,
    "select_n": _select,
    "lt": _binary(lambda a, b: _compare(np.less, a, b)),
    "le": _binary(lambda a, b: _compare(np.less_equal, a, b)),
    "gt": _binary(lambda a, b: _compare(np.less, b, a)),
    "ge": _binary(lambda a, b: _compare(np.less_equal, b, a)),
    "eq": _equal,
    "ne": lambda a, b, **_: _not(_equal(a, b)),
    "not": _not,
    "and": _binary(lambda a, b: _both_ends(np.bitwise_and, a, b)),
    "or": _binary(lambda a, b: _both_ends(np.bitwise_or, a, b)),
    "reduce_sum": _reduced(np.sum),
    "reduce_prod": _reduce_prod,
    "reduce_max": _reduced(np.max),
    "reduce_min": _reduced(np.min),
    "reduce_and": _reduced(np.all),
    "reduce_or": _reduced(np.any),
    "cumsum": lambda a, axis, reverse, **_: a.map(
        lambda end: np.flip(np.cumsum(np.flip(end, axis), axis), axis) if reverse else np.cumsum(end, axis)
    ),
    "broadcast_in_dim": _broadcast,
    "reshape": lambda a, new_sizes, **_: a.map(lambda end: np.reshape(end, new_sizes)),
    "squeeze": lambda a, dimensions, **_: a.map(lambda end: np.squeeze(end, axis=tuple(dimensions))),
    "expand_dims": lambda a, dimensions, **_: a.map(lambda end: np.expand_dims(end, tuple(dimensions))),
    "transpose": lambda a, permutation, **_: a.map(lambda end: np.transpose(end, permutation)),
    "rev": lambda a, dimensions, **_: a.map(lambda end: np.flip(end, tuple(dimensions))),
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "stack": _stack,
    "scatter-add": _scatter_add,
    "scatter": _scatter,
    "dynamic_update_slice": _dynamic_update,
    "sort": _sort,
    "copy": _unary(lambda a: a),
    "stop_gradient": _unary(lambda a: a),
    "convert_element_type": lambda a, new_dtype, **_: a.map(lambda end: np.asarray(end).astype(new_dtype)),
}
