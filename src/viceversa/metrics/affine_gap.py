"""The gap of an affine operator: F(y)ᵀ(x − y) is concave, so its maximum is certified from both sides."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.metrics.certified_maximum import TIGHT, CertifiedMaximiser
from viceversa.metrics.intervals import GapInterval
from viceversa.metrics.objectives import Minty
from viceversa.problem import MisspecifiedVI

AT_A_POINT = "F(y)ᵀ(x − y) at y = `point`, which lies in X_ε"
AT_A_POINT_BY_ROUNDING = "F(y)ᵀ(x − y) at y = `point`, which exceeds ε by rounding only (X_ε has no interior)"
BY_CERTIFICATE = (
    "U(ŷ, μ) = ε‖μ‖∞ + h(ŷ) + max over X of ∇h(ŷ)ᵀ(y − ŷ), h(y) = F(y)ᵀ(x − y) − μᵀf(y), μ = `multiplier`: F is affine in "
    "x (proved from its program); F monotone and f convex as the problem assumes. With a modulus m of F (given, or on an "
    "unbounded X the least eigenvalue of its symmetric part) the maximum is of ∇h(ŷ)ᵀ(y − ŷ) − m‖y − ŷ‖²"
)
UNBOUNDED = (
    "none: X is unbounded and no modulus `mu` of F is known, so the bound is +∞ (and so may the gap be)"
)
NOT_MONOTONE = (
    "none: F is not monotone on X (a direction v of X has vᵀMv < 0), so F(y)ᵀ(x − y) is not concave in y"
)
NO_POINT = "none: no point of X_ε was found"
EMPTY = "X_ε is empty (proved: some μ ≥ 0 has μᵀf > ε‖μ‖∞ on all of X), and the supremum over nothing is −∞"


# Beyond this many coordinates no dense eigenvalue problem is solved.
MAX_DENSE = 1000


class AffineGap:
    """Gap_ε(·, θ) for an F that is affine in x at this θ."""

    def __init__(self, problem: MisspecifiedVI, theta: PyTree, modulus: float):
        self.problem, self.theta = problem, theta
        if modulus == 0.0 and not problem.set.bounded:
            modulus = least_eigenvalue(problem, theta)
        like = self._objective(np.zeros(problem.shape))
        self.maximiser = CertifiedMaximiser(problem, theta, like, modulus)

    def __call__(self, x: np.ndarray, epsilon: float) -> GapInterval:
        objective = self._objective(x)
        bounds = self.maximiser(objective, epsilon)
        lower, upper = float(bounds.lower), float(bounds.upper)
        if lower == -np.inf and self.maximiser.is_empty(objective, epsilon):
            return empty_gap(self.problem)
        rule = BY_CERTIFICATE if np.isfinite(upper) else UNBOUNDED
        if not self.maximiser.concave:
            upper, rule = np.inf, NOT_MONOTONE
        return interval(
            lower,
            upper,
            lower_rule(self.maximiser, lower, epsilon),
            rule,
            np.asarray(bounds.y_lower),
            np.asarray(bounds.mu),
        )

    def _objective(self, x: Any) -> Minty:
        return Minty(self.problem.operator, self.theta, jnp.asarray(x))


def least_eigenvalue(problem: MisspecifiedVI, theta: PyTree) -> float:
    """λ_min((M + Mᵀ)/2) of F(y) = My + q less what rounding may have added to it; 0 if not positive or n is large."""
    n = int(np.prod(problem.shape))
    if n > MAX_DENSE or n == 0:
        return 0.0
    M = np.asarray(_jacobian(problem.operator, theta, np.zeros(problem.shape))).reshape(n, n)
    symmetric = 0.5 * (M + M.T)
    # The eigenvalues are those of a matrix within a few n·eps·‖M‖ of this one.
    rounding = 10.0 * n * np.finfo(np.float64).eps * np.linalg.norm(M)
    return max(float(np.linalg.eigvalsh(symmetric)[0]) - float(rounding), 0.0)


@eqx.filter_jit
def _jacobian(operator: Any, theta: PyTree, at: Any) -> Array:
    return jax.jacfwd(lambda y: operator(y, theta))(jnp.asarray(at))


def lower_rule(maximiser: CertifiedMaximiser, lower: float, epsilon: float) -> str:
    """The words for a lower bound found by this maximiser."""
    if lower == -np.inf:
        return NO_POINT
    return AT_A_POINT_BY_ROUNDING if maximiser.excess_allowed(epsilon) > 0.0 else AT_A_POINT


def empty_gap(problem: MisspecifiedVI) -> GapInterval:
    """The gap over an empty set."""
    nowhere, no_multiplier = np.full(problem.shape, np.nan), np.zeros(problem.n_constraints)
    return GapInterval(-np.inf, -np.inf, EMPTY, EMPTY, nowhere, no_multiplier, True)


def interval(
    lower: float, upper: float, lower_rule: str, upper_rule: str, point: np.ndarray, multiplier: np.ndarray
) -> GapInterval:
    """An interval whose ends, computed with rounding, are kept in order."""
    upper = max(lower, upper)
    exact = bool(upper - lower <= TIGHT * (1.0 + abs(upper))) if np.isfinite(upper) else False
    return GapInterval(lower, upper, lower_rule, upper_rule, point, multiplier, exact)
