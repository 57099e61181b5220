"""φ_ρ, Φ_ρ, its gradients and 𝓛_ρ: the paper's piecewise definition, finite differences, and the method's own update."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_nonlinear as small
import viceversa as vv

PROBLEM = small.problem()
NUMBER = st.floats(-50.0, 50.0)


@given(u=NUMBER, v=NUMBER, rho=st.floats(1e-3, 1e3))
def test_phi_is_the_papers_piecewise_function(u, v, rho):
    expected = u * v + rho / 2 * u**2 if rho * u + v >= 0 else -(v**2) / (2 * rho)
    scale = abs(u * v) + rho * u**2 + v**2 / rho
    assert float(vv.phi(u, v, rho)) == pytest.approx(expected, abs=1e-14 * scale + 1e-300)


def point(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(small.LOWER, small.UPPER, (2, small.N))
    return x, y, rng.uniform(0.0, 2.0, small.J), rng.uniform(0.3, 3.0, 2), rng.uniform(0.1, 3.0)


def naive_Phi(x, lam, theta, rho):
    f = small.Oracles().f(x, theta)
    return sum(
        f[j] * lam[j] + rho / 2 * f[j] ** 2 if rho * f[j] + lam[j] >= 0 else -(lam[j] ** 2) / (2 * rho)
        for j in range(small.J)
    )


def central(function, at, h=1e-6):
    steps = np.eye(at.size) * h
    return np.array([(function(at + e) - function(at - e)) / (2 * h) for e in steps])


@pytest.mark.parametrize("seed", range(6))
def test_Phi_and_its_gradients(seed):
    x, y, lam, theta, rho = point(seed)
    assert float(vv.Phi(PROBLEM, x, lam, theta, rho)) == pytest.approx(
        naive_Phi(x, lam, theta, rho), rel=1e-13
    )
    slope_x = central(lambda z: naive_Phi(z, lam, theta, rho), x)
    np.testing.assert_allclose(vv.grad_x_Phi(PROBLEM, x, lam, theta, rho), slope_x, rtol=1e-7, atol=1e-7)
    slope_lam = central(lambda z: naive_Phi(x, z, theta, rho), lam)
    np.testing.assert_allclose(
        vv.grad_lambda_Phi(PROBLEM, x, lam, theta, rho), slope_lam, rtol=1e-7, atol=1e-7
    )
    expected = small.Oracles().F(y, theta) @ (x - y) + naive_Phi(x, lam, theta, rho)
    assert float(vv.augmented_lagrangian(PROBLEM, x, y, theta, lam, rho)) == pytest.approx(
        expected, rel=1e-12
    )


def test_the_method_steps_along_these_gradients():
    gamma, rho = 0.05, 0.4
    method = vv.AugmentedLagrangian(step_size=gamma, penalty=rho, learning_rate=0.1)
    starts = {"x0": small.X0, "theta0": small.THETA0, "multiplier0": small.LAM0}
    first, second, third = itertools.islice(vv.iterate(PROBLEM, method, **starts), 3)
    F = small.Oracles().F
    r = F(second.x, second.theta) - F(first.x, first.theta)
    # ∇ₓ𝓛_ρ(x, y, θ, λ) at y = x is F(x, θ) + ∇ₓΦ_ρ.
    gradient = F(second.x, second.theta) + vv.grad_x_Phi(PROBLEM, second.x, second.lam, second.theta, rho)
    np.testing.assert_allclose(third.x, small.clip_x(second.x - gamma * (gradient + r)), atol=1e-13)
    ascent = second.lam + rho * vv.grad_lambda_Phi(PROBLEM, third.x, second.lam, second.theta, rho)
    np.testing.assert_allclose(third.lam, ascent, atol=1e-13)


def test_numpy_users_get_numpy_in_double_precision():
    x, y, lam, theta, rho = point(0)
    before = jax.numpy.ones(1).dtype
    for value in (
        vv.phi(x, x, rho),
        vv.Phi(PROBLEM, x, lam, theta, rho),
        vv.grad_x_Phi(PROBLEM, x, lam, theta, rho),
        vv.grad_lambda_Phi(PROBLEM, x, lam, theta, rho),
        vv.augmented_lagrangian(PROBLEM, x, y, theta, lam, rho),
    ):
        assert isinstance(value, np.ndarray)
        assert value.dtype == np.float64
    assert jax.numpy.ones(1).dtype == before == np.float32


def test_derivative_of_the_positive_part_at_the_tie_is_zero():
    with vv.precision.double():
        slope = jax.grad(lambda u: vv.numerics.positive_part(u))
        assert [float(slope(jax.numpy.asarray(u))) for u in (-1.0, 0.0, 1.0)] == [0.0, 0.0, 1.0]
