"""Everything a certificate can say on request: what the learning error does, and the distance to the solution."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import PyTree

from viceversa.certificates.distance import distance_statement
from viceversa.certificates.learning import learning_statements
from viceversa.certificates.statements import Statement
from viceversa.constants import Constant, Constants, multiplier_bound
from viceversa.constants import constants as compute_constants
from viceversa.constants.table import derived
from viceversa.errors import InputError
from viceversa.problem import MisspecifiedVI


def detailed_statements(
    problem: MisspecifiedVI,
    x: np.ndarray,
    multiplier: np.ndarray,
    theta: PyTree,
    values: np.ndarray,
    error: float,
    constants: Constants | None = None,
    declared: Mapping[str, float | Constant] | None = None,
) -> tuple[Statement, ...]:
    """The lines of D.5 and D.3 at (x, λ, θ), where f(x, θ) = `values` and ‖θ − θ*‖ ≤ `error`."""
    c = compute_constants(problem, declared) if constants is None else constants
    lines = learning_statements(problem, values, error, c)
    size = None
    if problem.n_constraints and c.mu_F.is_bound and c.mu_F.value > 0.0:
        size = _multiplier_size(problem, c, theta)
    return *lines, distance_statement(problem, x, multiplier, theta, error, c, size)


def _multiplier_size(problem: MisspecifiedVI, c: Constants, theta: PyTree) -> Constant | None:
    if problem.runs_on_host:
        return None
    try:
        found = multiplier_bound(problem, c, theta, float(problem.learning.default_rate()))
    except InputError:
        return None  # no strictly feasible point, or constants that are only sampled
    used = () if problem.learning.is_known else (c.L_F_theta, c.L_f_theta, c.D_X, c.L_H)
    return derived(found.value, found.how, *used)
