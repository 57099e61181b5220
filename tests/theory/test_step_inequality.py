"""Steps of Algorithm 1 against the inequalities that the theorem sums up; φ, learning sums and late averages."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from theory.random_instances import build, run_all, stack
from viceversa import precision
from viceversa.constants.ingredients import LearningSums


def phi(u, v, rho):
    """The paper's definition, branch by branch: a naive twin of `vv.phi`."""
    return np.where(rho * u + v >= 0, u * v + rho / 2 * u**2, -(v**2) / (2 * rho))


def test_exact_form_of_phi_and_the_dual_inequality():
    """φ_ρ(u, v) = (v₊² − v²)/(2ρ), and −φ_ρ(u, v) + λu ≤ ((v − λ)² − (v₊ − λ)²)/(2ρ)."""
    rng = np.random.default_rng(0)
    u, v, lam = rng.normal(0, 3, 10**5), rng.exponential(2, 10**5), rng.exponential(2, 10**5)
    rho = rng.uniform(0.01, 10, 10**5)
    v_next = np.maximum(v + rho * u, 0.0)
    np.testing.assert_allclose(phi(u, v, rho), (v_next**2 - v**2) / (2 * rho), rtol=1e-9, atol=1e-9)
    with precision.double():
        np.testing.assert_allclose(np.asarray(vv.phi(u, v, rho)), phi(u, v, rho), rtol=1e-9, atol=1e-9)
    right = ((v - lam) ** 2 - (v_next - lam) ** 2) / (2 * rho)
    assert (-phi(u, v, rho) + lam * u <= right + 1e-12 * (1 + np.abs(right) + v**2 / rho)).all()


def test_learning_sums_bound_the_series():
    for q in (0.0, 0.3, 0.9, 0.99):
        sums, k = LearningSums(a0=1.7, q=q), np.arange(20_000)
        a = 1.7 * q**k
        t = 1 + 0.3 * k
        expected = (a.sum(), (a**2).sum(), ((k + 2.0) ** 2 * a**2).sum())
        np.testing.assert_allclose((sums.S1, sums.S2, sums.S_weighted), expected, rtol=1e-9)
        growing = ((t * a).sum(), (t**2 * a).sum(), (t**2 * a**2).sum())
        np.testing.assert_allclose(sums.growing(0.3), growing, rtol=1e-9)


@pytest.mark.parametrize("penalty", [0.05, 2.0])
def test_one_step_inequality_of_version_B(penalty):
    """Every step of Algorithm 1 on random nonlinear instances satisfies it at random (x, λ), with slack ≥ −1e-12."""
    instances = [build((6, 3, 4), seed, nonlinear=True) for seed in range(20)]
    constants = [vv.constants(instance.problem) for instance in instances]
    steps = [1.0 / (2 * float(c.L_F_x) + penalty * float(c.C1) + 20.0 * float(c.C2)) for c in constants]
    problem = stack([instance.problem for instance in instances])
    rates = np.array([float(i.problem.learning.default_rate()) for i in instances])
    x0, theta0 = (np.stack([getattr(i, name) for i in instances]) for name in ("x0", "theta0"))
    xs, lams, thetas = run_all(problem, np.array(steps), np.full(20, penalty), rates, x0, theta0, 60)
    rng = np.random.default_rng(0)
    with precision.double():
        F = jax.jit(jax.vmap(jax.vmap(lambda p, x, t: p.operator(x, t), (None, 0, 0)), (0, 0, 0)))
        f = jax.jit(jax.vmap(jax.vmap(lambda p, x, t: p.constraints(x, t), (None, 0, 0)), (0, 0, 0)))
        K = xs.shape[1] - 1
        theta_true = np.stack([np.broadcast_to(i.theta_true, (K, i.theta_true.size)) for i in instances])
        # Far points and close ones: the inequality is nearly tight where (x, λ) is close to the new iterate.
        reach = np.resize([1.0, 0.1, 0.01, 0.0], (20, 1, 1))
        y = np.clip(xs[:, 1:] + reach * rng.normal(0, 1, xs[:, 1:].shape), -1, 1)
        F_k = np.asarray(F(problem, jnp.asarray(xs), jnp.asarray(thetas)))
        F_true = np.asarray(F(problem, jnp.asarray(y), jnp.asarray(theta_true)))
        f_true = np.asarray(f(problem, jnp.asarray(xs[:, 1:]), jnp.asarray(theta_true)))
        f_y = np.asarray(f(problem, jnp.asarray(y), jnp.asarray(thetas[:, :-1])))
    lam = np.maximum(lams[:, 1:] + reach * rng.normal(0, 1, lams[:, 1:].shape), 0.0)
    sq = lambda v: np.sum(v**2, axis=-1)
    dot = lambda u, v: np.sum(u * v, axis=-1)
    r = np.diff(F_k, axis=1)  # r_{k+1}
    r_k = np.concatenate([np.zeros_like(r[:, :1]), r[:, :-1]], axis=1)
    delta = np.diff(xs, axis=1)
    a = np.linalg.norm(thetas - theta_true[:, :1], axis=-1)
    gamma = np.array(steps)[:, None]
    column = lambda name: np.array([float(getattr(c, name)) for c in constants])[:, None]
    L_k = penalty * column("C1") + np.linalg.norm(lams[:, :-1], axis=-1) * column("C2")
    left = dot(xs[:, 1:] - y, F_true) + dot(lam, f_true) - phi(f_y, lams[:, :-1], penalty).sum(-1)
    right = (sq(xs[:, :-1] - y) - sq(xs[:, 1:] - y)) / (2 * gamma)
    right += (sq(lams[:, :-1] - lam) - sq(lams[:, 1:] - lam)) / (2 * penalty)
    right += (
        dot(r, xs[:, 1:] - y)
        - dot(r_k, xs[:, :-1] - y)
        - dot(r_k, delta)
        - 0.5 * (1 / gamma - L_k) * sq(delta)
    )
    right += column("L_F_theta") * a[:, 1:] * np.linalg.norm(xs[:, 1:] - y, axis=-1)
    right += column("ell") * np.linalg.norm(lam, axis=-1) * a[:, :-1]
    assert (left <= right + 1e-12 * (1 + np.abs(right) + np.abs(left))).all()
    # Not vacuous: with the sign of one reflection term turned around it fails somewhere.
    turned = right + 2 * dot(r_k, xs[:, :-1] - y) + 2 * dot(r_k, delta) - 2 * dot(r, xs[:, 1:] - y)
    assert (left > turned + 1e-9).any()


def test_an_average_from_a_late_start_needs_the_multiplier_term():
    """F = −1, X = [−1, 1], f = x, λ_m = 100, ρ = 0.1 keeps gap 1 for a thousand steps: without ‖λ_m‖²/(2ρ) the bound is false."""
    problem = vv.MisspecifiedVI(
        lambda x, t: 0.0 * x - 1.0, vv.Box([-1.0], [1.0]), lambda x, t: x, vv.Known(0.0)
    )
    method = vv.AugmentedLagrangian(step_size=1.0, penalty=0.1)
    record = vv.Record(at=range(901), points=True)
    run = vv.solve(problem, method, x0=[-1.0], multiplier0=[100.0], tol=0.0, max_iter=900, record=record)
    proved = vv.runtime_certificate(problem, run, method)
    gap = -1.0 * (run.x_average[0] - 0.0)  # sup over X_0 = [−1, 0] of F(y)(x̄ − y) is at y = 0
    without = (proved.C_gap - 100.0**2 / (2 * 0.1)) / proved.K
    assert gap > 0.9
    assert gap > without
    assert gap <= proved.relaxed_gap(0.0)
