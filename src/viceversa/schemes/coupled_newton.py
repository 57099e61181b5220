"""Newton on (x, λ, θ) together, for learning that depends on what is played."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from viceversa import krylov
from viceversa.learning.base import Learning
from viceversa.learning.linearised import LARGEST_DENSE, columns, local_metric, raveled
from viceversa.numerics import (
    positive_part,
    safe_divide,
    tree_add_scaled,
    tree_norm_sq,
    tree_size,
    tree_subtract,
)
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.newton_system import MAX_PRODUCTS, Metric


class CoupledDirection(NamedTuple):
    """The Newton step in all three blocks and the number of products it took."""

    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    theta: PyTree
    n_products: Int[Array, ""]


class CoupledMap(NamedTuple):
    """The natural map of the joint problem in its own units.

    r_x = x − P_X(x − γG), r_λ = λ − [λ + ρf]₊ and r_θ = θ − P_Θ(θ − D⁻¹H(θ, x)), divided by √γ, √ρ and
    1/√w: their squares add up to the merit. D is made from ∂H/∂θ, so that H's units do not matter; w gives θ's part the
    unit of the others, an energy Σ|x_i F_i|, at a θ of its present size.
    """

    problem: MisspecifiedVI
    metric: Metric
    D: PyTree
    weight: Float[Array, ""]

    def residual(self, x: Array, lam: Array, theta: PyTree) -> tuple[Array, Array, PyTree]:
        """(r_x, r_λ, r_θ) in units of the merit."""
        F, f, X = self.problem.at(theta)
        learning = self.problem.learning
        f_x, pullback = f.vjp(x)
        r_x = x - X.project(x - self.metric.gamma * (F(x) + pullback(lam)))
        r_lam = lam - positive_part(lam + self.metric.rho * f_x)
        H = learning.operator(theta, x)
        s = learning.set.project(jax.tree.map(lambda p, h, d: p - h / d, theta, H, self.D))
        r_theta = tree_subtract(theta, s)
        return (
            r_x / jnp.sqrt(self.metric.gamma),
            r_lam / jnp.sqrt(self.metric.rho),
            jax.tree.map(lambda r: jnp.sqrt(self.weight) * r, r_theta),
        )

    def merit(self, x: Array, lam: Array, theta: PyTree) -> Float[Array, ""]:
        """The squared norm of the map."""
        return tree_norm_sq(self.residual(x, lam, theta))

    def direction(self, x: Array, lam: Array, theta: PyTree, rtol, regularization) -> CoupledDirection:
        """(∂r + νI) d = −r by GMRES, unknowns in the same units as the map."""

        def in_units(dx: Array, dlam: Array, dtheta: PyTree) -> tuple[Array, Array, PyTree]:
            return (
                jnp.sqrt(self.metric.gamma) * dx,
                jnp.sqrt(self.metric.rho) * dlam,
                jax.tree.map(lambda d: safe_divide(d, jnp.sqrt(self.weight), d), dtheta),
            )

        r, product = jax.linearize(self.residual, x, lam, theta)

        def matvec(step: PyTree) -> PyTree:
            return tree_add_scaled(product(*in_units(*step)), regularization, step)

        rhs = jax.tree.map(jnp.negative, r)
        n_most = min(MAX_PRODUCTS, tree_size(rhs))
        found = krylov.gmres(matvec, rhs, rtol, n_most)
        return CoupledDirection(*in_units(*found.solution), found.n_products)


def coupled_map(
    problem: MisspecifiedVI, x: Array, theta: PyTree, metric: Metric
) -> tuple[CoupledMap, Float[Array, ""]]:
    """The map at the scales of a point, and the energy there, which says how large a merit is."""
    energy = jnp.sum(jnp.abs(x * problem.at(theta).F(x)))
    energy = jnp.where(energy > 0, energy, 1.0)
    D = _learning_metric(problem.learning, theta, x)
    return CoupledMap(problem, metric, D, safe_divide(energy, tree_norm_sq(theta), 1.0)), energy


def _learning_metric(learning: Learning, theta: PyTree, x: Array) -> PyTree:
    """D of θ's structure; L_H where θ has too many components for a Jacobian."""
    vector, unravel, operator, _ = raveled(learning, theta, x)
    if vector.size > LARGEST_DENSE:
        return jax.tree.map(lambda p: jnp.full(p.shape, learning.lipschitz), theta)
    product = jax.linearize(operator, vector)[1]
    return unravel(local_metric(learning, columns(product, jnp.eye(vector.size))))
