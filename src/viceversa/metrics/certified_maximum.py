"""Certified maxima over the ε-enlargement, for one concave function after another on one feasible set."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.metrics import cone_program
from viceversa.metrics.concave_program import (
    MAX_NEWTON,
    Bounds,
    Guess,
    Program,
    Scales,
    Task,
    is_tight,
    maximise,
    repaired,
    scales_at,
)
from viceversa.metrics.descent import alternating_signs
from viceversa.numerics import tree_norm
from viceversa.problem import Constraints, MisspecifiedVI
from viceversa.sets.base import ConvexSet

# How close the two sides must be, relative to 1 + |upper|.
TIGHT = 1e-8
# Up to this size the diagonal of the Hessian is computed column by column, beyond it only its mean is estimated.
MAX_DIAGONAL = 4096
# Margins tried for a Slater point, relative to the largest |f_j| at an interior point of X.
SLATER_MARGINS = (1e-1, 1e-3, 1e-6)
# Upward curvature beyond rounding, relative to the largest.
CURVES_UP = 1e-9
# What computed constraints may exceed ε by where no Slater point exists, relative to the numbers they are made of.
ROUNDING = 1e-12


class CertifiedMaximiser:
    """max of concave functions over X_ε(θ), one after the other, each started where the last one ended.

    `like` is one of the functions; −∇² of all of them is that of `like`, and at least 2·modulus. To be used within
    `precision.double()`.
    """

    def __init__(
        self, problem: MisspecifiedVI, theta: PyTree, like: Any, modulus: Any = 0.0, tol: float = TIGHT
    ):
        self.problem, self.theta, self.tol = problem, theta, np.asarray(tol)
        self.modulus = np.asarray(modulus, dtype=np.float64) if modulus > 0.0 else None
        self.by_support = _support_is_traced(problem.set)
        self.diameter = np.asarray(problem.set.diameter())
        start = jnp.asarray(problem.set.interior_point())
        self.f = problem.at(theta).f
        self.scales = _scales(like, self.f, problem.set, start)
        self.cold = Guess(start, jnp.zeros(problem.n_constraints), jnp.zeros_like(start))
        self.guess = self.cold
        self.slater, self.strict = self._slater(like)

    @property
    def finite(self) -> bool:
        """Whether the upper bound can be finite: X is bounded or the functions curve by a proved modulus."""
        return bool(np.isfinite(self.diameter)) or self.modulus is not None

    @property
    def concave(self) -> bool:
        """False where a direction of X was found along which `like` curves upwards."""
        return bool(self.scales.least >= -CURVES_UP * self.scales.curvature)

    def __call__(self, objective: Any, epsilon: float) -> Bounds:
        """Bounds on max over X_ε of one objective: from the last one's end, if need be afresh, if need be by Clarabel."""
        task = self._task(epsilon)
        bounds, self.guess = self._solve(objective, task, self.guess)
        if self.finite and np.isfinite(bounds.lower) and not is_tight(bounds, self.tol):
            again, self.guess = self._solve(objective, task, self.cold)
            bounds = _tighter(bounds, again)
        if self.finite and np.isfinite(bounds.lower) and not is_tight(bounds, self.tol):
            guess = cone_program.solve(objective, self.problem, self.theta, float(epsilon))
            if guess is not None:
                again, self.guess = self._solve(objective, task, guess)
                bounds = _tighter(bounds, again)
        return bounds

    def maximiser(self, objective: Any, epsilon: float) -> tuple[Array, Array, bool]:
        """(ŷ ∈ X, its multipliers, whether it converged): the maximiser to rounding, for a strictly concave objective."""
        task, never = self._task(epsilon), np.asarray(-1.0)
        numbers = (self.scales, self.modulus, self.diameter, never)
        bounds, end = _solve(
            objective, self.f, self.problem.set, task, self.guess, self.slater, numbers, self.by_support
        )
        self.guess = end
        return self.problem.set.project(end.y), end.mu, bool(bounds.n_newton < MAX_NEWTON)

    def is_empty(self, objective: Any, epsilon: float) -> bool:
        """Whether X_ε is proved empty: some μ ≥ 0 has μᵀf > ε‖μ‖∞ on all of X."""
        bounds, _ = self._solve(objective, self._task(epsilon)._replace(weight=np.asarray(0.0)), self.cold)
        return bool(bounds.empty)

    def retreat(self, y: Any, epsilon: float) -> Array | None:
        """A point of X_ε on the way from y ∈ X to the Slater point, as near to y as convexity proves; None if there is none."""
        moved = _retreat(self.f, self.problem.set, self._task(epsilon), jnp.asarray(y), self.slater)
        inside = self._task(epsilon).contains(self.f(moved))
        return moved if bool(inside) else None

    def excess_allowed(self, epsilon: float) -> float:
        """What a point of X_ε may exceed ε by: 0 where a Slater point (or, for ε > 0, a feasible one) is known."""
        f = self.f
        if self.strict or float(np.maximum(f(self.slater), 0.0).sum()) < epsilon:
            return 0.0
        size = np.abs(f(self.cold.y)).max() + np.sqrt(self.scales.slope_sq) * np.linalg.norm(self.slater)
        return ROUNDING * float(size)

    def _task(self, epsilon: float) -> Task:
        one, zero = np.asarray(1.0), np.asarray(0.0)
        return Task(
            np.asarray(epsilon), weight=one, margin=zero, slack=np.asarray(self.excess_allowed(epsilon))
        )

    def _solve(self, objective: Any, task: Task, guess: Guess) -> tuple[Bounds, Guess]:
        numbers = (self.scales, self.modulus, self.diameter, self.tol)
        bounds, end = _solve(
            objective, self.f, self.problem.set, task, guess, self.slater, numbers, self.by_support
        )
        return bounds._replace(lower=np.asarray(bounds.lower), upper=np.asarray(bounds.upper)), end

    def _slater(self, like: Any) -> tuple[Array, bool]:
        """A point of X where every f_j < 0 by a margin; failing that, the least infeasible one found."""
        self.slater = self.cold.y
        f = self.f
        values = np.asarray(f(self.slater))
        if np.max(values, initial=-np.inf) < 0.0:
            return self.slater, True
        best, zero = self.slater, np.asarray(0.0)
        for share in (*SLATER_MARGINS, 0.0):
            margin = np.asarray(share * np.abs(values).max())
            bounds, _ = self._solve(like, Task(zero, weight=zero, margin=margin, slack=zero), self.cold)
            if float(jnp.max(f(bounds.y_upper))) < 0.0:
                return bounds.y_upper, True
            best = min(best, bounds.y_upper, key=lambda y: float(jnp.sum(jnp.maximum(f(y), 0.0))))
        return best, False


