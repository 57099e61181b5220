"""Residuals of the KKT conditions at (x, λ, θ), plain and in the problem's own units; traced, cheap."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from viceversa import numerics
from viceversa.functions import is_affine_in
from viceversa.learning.base import Learning
from viceversa.learning.linearised import newton_distance
from viceversa.numerics import irregular_signs, max_abs, positive_part, safe_divide, tree_norm, tree_subtract
from viceversa.problem import MisspecifiedVI

# A box may be far larger than what happens in it, so a coordinate's unit is what it has reached. Where that is nothing
# but rounding, it is this share of the width; of a width so large that it only means "no bound" there is no share.
_ROUNDING = 64 * 2.0**-52
# The least unit of F and of f, as a share of their variation: 10⁸ times the rounding of a cancellation.
_CANCELLATION = 1e-7
_SHARE = 1e-6
_BACK = 1e-6  # of the way from the start to the point: over what a callback's slope is taken
_MOVED = 1e-3  # of x̂: a coordinate that has moved less says nothing about the way from the start
_NO_BOUND = 1e9
# The units of f are taken at the point itself once the conditions that do not need them hold this well.
_CLOSE = 0.1
# Lengths of a Newton step on H that θ* may be away: at a zero of multiplicity m it is m of them.
_NEWTON_STEPS = 4.0


class Scales(NamedTuple):
    """What the units of everything relative are made of: the start, and numbers taken there.

    x0 and theta0 are kept for x̂ and θ̂; F_least is the least unit of F; f_start = |f(x_0)|; F_start = ‖F(x_0, θ)‖∞ at the θ
    of the point that is asked about.
    """

    x0: Float[Array, "..."]
    F_start: Float[Array, ""]
    F_least: Float[Array, ""]
    f_start: Float[Array, " J"]
    theta0: PyTree


class Relative(NamedTuple):
    """The scale-free parts: each is at most `tol` at a solved point."""

    stationarity: Float[Array, ""]
    feasibility: Float[Array, ""]
    complementarity: Float[Array, ""]
    learning: Float[Array, ""]


class Residuals(NamedTuple):
    """kkt = ‖(x − P_X(x − F − Jfᵀλ), λ − [λ + f]₊)‖∞; infeasibility = 1ᵀ[f]₊; f itself and its units; all at the given θ."""

    kkt: Float[Array, ""]
    infeasibility: Float[Array, ""]
    learning_error: Float[Array, ""]
    relative: Relative
    f: Float[Array, " J"]
    f_hat: Float[Array, " J"]

    def worst(self) -> Float[Array, ""]:
        """The largest relative part."""
        return jnp.max(jnp.stack(self.relative))


def coordinate_scale(problem: MisspecifiedVI, x: Array, x0: Array) -> Array:
    """x̂ = max(|x|, |x − x_0|) in each coordinate, at most the width of X; a share of the width where that is nothing."""
    local, width = jnp.maximum(jnp.abs(x), jnp.abs(x - x0)), jnp.asarray(problem.x_width)
    share = jnp.where(width < _NO_BOUND, _SHARE * width, 0.0)
    return jnp.where(local <= _ROUNDING * width, jnp.maximum(share, local), jnp.minimum(width, local))


def way_come(problem: MisspecifiedVI, x: Array, x0: Array) -> Float[Array, ""]:
    """How often the largest x̂ holds what there would be to measure by without x_0: x itself, or a share of its widths.

    ∞ where there is nothing.
    """
    width = jnp.asarray(problem.x_width)
    share = jnp.max(jnp.where(width < _NO_BOUND, _SHARE * width, 0.0), initial=0.0)
    way = max_abs(coordinate_scale(problem, x, x0))
    return safe_divide(way, jnp.maximum(max_abs(x), share), jnp.where(way > 0, jnp.inf, 0.0))


def theta_scale(problem: MisspecifiedVI, theta: PyTree, theta0: PyTree) -> Float[Array, ""]:
    """θ̂ = max(‖θ‖, ‖θ − θ_0‖), or a share of the width of Θ where that is nothing."""
    local = jnp.maximum(tree_norm(theta), tree_norm(tree_subtract(theta, theta0)))
    share = jnp.where(problem.theta_width < _NO_BOUND, _SHARE * problem.theta_width, 0.0)
    return jnp.where(local <= _ROUNDING * problem.theta_width, jnp.maximum(share, local), local)


def start_scales(problem: MisspecifiedVI, x0: Array, theta: PyTree) -> Scales:
    """The scales at the start; F_start belongs to a point, and is 0 until there is one."""
    return Scales(
        x0=x0,
        F_start=jnp.zeros(()),
        F_least=least_force(problem, x0, theta),
        f_start=_finite_or_zero(jnp.abs(problem.at(theta).f(x0))),
        theta0=theta,
    )


def least_force(problem: MisspecifiedVI, x0: Array, theta: PyTree) -> Float[Array, ""]:
    """The unit of F where it vanishes at x_0 and at the solution alike: a small share of how F varies over x̂.

    A game started at its own equilibrium has F = 0 there up to cancellation, which is no unit. The slope and, where F is not
    affine, the changes over a step to either side are asked, and of each component the least counts, as the one may be
    infinite at x_0 (a root) and the others nearby (a pole).
    """
    if problem.runs_on_host:
        return jnp.zeros(())
    F, _, X = problem.at(theta)
    across = coordinate_scale(problem, x0, x0) * irregular_signs(x0.shape)
    F_0, slope = jax.jvp(F, (x0,), (across,))
    if is_affine_in(problem.operator, 0, x0, theta):
        return _CANCELLATION * _finite_or_zero(max_abs(slope))
    there, back = (F(X.project(x0 + step)) - F_0 for step in (across, -across))
    least = jnp.fmin(jnp.abs(slope), jnp.fmin(jnp.abs(there), jnp.abs(back)))
    return _CANCELLATION * _finite_or_zero(max_abs(least))


def force_at_start(problem: MisspecifiedVI, x0: Array, theta: PyTree) -> Float[Array, ""]:
    """‖F(x_0, θ)‖∞."""
    return max_abs(problem.at(theta).F(x0))


def force_unit(problem: MisspecifiedVI, x: Array, theta: PyTree, scales: Scales) -> tuple[Array, Array]:
    """F(x, θ) and F̂ = max(‖F(x)‖, min(‖F(x_0)‖, ‖F(x)‖ + ‖∂F(x)(x − x_0)‖)), all in ∞-norms and at this θ.

    ‖F(x_0)‖ counts as F_least where it is less. What x tells about the force at x_0 keeps a start near a pole of F, where
    forces are as large as one likes, from being the measure of all others; where F is affine in x it is never the smaller
    of the two, and nobody asks. A coordinate that has hardly moved counts with its own size.
    """
    F = problem.at(theta).F
    at_start = jnp.fmax(scales.F_start, scales.F_least)
    if not problem.runs_on_host and is_affine_in(problem.operator, 0, x, theta):
        F_x = F(x)
        return F_x, jnp.maximum(_finite_or_zero(at_start), max_abs(F_x))
    moved, x_hat = x - scales.x0, coordinate_scale(problem, x, scales.x0)
    if problem.runs_on_host:  # slopes by a difference on the way back
        F_x = F(x)
        change = (F_x - F(x - _BACK * moved)) / _BACK
        told = (1.0 + _BACK) * (max_abs(F_x) + max_abs(change))  # rounding must not make it the smaller one
        told = jnp.where(max_abs(moved) > 0, told, jnp.inf)
    else:
        back = jnp.where(jnp.abs(moved) > _MOVED * x_hat, moved, x_hat * irregular_signs(x.shape))
        F_x, change = jax.jvp(F, (x,), (back,))
        told = max_abs(F_x) + max_abs(change)
    seen = jnp.where(jnp.isfinite(told), jnp.minimum(at_start, told), at_start)
    return F_x, jnp.maximum(_finite_or_zero(seen), max_abs(F_x))


def constraint_slopes(
    problem: MisspecifiedVI, x: Array, x0: Array, theta: PyTree
) -> tuple[Float[Array, " J"], Float[Array, " J"]]:
    """Σ_i |∂_i f_j(x, θ)| x̂_i and max_i |∂_i f_j(x, θ)| for every j; 0 where f has no slope there.

    A coordinate that bounds hold fixed has no x̂, but f_j has the rounding of its size.
    """
    x_hat = jnp.maximum(coordinate_scale(problem, x, x0), _CANCELLATION * jnp.abs(x))
    by_coordinate = (lambda gradient: jnp.abs(gradient) * x_hat, jnp.sum)
    _, (slopes, steepest) = problem.at(theta).f.of_gradients(x, by_coordinate, (jnp.abs, jnp.max))
    return _finite_or_zero(slopes), _finite_or_zero(steepest)


def _constraint_units(f_start: Array, f_x: Array, slope: Array) -> Float[Array, " J"]:
    """f̂_j = max(slope_j, min(|f_j(x_0)|, |f_j(x)| + slope_j)): as F̂, not more at x_0 than x tells."""
    return jnp.maximum(slope, jnp.minimum(f_start, jnp.abs(f_x) + slope))


def _finite_or_zero(u: Array) -> Array:
    return jnp.where(jnp.isfinite(u), u, 0.0)


def residuals(
    problem: MisspecifiedVI,
    x: Array,
    lam: Array,
    theta: PyTree,
    scales: Scales,
    *,
    in_full: bool | Array = False,
) -> Residuals:
    """Everything the core certificate is made of, at (x, λ, θ), in scales of this θ.

    f's slopes, which its units need, take J pullbacks: far from a solution they count as 0 unless `in_full`.

    Stationarity is measured by x̃ = P_X(x + t g), g = −(F + Jfᵀλ), with t the largest x̂ over F̂: then g lies within
    ‖x − x̃‖/t of the normal cone of X at x̃, and x̃ within ‖x − x̃‖ of x; both are tol in their own units.
    """
    _, f, X = problem.at(theta)
    F_x, F_hat = force_unit(problem, x, theta, scales)
    f_x, pullback = f.vjp(x)
    pulled = pullback(lam)
    g = -(F_x + pulled)
    x_hat = coordinate_scale(problem, x, scales.x0)
    force = jnp.maximum(F_hat, max_abs(pulled))
    reach = max_abs(x_hat)
    reach = jnp.where(reach > 0, reach, 1.0)  # x = x_0 = 0 without bounds: any length, only t·g matters
    t = safe_divide(reach, force, 1.0)
    moved = max_abs(x - X.project(x + t * g))
    stationarity = moved / reach
    learning_error = learning_error_bound(problem.learning, theta, x)
    learning = _relative(learning_error, theta_scale(problem, theta, scales.theta0))
    if in_full is True:
        slope, steepest = constraint_slopes(problem, x, scales.x0, theta)
    else:
        slope, steepest = numerics.cond(
            (jnp.maximum(stationarity, learning) <= _CLOSE) | in_full,
            lambda at: constraint_slopes(problem, at, scales.x0, theta),
            lambda at: (jnp.zeros_like(f_x), jnp.zeros_like(f_x)),
            x,
            on_host=problem.runs_on_host,
        )
    f_hat = _constraint_units(scales.f_start, f_x, slope)
    budget = jnp.sum(lam * f_hat) + F_hat * jnp.sum(jnp.broadcast_to(x_hat, x.shape))
    # A sum of products may hide much where forces or coordinates differ in size: a constraint that does not hold with equality
    # must not press either.
    pressing = jnp.minimum(_relative(jnp.abs(f_x), f_hat), _relative(lam * steepest, force))
    complementarity = _relative(jnp.max(lam * jnp.abs(f_x), initial=0.0), budget)
    natural = max_abs(x - X.project(x + g))
    complementary = max_abs(lam - positive_part(lam + f_x))
    return Residuals(
        kkt=jnp.maximum(natural, complementary),
        infeasibility=jnp.sum(positive_part(f_x)),
        learning_error=learning_error,
        relative=Relative(
            stationarity=stationarity,
            feasibility=jnp.max(_relative(positive_part(f_x), f_hat), initial=0.0),
            complementarity=jnp.maximum(complementarity, jnp.max(pressing, initial=0.0)),
            learning=learning,
        ),
        f=f_x,
        f_hat=f_hat,
    )


def _relative(error: Array, unit: Array) -> Array:
    """error/unit; without a unit, an error is a whole one."""
    return safe_divide(error, unit, jnp.where(error > 0, 1.0, 0.0))


def learning_error_bound(learning: Learning, theta: PyTree, x: Array | None = None) -> Float[Array, ""]:
    """‖θ − θ*‖ ≤ min(2(L/μ)‖ϑ − P_Θ(ϑ − H(ϑ)/L)‖, ‖H(ϑ)‖/μ) + ‖θ − ϑ‖, ϑ = P_Θ(θ); as sure as μ and L are.

    Both bounds need a point of Θ: outside it H may vanish far from θ*. Each is enlarged by what rounding can do to it (θ − H/L
    may round to θ far from θ*), and a learning problem that knows a bound which units do not spoil may lower them.
    Where μ and L are only estimated, a Newton step on H has a say: the error is not less than a few of its lengths.
    """
    if learning.is_known:
        return jnp.zeros(())
    given, theta = theta, learning.set.project(theta)
    H = learning.operator(theta, x)
    projected = learning.set.project(jax.tree.map(lambda p, h: p - h / learning.lipschitz, theta, H))
    rounding = learning.rounding(theta, x)
    lost = rounding + learning.lipschitz * jnp.finfo(jnp.float64).eps * tree_norm(theta)
    by_projection = learning.lipschitz * tree_norm(tree_subtract(theta, projected)) + lost
    bound = jnp.minimum(2.0 * by_projection, tree_norm(H) + rounding) / learning.mu
    bound = jnp.minimum(bound, learning.scaled_error_bound(theta))
    if learning.provenance == "estimated":
        step = newton_distance(learning, theta, x)
        if step is not None:
            bound = jnp.maximum(bound, _NEWTON_STEPS * step) if learning.has_moduli else _NEWTON_STEPS * step
    return bound + tree_norm(tree_subtract(given, theta))
