"""Newton on a smoothed natural map of (x, λ), where X is a box: bounds take hold gradually, so none is guessed wrongly.

The smoothing is an unknown of the Newton system. Were it lessened between steps instead, a step would see the slopes of a map
that the point has nothing to do with: where a million coordinates each keep off their bound by what the smoothing leaves, it
would overshoot a millionfold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from viceversa.functions import float64_of, is_affine_in
from viceversa.numerics import FEW, max_abs, positive_part, safe_divide
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.aggregates import Aggregates, solve_by_aggregates
from viceversa.schemes.newton_system import (
    Direction,
    Metric,
    merit_of,
    n_unknowns,
    relative_to,
    sign_of_constraints,
    solve_in_units,
)
from viceversa.sets import Box, NonNegative
from viceversa.sets.base import ConvexSet

_LEAST_SLOPE = 1e-14  # of the smoothed projection: a coordinate below it stays on its bound to rounding
_TINY = 1e-300  # 0/0 becomes 0 where a coordinate lies on its bound and nothing is smoothed
# Of the smoothing in the merit: the less, the closer steps must stay to solutions of smoothed maps.
_WEIGHT = 0.3
_SHRINKING = 0.1  # what the first full step leaves of the smoothing, and one after a step that was not full
_FASTER = 1.5  # each full step leaves this power of the share that the one before it left
# Of the smoothing's part in the merit after a full step: what the linear system may leave unsolved.
_SPARED = 0.5
_LOOSEST = 0.3  # relative residual of the linear system


class Smoothed(NamedTuple):
    """A smoothed projection, its slope, in [10⁻¹⁴, 1], and its derivative in m²."""

    value: Float[Array, "..."]
    slope: Float[Array, "..."]
    by_m_sq: Float[Array, "..."]


class Smoothing(NamedTuple):
    """The energy c by which a map is smoothed (∞: to be chosen), and the share of it that a full step leaves."""

    c: Float[Array, ""]
    share: Float[Array, ""]

    @classmethod
    def to_be_chosen(cls) -> Smoothing:
        """For a new start."""
        return cls(jnp.asarray(jnp.inf), jnp.asarray(_SHRINKING))

    def change(self) -> Float[Array, ""]:
        """dc of a full step."""
        return (self.share - 1.0) * self.c

    def after(self, t) -> Smoothing:
        """What a step of length t leaves: c goes to 0 superlinearly while steps are full."""
        share = jnp.where(t == 1.0, self.share**_FASTER, _SHRINKING)
        return Smoothing(self.c + t * self.change(), share)


def smoothed_projection(X: ConvexSet, v: Array, m_sq) -> Smoothed:
    """P_X(v) of a box with its corners rounded over the length m, given as m² (Chen–Harker–Kanzow–Smale):

    p(v) = v + e(v − l) − e(u − v),    e(w) = (√(w² + 4m²) − w)/2                                  (1)

    p increases, lies strictly inside the box for m > 0, and is P_X for m = 0.
    """
    low, high = (X.low, X.high) if isinstance(X, Box) else (-jnp.inf, jnp.inf)
    if isinstance(X, NonNegative):
        low = 0.0
    below, above = _excess(v - low, m_sq), _excess(high - v, m_sq)
    slope = jnp.clip(1.0 - below.slope - above.slope, _LEAST_SLOPE, 1.0)
    return Smoothed(v + below.value - above.value, slope, below.by_m_sq - above.by_m_sq)


def smoothed_positive_part(v: Array, m_sq) -> Smoothed:
    """[v]₊ with its corner rounded over the length m, given as m²."""
    excess = _excess(v, m_sq)
    return Smoothed(v + excess.value, jnp.clip(1.0 - excess.slope, _LEAST_SLOPE, 1.0), excess.by_m_sq)


def _excess(w: Array, m_sq) -> Smoothed:
    """e(w) of (1), −e′(w) = e(w)/√(w² + 4m²) and 1/√(w² + 4m²), without cancellation; all 0 without a bound (w = ∞)."""
    square = w * w + 4.0 * m_sq
    # One root and one quotient for each bound: they are what this costs.
    by_root = jnp.where((square > 0) & (square < jnp.inf), jax.lax.rsqrt(square), 0.0)
    root = jnp.where(square < jnp.inf, square * by_root, jnp.inf)
    less = 2.0 * m_sq / (root + jnp.abs(w) + _TINY)  # e(|w|)
    share = less * by_root
    # A choice, where a maximum would do: sums of what follows end here instead of taking the roots one at a time.
    value, slope = jnp.where(w >= 0, less, less - w), jnp.where(w >= 0, share, 1.0 - share)
    return Smoothed(value, slope, by_root)


class SmoothedMap(NamedTuple):
    """The smoothed natural map at one point: the smoothing, the metric, p and q, residuals, merit and derivative products.

    `force` is the size of G = F + Jfᵀλ.
    """

    smoothing: Smoothing
    metric: Metric
    p: Smoothed
    q: Smoothed
    r_x: Float[Array, "..."]
    r_lam: Float[Array, " J"]
    merit: Float[Array, ""]
    force: Float[Array, ""]
    product: Callable


def smoothed_map(
    problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, metric: Metric, smoothing: Smoothing
) -> SmoothedMap:
    """r_x = x − p(x − γG) and r_λ = λ − q(λ + ρf), smoothed over the squared lengths cγ and cρ, and their derivative.

    c is an energy, as the merit ‖r_x‖²/γ + ‖r_λ‖²/ρ is, so that units do not matter; to be chosen, it becomes the mean
    square of the residuals that the map without smoothing has.
    """
    F, f, X = problem.at(theta)

    def kkt(at: Array, multiplier: Array) -> tuple[Array, Array]:
        f_x, pullback = f.vjp(at)
        return F(at) + pullback(multiplier), f_x

    (G, f_x), product = jax.linearize(kkt, x, lam)

    def typical() -> Array:
        r_x = x - X.project(x - metric.gamma * G)
        r_lam = lam - positive_part(lam + metric.rho * f_x)
        return merit_of(r_x, r_lam, metric) / n_unknowns(problem)

    is_new = ~jnp.isfinite(smoothing.c)
    c = jax.lax.cond(is_new, typical, lambda: smoothing.c)
    p, q = _projections(X, x, lam, G, f_x, metric, c)
    share = jax.lax.cond(is_new, lambda: jnp.minimum(_SHRINKING, _blur(p, q)), lambda: smoothing.share)
    smoothing = Smoothing(c, share)
    r_x, r_lam = x - p.value, lam - q.value
    merit = _with_smoothing(problem, merit_of(r_x, r_lam, metric), smoothing.c)
    return SmoothedMap(smoothing, metric, p, q, r_x, r_lam, merit, max_abs(G), product)


def smoothed_merit(
    problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, metric: Metric, c, most_force=None
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The merit of the map smoothed by c, and how far unknowns are from rest without smoothing, each in its own unit.

    Where forces are larger than `most_force`, slopes have told nothing about this point, and the merit is infinite.

    An unknown's unit is the larger of itself and the step against its force: one of the two is not small, unless the
    unknown lies on its bound without being pressed against it.
    """
    F, f, X = problem.at(theta)
    f_x, pullback = f.vjp(x)
    G = F(x) + pullback(lam)
    p, q = _projections(X, x, lam, G, f_x, metric, c)
    merit = _with_smoothing(problem, merit_of(x - p.value, lam - q.value, metric), c)
    if most_force is not None:
        merit = jnp.where(max_abs(G) <= most_force, merit, jnp.inf)
    return merit, _unrest_of_all(X, x, lam, G, f_x, metric)


