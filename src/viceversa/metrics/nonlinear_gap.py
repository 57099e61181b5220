"""The gap of a nonlinear operator: climbed from below, bounded from above by monotonicity."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import functions
from viceversa.metrics.affine_gap import UNBOUNDED, empty_gap, interval, lower_rule
from viceversa.metrics.certified_maximum import CertifiedMaximiser
from viceversa.metrics.intervals import GapInterval
from viceversa.metrics.objectives import Linearised, Regularised
from viceversa.problem import MisspecifiedVI

BY_MONOTONICITY = "monotonicity of F on X (assumed): F(y)ᵀ(x − y) ≤ F(x)ᵀ(x − y), maximised over X_ε with a certificate (Auslender's gap)"
BY_STRONG_MONOTONICITY = (
    "strong monotonicity of F on X with the given modulus m: F(y)ᵀ(x − y) ≤ F(x)ᵀ(x − y) − m‖x − y‖², maximised over X_ε "
    "with a certificate (Fukushima's regularised gap with parameter 2m)"
)
OUTSIDE = "none: x lies outside X, where nothing is known of F"
# Random points climbed from, beside the maximisers of the bounds and x itself.
N_SAMPLES = 4
MAX_CLIMBS = 30
# A point counts as one of X when it is this near, relative to its size: averages of points of X leave it by rounding.
IN_SET = 1e-9


class NonlinearGap:
    """Gap_ε(·, θ) for an F that is not known to be affine: y ↦ F(y)ᵀ(x − y) need not be concave.

    Lower: the concave function (F(c) + F'(c)(y − c))ᵀ(x − y) touches it at c; its maximiser over X_ε gives a direction
    of ascent inside X_ε, and so on from several starts. Upper: monotonicity.
    """

    def __init__(self, problem: MisspecifiedVI, theta: PyTree, modulus: float):
        self.problem, self.theta, self.modulus = problem, theta, modulus
        self.traced = not isinstance(problem.operator, functions.Callback)
        # With a modulus the regularised bound is the smaller of the two everywhere.
        self.rule = BY_STRONG_MONOTONICITY if modulus > 0.0 else BY_MONOTONICITY
        like = self._regularised(problem.set.interior_point())
        self.maximiser = CertifiedMaximiser(problem, theta, like, modulus)
        self.climber = None

    def __call__(self, x: np.ndarray, epsilon: float) -> GapInterval:
        objective = self._regularised(x)
        bounds = self.maximiser(objective, epsilon)
        lower, upper, rule = float(bounds.lower), float(bounds.upper), self.rule
        if lower == -np.inf and self.maximiser.is_empty(objective, epsilon):
            return empty_gap(self.problem)
        if not self.maximiser.finite:
            upper, rule = np.inf, UNBOUNDED
        if float(self.problem.set.violation(x)) > IN_SET * (1.0 + np.abs(x).max(initial=0.0)):
            upper, rule = np.inf, OUTSIDE
        lower, point = self._climb(x, epsilon, [bounds.y_lower] if lower > -np.inf else [])
        words = lower_rule(self.maximiser, lower, epsilon)
        return interval(lower, upper, words, rule, np.asarray(point), np.asarray(bounds.mu))

    def _regularised(self, x: Any) -> Regularised:
        at = jnp.asarray(x)
        return Regularised(self.problem.operator(at, self.theta), at, jnp.asarray(self.modulus))

    def _climb(self, x: np.ndarray, epsilon: float, starts: list[Array]) -> tuple[float, Any]:
        retreat = self.maximiser.retreat
        keys = jax.random.split(jax.random.key(0), N_SAMPLES)
        candidates = [x, self.maximiser.slater, *(self.problem.set.sample(key) for key in keys)]
        retreated = [retreat(y, epsilon) for y in candidates]
        starts = [*starts, *(y for y in retreated if y is not None)]
        if not self.traced:
            # Without derivatives: the starts and the segments between them, which X_ε contains.
            starts += [0.5 * (a + b) for i, a in enumerate(starts) for b in starts[:i]]
        tops = [self._climb_from(jnp.asarray(x), jnp.asarray(y), epsilon) for y in starts]
        return max(tops, key=lambda top: top[0], default=(-np.inf, np.full(self.problem.shape, np.nan)))

    def _climb_from(self, x: Array, c: Array, epsilon: float) -> tuple[float, Array]:
        value = float(jnp.sum(self.problem.operator(c, self.theta) * (x - c)))
        if not self.traced:
            return value, c
        for _ in range(MAX_CLIMBS):
            tangent = Linearised(self.problem.operator, self.theta, x, c)
            if self.climber is None:
                self.climber = CertifiedMaximiser(self.problem, self.theta, tangent, tol=1e-6)
            bounds = self.climber(tangent, epsilon)
            if float(bounds.lower) == -np.inf:
                break
            higher, c_next = _best_on_segment(tangent, bounds.y_lower)
            if float(higher) <= value + 1e-12 * (1.0 + abs(value)):
                break
            value, c = float(higher), c_next
        return value, c


@eqx.filter_jit
def _best_on_segment(tangent: Linearised, y: Array) -> tuple[Array, Array]:
    """The largest F(z)ᵀ(x − z), and its z, at shares 1, ½, ¼, … of the way from the point of tangency to y."""
    points = jax.vmap(lambda share: tangent.center + share * (y - tangent.center))(0.5 ** jnp.arange(24.0))
    values = jax.vmap(lambda z: jnp.sum(tangent.operator(z, tangent.theta) * (tangent.x - z)))(points)
    best = jnp.argmax(values)
    return values[best], points[best]
