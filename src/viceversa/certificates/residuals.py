"""Residuals of the KKT conditions at (x, λ, θ), plain and in the problem's own units; traced, cheap."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from viceversa import numerics
from viceversa.learning.base import Learning
from viceversa.numerics import irregular_signs, max_abs, positive_part, safe_divide, tree_norm, tree_subtract
from viceversa.problem import MisspecifiedVI

# A box may be far larger than what happens in it, so a coordinate's unit is what it has reached. Where that is nothing
# but rounding, it is this share of the width; of a width so large that it only means "no bound" there is no share.
_ROUNDING = 64 * 2.0**-52
# The least unit of F, as a share of its variation: 10⁸ times the rounding of a cancellation.
_CANCELLATION = 1e-7
_SHARE = 1e-6
_NO_BOUND = 1e9
# The units of f are taken at the point itself once the conditions that do not need them hold this well.
_CLOSE = 0.1


class Scales(NamedTuple):
    """The units everything relative is measured in, taken at the start x_0 (DESIGN: what `tol` means).

    x0 and theta0 are kept for the lengths x̂ and θ̂; F = ‖F(x_0)‖∞; f_start = |f(x_0)|; f_slope = Σ_i |∂_i f_j(x)| x̂_i
    at the point named by the caller.
    """

    x0: Float[Array, "..."]
    F: Float[Array, ""]
    f_start: Float[Array, " J"]
    f_slope: Float[Array, " J"]
    theta0: PyTree


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
    """x̂ = max(|x|, |x − x_0|) in each coordinate, at most the width of X; a share of the width where that is nothing."""
    local, width = jnp.maximum(jnp.abs(x), jnp.abs(x - x0)), jnp.asarray(problem.x_width)
    share = jnp.where(width < _NO_BOUND, _SHARE * width, 0.0)
    return jnp.where(local <= _ROUNDING * width, jnp.maximum(share, local), jnp.minimum(width, local))


def theta_scale(problem: MisspecifiedVI, theta: PyTree, theta0: PyTree) -> Float[Array, ""]:
    """θ̂ = max(‖θ‖, ‖θ − θ_0‖), or a share of the width of Θ where that is nothing."""
    local = jnp.maximum(tree_norm(theta), tree_norm(tree_subtract(theta, theta0)))
    share = jnp.where(problem.theta_width < _NO_BOUND, _SHARE * problem.theta_width, 0.0)
    return jnp.where(local <= _ROUNDING * problem.theta_width, jnp.maximum(share, local), local)


def start_scales(problem: MisspecifiedVI, x0: Array, theta: PyTree) -> Scales:
    """The scales at the start."""
    slope = constraint_slopes(problem, x0, x0, theta)
    f_start = jnp.abs(problem.at(theta).f(x0))
    return Scales(x0=x0, F=force_scale(problem, x0, theta), f_start=f_start, f_slope=slope, theta0=theta)


def force_scale(problem: MisspecifiedVI, x0: Array, theta: PyTree) -> Float[Array, ""]:
    """‖F(x_0)‖∞, but not below what rounding leaves of it where F vanishes at x_0 and at the solution alike.

    A game started at its own equilibrium has F = 0 there up to cancellation; a small share of how F varies over x̂
    keeps the unit from being that rounding.
    """
    F, _, _ = problem.at(theta)
    if problem.runs_on_host:
        return max_abs(F(x0))
    F_0, variation = jax.jvp(F, (x0,), (coordinate_scale(problem, x0, x0) * irregular_signs(x0.shape),))
    return jnp.maximum(max_abs(F_0), _CANCELLATION * max_abs(variation))


def constraint_slopes(problem: MisspecifiedVI, x: Array, x0: Array, theta: PyTree) -> Float[Array, " J"]:
    """Σ_i |∂_i f_j(x, θ)| x̂_i for every j."""
    x_hat = coordinate_scale(problem, x, x0)
    return problem.at(theta).f.of_gradients(x, lambda gradient: jnp.sum(jnp.abs(gradient) * x_hat))[1]


def residuals(
    problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, scales: Scales, *, scales_at_x: bool = False
) -> Residuals:
    """Everything the core certificate is made of, at (x, λ, θ); `scales_at_x` says that f's slopes in `scales` are of x.

    Stationarity is measured by x̃ = P_X(x + t g), g = −(F + Jfᵀλ), with t the largest x̂ over F̂: then g lies within
    ‖x − x̃‖/t of the normal cone of X at x̃, and x̃ within ‖x − x̃‖ of x; both are tol in their own units.
    """
    F, f, X = problem.at(theta)
    F_x = F(x)
    f_x, pullback = f.vjp(x)
    pulled = pullback(lam)
    g = -(F_x + pulled)
    x_hat = coordinate_scale(problem, x, scales.x0)
    F_hat = jnp.maximum(scales.F, max_abs(F_x))
    force = jnp.maximum(F_hat, max_abs(pulled))
    reach = max_abs(x_hat)
    reach = jnp.where(reach > 0, reach, 1.0)  # x = x_0 = 0 without bounds: any length, only t·g matters
    t = safe_divide(reach, force, 1.0)
    moved = max_abs(x - X.project(x + t * g))
    stationarity = moved / reach
    learning_error = learning_error_bound(problem.learning, theta, x)
    learning = safe_divide(learning_error, theta_scale(problem, theta, scales.theta0), 0.0)
    f_slope = scales.f_slope
    if not scales_at_x:
        f_slope = numerics.cond(
            jnp.maximum(stationarity, learning) <= _CLOSE,
            lambda at: constraint_slopes(problem, at, scales.x0, theta),
            lambda at: scales.f_slope,
            x,
            on_host=problem.runs_on_host,
        )
    f_hat = jnp.maximum(scales.f_start, f_slope)
    budget = jnp.sum(lam * f_hat) + F_hat * jnp.sum(jnp.broadcast_to(x_hat, x.shape))
    natural = max_abs(x - X.project(x + g))
    complementary = max_abs(lam - positive_part(lam + f_x))
    return Residuals(
        kkt=jnp.maximum(natural, complementary),
        infeasibility=jnp.sum(positive_part(f_x)),
        learning_error=learning_error,
        relative=Relative(
            stationarity=stationarity,
            feasibility=jnp.max(
                safe_divide(positive_part(f_x), f_hat, jnp.where(f_x > 0, 1.0, 0.0)), initial=0.0
            ),
            complementarity=safe_divide(jnp.max(lam * jnp.abs(f_x), initial=0.0), budget, 0.0),
            learning=learning,
        ),
    )


def learning_error_bound(learning: Learning, theta: PyTree, x: Array | None = None) -> Float[Array, ""]:
    """‖θ − θ*‖ ≤ min(2(L/μ)‖ϑ − P_Θ(ϑ − H(ϑ)/L)‖, ‖H(ϑ)‖/μ) + ‖θ − ϑ‖, ϑ = P_Θ(θ); as sure as μ and L are.

    Both bounds need a point of Θ: outside it H may vanish far from θ*.
    """
    if learning.is_known:
        return jnp.zeros(())
    given, theta = theta, learning.set.project(theta)
    H = learning.operator(theta, x)
    projected = learning.set.project(jax.tree.map(lambda p, h: p - h / learning.lipschitz, theta, H))
    by_projection = 2.0 * learning.lipschitz / learning.mu * tree_norm(tree_subtract(theta, projected))
    return jnp.minimum(by_projection, tree_norm(H) / learning.mu) + tree_norm(tree_subtract(given, theta))
