"""Programs whose derivative JAX cannot take: told when a problem is built, in the user's terms.

Almost every operation has a derivative. Only where a program has one that may be without (a look at the names tells), the
derivative is put together once, up to where it would be compiled, and what JAX says against it is put in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.interpreters import ad

Mode = Literal["forward", "reverse"]

# Operations that have a rule of their own, and one that has nothing to differentiate.
_FINE = {"custom_jvp_call", "pjit", "remat", "checkpoint", "closed_call", "core_call", "iota", "threefry2x32"}
# Operations with a rule that may refuse.
_DOUBTFUL = {"pure_callback", "io_callback"}


def is_doubtful(primitives: set[Any], mode: Mode) -> bool:
    """Whether a program with these operations may be without a derivative."""
    return any(
        primitive.name in _DOUBTFUL
        or (primitive.name == "while" and mode == "reverse")
        or (primitive not in ad.primitive_jvps and primitive.name not in _FINE)
        for primitive in primitives
    )


def why_not(function: Callable, avals: tuple, mode: Mode) -> str | None:
    """Why there is no derivative in the first argument, in words that follow "your function"; None where there is one."""
    first, *rest = avals

    def along(at, direction, others):
        return jax.jvp(lambda moved: function(moved, *others), (at,), (direction,))

    def back(at, _, others):
        value, pullback = jax.vjp(lambda moved: function(moved, *others), at)
        return pullback(jax.tree.map(jnp.ones_like, value))

    try:
        jax.jit(along if mode == "forward" else back).lower(first, first, rest)
    except Exception as error:
        return _in_words(error, mode)
    return None


def _in_words(error: Exception, mode: Mode) -> str:
    said = str(error).splitlines()[0].rstrip(".") if str(error) else "no message"
    if "custom_vjp" in said:
        return (
            "uses a jax.custom_vjp function, which has no derivative in forward mode, and that is the one needed. Define "
            "its derivative with jax.custom_jvp, which serves both"
        )
    if "allback" in said:
        return (
            "runs Python through jax.pure_callback or io_callback, which have no derivative. Pass the Python function itself "
            "as vv.callback_operator(fn) or vv.callback_constraints(fn, vjp), or define a derivative with jax.custom_jvp"
        )
    if "Reverse-mode differentiation does not work" in said:
        return (
            "has a loop whose number of rounds is not fixed (lax.while_loop, or lax.fori_loop with a bound that is computed), "
            "and its gradient cannot be taken. Use lax.fori_loop or lax.scan with a fixed number of rounds"
        )
    if isinstance(error, NotImplementedError) and "ifferentiation rule" in said:
        name = said.split("'")[1] if said.count("'") >= 2 else "an operation"
        return (
            f"uses `{name}`, which has no derivative in JAX. Write it with other functions, or define a derivative with "
            "jax.custom_jvp"
        )
    return f"has no derivative in {mode} mode ({type(error).__name__}: {said})"
