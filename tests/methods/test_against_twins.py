"""Each method against its naive NumPy twin for many iterates, and the twin's mutants against the method."""

from __future__ import annotations

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import small_nonlinear as small
import viceversa as vv

STARTS = {"x0": small.X0, "theta0": small.THETA0, "multiplier0": small.LAM0}
N_STEPS = 25
RATE = 0.15


METHODS = {
    "algorithm 1": lambda: vv.AugmentedLagrangian(step_size=0.05, penalty=0.4, learning_rate=RATE),
    "adaptive": lambda: vv.AdaptiveAugmentedLagrangian(learning_rate=RATE),
    "adaptive, heavy": lambda: vv.AdaptiveAugmentedLagrangian(weight=20.0, learning_rate=RATE),
    "extragradient, 1": lambda: vv.ExtragradientLagrangian(step_size=0.04, learning_rate=RATE),
    "extragradient, 10": lambda: vv.ExtragradientLagrangian(
        step_size=0.04, dual_ratio=10.0, learning_rate=RATE
    ),
    "tikhonov": lambda: vv.TikhonovLagrangian(
        step_size=vv.steps.Power(0.1, 0.5), dual_ratio=3.0, learning_rate=RATE
    ),
}


@functools.cache
def run_named(name):
    return run(METHODS[name]())


def average(name):
    points = vv.iterate(small.problem(), METHODS[name](), **STARTS)
    return next(itertools.islice(points, N_STEPS, None)).x_average


def run(method, n_steps=N_STEPS):
    points = itertools.islice(vv.iterate(small.problem(), method, **STARTS), n_steps + 1)
    return [(p.x, p.lam, p.theta) for p in points]


SCHEDULES = {
    "constants": (0.05, 0.4, RATE, lambda k: 0.05, lambda k: 0.4, lambda k: RATE),
    "schedules": (
        lambda k: 0.05 / np.sqrt(k + 1.0),
        vv.steps.Power(0.9, -0.25),
        lambda k: RATE / (1.0 + 0.1 * k),
        lambda k: 0.05 / (k + 1.0) ** 0.5,
        lambda k: 0.9 * (k + 1.0) ** 0.25,
        lambda k: RATE / (1.0 + 0.1 * k),
    ),
}


@pytest.mark.parametrize("steps", SCHEDULES.values(), ids=SCHEDULES)
def test_algorithm_1(steps):
    gamma, rho, eta, *naive = steps
    found = run(vv.AugmentedLagrangian(step_size=gamma, penalty=rho, learning_rate=eta))
    expected = small.algorithm_1(N_STEPS, *naive)
    assert small.distance(found, expected) < 1e-12


def test_the_problem_has_everything_in_it():
    xs, lams, thetas = (np.array(part) for part in zip(*run_named("algorithm 1"), strict=True))
    assert ((xs == small.LOWER) | (xs == small.UPPER)).any()
    assert (lams[1:] > 0).any()
    assert (lams[1:] == 0).any()
    assert (thetas == small.THETA_LOWER).any() or np.abs(np.diff(thetas, axis=0)).min() > 0


ALGORITHM_1_SLIPS = [
    "plus in the reflection",
    "difference not joint",
    "multiplier at the old x",
    "multiplier at the new theta",
    "no transpose",
]


@pytest.mark.parametrize("mutant", ALGORITHM_1_SLIPS)
def test_slips_in_algorithm_1_are_seen(mutant):
    found = run_named("algorithm 1")
    slipped = small.algorithm_1(N_STEPS, lambda k: 0.05, lambda k: 0.4, lambda k: RATE, mutant=mutant)
    assert small.distance(found, slipped) > 1e-4


def test_rotation_tells_minus_from_plus():
    # The plane rotation: any consistent rule has 0 as its fixed point, only the reflected one goes there.
    rotate = np.array([[0.0, 1.0], [-1.0, 0.0]])
    problem = vv.MisspecifiedVI(lambda x, t: rotate @ x, set=vv.Free((2,)), learning=vv.Known(0.0))
    method = vv.AugmentedLagrangian(step_size=0.3, penalty=1.0)
    points = list(itertools.islice(vv.iterate(problem, method, x0=[1.0, 1.0]), 301))
    assert np.linalg.norm(points[-1].x) < 1e-4
    x = x_prev = np.array([1.0, 1.0])
    for _ in range(300):
        x, x_prev = x - 0.3 * (2 * rotate @ x + rotate @ x_prev), x
    assert np.linalg.norm(x) > 1e4


