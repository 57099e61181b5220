"""Imputing an equilibrium model: learn the parameters of F from observed equilibria, and predict others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from viceversa import functions, precision
from viceversa.errors import InputError
from viceversa.learning import LeastSquares
from viceversa.precision import as_finite_float64
from viceversa.problem import MisspecifiedVI
from viceversa.sets import Box, NonNegative, Product, Simplex
from viceversa.sets.base import ConvexSet

_ACTIVE = 1e-7  # closer to a bound than this, relative to the largest coordinate, is at the bound


def imputed_equilibrium(
    operator: Callable,
    observations: Sequence[tuple],
    theta_set: ConvexSet,
    set: ConvexSet,
    *,
    constraints: Callable | None = None,
    observed_operator: Callable | None = None,
    ridge: Any = 0.0,
    reference: Any = None,
    active_tol: float = _ACTIVE,
    constraint_names: Sequence[str] | None = None,
    symmetric: bool | None = None,
) -> MisspecifiedVI:
    """The equilibrium of F(·, θ*) on a new set, with θ* learned from equilibria x¹, …, x^T observed on others:

        θ* = argmin_{θ ∈ Θ} ½ Σ_t ‖Π_t F(x^t, θ)‖² + ½ ridge ‖θ − reference‖²                            (1)

    F affine in θ, Π_t the directions in which x^t can move both ways inside X_t: at an equilibrium F has no component
    there, whatever the multipliers of the bounds and rows that hold with equality. (1) is least squares.

    operator: F(x, theta) where the prediction is made; observed_operator: where the observations were made, if another.
    observations: pairs (x, X) of an equilibrium and its set, or (x, X, g) with g(x) ≤ 0 known shared constraints.
    set, constraints: the changed network, cap or rule under which the equilibrium is predicted.
    reference, ridge: where to stay when the observations do not determine θ.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> cost = lambda x, theta: theta * x + np.array([1.0, 2.0])
        >>> seen = [([2.0, 1.0], vv.Simplex(2, total=3.0)), ([3.2, 1.8], vv.Simplex(2, total=5.0))]
        >>> problem = vv.imputed_equilibrium(cost, seen, vv.Box([0.1, 0.1], [9.0, 9.0]), vv.Simplex(2, total=8.0))
        >>> print(vv.solve(problem).theta.round(6), vv.solve(problem).x.round(6))
        [2. 3.] [5. 3.]
    """
    if not isinstance(theta_set, ConvexSet) or not isinstance(set, ConvexSet):
        raise InputError(
            "imputed_equilibrium: theta_set and set are viceversa sets, such as vv.Box(lower, upper)."
        )
    rows, values = _stationarity_rows(observed_operator or operator, observations, theta_set, active_tol)
    rows, values = _with_ridge(rows, values, theta_set, ridge, reference)
    if not np.abs(values).max(initial=0.0) > 1e-12 * np.abs(rows).max(initial=0.0):
        raise InputError(
            "imputed_equilibrium: F(x, 0) has no part in the observed directions, so θ = 0 explains every observation. Fix one "
            "coefficient of F as a known number, or pass ridge and reference."
        )
    return MisspecifiedVI(
        operator=operator,
        set=set,
        constraints=constraints,
        learning=LeastSquares(rows, values, set=theta_set),
        constraint_names=constraint_names,
        symmetric=symmetric,
    )


def _stationarity_rows(
    operator: Callable, observations: Sequence[tuple], theta_set: ConvexSet, active_tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Π_t Φ_t and −Π_t F(x^t, 0), stacked over t, with Φ_t = ∂F/∂θ."""
    if not isinstance(observations, Sequence) or len(observations) == 0:
        raise InputError(
            "imputed_equilibrium: observations is empty; a list of (x, set) is needed, one per observed equilibrium."
        )
    theta_like = theta_set.interior_point()
    rows, values, traced, shape = [], [], None, None
    for t, observation in enumerate(observations):
        x, X, shared = _checked(t, observation)
        if traced is None or x.shape != shape:
            traced, shape = functions.trace("operator", operator, x, theta_like), x.shape
            if not functions.is_affine_in(traced, 1, x, theta_like):
                raise InputError(
                    "imputed_equilibrium: F is not provably affine in theta, so (1) is not least squares. Write F as known "
                    "functions of x times the components of theta (a logarithm or another scale may make it so)."
                )
        with precision.double():
            F0, slope = jax.tree.map(
                np.asarray, _affine_parts(traced, x, jax.tree.map(jnp.asarray, theta_like))
            )
            Pi = np.asarray(_directions(X, _pushed_out(X, x, active_tol)))
        if shared is not None:
            Pi = _without_active(Pi, shared, x, active_tol)
        rows.append(Pi @ slope)
        values.append(-Pi @ F0)
    return np.vstack(rows), np.concatenate(values)


