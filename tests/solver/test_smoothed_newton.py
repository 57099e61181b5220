"""The smoothed natural map of a box: its formulas, its Newton step against a dense twin, and what it is for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa.precision import double
from viceversa.schemes import newton_system
from viceversa.schemes.newton_system import Metric, kkt_at
from viceversa.schemes.smoothed_newton import (
    Smoothing,
    is_linear,
    may_leave_the_set,
    smoothed_direction,
    smoothed_map,
    smoothed_projection,
)

LOW, HIGH = np.array([0.0, -1.0, -np.inf, 0.5, -np.inf]), np.array([1.0, np.inf, 2.0, 0.5, np.inf])


def plain_smoothing(low: float, high: float, v: float, m: float) -> float:
    """The rounded corner, written for one number."""
    p = v
    if np.isfinite(low):
        p += (np.sqrt((v - low) ** 2 + 4 * m * m) - (v - low)) / 2
    if np.isfinite(high):
        p -= (np.sqrt((high - v) ** 2 + 4 * m * m) - (high - v)) / 2
    return p


@pytest.mark.parametrize("m", [0.0, 1e-3, 0.7])
def test_smoothed_projection_is_the_formula_and_its_derivatives(m):
    rng = np.random.default_rng(0)
    with double():
        X = vv.Box(LOW, HIGH)
        for _ in range(20):
            v = rng.normal(scale=2.0, size=5)
            found = smoothed_projection(X, jnp.asarray(v), m * m)
            expected = [plain_smoothing(low, high, at, m) for low, high, at in zip(LOW, HIGH, v, strict=True)]
            np.testing.assert_allclose(found.value, expected, atol=1e-14)
            step = 1e-6
            after = smoothed_projection(X, jnp.asarray(v + step), m * m).value
            before = smoothed_projection(X, jnp.asarray(v - step), m * m).value
            np.testing.assert_allclose(found.slope, (after - before) / (2 * step), atol=1e-5)
            if m > 0.0:
                step = 1e-3 * m * m
                after = smoothed_projection(X, jnp.asarray(v), m * m + step).value
                before = smoothed_projection(X, jnp.asarray(v), m * m - step).value
                np.testing.assert_allclose(found.by_m_sq, (after - before) / (2 * step), rtol=1e-4, atol=1e-6)
            else:
                np.testing.assert_allclose(found.value, X.project(jnp.asarray(v)), rtol=0, atol=1e-15)


@pytest.mark.parametrize("by", ["elimination", "Krylov vectors"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_newton_step_solves_the_dense_system(symmetric, by, monkeypatch):
    share = 0.2
    if by != "elimination":
        share = 0.0  # with some smoothing left, the system may be solved less accurately
        monkeypatch.setattr(newton_system, "DENSE", 0)
        monkeypatch.setattr(newton_system, "DENSE_SYMMETRIC", 0)
    rng = np.random.default_rng(3)
    n, J, c = 7, 2, 0.09
    A = rng.normal(size=(n, n))
    M = A @ A.T / n + np.eye(n) + (0.0 if symmetric else 1.0) * (A - A.T)
    q, B = rng.normal(size=n), rng.normal(size=(J, n))
    problem = vv.MisspecifiedVI(
        lambda x, t: M @ x + q,
        vv.Box(-np.ones(n), np.ones(n)),
        lambda x, t: B @ x + 0.5 * (x * x).sum() - 1.0,
        vv.Known(1.0),
        symmetric=symmetric,
    )
    x, lam = rng.normal(size=n), rng.uniform(0.1, 1.0, J)

    with double():
        metric = Metric(jnp.asarray(rng.uniform(0.2, 2.0, n)), jnp.asarray(rng.uniform(0.2, 2.0, J)))
        at = jnp.asarray(x), jnp.asarray(lam)
        here = smoothed_map(problem, *at, kkt_at(problem, *at, jnp.asarray(1.0)), metric, Smoothing(c, share))
        step = smoothed_direction(problem, here, rtol=1e-13, regularization=0.0)
        gamma, rho = np.asarray(here.metric.gamma), np.asarray(here.metric.rho)

        def corner(w, m_sq):
            return (jnp.sqrt(w * w + 4 * m_sq) - w) / 2

        def residual(z, c):
            at, multiplier = z[:n], z[n:]
            f = B @ at + 0.5 * jnp.sum(at * at) - 1.0
            v = at - gamma * (M @ at + q + (B.T + at[:, None]) @ multiplier)
            w = multiplier + rho * f
            p = v + corner(v + 1.0, c * gamma) - corner(1.0 - v, c * gamma)
            return jnp.concatenate([at - p, multiplier - w - corner(w, c * rho)])

        z, dc = jnp.concatenate([x, lam]), (share - 1.0) * c
        by_z, by_c = jax.jacfwd(residual, argnums=(0, 1))(z, c)
        dense = jnp.linalg.solve(by_z, -residual(z, c) - by_c * dc)
    np.testing.assert_allclose(np.concatenate([step.x, step.lam]), dense, rtol=0, atol=1e-9)


def test_only_what_means_the_same_outside_the_set_may_leave_it():
    box = vv.Box([0.0], [1.0])
    cases = {
        "affine": (lambda x, t: t * x - 1.0, lambda x, t: x * x - 1.0, True),
        "exponential": (lambda x, t: jnp.exp(x), None, False),
        "logarithmic constraint": (lambda x, t: x, lambda x, t: -jnp.log(1.0 + x), False),
    }
    for F, f, expected in cases.values():
        assert may_leave_the_set(vv.MisspecifiedVI(F, box, f, vv.Known(2.0))) is expected


def test_linear_is_what_has_a_constant_jacobian():
    box = vv.Box([0.0], [1.0])
    for f, expected in ((None, True), (lambda x, t: t * x - 1.0, True), (lambda x, t: x * x - 1.0, False)):
        assert is_linear(vv.MisspecifiedVI(lambda x, t: t * x - 1.0, box, f, vv.Known(2.0))) is expected


def test_smoothing_shrinks_faster_with_every_full_step_and_slowly_after_a_short_one():
    with double():
        smoothing = Smoothing(jnp.asarray(1.0), jnp.asarray(0.1))
        energies = []
        for t in (1.0, 1.0, 0.25, 1.0):
            smoothing = smoothing.after(t)
            energies.append(float(smoothing.c))
    left = [0.1, 0.1**1.5, 1.0 - 0.25 * (1.0 - 0.1**2.25), 0.1]
    np.testing.assert_allclose(energies, np.cumprod(left), rtol=1e-12)


@pytest.mark.parametrize(
    ("n_firms", "n_products"), [pytest.param(5000, 2, marks=pytest.mark.slow), (100_000, 1)]
)
def test_any_number_of_coupled_firms_needs_hardly_more_steps_than_fifty(n_firms, n_products):
    """Every firm's cost depends on the total: guessing active bounds one Newton step at a time goes to and fro, and with
    smoothing the total is made up of ever so many tiny outputs."""
    newton = vv.SemismoothNewton()
    few = vv.solve(vv.gallery.cournot(50, n_products, 0).problem, newton)
    many = vv.solve(vv.gallery.cournot(n_firms, n_products, 0).problem, newton)
    assert few.success
    assert many.success
    assert many.nit <= few.nit + 10
    assert int(many.state.n_failed) == 0
