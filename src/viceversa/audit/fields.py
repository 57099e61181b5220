"""What must be monotone, as maps of flat vectors: F(·, θ), the gradient of one constraint, and H."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from viceversa import precision
from viceversa.learning.base import Learning
from viceversa.problem import MisspecifiedVI
from viceversa.sets.base import ConvexSet

Vector = Float[Array, " n"]

_JUMPS = {"sign", "floor", "ceil", "round", "select_n", "argmax", "argmin", "top_k", "rem"}
_KINKS = _JUMPS | {"abs", "max", "min", "clamp", "sort", "reduce_max", "reduce_min", "cummax", "cummin"}


class OperatorField(eqx.Module):
    """F(·, θ): monotone by Assumption (i)."""

    problem: MisspecifiedVI

    def __call__(self, x: Array, t: Array) -> Array:
        F = self.problem.at(unravel(self.problem.learning.set, t)).F
        return jnp.ravel(F(jnp.reshape(x, self.problem.shape)))


class ConstraintGradient(eqx.Module):
    """∇ₓf_j(·, θ): monotone exactly when f_j(·, θ) is convex (Assumption (iii))."""

    problem: MisspecifiedVI
    j: np.ndarray

    def __call__(self, x: Array, t: Array) -> Array:
        f = self.problem.at(unravel(self.problem.learning.set, t)).f
        values, pullback = f.vjp(jnp.reshape(x, self.problem.shape))
        return jnp.ravel(pullback(jnp.zeros_like(values).at[self.j].set(1.0)))


class LearningField(eqx.Module):
    """H as a map of flat θ: strongly monotone by Assumption (ii)."""

    learning: Learning

    def __call__(self, x: Array, t: Array) -> Array:
        return ravel(self.learning.operator(unravel(self.learning.set, x)))


def ravel(tree: PyTree) -> Array:
    """A tree as one vector."""
    return jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, tree))[0]


def flat(tree: PyTree) -> np.ndarray:
    """A tree of the host's arrays as one vector, in the order of `ravel`."""
    leaves = [np.ravel(np.asarray(leaf, dtype=float)) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def unravel(convex_set: ConvexSet, vector: Array) -> PyTree:
    """A vector as a point of the set's structure."""
    return jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, convex_set.zeros()))[1](vector)


def project(convex_set: ConvexSet, vector: Array) -> Array:
    """The projection, on flat vectors."""
    return ravel(convex_set.project(unravel(convex_set, vector)))


def tangent(convex_set: ConvexSet, inside: Array, direction: Array) -> Array:
    """The part of a direction that lies in the set's affine hull: the derivative of the projection at an inner point."""
    return jax.jvp(lambda z: project(convex_set, z), (inside,), (direction,))[1]


def unit_lengths(convex_set: ConvexSet) -> np.ndarray:
    """The width of the set in every coordinate, ∞ where it has none, as one vector."""
    return flat(convex_set.width())


def has_jumps(function: Any, problem: MisspecifiedVI) -> bool:
    """Whether F's or H's program may be discontinuous, so that derivatives alone prove nothing."""
    return bool(_primitives(function, problem.set.zeros(), problem.learning.set.zeros()) & _JUMPS)


def has_kinks(function: Any, problem: MisspecifiedVI) -> bool:
    """Whether the gradient of f may jump, so that second derivatives alone prove nothing."""
    return bool(_primitives(function, problem.set.zeros(), problem.learning.set.zeros()) & _KINKS)


def _primitives(function: Callable, *likes: PyTree) -> set[str]:
    with precision.double():
        closed = jax.make_jaxpr(function)(*jax.tree.map(jnp.asarray, likes))
    # Whole numbers are indices, made from shapes: choosing among them makes no kink.
    is_real = lambda equation: any(jnp.issubdtype(out.aval.dtype, jnp.floating) for out in equation.outvars)
    return {equation.primitive.name for equation in _equations(closed.jaxpr) if is_real(equation)}


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda node: hasattr(node, "eqns") or hasattr(node, "jaxpr"),
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)
