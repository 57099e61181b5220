"""Newton's scales: a coordinate is scaled by its own derivative where that says something, else by the first-order step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import viceversa as vv
from viceversa.precision import double
from viceversa.schemes.newton_system import Metric, Probed, kkt_at, local_metric, stiffened

N = 30
STEP = 1e-6  # what a first-order method found: small, as a strong penalty or large units make it


def gamma_of(M: np.ndarray, total: float = 0.0, row: float = np.nan) -> np.ndarray:
    """γ of F(x) = Mx + total·1ᵀx on a box; `row`: what has been measured before."""
    box = vv.Box(-np.ones(N), np.ones(N))
    problem = vv.MisspecifiedVI(lambda x, t: M @ x + t * total * x.sum(), box, learning=vv.Known(1.0))
    with double():
        x, none = jnp.full(N, 0.1), jnp.zeros(0)
        probed = Probed.nothing()._replace(row=jnp.asarray(row))
        theta = jnp.asarray(1.0)
        product = kkt_at(problem, x, none, theta).product
        metric, _ = local_metric(problem, x, none, theta, product, STEP, none, probed)
        return np.broadcast_to(metric.gamma, (N,))


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


def test_what_was_measured_before_is_not_asked_again():
    M = np.diag(np.linspace(1.0, 9.0, N))
    np.testing.assert_array_equal(gamma_of(M, total=2.0, row=1e9), STEP)


def test_penalties_grow_by_how_much_stiffer_the_constrained_directions_are():
    """H = I + total·11ᵀ along ∇f = 1 is 1 + N·total; a penalty for H = I would be so many times too small."""
    box, total = vv.Box(-np.ones(N), np.ones(N)), 2.0
    problem = vv.MisspecifiedVI(
        lambda x, t: x + t * total * x.sum(), box, lambda x, t: t * x.sum() - 1.0, vv.Known(1.0)
    )
    for known, expected in ((np.nan, 1.0 + N * total), (7.0, 7.0)):
        with double():
            x, lam, theta = jnp.full(N, 0.1), jnp.ones(1), jnp.asarray(1.0)
            metric = Metric(jnp.ones(N), jnp.ones(1) / N)
            probed = Probed.nothing()._replace(along=jnp.asarray(known))
            found, asked = stiffened(kkt_at(problem, x, lam, theta).product, metric, probed, x)
        np.testing.assert_allclose(found.rho, expected / N, rtol=1e-12)
        np.testing.assert_allclose(asked.along, expected, rtol=1e-12)
