"""H near one θ: its Jacobian, units for θ's components, and how far a Newton step says that θ* is."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from viceversa.learning.base import Learning
from viceversa.numerics import solve_dense
from viceversa.sets.intervals import is_separable

LARGEST_DENSE = 300  # components of θ up to which its Jacobian is formed
Map = Callable[[Array], Array]


def raveled(
    learning: Learning, theta: PyTree, x: Array | None
) -> tuple[Array, Callable[[Array], PyTree], Map, Map]:
    """θ as one vector, how it becomes a tree again, and H and P_Θ as maps of such vectors."""
    vector, unravel = jax.flatten_util.ravel_pytree(theta)

    def operator(v: Array) -> Array:
        return jax.flatten_util.ravel_pytree(learning.operator(unravel(v), x))[0]

    def project(v: Array) -> Array:
        return jax.flatten_util.ravel_pytree(learning.set.project(unravel(v)))[0]

    return vector, unravel, operator, project


def columns(product: Map, of: Array) -> Float[Array, "n n"]:
    """The product of a linear map's matrix with the matrix `of`."""
    return jax.vmap(product, in_axes=1, out_axes=1)(of)


def dominating(J: Float[Array, "n n"], usable: Bool[Array, ""], otherwise: Array) -> Float[Array, " n"]:
    """D with D − J ⪰ 0 in J's own units, by Gershgorin: with J scaled to a diagonal of ones, the sums of its rows dominate it.

    `otherwise` where J is not `usable` or has no positive diagonal.
    """
    diagonal = jnp.diagonal(J)
    usable = usable & jnp.all(diagonal > 0)
    root = jnp.sqrt(jnp.where(usable, diagonal, 1.0))
    sums = root * (jnp.maximum(jnp.abs(J), jnp.abs(J.T)) @ (1.0 / root))
    return jnp.where(usable, sums, otherwise)


def local_metric(learning: Learning, J: Float[Array, "n n"]) -> Float[Array, " n"]:
    """D from the Jacobian alone: diagonal where Θ is a product of intervals, else one number; 1 where H does not vary."""
    norm = jnp.sqrt(jnp.sum(J * J))
    uniform = jnp.full(J.shape[:1], jnp.where(norm > 0, norm, 1.0))
    return dominating(J, jnp.asarray(is_separable(learning.set)), uniform)


def solve_in_units_of(J: Array, matrix: Array, r: Array) -> Float[Array, " n"]:
    """matrix⁻¹ r with the components in units that make J's diagonal 1 and every row's largest entry 1."""
    diagonal = jnp.diagonal(J)
    units = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
    scaled = matrix / units
    rows = jnp.max(jnp.abs(scaled), axis=1)
    rows = jnp.where(rows > 0, rows, 1.0)
    return solve_dense(scaled / rows[:, None], r / rows) / units


def newton_distance(learning: Learning, theta: PyTree, x: Array | None = None) -> Float[Array, ""] | None:
    """‖d‖ of a Newton step for r(θ) = θ − P_Θ(θ − D⁻¹H(θ)): how far θ* is, told by slopes here alone; ∞ if there is no step.

    It needs no constant of H and does not depend on its units. None where θ has too many components.
    """
    vector, _, operator, project = raveled(learning, theta, x)
    if vector.size > LARGEST_DENSE:
        return None
    H, product = jax.linearize(operator, vector)
    eye = jnp.eye(vector.size)
    J = columns(product, eye)
    D = local_metric(learning, J)
    s, onto_face = jax.linearize(project, vector - H / D)
    step = solve_in_units_of(J, eye - columns(onto_face, eye - J / D[:, None]), vector - s)
    length = jnp.sqrt(jnp.sum(step * step))
    return jnp.where(jnp.isfinite(length), length, jnp.inf)