@eqx.filter_jit
def _retreat(f: Constraints, X: ConvexSet, task: Task, y: Array, slater: Array) -> Array:
    return repaired(X.project(y), f, jax.tree.map(jnp.asarray, task), slater)


def _tighter(one: Bounds, other: Bounds) -> Bounds:
    """The better of each side."""
    low, high = (one if one.lower >= other.lower else other), (one if one.upper <= other.upper else other)
    return high._replace(lower=low.lower, y_lower=low.y_lower)


def _support_is_traced(X: ConvexSet) -> bool:
    try:
        jax.eval_shape(X.support, jax.ShapeDtypeStruct(X.shape, np.float64))
    except InputError:
        return False
    return True


@eqx.filter_jit
def _scales(objective: Any, f: Constraints, X: ConvexSet, y: Array) -> Scales:
    _, hessian = jax.linearize(jax.grad(objective), y)
    if y.size <= MAX_DIAGONAL:
        entry = lambda i: jnp.ravel(hessian(jnp.zeros(y.size).at[i].set(1.0).reshape(y.shape)))[i]
        diagonal = -jax.lax.map(entry, jnp.arange(y.size)).reshape(y.shape)
    else:
        signs = alternating_signs(y)
        diagonal = jnp.full(y.shape, -jnp.mean(signs * hessian(signs)))
    return scales_at(objective, f, X, y, diagonal)


@eqx.filter_jit
def _solve(
    objective: Any,
    f: Constraints,
    X: ConvexSet,
    task: Task,
    guess: Guess,
    slater: Array,
    numbers: tuple,
    by_support: bool,
) -> tuple[Bounds, Guess]:
    scales, modulus, diameter, tol = numbers

    def excess(X: ConvexSet, c: Array, y: Array) -> Array:
        """max_{z∈X} cᵀ(z − y) − m‖z − y‖², or a bound: with p = P_X(y + tc), cᵀ(z − p) ≤ (p − y)ᵀ(z − p)/t."""
        if by_support:
            linear = jnp.asarray(X.support(c)[0]) - jnp.sum(c * y)
        else:
            t = scales.reach / (tree_norm(c) + jnp.finfo(c.dtype).tiny)
            p = X.project(y + t * c)
            linear = jnp.sum(c * (p - y)) + tree_norm(p - y) * diameter / t
        if modulus is None:
            return linear
        z = X.project(y + c / (2.0 * modulus))
        return jnp.minimum(linear, jnp.sum(c * (z - y)) - modulus * jnp.sum(jnp.square(z - y)))

    task = jax.tree.map(jnp.asarray, task)
    return maximise(Program(objective, f, X, task, scales), guess, slater, tol, excess)
