"""Programs that say the same are one program: what was compiled for the first serves the others.

JAX finds what it has compiled by a program's identity, and every new function is a new program, even if only the arrays it
uses are other ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core as jax_core

from viceversa.operations import inner_programs

_MOST_PROGRAMS = 1024
# Parameters of a derivative rule that compare.
_COMPARABLE = (jax_core.ClosedJaxpr, jax_core.Jaxpr, tuple, list, int, str, type(None))


class _Known(NamedTuple):
    """A program, and the function it came from where that is needed to tell it from others."""

    jaxpr: Any
    function: Callable[[], Any]


_programs: dict[Any, _Known] = {}


def known_program(function: Any, jaxpr: Any) -> Any:
    """The same program as traced before, if there is one: what is compiled for a program is found by its identity."""
    rules: list[Any] = []
    try:
        key = (_outline(jaxpr, rules), id(function) if rules else None)
        known = _programs.get(key)
        if known is not None and (not rules or known.function() is function):
            return known.jaxpr
        origin = weakref.ref(function) if rules else lambda: None
    except TypeError:  # something in it cannot be compared
        return jaxpr
    for literal in literals_of(jaxpr):
        # It may be the user's own; JAX 0.8 has it within something that is no array.
        holder = literal if isinstance(literal.val, np.ndarray) else literal.val
        if isinstance(getattr(holder, "val", None), np.ndarray):
            holder.val = holder.val.copy()
    while len(_programs) >= _MOST_PROGRAMS:
        _programs.pop(next(iter(_programs)))
    _programs[key] = _Known(jaxpr, origin)
    return jaxpr


def _outline(jaxpr: Any, rules: list[Any]) -> tuple:
    """All of a program but the names of its variables; derivative rules, which do not compare, go to `rules`."""
    number: dict[Any, int] = {}

    def seen(variable: Any) -> Any:
        if not isinstance(variable, jax_core.Literal):
            return number.setdefault(variable, len(number))
        value = np.asarray(variable.val)
        return value.tobytes(), variable.aval

    def parameter(value: Any) -> Any:
        if isinstance(value, jax_core.ClosedJaxpr):
            return value if value.consts else _outline(value.jaxpr, rules)
        if isinstance(value, jax_core.Jaxpr):
            return _outline(value, rules)
        if isinstance(value, (tuple, list)):
            return type(value), tuple(parameter(part) for part in value)
        return type(value), value  # 1, 1.0 and True are equal, but not the same

    def parameters(equation: Any) -> tuple:
        found = []
        for key in sorted(equation.params):
            value = equation.params[key]
            is_rule = equation.primitive.name.startswith("custom_") and not isinstance(value, _COMPARABLE)
            if is_rule:
                rules.append(value)
            found.append((key, type(value) if is_rule else parameter(value)))
        return tuple(found)

    given = (*jaxpr.constvars, *jaxpr.invars)
    return (
        len(jaxpr.constvars),
        tuple([(seen(variable), variable.aval) for variable in given]),
        tuple(
            [
                (
                    equation.primitive,
                    tuple(map(seen, equation.invars)),
                    tuple([(seen(variable), variable.aval) for variable in equation.outvars]),
                    parameters(equation),
                )
                for equation in jaxpr.eqns
            ]
        ),
        tuple(map(seen, jaxpr.outvars)),
    )


def literals_of(jaxpr: Any) -> Iterator[Any]:
    """The single numbers written into a program."""
    for variables in (*(equation.invars for equation in jaxpr.eqns), jaxpr.outvars):
        yield from (each for each in variables if isinstance(each, jax_core.Literal))
    for equation in jaxpr.eqns:
        for inner in inner_programs(equation.params):
            yield from literals_of(inner)
