"""Functions written out coordinate by coordinate, put back into arrays.

A loop over players and a sum over the others make a program of n² operations. A solver contains it dozens of times, and takes
minutes to compile. Where the program is affine in x and affine in θ, as that of a game with quadratic costs, it is

    c + Ax + Bθ + Σ_k θ_k T_k x                                                                   (1)

exactly; c, A, B and T_k are its value and derivatives at 0, and say all there is in a handful of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

LONG = 300  # operations; up to here a program compiles in seconds
_MOST_NUMBERS = 1_000_000  # in T


def in_arrays(function: Callable, x: Any, theta: PyTree) -> Callable | None:
    """A function that is affine in x and in θ, as (1); `x` and `theta` have their shapes. None where it is too large.

    Example:
        >>> import jax.numpy as jnp
        >>> from viceversa.written_out import in_arrays
        >>> game = in_arrays(lambda x, t: jnp.stack([x[0] + t * x[1] - 3.0, 2.0 * x[1]]), jnp.zeros(2), jnp.zeros(()))
        >>> print(game(jnp.array([1.0, 2.0]), 5.0))
        [8. 4.]
    """
    origin, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.zeros_like, theta))
    n, m = int(np.prod(x.shape)), origin.size
    zero = jnp.zeros(n)

    def flat(v: jax.Array, t: jax.Array) -> jax.Array:
        return jnp.ravel(function(v.reshape(x.shape), unravel(t)))

    def along_x(v: jax.Array, t: jax.Array) -> jax.Array:
        return jax.jvp(lambda at: flat(at, t), (zero,), (v,))[1]

    def along_both(v: jax.Array, t: jax.Array) -> jax.Array:
        return jax.jvp(lambda at: along_x(v, at), (origin,), (t,))[1]

    out = jax.eval_shape(function, x, theta)
    if n * m * int(np.prod(out.shape)) > _MOST_NUMBERS:
        return None
    units_x, units_t = jnp.eye(n), jnp.eye(m)
    c = flat(zero, origin)
    A = jax.vmap(lambda v: along_x(v, origin))(units_x).T
    B = jax.vmap(lambda t: jax.jvp(lambda at: flat(zero, at), (origin,), (t,))[1])(units_t).T
    T = jax.vmap(lambda t: jax.vmap(lambda v: along_both(v, t))(units_x).T)(units_t)
    c, A, B, T = (np.asarray(each) for each in (c, A, B.reshape(c.size, m), T.reshape(m, c.size, n)))
    if not all(np.isfinite(each).all() for each in (c, A, B, T)):
        return None
    moved_by, tilted_by = np.flatnonzero(B.any(axis=0)), np.flatnonzero(T.any(axis=(1, 2)))

    def affine(x: Any, theta: PyTree) -> Any:
        v, t = jnp.ravel(x), jax.flatten_util.ravel_pytree(theta)[0]
        value = c + A @ v
        if moved_by.size:
            value = value + B @ t
        if tilted_by.size:
            value = value + t @ (T @ v)  # (1)
        return value.reshape(out.shape)

    return affine
