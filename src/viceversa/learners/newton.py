"""Newton on the secondary VI: θ to machine precision in a few steps where H is smooth."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array, Float

from viceversa.krylov import gmres
from viceversa.learners.base import Learner, LearnerState
from viceversa.learning.base import Learning
from viceversa.learning.linearised import (
    LARGEST_DENSE,
    Map,
    columns,
    dominating,
    local_metric,
    raveled,
    solve_in_units_of,
)
from viceversa.sets.intervals import is_separable

MAX_PRODUCTS = 40
_RTOL = 1e-3  # of the linear system solved by products; the next step corrects what it leaves
_N_TRIALS = 6  # points tried on the way to Newton's
_SHARE = 0.25  # of the distance of each to that of the last one
_ENOUGH = 0.1  # of what the linear model foretells of a step's reduction
_N_LOCAL_METRICS = 50  # steps in which D may follow θ; a constant one from then on cannot cycle with it


class NewtonLearner(Learner):
    """Newton's point of the natural map, and the projected step where that is better:

        r(θ) = θ − P_Θ(θ − D⁻¹H(θ)),   ∂r(θ_k) d = −r(θ_k),   s = θ_k − r(θ_k)                        (1)
        θ_{k+1} = argmin f over s and P_Θ[s + t(θ_k + d − s)], t = 1, ¼, …, 4⁻⁵,   H = ∇f affine      (2)
        θ_{k+1} = the first of P_Θ[θ_k + t d], t = 1, ¼, …, 4⁻⁵, if it reduces ‖r‖_D by t tenths, s, if it reduces it
                  at all, and P_Θ[θ_k − H(θ_k)/L] (θ_k where H depends on x),   any other H          (3)

    with one element ∂r of the generalized Jacobian, solved densely, or by products where θ has more than 300 components.
    θ_k + d minimises f on the face of Θ that s lies on. As D ⪰ ∂H, s alone would converge from anywhere, and (2) is
    never worse. Where Θ is a product of intervals D is diagonal, made from ∂H, and no step depends on the units of θ's
    components; elsewhere D = L. In (3) D follows ∂H(θ_k) for 50 steps and is L from then on. The zero of an affine H is
    taken at once if it lies in Θ: one step is exact for least squares whose bounds do not bind.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> quantity = 1e6 * np.array([2.0, 4.0, 5.0])
        >>> rows = np.column_stack([np.ones(3), -quantity])
        >>> learning = vv.LeastSquares(rows, 10.0 - 1e-6 * quantity, set=vv.Box(0.0, [20.0, 1.0]))
        >>> with vv.precision.double():
        ...     learner = vv.NewtonLearner()
        ...     state = learner.step(learning, learner.init(learning, np.zeros(2)))
        >>> (np.asarray(state.theta) / [1.0, 1e-6]).round(9)
        array([10.,  1.])
    """

    reference: ClassVar[str] = "facchinei2003finite, Ch. 9"
    # At most: H at θ_k, its Jacobian, H at s and at the trial points; none where the zero of H is known.
    step_counts: ClassVar[int] = 3 + _N_TRIALS

    def step(self, learning: Learning, state: LearnerState, x: Array | None = None, key=None) -> LearnerState:
        theta, unravel, operator, project = raveled(learning, state.theta, x)
        zero = learning.newton_point()
        if zero is not None:
            return LearnerState(k=state.k + 1, theta=unravel(jnp.asarray(zero, theta.dtype)))
        H, H_product = jax.linearize(operator, theta)
        J = columns(H_product, jnp.eye(theta.size)) if theta.size <= LARGEST_DENSE else None
        D = _metric(learning, J, state.k, theta)
        s, P_product = jax.linearize(project, theta - H / D)
        r = _natural(theta, H / D, s)
        if J is None:
            d = -_by_products(lambda v: v - P_product(v - H_product(v) / D), r, jnp.sqrt(D))  # (1)
        else:
            eye = jnp.eye(r.size)
            d = -solve_in_units_of(J, eye - columns(P_product, eye - J / D[:, None]), r)  # (1)
        if learning.is_gradient:
            found = _lowest(operator, project, s, theta + d)  # (2)
        else:
            last = theta if learning.depends_on_x else project(theta - H / learning.lipschitz)

            def natural(v: Array) -> Array:
                step = operator(v) / D
                return _natural(v, step, project(v - step))

            steady = _if_smaller(natural, s, r, D, 1.0, last)
            found = _longest(natural, project, theta, d, r, D, steady)  # (3)
        return LearnerState(k=state.k + 1, theta=unravel(found))


def _natural(v: Array, step: Array, end: Array) -> Float[Array, " n"]:
    """v − end, where end = P_Θ(v − step); the step itself where nothing binds, which v − (v − step) would round to nothing."""
    return jnp.where(end == v - step, step, v - end)


def _lowest(operator: Map, project: Map, s: Array, end: Array) -> Float[Array, " n"]:
    """(2); for an affine gradient f(v) − f(s) = ½⟨H(v) + H(s), v − s⟩, without the rounding of two values of f."""
    H_s = operator(s)

    def tried(j: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        v = project(s + _SHARE ** j.astype(s.dtype) * (end - s))
        change = jnp.sum((operator(v) + H_s) * (v - s))
        lower = change < best[1]  # never with a NaN
        return jnp.where(lower, v, best[0]), jnp.where(lower, change, best[1])

    return jax.lax.fori_loop(0, _N_TRIALS, tried, (s, jnp.zeros((), s.dtype)))[0]


def _longest(
    natural: Map, project: Map, theta: Array, d: Array, r: Array, D: Array, otherwise: Array
) -> Float[Array, " n"]:
    """(3); short steps are tried first, so that the longest that helps is what is left."""

    def tried(i: Array, found: Array) -> Array:
        t = _SHARE ** (_N_TRIALS - 1.0 - i)
        return _if_smaller(natural, project(theta + t * d), r, D, 1.0 - _ENOUGH * t, found)

    return jax.lax.fori_loop(0, _N_TRIALS, tried, otherwise)


def _if_smaller(natural: Map, v: Array, r: Array, D: Array, factor: Any, otherwise: Array) -> Array:
    """v if it reduces ‖r‖_D to `factor` of what it was, which a NaN does not."""
    smaller = jnp.sum(D * natural(v) ** 2) < factor**2 * jnp.sum(D * r**2)
    return jnp.where(smaller, v, otherwise)


def _metric(learning: Learning, J: Array | None, k: Array, like: Array) -> Float[Array, " n"]:
    """D: what the learning problem knows, what dominates its Jacobian J, or L_H in every component."""
    if learning.depends_on_x and J is not None:  # its constants are at best those at some x
        return local_metric(learning, J)
    uniform = jnp.full(like.shape, learning.lipschitz, like.dtype)
    known = learning.metric() if is_separable(learning.set) else None
    if known is not None:
        return jnp.asarray(known, like.dtype)
    if J is None or not is_separable(learning.set):
        return uniform
    return dominating(J, jnp.asarray(learning.is_gradient) | (k < _N_LOCAL_METRICS), uniform)


def _by_products(product: Map, r: Array, units: Array) -> Float[Array, " n"]:
    """∂r⁻¹ r from products with ∂r, in the units in which D is 1."""
    return gmres(lambda v: units * product(v / units), units * r, _RTOL, MAX_PRODUCTS).solution / units
