"""The ε-enlargement X_ε = { y ∈ X : 1ᵀ[f(y)]₊ ≤ ε } of the feasible set: one ε shared by all constraints.

f(y) must lie in K_ε = { u : 1ᵀ[u]₊ ≤ ε }, which is convex and contains v ≤ u with u; so y ↦ dist²(f(y), K_ε) is convex
when every f_j is. The support function of K_ε is ε‖μ‖∞ for μ ≥ 0 and +∞ otherwise.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from viceversa.numerics import positive_part

# Up to this many constraints all pairs are compared, which compiles and runs faster than sorting.
FEW = 32


def total_violation(u: Float[Array, " J"]) -> Float[Array, ""]:
    """1ᵀ[u]₊."""
    return jnp.sum(positive_part(u))


@jax.custom_jvp
def distance_vector(u: Float[Array, " J"], epsilon: Float[Array, ""]) -> Float[Array, " J"]:
    """u − P(u) for the projection P on K_ε: min([u]₊, τ), with the τ ≥ 0 that leaves 1ᵀ[u − τ]₊ = ε (0 inside K_ε)."""
    return jnp.minimum(positive_part(u), _threshold(u, epsilon))


@distance_vector.defjvp
def _distance_vector_jvp(primals, tangents):
    (u, epsilon), (du, _) = primals, tangents
    tau = _threshold(u, epsilon)
    above = u > tau
    mean = jnp.sum(jnp.where(above, du, 0.0)) / jnp.maximum(jnp.sum(above), 1)
    inside = tau <= 0.0
    slope = jnp.where(above, mean, jnp.where(u > 0.0, du, 0.0))
    return jnp.minimum(positive_part(u), tau), jnp.where(inside, 0.0, slope)


def _threshold(u, epsilon):
    """τ = max_k (p_1 + … + p_k − ε)/k over the sorted p = [u]₊, largest first; 0 inside K_ε."""
    if u.size == 0:
        return jnp.zeros(())
    p = positive_part(u)
    if u.size <= FEW:
        largest = p[None, :] >= p[:, None]
        sums, k = jnp.sum(jnp.where(largest, p[None, :], 0.0), axis=1), jnp.sum(largest, axis=1)
    else:
        sums, k = jnp.cumsum(-jnp.sort(-p)), jnp.arange(1, p.size + 1)
    return jnp.maximum(jnp.max((sums - epsilon) / k), 0.0)
