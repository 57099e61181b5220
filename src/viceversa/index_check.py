"""Indices that are known before a program runs, held against the arrays they are used on.

JAX takes the last entry for an index beyond the end and leaves out what would be written there, where NumPy raises: a
program with a wrong index is a program of another problem. Such indices are found in the program, if they do not depend
on its arguments and the user has not said `mode=...`, which asks for exactly that.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np
from jax.extend import core as jax_core

from viceversa.operations import inner_programs

_READING = {"gather", "dynamic_slice"}
_INDEXING = _READING | {"dynamic_update_slice"}  # and every kind of scatter
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # parameters that hold the program of a call
_TAKING = {"_take", "take", "take_along_axis"}  # JAX's own programs that index for the user
_TAKING_CALLS = {
    "take",
    "reraise_with_filtered_traceback",
}  # as the user's code calls them; the second starts a program
_JAX, _OWN = (os.path.dirname(os.path.abspath(file)) + os.sep for file in (jax.__file__, __file__))
_INSTALLED = (
    os.path.dirname(_JAX.rstrip(os.sep)) + os.sep
)  # decorators and other packages between the user and JAX
# The file of JAX from which arrays get `x[i]` and `x.at[i]`.
_METHODS_OF_ARRAYS = "array_methods.py"
# What a program of another version of JAX may lack.
_UNFAMILIAR = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)


class Beyond(NamedTuple):
    """An index outside of its axis, and the place in the user's code."""

    number: int
    axis: int
    shape: tuple[int, ...]
    place: str