def _checked(t: int, observation: Any) -> tuple[np.ndarray, ConvexSet, Callable | None]:
    if (
        not isinstance(observation, tuple)
        or len(observation) not in (2, 3)
        or not isinstance(observation[1], ConvexSet)
    ):
        raise InputError(
            f"imputed_equilibrium: observations[{t}] is not (x, set) or (x, set, constraints). Give the equilibrium and its set."
        )
    X, shared = observation[1], observation[2] if len(observation) == 3 else None
    x = as_finite_float64(f"imputed_equilibrium: observations[{t}]", observation[0])
    if x.shape != X.shape:
        raise InputError(
            f"imputed_equilibrium: observations[{t}] has shape {x.shape}; its set has points of shape {X.shape}."
        )
    far = float(X.violation(x))
    if far > 1e-3 * max(float(np.abs(x).max(initial=0.0)), 1e-300):
        raise InputError(
            f"imputed_equilibrium: observations[{t}] is {far:.3g} away from its set, so it is no equilibrium there. Check the set's totals "
            "and bounds, or project the observation first."
        )
    return x, X, shared


@eqx.filter_jit
def _affine_parts(F: Any, x: Any, theta_like: PyTree) -> tuple[Any, Any]:
    vector, unravel = jax.flatten_util.ravel_pytree(theta_like)

    def along(v):
        return jnp.ravel(F(jnp.asarray(x), unravel(v)))

    return along(jnp.zeros_like(vector)), jax.jacfwd(along)(jnp.zeros_like(vector))


@eqx.filter_jit
def _directions(X: ConvexSet, point: Any) -> Any:
    flat, shape = jnp.ravel(jnp.asarray(point)), X.shape
    return jax.jacfwd(lambda v: jnp.ravel(X.project(v.reshape(shape))))(flat)


def _pushed_out(X: ConvexSet, x: np.ndarray, tol: float) -> np.ndarray:
    """A point outside X that projects to x with every active bound clearly active, so that rounding decides nothing."""
    size = max(float(np.abs(x).max(initial=0.0)), 1e-300)
    if isinstance(X, Product):
        blocks = zip(X.blocks, X.split(x), strict=True)
        return np.concatenate([_pushed_out(block, part, tol).ravel() for block, part in blocks])
    if isinstance(X, Box):
        x = np.where(x - X.lower <= tol * size, X.lower - size, x)
        return np.where(X.upper - x <= tol * size, X.upper + size, x)
    if isinstance(X, (NonNegative, Simplex)):
        return np.where(x <= tol * size, -size, x)
    return x


def _without_active(Pi: np.ndarray, shared: Callable, x: np.ndarray, tol: float) -> np.ndarray:
    """Π without the gradients of the shared constraints that hold with equality."""
    traced = functions.trace("observations: constraints", shared, x)
    with precision.double():
        value, jacobian = jax.tree.map(
            np.asarray, (traced(jnp.asarray(x)), jax.jacfwd(traced)(jnp.asarray(x)))
        )
    jacobian = jacobian.reshape(-1, x.size)
    unit = np.abs(jacobian) @ np.abs(x.ravel())
    active = np.ravel(value) >= -tol * np.maximum(unit, 1e-300)
    _, singular, basis = np.linalg.svd(jacobian[active] @ Pi, full_matrices=False)
    basis = basis[singular > 1e-12 * singular.max(initial=1e-300)]
    return Pi - basis.T @ (basis @ Pi)


def _with_ridge(
    rows: np.ndarray, values: np.ndarray, theta_set: ConvexSet, ridge: Any, reference: Any
) -> tuple[np.ndarray, np.ndarray]:
    weight = as_finite_float64("imputed_equilibrium: ridge", ridge)
    if weight.shape != () or weight < 0:
        raise InputError(f"imputed_equilibrium: ridge is {ridge}; one number >= 0 is needed.")
    if weight == 0:
        return rows, values
    middle = theta_set.interior_point() if reference is None else reference
    leaves = [
        as_finite_float64("imputed_equilibrium: reference", leaf).ravel() for leaf in jax.tree.leaves(middle)
    ]
    vector = np.concatenate(leaves)
    if vector.size != rows.shape[1]:
        raise InputError(f"imputed_equilibrium: reference has {vector.size} numbers; θ has {rows.shape[1]}.")
    root = np.sqrt(weight)
    return np.vstack([rows, root * np.eye(vector.size)]), np.concatenate([values, root * vector])
