"""Newton on a smoothed natural map of (x, λ), where X is a box: bounds take hold gradually, so none is guessed wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from viceversa.functions import float64_of, is_affine_in
from viceversa.numerics import positive_part, safe_divide
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.newton_system import (
    Direction,
    Metric,
    Residual,
    merit_of,
    n_unknowns,
    relative_to,
    solve_in_units,
    uses_minres,
)
from viceversa.sets import Box, NonNegative
from viceversa.sets.base import ConvexSet

_LEAST_SLOPE = 1e-14  # of the smoothed projection: a coordinate below it stays on its bound to rounding
_TINY = 1e-300  # 0/0 becomes 0 where a coordinate lies on its bound and nothing is smoothed
_CLOSE = 1e-3  # a full step that leaves this share of the merit has found the active bounds: smooth no longer


class Smoothed(NamedTuple):
    """A smoothed projection and its slope, in [10⁻¹⁴, 1]."""

    value: Float[Array, "..."]
    slope: Float[Array, "..."]


def smoothed_projection(X: ConvexSet, v: Array, m_sq) -> Smoothed:
    """P_X(v) of a box with its corners rounded over the length m, given as m² (Chen–Harker–Kanzow–Smale):

    p(v) = v + e(v − l) − e(u − v),    e(w) = (√(w² + 4m²) − w)/2                                  (1)

    p increases, lies strictly inside the box for m > 0, and is P_X for m = 0.
    """
    low, high = (X.low, X.high) if isinstance(X, Box) else (-jnp.inf, jnp.inf)
    if isinstance(X, NonNegative):
        low = 0.0
    below, below_slope = _excess(v - low, m_sq)
    above, above_slope = _excess(high - v, m_sq)
    return Smoothed(v + below - above, jnp.clip(1.0 - below_slope - above_slope, _LEAST_SLOPE, 1.0))


def smoothed_positive_part(v: Array, m_sq) -> Smoothed:
    """[v]₊ with its corner rounded over the length m, given as m²."""
    excess, slope = _excess(v, m_sq)
    return Smoothed(v + excess, jnp.clip(1.0 - slope, _LEAST_SLOPE, 1.0))


def _excess(w: Array, m_sq) -> tuple[Array, Array]:
    """e(w) of (1) and −e′(w) = e(w)/√(w² + 4m²), without cancellation; both 0 where there is no bound (w = ∞)."""
    root = jnp.sqrt(w * w + 4.0 * m_sq)
    less = 2.0 * m_sq / (root + jnp.abs(w) + _TINY)  # e(|w|)
    share = less / (root + _TINY)
    # A choice, where a maximum would do: sums of what follows end here instead of taking the roots one at a time.
    return jnp.where(w >= 0, less, less - w), jnp.where(w >= 0, share, 1.0 - share)


class SmoothedMap(NamedTuple):
    """The smoothed natural map at one point: the smoothing, the metric, residuals, slopes, and derivative products."""

    mu: Float[Array, ""]
    metric: Metric
    r_x: Float[Array, "..."]
    r_lam: Float[Array, " J"]
    d: Float[Array, "..."]
    e: Float[Array, " J"]
    merit: Float[Array, ""]
    product: Callable


def smoothed_map(
    problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, metric: Metric, mu
) -> SmoothedMap:
    """r_x = x − p(x − γG) and r_λ = λ − q(λ + ρf), smoothed over the lengths μ√γ and μ√ρ, and their derivative.

    μ² is an energy, as the merit ‖r_x‖²/γ + ‖r_λ‖²/ρ is, so that units do not matter. An infinite `mu` stands for the
    root mean square of the residuals that the map without smoothing has.
    """
    F, f, X = problem.at(theta)

    def kkt(at: Array, multiplier: Array) -> tuple[Array, Array]:
        f_x, pullback = f.vjp(at)
        return F(at) + pullback(multiplier), f_x

    (G, f_x), product = jax.linearize(kkt, x, lam)
    metric = _stiffened(metric, f.vjp(x)[1], product)
    sharp_x = x - X.project(x - metric.gamma * G)
    sharp_lam = lam - positive_part(lam + metric.rho * f_x)
    typical = jnp.sqrt(merit_of(sharp_x, sharp_lam, metric) / n_unknowns(problem))
    mu = jnp.where(jnp.isfinite(mu), mu, typical)
    r_x, r_lam, d, e = _parts(X, x, lam, G, f_x, metric, mu)
    return SmoothedMap(mu, metric, r_x, r_lam, d, e, merit_of(r_x, r_lam, metric), product)


def smoothed_residual(
    problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, metric: Metric, mu
) -> Residual:
    """F and the merit of the smoothed map."""
    F, f, X = problem.at(theta)
    F_x = F(x)
    f_x, pullback = f.vjp(x)
    r_x, r_lam, _, _ = _parts(X, x, lam, F_x + pullback(lam), f_x, metric, mu)
    return Residual(F_x, merit_of(r_x, r_lam, metric))


def smoothed_direction(problem: MisspecifiedVI, here: SmoothedMap, rtol, regularization) -> Direction:
    """A Newton step for the smoothed map.

    Its derivative, divided by dγ and eρ (d and e are the slopes), is symmetric but for H. With the parts that bounds
    determine, dx = −(1−d)r_x + u and dλ = −(1−e)r_λ + y, what is left is

        (E + νI + H) u + Jᵀ y = −(2−d) r_x/γ + (ν + H)(1−d) r_x + Jᵀ(1−e) r_λ,     E = (1−d)/(dγ)       (2)
         J u − (C + δI) y     =  (2−e) r_λ/ρ + J(1−d) r_x − δ(1−e) r_λ,            C = (1−e)/(eρ)       (3)

    in which no coefficient is large after scaling by the diagonal. ν and δ (`regularization`, relative) keep it
    nonsingular for merely monotone F and dependent constraints.
    """
    metric, d, e = here.metric, here.d, here.e
    nu, delta = regularization / metric.gamma, regularization / metric.rho
    E, C = (1.0 - d) / (d * metric.gamma), (1.0 - e) / (e * metric.rho)
    held_x, held_lam = (1.0 - d) * here.r_x, (1.0 - e) * here.r_lam
    H_held, J_held = here.product(held_x, held_lam)
    flip = (
        1.0 if uses_minres(problem) else -1.0
    )  # MINRES needs the symmetric sign, the others like the monotone one
    rhs = (
        -(2.0 - d) * here.r_x / metric.gamma + nu * held_x + H_held,
        flip * ((2.0 - e) * here.r_lam / metric.rho + J_held - delta * held_lam),
    )

    def matvec(step: PyTree) -> PyTree:
        u, y = step
        Hu, Ju = here.product(u, y)
        return Hu + (E + nu) * u, flip * (Ju - (C + delta) * y)

    units = Metric(
        gamma=metric.gamma * d / (1.0 + regularization * d), rho=metric.rho * e / (1.0 + regularization * e)
    )
    rtol = relative_to(here.merit, rhs, units, rtol)
    found = solve_in_units(problem, matvec, rhs, units, rtol)
    u, y = found.solution
    return Direction(u - held_x, y - held_lam, found.n_products + 2)


def less_smoothing(mu: Array, t: Array, merit_before: Array, merit_after: Array) -> Array:
    """The smoothing after a step of length t: none once a full step has all but solved the map, less after a long one."""
    after_full = jnp.where(merit_after <= _CLOSE * merit_before, 0.0, 0.1 * mu)
    return jnp.where(t == 1.0, after_full, jnp.where(t >= 0.5, 0.3 * mu, mu))


def may_leave_the_set(problem: MisspecifiedVI) -> bool:
    """Whether F is affine and f at most quadratic in x, so that both mean the same outside X as in it.

    Then Newton's iterates need not be projected; a projection would undo what the step did for sums of coordinates.
    """
    x, theta = float64_of(problem.shape), problem.learning.set.zeros()
    if not is_affine_in(problem.operator, 0, x, theta):
        return False
    f = problem.constraints
    return f is None or is_affine_in(lambda at, t: jax.jacrev(lambda y: problem.at(t).f(y))(at), 0, x, theta)


def is_linear(problem: MisspecifiedVI) -> bool:
    """Whether F and f are affine in x, so that only the bounds and the signs of multipliers are not linear."""
    x, theta = float64_of(problem.shape), problem.learning.set.zeros()
    parts = [part for part in (problem.operator, problem.constraints) if part is not None]
    return all(is_affine_in(part, 0, x, theta) for part in parts)


def _stiffened(metric: Metric, pullback: Callable, product: Callable) -> Metric:
    """ρ multiplied by how much stiffer H is along the constraints' gradients than its diagonal says.

    ρ_j = 1/(mean γ ‖∇f_j‖²) takes H for 1/γ; a direction in which H couples many coordinates (a market's total) is far
    stiffer. Measured along one irregular combination of the gradients, by one product.
    """
    if not metric.rho.size:
        return metric
    w = metric.gamma * pullback(jnp.sqrt(metric.rho) * jnp.cos(1.0 + jnp.arange(metric.rho.size)))
    Hw, _ = product(w, jnp.zeros_like(metric.rho))
    stiffness = safe_divide(jnp.sum(w * Hw), jnp.sum(w * w / metric.gamma), 1.0)
    return metric._replace(rho=jnp.maximum(1.0, stiffness) * metric.rho)


def _parts(X: ConvexSet, x, lam, G, f_x, metric: Metric, mu) -> tuple[Array, Array, Array, Array]:
    p = smoothed_projection(X, x - metric.gamma * G, mu * mu * metric.gamma)
    q = smoothed_positive_part(lam + metric.rho * f_x, mu * mu * metric.rho)
    return x - p.value, lam - q.value, p.slope, q.slope
