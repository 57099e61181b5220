"""Single operations of a traced program, evaluated on other arrays than it was traced with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax.extend import core as jax_core

# Operations that act on every entry by itself.
ELEMENTWISE = frozenset(
    "add sub mul div neg exp log log1p exp2 expm1 sqrt rsqrt cbrt tanh sin cos tan atan asin acos sinh cosh logistic "
    "integer_pow pow abs max min square erf select_n clamp convert_element_type copy stop_gradient add_any "
    "mul_any reduce_precision".split()
)


def evaluated(eqn: Any, arrays: list[Any]) -> list[Any]:
    """What an operation makes of these arrays."""
    found: Any = eqn.primitive.get_bind_params(eqn.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # a pair before JAX 0.9
    out = eqn.primitive.bind(*functions, *arrays, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def inner_programs(params: dict[str, Any]) -> Iterator[Any]:
    """The programs among an operation's parameters: bodies of loops, branches, functions that are called."""
    for value in params.values():
        for inner in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(inner, jax_core.ClosedJaxpr):
                yield inner.jaxpr
            elif isinstance(inner, jax_core.Jaxpr):
                yield inner
