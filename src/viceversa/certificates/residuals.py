"""Residuals of the KKT conditions at (x, λ, θ), plain and in the problem's own units; traced, cheap."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from viceversa.learning.base import Learning
from viceversa.numerics import positive_part, safe_divide, tree_norm, tree_subtract
from viceversa.problem import MisspecifiedVI


class Scales(NamedTuple):
    """The units everything relative is measured in, taken at the start x_0 (DESIGN: what `tol` means).

    x0 is kept for coordinates without a width; F = ‖F(x_0)‖∞; f_start = |f(x_0)|; f_slope = Σ_i |∂_i f_j(x)| x̂_i
    at the point named by the caller.
    """

    x0: Float[Array, "..."]
    F: Float[Array, ""]
    f_start: Float[Array, " J"]
    f_slope: Float[Array, " J"]


class Relative(NamedTuple):
    """The scale-free parts: each is at most `tol` at a solved point."""

    stationarity: Float[Array, ""]
    feasibility: Float[Array, ""]
    complementarity: Float[Array, ""]
    learning: Float[Array, ""]


class Residuals(NamedTuple):
    """kkt = ‖(x − P_X(x − F − Jfᵀλ), λ − [λ + f]₊)‖∞; infeasibility = 1ᵀ[f]₊; both at the given θ."""

    kkt: Float[Array, ""]
    infeasibility: Float[Array, ""]
    learning_error: Float[Array, ""]
    relative: Relative

    def worst(self) -> Float[Array, ""]:
        """The largest relative part."""
        return jnp.max(jnp.stack(self.relative))


def coordinate_scale(problem: MisspecifiedVI, x: Array, x0: Array) -> Array:
    """x̂: the width of X in each coordinate, or max(|x|, |x − x_0|) where X has none."""
    local = jnp.maximum(jnp.abs(x), jnp.abs(x - x0))
    return jnp.where(jnp.isfinite(problem.x_width), problem.x_width, local)


def start_scales(problem: MisspecifiedVI, x0: Array, theta: PyTree) -> Scales:
    """The scales at the start."""
    F, f, _ = problem.at(theta)
    slope = constraint_slopes(problem, x0, x0, theta)
    return Scales(x0=x0, F=jnp.max(jnp.abs(F(x0)), initial=0.0), f_start=jnp.abs(f(x0)), f_slope=slope)


def constraint_slopes(problem: MisspecifiedVI, x: Array, x0: Array, theta: PyTree) -> Float[Array, " J"]:
    """Σ_i |∂_i f_j(x, θ)| x̂_i for every j, one row of the Jacobian at a time."""
    f_x, pullback = problem.at(theta).f.vjp(x)
    x_hat = coordinate_scale(problem, x, x0)

    def row(j):
        return jnp.sum(jnp.abs(pullback(jnp.zeros_like(f_x).at[j].set(1.0))) * x_hat)

    if problem.runs_on_host:
        return jnp.stack([row(j) for j in range(problem.n_constraints)]) if problem.n_constraints else f_x
    return jax.lax.map(row, jnp.arange(problem.n_constraints)) if problem.n_constraints else f_x


def residuals(problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, scales: Scales) -> Residuals:
    """Everything the core certificate is made of, at (x, λ, θ).

    Stationarity is measured by x̃ = P_X(x + t g), g = −(F + Jfᵀλ), with t the largest x̂ over F̂: then g lies within
    ‖x − x̃‖/t of the normal cone of X at x̃, and x̃ within ‖x − x̃‖ of x; both are tol in their own units.
    """
    F, f, X = problem.at(theta)
    F_x = F(x)
    f_x, pullback = f.vjp(x)
    pulled = pullback(lam)
    g = -(F_x + pulled)
    x_hat = coordinate_scale(problem, x, scales.x0)
    F_hat = jnp.maximum(scales.F, jnp.max(jnp.abs(F_x), initial=0.0))
    force = jnp.maximum(F_hat, jnp.max(jnp.abs(pulled), initial=0.0))
    f_hat = jnp.maximum(scales.f_start, scales.f_slope)
    reach = jnp.max(jnp.minimum(x_hat, jnp.maximum(jnp.abs(x), jnp.abs(x - scales.x0))), initial=0.0)
    reach = jnp.where(reach > 0, reach, 1.0)  # at x = x_0 = 0 any length will do: only t·g matters
    t = safe_divide(reach, force, 1.0)
    moved = jnp.max(jnp.abs(x - X.project(x + t * g)), initial=0.0)
    budget = jnp.sum(lam * f_hat) + F_hat * jnp.sum(x_hat)
    learning_error = learning_error_bound(problem.learning, theta, x)
    natural = jnp.max(jnp.abs(x - X.project(x + g)), initial=0.0)
    complementary = jnp.max(jnp.abs(lam - positive_part(lam + f_x)), initial=0.0)
    return Residuals(
        kkt=jnp.maximum(natural, complementary),
        infeasibility=jnp.sum(positive_part(f_x)),
        learning_error=learning_error,
        relative=Relative(
            stationarity=safe_divide(moved, reach, jnp.where(moved > 0, jnp.inf, 0.0)),
            feasibility=jnp.max(
                safe_divide(positive_part(f_x), f_hat, jnp.where(f_x > 0, jnp.inf, 0.0)), initial=0.0
            ),
            complementarity=safe_divide(jnp.max(lam * jnp.abs(f_x), initial=0.0), budget, 0.0),
            learning=safe_divide(learning_error, jnp.maximum(tree_norm(theta), problem.theta_width), 0.0),
        ),
    )


def learning_error_bound(learning: Learning, theta: PyTree, x: Array | None = None) -> Float[Array, ""]:
    """‖θ − θ*‖ ≤ min(2(L/μ)‖θ − P_Θ(θ − H(θ)/L)‖, ‖H(θ)‖/μ) for θ in Θ; as sure as μ and L are."""
    if learning.is_known:
        return jnp.zeros(())
    H = learning.operator(theta, x)
    projected = learning.set.project(jax.tree.map(lambda p, h: p - h / learning.lipschitz, theta, H))
    by_projection = 2.0 * learning.lipschitz / learning.mu * tree_norm(tree_subtract(theta, projected))
    return jnp.minimum(by_projection, tree_norm(H) / learning.mu)