def unrest_at(
    problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, metric: Metric
) -> Float[Array, ""]:
    """How far unknowns are from rest at a point, as in `smoothed_merit`."""
    F, f, X = problem.at(theta)
    f_x, pullback = f.vjp(x)
    return _unrest_of_all(X, x, lam, F(x) + pullback(lam), f_x, metric)


def _unrest_of_all(
    X: ConvexSet, x: Array, lam: Array, G: Array, f_x: Array, metric: Metric
) -> Float[Array, ""]:
    x_unrest = _unrest(x, -metric.gamma * G, X.project)
    return jnp.maximum(x_unrest, _unrest(lam, metric.rho * f_x, positive_part))


def _unrest(u: Array, step: Array, project: Callable[[Array], Array]) -> Float[Array, ""]:
    unit = jnp.maximum(jnp.abs(u), jnp.abs(step))
    return max_abs((u - project(u + step)) / jnp.where(unit > 0, unit, 1.0))


def _blur(p: Smoothed, q: Smoothed) -> Array:
    """How far the bounds are from being told apart: the mean of 4d(1 − d), 0 where every slope is 0 or 1."""
    d, e = p.slope, q.slope
    return 4.0 * (jnp.sum(d * (1.0 - d)) + jnp.sum(e * (1.0 - e))) / max(d.size + e.size, 1)


