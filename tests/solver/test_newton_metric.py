"""Newton's scales: a coordinate is scaled by its own derivative where that says something, else by the first-order step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import viceversa as vv
from viceversa.precision import double
from viceversa.schemes.newton_system import local_metric

N = 30
STEP = 1e-6  # what a first-order method found: small, as a strong penalty or large units make it


def gamma_of(M: np.ndarray, total: float = 0.0) -> np.ndarray:
    """γ of F(x) = Mx + total·1ᵀx on a box."""
    box = vv.Box(-np.ones(N), np.ones(N))
    problem = vv.MisspecifiedVI(lambda x, t: M @ x + t * total * x.sum(), box, learning=vv.Known(1.0))
    with double():
        x, none = jnp.full(N, 0.1), jnp.zeros(0)
        return np.broadcast_to(local_metric(problem, x, none, jnp.asarray(1.0), STEP, none).gamma, (N,))


def test_own_derivatives_count_in_whatever_units():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(N, N))
    M = A @ A.T / N + np.eye(N)
    units = 10.0 ** rng.uniform(-2.0, 2.0, N)
    M = M / np.outer(units, units)
    np.testing.assert_allclose(gamma_of(M), 1.0 / np.diag(M), rtol=1e-12)


def test_own_derivatives_count_beside_a_total_that_all_share():
    M = np.diag(np.linspace(1.0, 9.0, N))
    np.testing.assert_allclose(gamma_of(M, total=2.0), 1.0 / np.diag(M), rtol=1e-12)


def test_own_derivatives_say_nothing_where_nearly_all_is_skew():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(N, N))
    for own in (0.0, 1e-9, 1e-3):
        np.testing.assert_array_equal(gamma_of(A - A.T + own * np.eye(N)), STEP)
