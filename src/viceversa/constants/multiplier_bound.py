"""A bound on ‖λ*‖ that does not need the solution: Slater's condition, made robust to an unknown θ*."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import precision
from viceversa.certificates.residuals import learning_error_bound
from viceversa.constants.derivatives import bounding_box
from viceversa.constants.table import Constants
from viceversa.errors import InputError
from viceversa.learning.base import Learning
from viceversa.numerics import tree_add_scaled
from viceversa.problem import MisspecifiedVI

_N_DESCENT = 300  # accelerated projected gradient steps at each smoothing
_SMOOTHINGS = (1.0, 0.1, 0.01)
_MAX_LEARNER_STEPS = 1 << 20
_WORTHWHILE = 0.95  # go on learning while a doubling of the steps shrinks the bound below this fraction


@dataclass(frozen=True)
class MultiplierBound:
    """‖λ*‖ ≤ `value`, from a strictly feasible point x̂ and the learning error after `learner_steps` steps.

    ‖λ*‖₁ ≤ [max_{x ∈ X} F(x̂, θ_k)ᵀ(x̂ − x) + L_{F,θ} â D] / [min_j(−f_j(x̂, θ_k)) − L_{f,θ} â],  â ≥ ‖θ_k − θ*‖   (1)
    """

    value: float
    how: str
    learner_steps: int = 0
    slater_point: np.ndarray | None = None
    slack: float = float("inf")


def multiplier_bound(
    problem: MisspecifiedVI, constants: Constants, theta0: PyTree, learning_rate: float
) -> MultiplierBound:
    """(1), learning first for as long as x̂ is not strictly feasible for every θ within â of θ_k.

    The strictly feasible point comes from min_x max_j f_j(x, θ_k) over X, smoothed; any point with a positive
    denominator proves (1), and the best one met is used.
    """
    if problem.n_constraints == 0:
        return MultiplierBound(0.0, "there are no constraints")
    needed = ["D_X", "L_F_theta", "L_f_theta", "L_f_x", "L_grad_f_x", "L_H", "mu_H"]
    constants.require_bounds("the bound on ‖λ*‖", *(needed[2:5] if problem.learning.is_known else needed))
    best: MultiplierBound | None = None
    theta, n_steps, slack, error = theta0, 0, -np.inf, np.inf
    while n_steps <= _MAX_LEARNER_STEPS:
        error = _learning_error(problem, theta)
        found, slack = _bound_at(problem, constants, theta, error, n_steps)
        improved = found is not None and (best is None or found.value < _WORTHWHILE * best.value)
        if found is not None and (best is None or found.value < best.value):
            best = found
        if error == 0.0 or (best is not None and not improved):
            break
        more = max(n_steps, 1)
        theta, n_steps = _advance(problem.learning, theta, learning_rate, more), n_steps + more
    if best is None:
        raise InputError(
            f"Slater's condition is not established: after {n_steps} learning steps (‖θ − θ*‖ ≤ {error:.2g}) the best point "
            f"found has max_j f_j = {-slack:.3g}, not below {-float(constants.L_f_theta) * error:.3g}. "
            "Give multiplier_norm=, a bound on ‖λ*‖ you can prove, or use a method that needs none (AdaptiveAugmentedLagrangian)."
        )
    return best


def _bound_at(
    problem: MisspecifiedVI, constants: Constants, theta: PyTree, error: float, n_steps: int
) -> tuple[MultiplierBound | None, float]:
    """The best (1) at one θ, and the largest slack met (negative: no strictly feasible point was met)."""
    travel = float(constants.L_F_theta) * error * float(constants.D_X) if error > 0 else 0.0
    margin = float(constants.L_f_theta) * error if error > 0 else 0.0
    best, best_slack = None, -np.inf
    for x in _candidates(problem, constants, theta):
        with precision.double():
            reach, slack = map(float, _measure(problem, theta, x))
        best_slack = max(best_slack, slack)
        if slack > margin and np.isfinite(reach):
            value = (reach + travel) / (slack - margin)
            if best is None or value < best.value:
                learned = f", after {n_steps} learning steps" if n_steps else ""
                how = f"Slater: f ≤ {-slack:.3g} at a point of X, ‖θ_k − θ*‖ ≤ {error:.2g}{learned}"
                best = MultiplierBound(value, how, n_steps, np.asarray(x), slack)
    return best, best_slack


def _candidates(problem: MisspecifiedVI, constants: Constants, theta: PyTree) -> list[np.ndarray]:
    lower, upper, _ = bounding_box(problem.set)
    ends = [end.reshape(problem.shape) for end in (lower, upper) if np.isfinite(end).all()]
    start = problem.set.interior_point()
    points = [start, *(problem.set.project(end) for end in ends)]
    with precision.double():
        descents = _deepen(
            problem, theta, start, np.float64(constants.L_f_x), np.float64(constants.L_grad_f_x)
        )
        return [np.asarray(point) for point in [*points, *descents]]


@eqx.filter_jit
def _measure(problem: MisspecifiedVI, theta: PyTree, x) -> tuple[Array, Array]:
    """(max_{y ∈ X} F(x, θ)ᵀ(x − y), min_j −f_j(x, θ))."""
    F, f, X = problem.at(jax.tree.map(jnp.asarray, theta))
    x = jnp.asarray(x)
    F_x = F(x)
    return jnp.sum(F_x * x) + X.support(-F_x)[0], jnp.min(-f(x))


@eqx.filter_jit
def _deepen(problem: MisspecifiedVI, theta: PyTree, start, slope, curvature) -> Array:
    """Points of X with small max_j f_j: accelerated projected gradient on τ log Σ exp(f_j/τ) for falling τ."""
    _, f, X = problem.at(jax.tree.map(jnp.asarray, theta))
    start = jnp.asarray(start)
    unit = jnp.maximum(jnp.max(jnp.abs(f(start))), 1e-300)

    def level(x, tau):
        lipschitz = curvature + slope**2 / tau
        smooth = lambda y: tau * jax.nn.logsumexp(f(y) / tau)

        def step(carry, _):
            x, y, t = carry
            x_next = X.project(y - jax.grad(smooth)(y) / jnp.maximum(lipschitz, 1e-300))
            t_next = 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * t * t))
            return (x_next, x_next + (t - 1.0) / t_next * (x_next - x), t_next), None

        (x, _, _), _ = jax.lax.scan(step, (x, x, jnp.ones(())), length=_N_DESCENT)
        return x, x

    return jax.lax.scan(level, start, unit * jnp.asarray(_SMOOTHINGS))[1]


def _learning_error(problem: MisspecifiedVI, theta: PyTree) -> float:
    with precision.double():
        found = _error_compiled(problem.learning, jax.tree.map(jnp.asarray, theta))
    return min(float(found), float(problem.learning.set.diameter()))


_error_compiled = eqx.filter_jit(lambda learning, theta: learning_error_bound(learning, theta))


@eqx.filter_jit
def _advance_compiled(learning: Learning, theta: PyTree, rate, n_steps) -> PyTree:
    def step(_, theta):
        return learning.set.project(tree_add_scaled(theta, -rate, learning.operator(theta)))

    return jax.lax.fori_loop(0, n_steps, step, jax.tree.map(jnp.asarray, theta))


def _advance(learning: Learning, theta: PyTree, rate: float, n_steps: int) -> PyTree:
    """θ after n projected learning steps."""
    with precision.double():
        return jax.tree.map(
            np.asarray, _advance_compiled(learning, theta, np.float64(rate), np.int64(n_steps))
        )


def learning_error(problem: MisspecifiedVI, theta: PyTree) -> float:
    """A proved bound on ‖θ − θ*‖ for θ in Θ (as sure as μ_H and L_H are): the residual's, or the diameter of Θ."""
    return 0.0 if problem.learning.is_known else _learning_error(problem, theta)
