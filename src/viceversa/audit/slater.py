"""Slater's condition at the learned parameter: a strictly feasible point, or a proof that there is none."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import precision
from viceversa.certificates.residuals import learning_error_bound
from viceversa.learning.base import Learning
from viceversa.numerics import safe_divide, tree_add_scaled
from viceversa.problem import MisspecifiedVI

_SMOOTHINGS = (1.0, 0.1, 0.01, 0.001)  # of the constraints' own units
_N_STEPS = 150  # accelerated projected-gradient steps at each of them
_MAX_LEARNING = 1 << 16  # learning steps before the parameter is taken as it is
_LEARNED = 1e-12  # relative error at which learning is finished
_ROUNDING = 1e-10  # of the terms behind it: a margin below this counts as zero
_FLAT = 1e-7  # likewise: a set in which nobody can be further inside than this has no interior worth the name


@dataclass(frozen=True)
class Depth:
    """How far inside the constraints one can get at one θ.

    `x` has f_j(x, θ) ≤ −slack for all j. If every f_j(·, θ) is convex, a weighted sum of the constraints is at least
    `floor` on all of X: floor > 0 proves that X(θ) is empty, floor = 0 that nothing is strictly feasible. `size` is the size of the
    terms `floor` is computed from.
    """

    x: np.ndarray
    slack: float
    floor: float
    size: float

    @property
    def empty(self) -> bool:
        """Whether X(θ) is proved empty (for convex constraints)."""
        return self.floor > _ROUNDING * self.size

    @property
    def flat(self) -> bool:
        """Whether no strictly feasible point was found and none is further inside than rounding."""
        return self.slack <= _ROUNDING * self.size and self.floor >= -_FLAT * self.size


def depth(problem: MisspecifiedVI, theta: PyTree) -> Depth:
    """The deepest point found at θ, by minimising the smoothed largest constraint over X."""
    with precision.double():
        points, floors, sizes = map(np.asarray, _deepen(problem, theta, problem.set.interior_point()))
        values = np.asarray(_values(problem, theta, points))
    slacks = np.where(np.isnan(values).any(axis=1), -np.inf, -values.max(axis=1))
    floors = np.where(np.isnan(floors), -np.inf, floors)
    deepest, highest = int(np.argmax(slacks)), int(np.argmax(floors / sizes))
    return Depth(points[deepest], float(slacks[deepest]), float(floors[highest]), float(sizes[highest]))


def learned_parameter(problem: MisspecifiedVI, theta0: PyTree | None = None) -> tuple[PyTree, float, int]:
    """(θ, a bound on ‖θ − θ*‖ as sure as μ_H and L_H are, learning steps taken), from P_Θ(0) by projected steps."""
    learning = problem.learning
    with precision.double():
        start = learning.set.zeros() if theta0 is None else theta0
        theta = jax.tree.map(np.asarray, learning.set.project(jax.tree.map(jnp.asarray, start)))
        if learning.is_known:
            return theta, 0.0, 0
        n_steps, more = 0, 16
        while True:
            error, size = map(float, _error(learning, theta))
            if error <= _LEARNED * size or n_steps >= _MAX_LEARNING or not np.isfinite(error):
                return theta, min(error, float(learning.set.diameter())), n_steps
            advanced = _advance(learning, theta, np.float64(learning.default_rate()), np.int64(more))
            theta = jax.tree.map(np.asarray, advanced)
            n_steps, more = n_steps + more, 2 * more


@eqx.filter_jit
def _error(learning: Learning, theta: PyTree) -> tuple[Array, Array]:
    sizes = jax.tree.map(lambda leaf: jnp.max(jnp.abs(leaf), initial=0.0), theta)
    return learning_error_bound(learning, theta), 1.0 + jax.tree.reduce(jnp.maximum, sizes, jnp.zeros(()))


@eqx.filter_jit
def _advance(learning: Learning, theta: PyTree, rate, n_steps) -> PyTree:
    def step(_, theta):
        return learning.set.project(tree_add_scaled(theta, -rate, learning.operator(theta)))

    return jax.lax.fori_loop(0, n_steps, step, jax.tree.map(jnp.asarray, theta))


@eqx.filter_jit
def _values(problem: MisspecifiedVI, theta: PyTree, points) -> Array:
    f = problem.at(jax.tree.map(jnp.asarray, theta)).f
    return jax.vmap(f)(jnp.asarray(points))


@eqx.filter_jit
def _deepen(problem: MisspecifiedVI, theta: PyTree, start) -> tuple[Array, Array, Array]:
    """(points, floors, sizes) for falling τ: minimisers over X of τ log Σ_j exp(f_j/(τ f̂_j)), f̂_j a constraint's unit."""
    _, f, X = problem.at(jax.tree.map(jnp.asarray, theta))
    start = jnp.asarray(start)
    width = jnp.asarray(problem.x_width)
    width = jnp.where(jnp.isfinite(width), width, 1.0)
    f_0, (slope,) = f.of_gradients(start, (lambda gradient: jnp.abs(gradient) * width, jnp.sum))
    unit = jnp.maximum(jnp.abs(f_0), slope)
    unit = jnp.where(unit > 0, unit, 1.0)

    def level(x, tau):
        def smooth(at):
            values, back = f.vjp(at)
            weights = jax.nn.softmax(values / (unit * tau))
            return tau * jax.nn.logsumexp(values / (unit * tau)), back(weights / unit)

        def step(_, carry):
            now, ahead, momentum, length = carry
            value, gradient = smooth(ahead)
            trial = lambda t: X.project(ahead - t * gradient)

            def too_long(state):
                t, at, n = state
                model = value + jnp.sum(gradient * (at - ahead)) + jnp.sum((at - ahead) ** 2) / (2.0 * t)
                return (smooth(at)[0] > model + 1e-14 * jnp.abs(value)) & (n < 60)

            shorter = lambda state: (0.5 * state[0], trial(0.5 * state[0]), state[2] + 1)
            length, at, _ = jax.lax.while_loop(too_long, shorter, (2.0 * length, trial(2.0 * length), 0))
            uphill = jnp.sum(gradient * (at - now)) > 0
            grown = jnp.where(uphill, 1.0, 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * momentum**2)))
            push = jnp.where(uphill, 0.0, (momentum - 1.0) / grown)
            at = jnp.where(value < -1.0, now, at)  # deep enough; an unbounded X has no deepest point
            return at, X.project(at + push * (at - now)), grown, length

        one = jnp.ones(())
        x, _, _, _ = jax.lax.fori_loop(0, _N_STEPS, step, (x, x, one, one))
        return x, (x, *_floor(f, X, x, unit, tau))

    return jax.lax.scan(level, X.project(start), jnp.asarray(_SMOOTHINGS))[1]


def _floor(f, X, x, unit, tau) -> tuple[Array, Array]:
    """wᵀf(x) + min_{y ∈ X} ∇(wᵀf)(x)ᵀ(y − x), w ≥ 0 and Σw = 1, below which wᵀf cannot fall on X; and its size."""
    values, back = f.vjp(x)
    w = jax.nn.softmax(values / (unit * tau)) / unit
    w = safe_divide(w, jnp.sum(w), 0.0)
    gradient = back(w)
    largest, _ = X.support(-gradient)
    # Infinite where X is unbounded: no floor then.
    reach = jnp.where(jnp.isfinite(largest), jnp.abs(largest), 0.0)
    size = jnp.sum(w * jnp.abs(values)) + reach + jnp.sum(jnp.abs(gradient * x))
    # Where only some constraints weigh, their own size is too small a yardstick for rounding.
    return jnp.sum(w * values) - largest - jnp.sum(gradient * x), jnp.maximum(size, jnp.min(unit))
