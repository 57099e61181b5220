"""Newton on a smoothed natural map of (x, λ), where X is a box or a simplex: bounds take hold gradually, so none is guessed wrongly.

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
    KKT,
    Direction,
    Metric,
    merit_of,
    n_unknowns,
    relative_to,
    sign_of_constraints,
    solve_in_units,
)
from viceversa.schemes.row_sums import RowStep, solve_with_row_sums, sums_of_rows
from viceversa.schemes.smoothed_projection import (
    Smoothed,
    has_row_sums,
    row_multipliers,
    smoothed_positive_part,
    smoothed_projection,
)
from viceversa.sets.base import ConvexSet

# Of the smoothing in the merit: the less, the closer steps must stay to solutions of smoothed maps.
_WEIGHT = 0.3
_SHRINKING = 0.1  # what the first full step leaves of the smoothing, and one after a step that was not full
_FASTER = 1.5  # each full step leaves this power of the share that the one before it left
# Of the smoothing's part in the merit after a full step: what the linear system may leave unsolved.
_SPARED = 0.5
_LOOSEST = 0.3  # relative residual of the linear system


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


class SmoothedMap(NamedTuple):
    """The smoothed natural map at one point: the smoothing, the metric, p and q, residuals, merit and derivative products.

    `force` is the size of G = F + Jfᵀλ, `unrest` how far unknowns are from rest without smoothing (see `smoothed_merit`).
    """

    smoothing: Smoothing
    metric: Metric
    p: Smoothed
    q: Smoothed
    r_x: Float[Array, "..."]
    r_lam: Float[Array, " J"]
    merit: Float[Array, ""]
    force: Float[Array, ""]
    unrest: Float[Array, ""]
    product: Callable


def smoothed_map(
    problem: MisspecifiedVI, x: Array, lam: Array, kkt: KKT, metric: Metric, smoothing: Smoothing
) -> SmoothedMap:
    """r_x = x − p(x − γG) and r_λ = λ − q(λ + ρf), smoothed over the squared lengths cγ and cρ, and their derivative.

    c is an energy, as the merit ‖r_x‖²/γ + ‖r_λ‖²/ρ is, so that units do not matter; to be chosen, it becomes the mean
    square of the residuals that the map without smoothing has.
    """
    X = problem.set
    G, f_x, product = kkt

    def typical() -> Array:
        r_x = x - _resting_place(X, x, G, metric)
        r_lam = lam - positive_part(lam + metric.rho * f_x)
        return merit_of(r_x, r_lam, metric) / n_unknowns(problem)

    is_new = ~jnp.isfinite(smoothing.c)
    c = jax.lax.cond(is_new, typical, lambda: smoothing.c)
    p, q = _projections(X, x, lam, G, f_x, metric, c)
    share = jax.lax.cond(is_new, lambda: jnp.minimum(_SHRINKING, _blur(p, q)), lambda: smoothing.share)
    smoothing = Smoothing(c, share)
    r_x, r_lam = x - p.value, lam - q.value
    merit = _with_smoothing(problem, merit_of(r_x, r_lam, metric), smoothing.c)
    unrest = _unrest(X, x, lam, G, f_x, metric)
    return SmoothedMap(smoothing, metric, p, q, r_x, r_lam, merit, max_abs(G), unrest, product)


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
    return merit, _unrest(X, x, lam, G, f_x, metric)


def _unrest(X: ConvexSet, x: Array, lam: Array, G: Array, f_x: Array, metric: Metric) -> Float[Array, ""]:
    """How far unknowns are from rest, as in `smoothed_merit`."""
    if has_row_sums(X):
        G = G + row_multipliers(X, x - metric.gamma * G, metric.gamma, 0.0)
    x_unrest = _unrest_of(x, -metric.gamma * G, lambda v: _onto_bounds(X, v))
    return jnp.maximum(x_unrest, _unrest_of(lam, metric.rho * f_x, positive_part))


def _unrest_of(u: Array, step: Array, project: Callable[[Array], Array]) -> Float[Array, ""]:
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

    in which no coefficient is large after scaling by the diagonal. A simplex adds Bᵀt to (2) and Bu = B(p − x + (1−d)r_x), with B
    the sums of rows and t the change of their multipliers (`row_sums`). ν and δ (`regularization`, relative) keep it
    nonsingular for merely monotone F and dependent constraints.
    """
    metric, dc, d, e = here.metric, here.smoothing.change(), here.p.slope, here.q.slope
    r_x = here.r_x - dc * metric.gamma * here.p.by_m_sq
    r_lam = here.r_lam - dc * metric.rho * here.q.by_m_sq
    nu, delta = regularization / metric.gamma, regularization / metric.rho
    E, C = (1.0 - d) / (d * metric.gamma), (1.0 - e) / (e * metric.rho)
    held_x, held_lam = (1.0 - d) * r_x, (1.0 - e) * r_lam
    H_held, J_held = here.product(held_x, held_lam)
    has_rows = has_row_sums(problem.set)
    is_few = has_rows or n_unknowns(problem) <= FEW
    aggregates = None if is_few else Aggregates.of(here.product, r_x, r_lam)
    flip = sign_of_constraints(problem) if aggregates is None and not has_rows else 1.0
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
    if has_rows:
        sums = sums_of_rows(held_x - here.r_x)  # p has the sums that x + dx is to have
        found = solve_with_row_sums(
            problem, here.product, RowStep(*rhs, sums), Metric(E + nu, C + delta), units, rtol
        )
    elif aggregates is None:
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


def _resting_place(X: ConvexSet, x, G, metric: Metric) -> Array:
    """P_X(x − γG) in the metric γ."""
    v = x - metric.gamma * G
    if not has_row_sums(X):
        return X.project(v)
    return _onto_bounds(X, v - metric.gamma * row_multipliers(X, v, metric.gamma, 0.0))


def _onto_bounds(X: ConvexSet, v: Array) -> Array:
    """The projection onto X without its row sums."""
    return smoothed_projection(X, v, 0.0).value if has_row_sums(X) else X.project(v)


def _projections(X: ConvexSet, x, lam, G, f_x, metric: Metric, c) -> tuple[Smoothed, Smoothed]:
    v = x - metric.gamma * G
    if has_row_sums(X):
        v = v - metric.gamma * row_multipliers(X, v, metric.gamma, c * metric.gamma)
    p = smoothed_projection(X, v, c * metric.gamma)
    return p, smoothed_positive_part(lam + metric.rho * f_x, c * metric.rho)
