"""How far a point is from a solution: infeasibility, residuals, and the error of the parameter."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from viceversa import precision
from viceversa.errors import InputError
from viceversa.metrics.enlargement import total_violation
from viceversa.numerics import positive_part, tree_norm, tree_subtract
from viceversa.problem import MisspecifiedVI


def infeasibility(problem: MisspecifiedVI, x: Any, theta: Any = None) -> float:
    """1ᵀ[f(x, θ)]₊: the sum of all violations, the paper's measure.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x, set=vv.Box([0.0, 0.0], [9.0, 9.0]),
        ...                             constraints=lambda x, t: x - t, learning=vv.Known(1.0))
        >>> vv.infeasibility(problem, [4.0, 0.0])
        3.0
    """
    x, theta = problem.check_x("x", x), known_theta(problem, theta)
    with precision.double():
        run = _infeasibility if problem.runs_on_host else _infeasibility_compiled
        return float(run(problem, jnp.asarray(x), theta))


def kkt_residual(problem: MisspecifiedVI, x: Any, multiplier: Any, theta: Any = None) -> float:
    """‖(x − P_X(x − F − Jfᵀλ), λ − [λ + f]₊)‖∞ at (x, λ, θ): zero exactly at KKT points."""
    x, theta = problem.check_x("x", x), known_theta(problem, theta)
    multiplier = problem.check_multiplier("multiplier", multiplier)
    with precision.double():
        run = _kkt_residual if problem.runs_on_host else _kkt_residual_compiled
        return float(run(problem, jnp.asarray(x), jnp.asarray(multiplier), theta))


def parameter_error(problem: MisspecifiedVI, theta: Any, theta_true: Any) -> float:
    """‖θ − θ*‖, Euclidean over all parts of θ."""
    theta, theta_true = problem.check_theta("theta", theta), problem.check_theta("theta_true", theta_true)
    with precision.double():
        return float(tree_norm(tree_subtract(theta, theta_true)))


def known_theta(problem: MisspecifiedVI, theta: Any) -> PyTree:
    """`theta` checked, or the parameter itself where the problem knows it."""
    if theta is None:
        if not problem.learning.is_known:
            raise InputError(
                "theta is missing. This problem learns its parameter, so say at which θ to measure: the θ_k of a run "
                "or the truth θ*."
            )
        theta = problem.learning.set.interior_point()
    return problem.check_theta("theta", theta)


def _infeasibility(problem: MisspecifiedVI, x, theta):
    return total_violation(problem.at(jax.tree.map(jnp.asarray, theta)).f(x))


def _kkt_residual(problem: MisspecifiedVI, x, multiplier, theta):
    F, f, X = problem.at(jax.tree.map(jnp.asarray, theta))
    f_x, pullback = f.vjp(x)
    stationarity = jnp.max(jnp.abs(x - X.project(x - F(x) - pullback(multiplier))), initial=0.0)
    complementarity = jnp.max(jnp.abs(multiplier - positive_part(multiplier + f_x)), initial=0.0)
    return jnp.maximum(stationarity, complementarity)


_infeasibility_compiled = eqx.filter_jit(_infeasibility)
_kkt_residual_compiled = eqx.filter_jit(_kkt_residual)
