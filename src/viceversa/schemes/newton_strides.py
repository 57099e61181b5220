"""The kinds of Newton step, each with its line search: on the map of a box or a simplex, of other sets, and in θ besides."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from viceversa.functions import float64_of, is_affine_in
from viceversa.methods.adaptive_augmented_lagrangian import AdaptiveState
from viceversa.numerics import max_abs, positive_part, tree_add_scaled
from viceversa.problem import SMALL_JACOBIAN, MisspecifiedVI
from viceversa.schemes.coupled_newton import coupled_map
from viceversa.schemes.line_search import line_search
from viceversa.schemes.newton_state import NewtonPoint, NewtonState
from viceversa.schemes.newton_system import (
    KKT,
    Metric,
    Probed,
    kkt_at,
    linearise,
    local_metric,
    natural_merit,
    newton_direction,
    stiffened,
)
from viceversa.schemes.smoothed_newton import (
    may_leave_the_set,
    smoothed_direction,
    smoothed_map,
    smoothed_merit,
)

# Times the forces that slopes foretell: beyond it they hold no longer, and the step is too long.
_AS_FORESEEN = 100.0
# Of its own unit: how far an unknown may be from rest where the next step would bring it there.
_SETTLED = 1e-7
_FORCING = 0.1  # the loosest relative residual of the linear system
_REGULARIZATION = 1e-2  # ν and δ relative to the metric, shrinking with the residual


class Trial(NamedTuple):
    """Where a Newton step leads, whether it helps, and what it used."""

    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    learner: Any
    t: Float[Array, ""]
    helped: Bool[Array, ""]
    fast: Bool[Array, ""]
    merit_start: Float[Array, ""]
    n_products: Int[Array, ""]
    metric: Metric
    newton: NewtonPoint | None = None
    settled: Any = True


def triangular(problem: MisspecifiedVI, state: NewtonState, learner: Any) -> Trial:
    """(x, λ) at the θ of `learner`, which has moved by its own Newton step."""
    theta = learner.theta
    method = state.first.method
    kkt = kkt_at(problem, method.x, method.lam, theta)
    metric, _ = _metric(problem, method.x, method.lam, theta, kkt, method, Probed.nothing())
    here = linearise(problem, method.x, method.lam, kkt, metric)
    merit_start = jnp.where(jnp.isfinite(state.merit_start), state.merit_start, here.merit)
    closeness = jnp.sqrt(jnp.minimum(1.0, here.merit / merit_start))
    direction = newton_direction(
        problem,
        here,
        metric,
        rtol=_FORCING * closeness,
        regularization=_REGULARIZATION * closeness**1.5,
    )

    def point(t) -> tuple[Array, Array, Array]:
        x = problem.set.project(method.x + t * direction.x)
        lam = positive_part(method.lam + t * direction.lam)
        return x, lam, natural_merit(problem, x, lam, theta, metric)

    t, (x, lam, _), helped, fast = line_search(point, here.merit, (method.x, method.lam, here.merit))
    return Trial(x, lam, learner, t, helped, fast, merit_start, direction.n_products, metric)


def smoothed(problem: MisspecifiedVI, state: NewtonState, learner: Any) -> Trial:
    """As `triangular`, on the smoothed map of a box, with iterates that may lie outside it where F allows that."""
    theta = learner.theta
    assert state.newton is not None
    x, lam, smoothing, probed = state.newton
    kkt = kkt_at(problem, x, lam, theta)
    metric, probed = _metric(problem, x, lam, theta, kkt, state.first.method, probed)
    metric, probed = stiffened(kkt.product, metric, probed, x)
    here = smoothed_map(problem, x, lam, kkt, metric, smoothing)
    smoothing = here.smoothing
    merit_start = jnp.where(jnp.isfinite(state.merit_start), state.merit_start, here.merit)
    closeness = jnp.sqrt(jnp.minimum(1.0, here.merit / merit_start))
    direction = smoothed_direction(
        problem, here, rtol=_FORCING * closeness, regularization=_REGULARIZATION * closeness**1.5
    )
    free = may_leave_the_set(problem)
    change = 0.0 if free else max_abs(here.product(direction.x, direction.lam)[0])

    def point(t) -> tuple[Array, Array, Array, Array]:
        x_t, lam_t = x + t * direction.x, lam + t * direction.lam
        most_force = None if free else _AS_FORESEEN * (here.force + t * change)
        if not free:
            x_t, lam_t = problem.set.project(x_t), positive_part(lam_t)
        c = smoothing.after(t).c
        merit, unrest = smoothed_merit(problem, x_t, lam_t, theta, metric, c, most_force)
        return x_t, lam_t, unrest, merit

    start = (x, lam, jnp.ones(()), here.merit)
    t, (x, lam, unrest, _), helped, _ = line_search(point, here.merit, start)
    unrest = jnp.where(helped, unrest, here.unrest)
    newton = NewtonPoint(x, lam, smoothing.after(t), probed)
    fast = t == 1.0  # the next step smooths less
    x, lam = problem.set.project(x), positive_part(lam)
    settled = unrest <= _SETTLED
    n_products = direction.n_products + probed.n_products_since(state.newton.probed)
    return Trial(x, lam, learner, t, helped, fast, merit_start, n_products, metric, newton, settled)


def coupled(problem: MisspecifiedVI, state: NewtonState, learner: Any) -> Trial:
    """(x, λ, θ) in one system: H depends on x, so no block comes first."""
    method = state.first.method
    x, lam, theta = method.x, method.lam, learner.theta
    metric, _ = _metric(problem, x, lam, theta, kkt_at(problem, x, lam, theta), method, Probed.nothing())
    joint, energy = coupled_map(problem, x, theta, metric)
    merit_here = joint.merit(x, lam, theta)
    closeness = jnp.sqrt(jnp.minimum(1.0, merit_here / energy))
    direction = joint.direction(
        x, lam, theta, rtol=_FORCING * closeness, regularization=_REGULARIZATION * closeness
    )

    def point(t) -> tuple[Array, Array, PyTree, Array]:
        x_t = problem.set.project(x + t * direction.x)
        lam_t = positive_part(lam + t * direction.lam)
        theta_t = problem.learning.set.project(tree_add_scaled(theta, t, direction.theta))
        return x_t, lam_t, theta_t, joint.merit(x_t, lam_t, theta_t)

    t, (x, lam, theta_t, _), helped, fast = line_search(point, merit_here, (x, lam, theta, merit_here))
    theta = jax.tree.map(lambda new, old: jnp.where(helped, new, old), theta_t, theta)
    learner = eqx.tree_at(lambda s: (s.theta, s.k), learner, (theta, learner.k + 1))
    return Trial(x, lam, learner, t, helped, fast, state.merit_start, direction.n_products, metric)


def _has_fixed_slopes(problem: MisspecifiedVI) -> bool:
    """Whether f is affine in x and θ what it has been since the start."""
    learning, f = problem.learning, problem.constraints
    theta_rests = learning.is_known or (not learning.depends_on_x and learning.newton_point() is not None)
    return (
        theta_rests and f is not None and is_affine_in(f, 0, float64_of(problem.shape), learning.set.zeros())
    )


def _metric(
    problem: MisspecifiedVI,
    x: Array,
    lam: Array,
    theta: PyTree,
    kkt: KKT,
    first: AdaptiveState,
    probed: Probed,
) -> tuple[Metric, Probed]:
    """The local metric, with the step and the slopes that the first-order method has found.

    Where a Jacobian is small, f's slopes are those here: at a far start they may be beyond all measure. Slopes that are the
    same everywhere are not asked again.
    """
    gradient_sq = first.gradient_sq
    if problem.n_constraints * math.prod(problem.shape) <= SMALL_JACOBIAN:
        if _has_fixed_slopes(problem):
            here = first.slope_sq
        else:
            _, (here,) = problem.at(theta).f.of_gradients(x, (jnp.square, jnp.sum))
        gradient_sq = jnp.where((here > 0) & jnp.isfinite(here), here, gradient_sq)
    return local_metric(problem, x, lam, theta, kkt.product, first.gamma, gradient_sq, probed)