def primitives_of(jaxpr: Any) -> set[Any]:
    """The operations of a program and of those inside it."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive)
        for inner in inner_programs(equation.params) if equation.params else ():
            found |= primitives_of(inner)
    return found


def first_beyond(closed: jax_core.ClosedJaxpr, primitives: set[Any]) -> Beyond | None:
    """The first index outside of its axis in a program with these operations; None where none is known to be."""
    if not any(_is_indexing(primitive.name) for primitive in primitives):
        return None
    try:
        given = dict(zip(closed.jaxpr.constvars, map(_later, closed.consts), strict=True))
        return next(_search(closed.jaxpr, _Scope(closed.jaxpr, given), None), None)
    except _UNFAMILIAR:  # a check that cannot be made refuses nobody
        return None


def _is_indexing(name: str) -> bool:
    return name in _INDEXING or name.startswith("scatter")


# -- what is known ------------------------------------------------------------------------------------------
class _Scope:
    """The whole numbers of one program that do not depend on its arguments, found when asked for."""

    def __init__(self, jaxpr: Any, given: dict[Any, Callable[[], np.ndarray | None]]):
        self.given = given
        self.sources = {var: (eqn, i) for eqn in jaxpr.eqns for i, var in enumerate(eqn.outvars)}
        self.found: dict[Any, np.ndarray | None] = {}

    def __call__(self, atom: Any) -> np.ndarray | None:
        if isinstance(atom, jax_core.Literal):
            return np.asarray(atom.val)
        if atom not in self.found:
            self.found[atom] = self._find(atom) if _is_whole(atom.aval) else None
        return self.found[atom]

    def _find(self, var: Any) -> np.ndarray | None:
        if var in self.given:
            return self.given[var]()
        if var not in self.sources:
            return None
        equation, i = self.sources[var]
        inner = _called(equation)
        if inner is not None:
            return self.inside(equation, inner)(inner.jaxpr.outvars[i])
        rule = _RULES.get(equation.primitive.name)
        return None if rule is None else rule(self, equation)

    def inside(self, equation: Any, inner: jax_core.ClosedJaxpr) -> _Scope:
        """The scope of a program that is called with variables of this one."""
        given = dict(zip(inner.jaxpr.constvars, map(_later, inner.consts), strict=True))
        for var, atom in zip(inner.jaxpr.invars, equation.invars, strict=True):
            given[var] = lambda atom=atom: self(atom)
        return _Scope(inner.jaxpr, given)


def _later(value: Any) -> Callable[[], np.ndarray | None]:
    return lambda: None if isinstance(value, jax.core.Tracer) else np.asarray(value)


def _is_whole(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iub"


def _called(equation: Any) -> jax_core.ClosedJaxpr | None:
    """The program that an equation runs once with its own arguments."""
    if equation.primitive.name in ("scan", "while", "cond") or _is_indexing(equation.primitive.name):
        return None
    for key in _CALLS:
        inner = equation.params.get(key)
        if isinstance(inner, jax_core.Jaxpr):
            inner = jax_core.ClosedJaxpr(inner, [])
        if isinstance(inner, jax_core.ClosedJaxpr) and len(inner.jaxpr.invars) == len(equation.invars):
            return inner
    return None


def _of_known(function: Callable) -> Callable:
    """The rule of an operation: what it gives where all it is applied to is known."""

    def rule(scope: _Scope, equation: Any) -> np.ndarray | None:
        values = [scope(atom) for atom in equation.invars]
        if any(value is None for value in values):
            return None
        with np.errstate(all="ignore"):
            return np.asarray(function(equation, *values))

    return rule


def _select(scope: _Scope, equation: Any) -> np.ndarray | None:
    """Only the case that is chosen is looked at: a program counts from the end where an index is negative."""
    which, *cases = equation.invars
    chosen = scope(which)
    if chosen is None or chosen.dtype != bool:
        return None
    if not chosen.any():
        return scope(cases[0])
    if chosen.all():
        return scope(cases[1])
    first, second = map(scope, cases)
    return None if first is None or second is None else np.where(chosen, second, first)


def _convert(equation: Any, value: np.ndarray) -> np.ndarray:
    """Other numbers of bits are left alone: an index must not fit by losing some."""
    new = np.dtype(equation.params["new_dtype"])
    return value if new.kind in "iu" and value.dtype.kind in "iu" and new.itemsize >= 4 else value.astype(new)


def _broadcast(equation: Any, value: np.ndarray) -> np.ndarray:
    shape, axes = equation.outvars[0].aval.shape, equation.params["broadcast_dimensions"]
    at = tuple(slice(None) if axis in axes else None for axis in range(len(shape)))
    return np.broadcast_to(value[at], shape)


def _iota(equation: Any) -> np.ndarray:
    shape, axis = equation.outvars[0].aval.shape, equation.params["dimension"]
    counted = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(counted, shape)


def _slice(equation: Any, value: np.ndarray) -> np.ndarray:
    strides = equation.params["strides"] or (1,) * value.ndim
    bounds = zip(equation.params["start_indices"], equation.params["limit_indices"], strides, strict=True)
    return value[tuple(slice(*each) for each in bounds)]


_TWINS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "rem": np.fmod,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.invert,
}
_RULES: dict[str, Callable[[_Scope, Any], np.ndarray | None]] = {
    name: _of_known(lambda equation, *values, twin=twin: twin(*values)) for name, twin in _TWINS.items()
} | {
    "select_n": _select,
    "div": _of_known(lambda _, a, b: (a - np.fmod(a, b)) // b),
    "clamp": _of_known(lambda _, low, value, high: np.clip(value, low, high)),
    "copy": _of_known(lambda _, value: value),
    "stop_gradient": _of_known(lambda _, value: value),
    "convert_element_type": _of_known(_convert),
    "broadcast_in_dim": _of_known(_broadcast),
    "iota": _of_known(_iota),
    "slice": _of_known(_slice),
    "concatenate": _of_known(
        lambda equation, *parts: np.concatenate(parts, axis=equation.params["dimension"])
    ),
    "transpose": _of_known(lambda equation, value: np.transpose(value, equation.params["permutation"])),
    "rev": _of_known(lambda equation, value: np.flip(value, equation.params["dimensions"])),
    **dict.fromkeys(
        ("reshape", "squeeze", "expand_dims"),
        _of_known(lambda equation, value: value.reshape(equation.outvars[0].aval.shape)),
    ),
}


# -- where it is used ---------------------------------------------------------------------------------------
def _search(jaxpr: Any, scope: _Scope, caller: Any) -> Iterator[Beyond]:
    """The wrong indices of a program; `caller` is the equation of the user's own that it stands for, if there is one.

    The branches of a condition and the body of a loop without a fixed number of rounds may never run: they are passed over.
    """
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if _is_indexing(name):
            yield from _beyond(equation, scope, caller)
        elif name == "scan":
            for inner, inner_scope in _rounds(equation, scope):
                yield from _search(inner, inner_scope, caller)
        else:
            inner = _called(equation)
            if inner is not None:
                is_taking = caller is None and equation.params.get("name") in _TAKING
                yield from _search(
                    inner.jaxpr, scope.inside(equation, inner), equation if is_taking else caller
                )


def _rounds(equation: Any, scope: _Scope) -> Iterator[tuple[Any, _Scope]]:
    """The body of a loop in the first and the last round, and where an array it runs along is smallest and largest."""
    body, length = equation.params["jaxpr"], equation.params["length"]
    n_consts, n_carry = equation.params["num_consts"], equation.params["num_carry"]
    start, along = n_consts + n_carry, [scope(atom) for atom in equation.invars[n_consts + n_carry :]]
    inner = body.jaxpr
    rows = [values for values in along if values is not None and values.ndim == 1 and length > 0]
    rounds = {0, length - 1} if length > 0 else set()
    at = {int(pick(values)) for values in rows for pick in (np.argmin, np.argmax)}
    rounds |= {length - 1 - row for row in at} if equation.params["reverse"] else at
    counters = zip(inner.invars[n_consts:start], inner.outvars[:n_carry], strict=True)
    steps = {var: _step(inner, var, out) for var, out in counters}
    for k in sorted(rounds):
        row = length - 1 - k if equation.params["reverse"] else k
        given = dict(zip(inner.constvars, map(_later, body.consts), strict=True))
        for var, atom in zip(inner.invars[:n_consts], equation.invars[:n_consts], strict=True):
            given[var] = lambda atom=atom: scope(atom)
        for var, atom in zip(inner.invars[n_consts:start], equation.invars[n_consts:start], strict=True):
            given[var] = lambda atom=atom, step=steps[var], k=k: _after(scope(atom), step, k)
        for var, values in zip(inner.invars[start:], along, strict=True):
            given[var] = lambda values=values, row=row: None if values is None else np.asarray(values[row])
        yield inner, _Scope(inner, given)


def _step(inner: Any, var: Any, out: Any) -> int | None:
    """What a round adds to a counter, or None where it does something else."""
    if out is var:
        return 0
    for equation in inner.eqns:
        if equation.outvars[0] is out and equation.primitive.name == "add" and equation.invars[0] is var:
            other = equation.invars[1]
            return int(other.val) if isinstance(other, jax_core.Literal) and _is_whole(other.aval) else None
    return None


def _after(value: np.ndarray | None, step: int | None, k: int) -> np.ndarray | None:
    if value is None or k == 0:
        return value
    return None if step is None else np.asarray(value + k * step)


def _beyond(equation: Any, scope: _Scope, caller: Any) -> Iterator[Beyond]:
    shape = equation.invars[0].aval.shape
    for axis, known in _indices(equation, scope):
        if known is None or known.size == 0:
            continue
        lowest, highest = int(known.min()), int(known.max())
        if lowest >= 0 and highest < shape[axis]:
            continue
        place = _place(equation, caller)
        if place is not None:
            # The program has added the length to a negative index already.
            yield Beyond(lowest - shape[axis] if lowest < 0 else highest, axis, tuple(shape), place)


def _indices(equation: Any, scope: _Scope) -> Iterator[tuple[int, np.ndarray | None]]:
    """The axes of which single entries are taken, each with its indices as far as they are known."""
    name, params = equation.primitive.name, equation.params
    others = equation.invars[1:]
    if name.startswith("dynamic_"):
        is_reading = name in _READING
        sizes = params["slice_sizes"] if is_reading else others[0].aval.shape
        starts = others if is_reading else others[1:]
        yield from ((axis, scope(at)) for axis, at in enumerate(starts) if sizes[axis] == 1)
        return
    numbers = params["dimension_numbers"]
    if name in _READING:
        axes = numbers.start_index_map
        single = [axis for axis in axes if params["slice_sizes"][axis] == 1]
    else:
        axes = numbers.scatter_dims_to_operand_dims
        single = [axis for axis in axes if axis in numbers.inserted_window_dims]
    columns = _columns(others[0], scope, len(axes))
    yield from ((axis, known) for axis, known in zip(axes, columns, strict=True) if axis in single)


def _columns(atom: Any, scope: _Scope, n: int) -> list[np.ndarray | None]:
    """The indices for each axis, which a program joins last: some may be known and others not."""
    equation, _ = (None, 0) if isinstance(atom, jax_core.Literal) else scope.sources.get(atom, (None, 0))
    if equation is not None and equation.primitive.name == "concatenate":
        last = equation.outvars[0].aval.ndim - 1
        if equation.params["dimension"] == last:
            parts = [(part, part.aval.shape[last]) for part in equation.invars]
            return [column for part, width in parts for column in _columns(part, scope, width)]
    known = scope(atom)
    return [None] * n if known is None else [np.asarray(known[..., k]) for k in range(n)]


def _place(equation: Any, caller: Any) -> str | None:
    """The user's line, or None where JAX indexes on its own account or the user has chosen a mode."""
    trace = (equation if caller is None else caller).source_info.traceback
    codes, _ = trace.raw_frames()
    outside = [k for k, code in enumerate(codes) if not code.co_filename.startswith(_JAX)]
    if not outside or outside[0] == 0:
        return None
    called = codes[outside[0] - 1]
    is_taking = caller is not None and called.co_name in _TAKING_CALLS
    if is_taking and equation.params.get("mode") == jax.lax.GatherScatterMode.CLIP:
        return None
    if not (is_taking or os.path.basename(called.co_filename) == _METHODS_OF_ARRAYS):
        return None
    k = next((k for k in outside if not codes[k].co_filename.startswith((_OWN, _INSTALLED))), outside[0])
    takes_a_mode = caller is not None or "_IndexUpdateRef" in called.co_qualname
    if takes_a_mode and _mentions_mode(codes[k].co_consts):
        return None
    file, line = codes[k].co_filename, trace.frames[k].line_num
    text = linecache.getline(file, line).strip()
    return f"in line {line} of {os.path.basename(file)}" + (f" (`{text}`)" if text else "")


def _mentions_mode(constants: Any) -> bool:
    return any(_mentions_mode(each) if isinstance(each, tuple) else each == "mode" for each in constants)
