"""Newton on the secondary VI: θ to machine precision in a few steps where H is smooth."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array

from viceversa.krylov import gmres
from viceversa.learners.base import Learner, LearnerState
from viceversa.learning.base import Learning
from viceversa.numerics import solve_dense

LARGEST_DENSE = 300  # components of θ up to which its Jacobian is formed
MAX_PRODUCTS = 40
_RTOL = 1e-3  # of the linear system solved by products; the next step corrects what it leaves


class NewtonLearner(Learner):
    """θ_{k+1} = P_Θ[θ_k + d],  ∂r(θ_k) d = −r(θ_k),  r(θ) = θ − P_Θ(θ − H(θ)/L)                    (1)

    with one element ∂r of the generalized Jacobian of the natural map, solved densely, or by products where θ has
    more than 300 components. If (1) does not reduce
    ‖r‖, the projected step θ − r(θ) is taken instead, which contracts. One step is exact for least squares
    whose bounds do not bind.

    Example:
        >>> import viceversa as vv
        >>> vv.NewtonLearner().step_counts
        3
    """

    reference: ClassVar[str] = "facchinei2003finite, Ch. 9"
    step_counts: ClassVar[int] = 3  # H at θ_k, its Jacobian, H at the trial point

    def step(self, learning: Learning, state: LearnerState, x: Array | None = None, key=None) -> LearnerState:
        vector, unravel = jax.flatten_util.ravel_pytree(state.theta)

        def natural(v: Array) -> Array:
            theta = unravel(v)
            H = learning.operator(theta, x)
            shifted = jax.tree.map(lambda p, h: p - h / learning.lipschitz, theta, H)
            return v - jax.flatten_util.ravel_pytree(learning.set.project(shifted))[0]

        r, product = jax.linearize(natural, vector)
        newton = vector - _solve(product, r)
        newton = jax.flatten_util.ravel_pytree(learning.set.project(unravel(newton)))[0]
        r_newton = natural(newton)
        better = jnp.all(jnp.isfinite(newton)) & (jnp.sum(r_newton**2) <= 0.81 * jnp.sum(r**2))
        return LearnerState(k=state.k + 1, theta=unravel(jnp.where(better, newton, vector - r)))


def _solve(product: Callable[[Array], Array], r: Array) -> Array:
    """∂r(θ)⁻¹ r, from products with ∂r(θ)."""
    if r.size > LARGEST_DENSE:
        return gmres(product, r, _RTOL, MAX_PRODUCTS).solution
    columns = jax.vmap(product)(jnp.eye(r.size, dtype=r.dtype))
    return solve_dense(columns.T, r)
