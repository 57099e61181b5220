"""The few numerical primitives every kernel shares: guards, norms and inner products over pytrees."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

FEW = 32  # unknowns up to which elimination in plain operations, which one kernel may contain, is as fast as a library's


@jax.custom_jvp
def positive_part(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """[u]₊ = max(u, 0), with derivative 0 at the tie (an element of the B-subdifferential, not ½)."""
    return jnp.maximum(u, 0.0)


@positive_part.defjvp
def _positive_part_jvp(primals, tangents):
    (u,), (du,) = primals, tangents
    return positive_part(u), jnp.where(u > 0.0, du, 0.0)


def safe_divide(a, b, otherwise):
    """a / b where b ≠ 0 and `otherwise` where b = 0, without a NaN in either branch."""
    usable = b != 0
    return jnp.where(usable, a / jnp.where(usable, b, 1.0), otherwise)


def solve_dense(matrix: Float[Array, "n n"], rhs: Float[Array, " n"]) -> Float[Array, " n"]:
    """The solution of a small system by elimination with row exchanges, on the rows of [A | b] together.

    Exchanging b's rows afterwards, as a factorization kept for later needs it, would be a loop over them.
    """
    if rhs.size == 1:
        return rhs / matrix[0, 0]
    rows = jnp.column_stack([matrix, rhs])
    if rhs.size <= FEW:
        return _back_substituted(_eliminated(rows))
    rows, _, _ = jax.lax.linalg.lu(rows)
    return solve_upper(rows[:, :-1], rows[:, -1])


def solve_upper(
    R: Float[Array, "n n"], rhs: Float[Array, " n"], transpose: bool = False
) -> Float[Array, " n"]:
    """R⁻¹ rhs or R⁻ᵀ rhs for an upper triangular R."""
    solution = jax.lax.linalg.triangular_solve(R, rhs[:, None], left_side=True, transpose_a=transpose)
    return solution[:, 0]


def _eliminated(rows: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Rows in which column k is zero below row k, each pivot the largest of its column."""
    number, (row, put) = (
        jnp.arange(rows.shape[0]),
        (jax.lax.dynamic_slice_in_dim, jax.lax.dynamic_update_slice),
    )

    def without_column(k: Array, rows: Array) -> Array:
        column = jnp.where(number >= k, jnp.abs(row(rows, k, 1, axis=1)[:, 0]), -1.0)
        pivot = jnp.min(jnp.where(column == jnp.max(column), number, rows.shape[0] - 1))
        upper, lower = row(rows, pivot, 1), row(rows, k, 1)
        rows = put(put(rows, lower, (pivot, 0)), upper, (k, 0))
        share = jnp.where(number > k, row(rows, k, 1, axis=1)[:, 0] / row(upper, k, 1, axis=1)[0, 0], 0.0)
        return rows - share[:, None] * upper

    return jax.lax.fori_loop(0, rows.shape[0] - 1, without_column, rows)


def _back_substituted(rows: Float[Array, "n m"]) -> Float[Array, " n"]:
    """The solution of an upper triangular system given as [R | b]."""
    n = rows.shape[0]
    number = jnp.arange(n)

    def known(i: Array, x: Array) -> Array:
        k = n - 1 - i
        row = jax.lax.dynamic_index_in_dim(rows, k, keepdims=False)
        left = row[n] - jnp.sum(jnp.where(number > k, row[:n] * x, 0.0))
        return jnp.where(number == k, left / jax.lax.dynamic_index_in_dim(row, k, keepdims=False), x)

    return jax.lax.fori_loop(0, n, known, jnp.zeros(n, rows.dtype))


def irregular_signs(shape: tuple[int, ...]) -> Float[Array, "..."]:
    """±1 without a pattern: a bit of a mixed-up counter, which costs far less than a cosine."""
    mixed = jnp.arange(math.prod(shape), dtype=jnp.uint32) * jnp.uint32(2654435769)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(2246822519)
    return jnp.where((mixed >> 16) & 1 == 0, 1.0, -1.0).reshape(shape)


def tree_dot(a: PyTree, b: PyTree) -> Float[Array, ""]:
    """⟨a, b⟩ summed over the leaves of two trees of the same structure."""
    products = jax.tree.map(lambda u, v: jnp.sum(u * v), a, b)
    return jax.tree.reduce(jnp.add, products, jnp.zeros(()))


def tree_norm_sq(a: PyTree) -> Float[Array, ""]:
    """‖a‖² over all leaves."""
    return tree_dot(a, a)


def tree_norm(a: PyTree) -> Float[Array, ""]:
    """‖a‖ over all leaves."""
    return jnp.sqrt(tree_norm_sq(a))


def tree_max_abs(a: PyTree) -> Float[Array, ""]:
    """‖a‖∞ over all leaves, NaN if there is one; 0 for an empty tree or empty leaves."""
    return jax.tree.reduce(jnp.maximum, jax.tree.map(max_abs, a), jnp.zeros(()))


def max_abs(u: Float[Array, "..."]) -> Float[Array, ""]:
    """max_i |u_i|, NaN if there is one and 0 if there is nothing.

    The bits of a number that is not negative are in its order, a NaN's above all others. A processor compares whole numbers
    several at a time; of floating ones it would have to look at each for being a NaN.
    """
    whole = jnp.dtype(f"int{8 * u.dtype.itemsize}")
    largest = jnp.max(jax.lax.bitcast_convert_type(jnp.abs(u), whole), initial=0)
    return jax.lax.bitcast_convert_type(largest, u.dtype)


def tree_add_scaled(a: PyTree, scale, b: PyTree) -> PyTree:
    """a + scale·b, leaf by leaf."""
    return jax.tree.map(lambda u, v: u + scale * v, a, b)


def tree_subtract(a: PyTree, b: PyTree) -> PyTree:
    """a − b, leaf by leaf."""
    return jax.tree.map(jnp.subtract, a, b)


def tree_size(a: PyTree) -> int:
    """The number of scalars in a tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(a))


def all_finite(a: PyTree) -> Array:
    """Whether every number in the tree is finite."""
    checks = jax.tree.map(lambda u: jnp.all(jnp.isfinite(u)), a)
    return jax.tree.reduce(jnp.logical_and, checks, jnp.asarray(True))


def while_loop(cond, body, state, *, on_host: bool):
    """`lax.while_loop`, or the same loop in Python where the body calls a user's callback."""
    if not on_host:
        return jax.lax.while_loop(cond, body, state)
    while bool(cond(state)):
        state = body(state)
    return state


def cond(predicate, if_true, if_false, state, *, on_host: bool):
    """`lax.cond`, or the same choice in Python where a branch calls a user's callback."""
    if not on_host:
        return jax.lax.cond(predicate, if_true, if_false, state)
    return if_true(state) if bool(predicate) else if_false(state)