def _with_smoothing(problem: MisspecifiedVI, merit: Array, c) -> Array:
    """‖r_x‖²/γ + ‖r_λ‖²/ρ + ωc for each unknown: zero only where nothing is smoothed, and less after every short step."""
    return merit + _WEIGHT * n_unknowns(problem) * c


def smoothed_direction(problem: MisspecifiedVI, here: SmoothedMap, rtol, regularization) -> Direction:
    """A Newton step for the smoothed map in (x, λ, c), where dc is given: below, r stands for r + (∂r/∂c) dc.

    The derivative in (x, λ), divided by dγ and eρ (d and e are the slopes), is symmetric but for H. With the parts that bounds
    determine, dx = −(1−d)r_x + u and dλ = −(1−e)r_λ + y, what is left is

        (E + νI + H) u + Jᵀ y = −(2−d) r_x/γ + (ν + H)(1−d) r_x + Jᵀ(1−e) r_λ,     E = (1−d)/(dγ)       (2)
         J u − (C + δI) y     =  (2−e) r_λ/ρ + J(1−d) r_x − δ(1−e) r_λ,            C = (1−e)/(eρ)       (3)

    in which no coefficient is large after scaling by the diagonal. ν and δ (`regularization`, relative) keep it
    nonsingular for merely monotone F and dependent constraints.
    """
    metric, dc, d, e = here.metric, here.smoothing.change(), here.p.slope, here.q.slope
    r_x = here.r_x - dc * metric.gamma * here.p.by_m_sq
    r_lam = here.r_lam - dc * metric.rho * here.q.by_m_sq
    nu, delta = regularization / metric.gamma, regularization / metric.rho
    E, C = (1.0 - d) / (d * metric.gamma), (1.0 - e) / (e * metric.rho)
    held_x, held_lam = (1.0 - d) * r_x, (1.0 - e) * r_lam
    H_held, J_held = here.product(held_x, held_lam)
    aggregates = Aggregates.of(here.product, r_x, r_lam) if n_unknowns(problem) > FEW else None
    flip = sign_of_constraints(problem) if aggregates is None else 1.0
    rhs = (
        -(2.0 - d) * r_x / metric.gamma + nu * held_x + H_held,
        flip * ((2.0 - e) * r_lam / metric.rho + J_held - delta * held_lam),
    )

    def matvec(step: PyTree) -> PyTree:
        u, y = step
        Hu, Ju = here.product(u, y)
        return Hu + (E + nu) * u, flip * (Ju - (C + delta) * y)

    units = Metric(
        gamma=metric.gamma * d / (1.0 + regularization * d), rho=metric.rho * e / (1.0 + regularization * e)
    )
    merit, c_after = merit_of(r_x, r_lam, metric), here.smoothing.c + dc
    spared = _with_smoothing(problem, jnp.zeros(()), _SPARED * c_after)
    rtol = jnp.maximum(rtol, jnp.minimum(_LOOSEST, jnp.sqrt(safe_divide(spared, merit, 0.0))))
    rtol = relative_to(merit, rhs, units, rtol)
    if aggregates is None:
        found = solve_in_units(problem, matvec, rhs, units, rtol)
    else:
        found = solve_by_aggregates(aggregates, matvec, rhs, Metric(E + nu, C + delta), units, rtol)
    u, y = found.solution
    return Direction(u - held_x, y - held_lam, found.n_products + 1)


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


def _projections(X: ConvexSet, x, lam, G, f_x, metric: Metric, c) -> tuple[Smoothed, Smoothed]:
    p = smoothed_projection(X, x - metric.gamma * G, c * metric.gamma)
    return p, smoothed_positive_part(lam + metric.rho * f_x, c * metric.rho)
