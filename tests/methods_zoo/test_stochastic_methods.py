"""Stochastic approximation, randomized constraint blocks, and learning from mini-batches."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import viceversa as vv
from methods_zoo import small_problems as P
from methods_zoo import twins
from methods_zoo.running import many_seeds, run
from viceversa import precision

RNG = np.random.default_rng(3)
NOISE = RNG.standard_normal((50, 3))
NOISE -= NOISE.mean(axis=0)
DESIGN = RNG.standard_normal((40, 2))
TABLE = vv.LeastSquares(DESIGN, DESIGN @ P.THETA_TRUE, set=vv.Box(P.THETA_LOWER, P.THETA_UPPER))
LEARNER = vv.StochasticGradient(vv.steps.Power(0.02, 1.0), batch=3)

SAMPLED = vv.MisspecifiedVI(
    vv.FiniteSum(lambda x, theta, row: P.F(x, theta) + theta[0] * row, data=NOISE),
    set=vv.Box(P.LOWER, P.UPPER),
    constraints=P.f,
    learning=vv.SampledLearning(TABLE),
)
TIKHONOV = vv.StochasticApproximation(
    vv.steps.Power(0.2, 0.55),
    regularization=vv.steps.Power(0.5, 0.4),
    batch=2,
    dual_ratio=2.0,
    learner=LEARNER,
)


def drawn_keys(n, seed=0):
    """The keys a run uses: for the method and for the learner, step by step."""
    key, keys = jax.random.key(seed), []
    for _ in range(n):
        key, for_method, for_learner = jax.random.split(key, 3)
        keys.append((for_method, for_learner))
    return keys


def learn_from(rows, theta, k):
    H = np.zeros(2)
    for t in rows:
        H += DESIGN[t] * (DESIGN[t] @ theta - DESIGN[t] @ P.THETA_TRUE) * 40 / 3
    return np.clip(theta - 0.02 / (k + 1) * H, P.THETA_LOWER, P.THETA_UPPER)


def stochastic_twin(n, mutant=None):
    p = twins.nonlinear(2.0)
    x, lam, theta = P.X0.copy(), P.LAM0.copy(), P.THETA0.copy()
    with precision.double():
        draws = [
            (np.asarray(jax.random.randint(a, (2,), 0, 50)), np.asarray(jax.random.randint(b, (3,), 0, 40)))
            for a, b in drawn_keys(n)
        ]
    for k in range(n):
        yield x, lam, theta
        gamma, eps = 0.2 * (k + 1.0) ** -0.55, 0.5 * (k + 1.0) ** -0.4
        rows, batch = draws[k]
        F = p.F(x, theta) + theta[0] * (NOISE[rows[0]] + NOISE[rows[1]]) / 2
        f, J = p.f(x, theta), p.jacobian(x, theta)
        force = F + J[0] * lam[0] + J[1] * lam[1] + (0.0 if mutant == "no ridge" else eps) * x
        theta_next = learn_from(batch, theta, k)
        x = twins.box(x - gamma * force)
        f = p.f(x, theta) if mutant == "new x" else f
        lam = np.maximum(lam + 2.0 * gamma * (f - eps * lam), 0.0)
        theta = theta_next


def test_stochastic_approximation_is_its_twin_on_the_same_draws():
    points, _ = run(SAMPLED, TIKHONOV, 13, P.X0, P.THETA0, P.LAM0)
    for k, (x, lam, theta) in enumerate(stochastic_twin(13)):
        np.testing.assert_allclose(points.x[k], x, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(points.lam[k], lam, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(points.theta[k], theta, rtol=1e-11)
    for mutant in ("no ridge", "new x"):
        assert (
            max(
                np.abs(points.lam[k] - lam).max() for k, (_, lam, _) in enumerate(stochastic_twin(13, mutant))
            )
            > 1e-4
        )


def test_a_seed_repeats_a_run_and_another_does_not():
    a, _ = run(SAMPLED, TIKHONOV, 13, P.X0, P.THETA0, P.LAM0, seed=0)
    b, _ = run(SAMPLED, TIKHONOV, 13, P.X0, P.THETA0, P.LAM0, seed=0)
    c, _ = run(SAMPLED, TIKHONOV, 13, P.X0, P.THETA0, P.LAM0, seed=1)
    np.testing.assert_array_equal(a.x, b.x)
    assert np.abs(a.x[-1] - c.x[-1]).max() > 1e-4


def test_deterministic_methods_carry_no_key():
    _, state = run(P.nonlinear(), vv.ProjectionMethod(0.1), 1, P.X0, P.THETA0)
    assert state.key is None


def test_theorem_mean_square_error_of_stochastic_approximation_falls_like_one_over_k():
    """x* = θ* = 2 from noisy F = x − θ and a noisy table: E‖x_k − x*‖² k is bounded; constant steps stay noisy."""
    rows = np.concatenate([np.ones(30), -np.ones(30)])
    learning = vv.LeastSquares(np.ones(60), 2.0 + rows, set=vv.Box(0.0, 5.0, shape=()))
    problem = vv.MisspecifiedVI(
        vv.FiniteSum(lambda x, theta, row: x - theta + row, data=rows[:, None]),
        set=vv.Box([-5.0], [5.0]),
        learning=vv.SampledLearning(learning),
    )
    learner = vv.StochasticGradient(vv.steps.Power(1.0 / 60.0, 1.0))

    def mean_square(step):
        points = many_seeds(problem, vv.StochasticApproximation(step, learner=learner), 1600, [4.0], 5.0)
        return ((points.x[:, :, 0] - 2.0) ** 2).mean(axis=0), points

    falling, _ = mean_square(vv.steps.Power(1.0, 1.0))
    assert 8.0 < falling[99] / falling[1599] < 32.0  # 16 for 1/k
    assert falling[1599] < 20.0 / 1600
    constant, points = mean_square(0.5)
    assert constant[1599] > 0.5 * constant[99] > 0.05
    average = ((points.x_average[:, -1, 0] - 2.0) ** 2).mean()
    assert average < 0.05 * constant[1599]  # what averaging is for


def test_sampled_learning_is_unbiased_and_keeps_its_exact_side():
    sampled = vv.SampledLearning(TABLE)
    theta = np.array([2.0, 0.5])
    with precision.double():
        keys = jax.random.split(jax.random.key(1), 4000)
        draws = np.asarray(
            jax.jit(jax.vmap(lambda k: sampled.sample_operator(jax.numpy.asarray(theta), k, 4)))(keys)
        )
        exact = np.asarray(sampled.operator(jax.numpy.asarray(theta)))
    np.testing.assert_allclose(exact, DESIGN.T @ (DESIGN @ (theta - P.THETA_TRUE)), rtol=1e-12)
    error = np.abs(draws.mean(axis=0) - exact)
    assert (error < 5.0 * draws.std(axis=0) / np.sqrt(4000)).all()
    assert sampled.mu == TABLE.mu


# Forty halfspaces around the unit disc, and a rotation about (2, 0) pulled inside by a little strong monotonicity.
ANGLES = 2.0 * np.pi * np.arange(40) / 40
NORMALS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
MANY = vv.MisspecifiedVI(
    lambda x, theta: np.stack([x[0] - 2.0 + 0.5 * x[1], x[1] - 0.5 * (x[0] - 2.0)]),
    set=vv.Box([-3.0, -3.0], [3.0, 3.0]),
    constraints=vv.IndexedConstraints(lambda x, theta, row: row @ x - theta, data=NORMALS),
    learning=vv.SecondaryVI(lambda theta: 2.0 * (theta - 1.0), set=vv.Box(0.5, 3.0, shape=())),
)


def randomized_twin(n, block, mutant=None):
    x, lam, theta = np.array([2.5, 2.5]), np.zeros(40), 0.6
    for k, (key, _) in enumerate(drawn_keys(n)):
        yield x, lam
        with precision.double():
            S = np.asarray(jax.random.choice(jax.random.split(key)[0], 40, (block,), replace=False))
        gamma = rho = 0.1 * (k + 1.0) ** -0.5
        force = np.array([x[0] - 2.0 + 0.5 * x[1], x[1] - 0.5 * (x[0] - 2.0)])
        scale = 1.0 if mutant == "not scaled" else 40 / block
        for j in S:
            force = force + scale * max(rho * (NORMALS[j] @ x - theta) + lam[j], 0.0) * NORMALS[j]
        x_old, x = x, np.clip(x - gamma * force, -3.0, 3.0)
        lam = lam.copy()
        for j in S:
            lam[j] = max(lam[j] + rho * (NORMALS[j] @ (x_old if mutant == "old x" else x) - theta), 0.0)
        theta = min(max(theta - 0.1 * 2.0 * (theta - 1.0), 0.5), 3.0)


def randomized(block, steps=None):
    steps = vv.steps.Power(0.1, 0.5) if steps is None else steps
    return vv.RandomizedLagrangian(steps, steps, block=block, learning_rate=0.1)


def test_randomized_blocks_are_their_twin_on_the_same_draws():
    points, _ = run(MANY, randomized(5), 40, [2.5, 2.5], 0.6)
    for k, (x, lam) in enumerate(randomized_twin(40, 5)):
        np.testing.assert_allclose(points.x[k], x, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(points.lam[k], lam, rtol=1e-11, atol=1e-13)
    for mutant in ("not scaled", "old x"):
        apart = [np.abs(points.x[k] - x).max() for k, (x, _) in enumerate(randomized_twin(40, 5, mutant))]
        assert max(apart) > 1e-5, mutant


def test_the_average_over_random_blocks_approaches_the_solution():
    """x* is where the rotation's pull meets the polygon: near (cos φ, sin φ); compared with all constraints at once."""
    exact, _ = run(MANY, vv.AugmentedLagrangian(0.05, 0.2, learning_rate=0.1), 4000, [-1.0, 2.0], 2.5)
    x_star = exact.x[-1]
    points = many_seeds(MANY, randomized(10, vv.steps.Power(0.3, 0.5)), 3000, [-1.0, 2.0], 2.5)
    error = np.linalg.norm(points.x_average - x_star, axis=2).mean(axis=0)
    assert error[2999] < 0.35 * error[299]
    assert error[2999] < 0.1


def test_stochastic_methods_say_what_they_need():
    with pytest.raises(vv.InputError, match="the operator gives no samples"):
        vv.solve(P.nonlinear(), vv.StochasticApproximation(0.1), max_iter=1)
    with pytest.raises(vv.InputError, match="cannot be asked for a block"):
        vv.solve(P.nonlinear(), randomized(1), max_iter=1)
    with pytest.raises(vv.InputError, match="block is 41; there are only 40"):
        vv.solve(MANY, randomized(41), max_iter=1)
    with pytest.raises(
        vv.InputError, match="StochasticGradient: the learning problem is SecondaryVI, which gives no samples"
    ):
        run(P.nonlinear(), vv.ProjectionMethod(0.1, learner=LEARNER), 1, P.X0, P.THETA0)
    with pytest.raises(vv.InputError, match="has no rows to draw"):
        vv.SampledLearning(P.learning())
    with pytest.raises(vv.InputError, match="arrays with the same number"):
        vv.FiniteSum(lambda x, t, row: x, data=(np.ones(3), np.ones(4)))