def test_adaptive():
    expected, gammas = small.adaptive(N_STEPS, RATE)
    assert small.distance(run_named("adaptive"), expected) < 1e-11
    method = METHODS["adaptive"]()
    solution = vv.solve(
        small.problem(), method, **STARTS, tol=0.0, max_iter=N_STEPS, record=vv.Record(at=range(N_STEPS + 1))
    )
    np.testing.assert_allclose(solution.trace.step_size[1:], gammas, rtol=1e-12)
    assert min(gammas) < 0.9 * max(gammas)  # both refusals and growth happen
    # Averages are weighted by γ_k.
    weighted = sum(g * x for g, (x, _, _) in zip(gammas, expected[1:], strict=True)) / sum(gammas)
    np.testing.assert_allclose(solution.x_average, weighted, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("mutant", ["reflection with the new step", "one test only"])
def test_slips_in_the_adaptive_method_are_seen(mutant):
    slipped, _ = small.adaptive(N_STEPS, RATE, weight=20.0, mutant=mutant)
    right, _ = small.adaptive(N_STEPS, RATE, weight=20.0)
    found = run_named("adaptive, heavy")
    assert small.distance(found, right) < 1e-10
    assert small.distance(found, slipped) > 1e-4


@pytest.mark.parametrize("ratio", [1, 10])
def test_extragradient(ratio):
    expected = small.extragradient(N_STEPS, 0.04, ratio, RATE)
    assert small.distance(run_named(f"extragradient, {ratio}"), expected) < 1e-12


@pytest.mark.parametrize("mutant", ["from the midpoint", "old multiplier"])
def test_slips_in_extragradient_are_seen(mutant):
    slipped = small.extragradient(N_STEPS, 0.04, 10.0, RATE, mutant=mutant)
    assert small.distance(run_named("extragradient, 10"), slipped) > 1e-4


TIKHONOV = {"gamma": lambda k: 0.1 / (k + 1) ** 0.5, "eps": lambda k: 1.0 / (k + 1) ** 0.45}


def test_tikhonov():
    expected = small.tikhonov(N_STEPS, omega=3.0, eta=RATE, **TIKHONOV)
    assert small.distance(run_named("tikhonov"), expected) < 1e-12


@pytest.mark.parametrize(
    "mutant", ["no regularisation", "wrong sign on the multiplier", "multiplier at the new x"]
)
def test_slips_in_tikhonov_are_seen(mutant):
    slipped = small.tikhonov(N_STEPS, omega=3.0, eta=RATE, mutant=mutant, **TIKHONOV)
    assert small.distance(run_named("tikhonov"), slipped) > 1e-4


def test_averages_are_those_of_the_theorems():
    xs = [x for x, _, _ in run_named("algorithm 1")]
    np.testing.assert_allclose(average("algorithm 1"), np.mean(xs[1:], axis=0), atol=1e-13)
    # Extragradient's theorem is about the midpoints.
    naive = small.Oracles()
    midpoints = [
        small.clip_x(x - 0.04 * (naive.F(x, theta) + naive.pullback(x, theta, lam)))
        for x, lam, theta in run_named("extragradient, 1")[:-1]
    ]
    np.testing.assert_allclose(average("extragradient, 1"), np.mean(midpoints, axis=0), atol=1e-13)


def test_learners_exchange():
    """The paper's closing remark: any learner may take line 7's place; x sees only its θ_k."""
    eta = 0.1
    method = vv.AugmentedLagrangian(step_size=0.05, penalty=0.4, learner=vv.ExtragradientLearner(eta))
    theta, naive = small.THETA0, small.Oracles()
    for _, _, found in run(method, 10)[1:]:
        middle = np.clip(theta - eta * naive.H(theta), small.THETA_LOWER, small.THETA_UPPER)
        theta = np.clip(theta - eta * naive.H(middle), small.THETA_LOWER, small.THETA_UPPER)
        np.testing.assert_allclose(found, theta, atol=1e-14)


@pytest.mark.parametrize("method", [vv.ExtragradientLagrangian, vv.TikhonovLagrangian])
def test_per_player_copies_never_separate_from_a_common_start(method):
    """With one start for all copies they stay equal, so the literal reading gives the shared iterates."""
    shared = run(method(step_size=0.03, dual_ratio=4.0, learning_rate=RATE))
    literal = method(step_size=0.03, dual_ratio=4.0, learning_rate=RATE, multipliers="per_player")
    assert small.distance(run(literal), shared) < 1e-12


def test_per_player_copies_are_one_per_player_and_stay_equal():
    method = vv.ExtragradientLagrangian(step_size=0.03, learning_rate=RATE, multipliers="per_player")
    solution = vv.solve(small.problem(), method, **STARTS, tol=0.0, max_iter=N_STEPS)
    copies = np.asarray(solution.state.method.lam)
    assert copies.shape == (small.N, small.J)
    assert np.ptp(copies, axis=0).max() == 0.0
    assert copies.max() > 0


def test_per_player_copies_that_start_apart_lead_elsewhere():
    """Player i's gradient sees λ_i: two players, two copies, explicit formulas."""
    Q = np.array([[2.0, 1.0], [1.0, 2.0]])
    problem = vv.MisspecifiedVI(
        lambda x, t: Q @ x - 3.0,
        set=vv.Box(np.zeros(2), np.full(2, 5.0)),
        constraints=lambda x, t: x[0] + 2.0 * x[1] - 1.0,
        learning=vv.Known(0.0),
    )
    with vv.precision.double():
        x, lam = jnp.array([1.0, 2.0]), jnp.array([[0.5], [2.0]])
        first, second = vv.lagrangian.lagrangian_operator(problem, x, lam, jnp.array(0.0), per_player=True)
    np.testing.assert_allclose(first, Q @ [1.0, 2.0] - 3.0 + np.array([0.5 * 1.0, 2.0 * 2.0]))
    np.testing.assert_allclose(second, [[4.0], [4.0]])
