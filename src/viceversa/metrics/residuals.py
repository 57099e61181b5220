"""How far a point is from a solution: infeasibility, residuals, and the error of the parameter."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from viceversa import functions, precision
from viceversa.errors import InputError, SolveError
from viceversa.metrics.certified_maximum import CertifiedMaximiser
from viceversa.metrics.enlargement import total_violation
from viceversa.metrics.objectives import Regularised
from viceversa.numerics import positive_part, tree_norm, tree_subtract
from viceversa.problem import Constraints, MisspecifiedVI


def infeasibility(problem: MisspecifiedVI, x: Any, theta: Any = None) -> float:
    """1ᵀ[f(x, θ)]₊: the sum of all violations, the paper's measure.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x, set=vv.Box([0.0, 0.0], [9.0, 9.0]),
        ...                             constraints=lambda x, t: x - t, learning=vv.Known(1.0))
        >>> vv.infeasibility(problem, [4.0, 0.0])
        3.0
    """
    return infeasibilities(problem, [problem.check_x("x", x)], problem.theta_or_known(theta))[0]


def infeasibilities(problem: MisspecifiedVI, points: list, theta: PyTree) -> list[float]:
    """`infeasibility` at points and a θ that are checked already."""
    with precision.double():
        f = problem.at(theta).f
        run = _infeasibility if problem.runs_on_host else _infeasibility_compiled
        return [float(run(f, jnp.asarray(x))) for x in points]


def kkt_residual(problem: MisspecifiedVI, x: Any, multiplier: Any, theta: Any = None) -> float:
    """‖(x − P_X(x − F − Jfᵀλ), λ − [λ + f]₊)‖∞ at (x, λ, θ): zero exactly at KKT points."""
    x, theta = problem.check_x("x", x), problem.theta_or_known(theta)
    multiplier = problem.check_multiplier("multiplier", multiplier)
    with precision.double():
        run = _kkt_residual if problem.runs_on_host else _kkt_residual_compiled
        return float(run(problem, jnp.asarray(x), jnp.asarray(multiplier), theta))


def natural_residual(problem: MisspecifiedVI, x: Any, theta: Any = None) -> float:
    """‖x − P_{X(θ)}(x − F(x, θ))‖, Euclidean, with the projection on X(θ) = { y ∈ X : f(y, θ) ≤ 0 } to rounding.

    Zero exactly at solutions of the VI at θ.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [4.0]),
        ...                             constraints=lambda x, t: x[0] - 1.5, learning=vv.Known(3.0))
        >>> round(vv.natural_residual(problem, [1.0]), 9)  # 1 − F(1) = 3, and its projection is 1.5
        0.5
    """
    x, theta = problem.check_x("x", x), problem.theta_or_known(theta)
    if isinstance(problem.constraints, functions.Callback):
        raise InputError(
            "natural_residual: constraints is a callback, and projecting on { f ≤ 0 } needs f inside a compiled program. "
            "Write f with numpy or jax.numpy, or use kkt_residual."
        )
    with precision.double():
        theta = jax.tree.map(jnp.asarray, theta)
        point = jnp.asarray(x)
        F_x = problem.operator(point, theta)
        if problem.n_constraints == 0:
            return float(tree_norm(point - problem.set.project(point - F_x)))
        objective = Regularised(F_x, point, jnp.asarray(0.5))  # its maximiser is the projection of x − F(x)
        maximiser = CertifiedMaximiser(problem, theta, objective, modulus=0.5)
        projected, _, converged = maximiser.maximiser(objective, 0.0)
        if not converged:
            empty = maximiser.is_empty(objective, 0.0)
            why = "is empty (proved)" if empty else "could not be projected on"
            raise SolveError(f"natural_residual: X(θ) = {{ y ∈ X : f(y, θ) ≤ 0 }} {why} at this θ.")
        return float(tree_norm(point - projected))


def parameter_error(problem: MisspecifiedVI, theta: Any, theta_true: Any) -> float:
    """‖θ − θ*‖, Euclidean over all parts of θ."""
    theta, theta_true = problem.check_theta("theta", theta), problem.check_theta("theta_true", theta_true)
    with precision.double():
        return float(tree_norm(tree_subtract(theta, theta_true)))


def _infeasibility(f: Constraints, x):
    return total_violation(f(x))


def _kkt_residual(problem: MisspecifiedVI, x, multiplier, theta):
    F, f, X = problem.at(jax.tree.map(jnp.asarray, theta))
    f_x, pullback = f.vjp(x)
    stationarity = jnp.max(jnp.abs(x - X.project(x - F(x) - pullback(multiplier))), initial=0.0)
    complementarity = jnp.max(jnp.abs(multiplier - positive_part(multiplier + f_x)), initial=0.0)
    return jnp.maximum(stationarity, complementarity)


_infeasibility_compiled = eqx.filter_jit(_infeasibility)
_kkt_residual_compiled = eqx.filter_jit(_kkt_residual)
