"""Saddle points: the learning-aware and the naive primal–dual method, backtracking, learning by a saddle point."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import viceversa as vv
from methods_zoo.running import run
from viceversa import precision
from viceversa.schemes import as_scheme

K = np.array([[1.0, -2.0], [0.5, 1.5]])
THETA_TRUE, THETA0 = 1.0, 2.5


def phi(x, y, theta):
    """Bilinear but for a quartic in x; θ is in the coupling and in both linear terms."""
    return theta * (y @ (K @ x)) + 0.25 * (x**4).sum() - theta * x.sum() + 0.5 * theta * y[0]


def phi_x(x, y, theta):
    return theta * (K.T @ y) + x**3 - theta


def phi_y(x, y, theta):
    return theta * (K @ x) + np.array([0.5 * theta, 0.0])


def learning():
    return vv.SecondaryVI(lambda theta: 2.0 * (theta - THETA_TRUE), set=vv.Box(0.5, 3.0, shape=()))


BOX = vv.Box([-2.0, -2.0], [2.0, 2.0])
PROBLEM = vv.SaddlePoint(phi, BOX, BOX, learning())
START = np.array([0.5, -0.4, 0.3, 0.8])


def clip(v):
    return np.clip(v, -2.0, 2.0)


def twin(n, tau, ratio, naive, mu=0.0, backtracking=False, mutant=None):
    """(x, y) from the formulas; gradients written out."""
    x, y, theta = START[:2].copy(), START[2:].copy(), THETA0
    x_prev, y_prev, theta_prev, sigma_prev = x, y, theta, ratio * tau
    for _ in range(n):
        yield np.concatenate([x, y])
        old = phi_y(x_prev, y_prev, theta if naive else theta_prev)
        new = phi_y(x, y, theta)
        while True:
            sigma = ratio * tau
            eta = 0.0 if mutant == "no momentum" else sigma_prev / sigma
            y_next = clip(y + sigma * ((1 + eta) * new - eta * old))
            x_next = clip(x - tau * phi_x(x, y if mutant == "old y" else y_next, theta))
            dx, dy = x_next - x, y_next - y
            left = (phi_x(x_next, y_next, theta) - phi_x(x, y_next, theta)) @ dx
            left += sigma / 0.6 * np.sum((phi_y(x_next, y_next, theta) - phi_y(x, y_next, theta)) ** 2)
            left += sigma / 0.6 * np.sum((phi_y(x, y_next, theta) - new) ** 2)
            if not backtracking or left <= 0.9 * (dx @ dx) / (2 * tau) + 0.3 * (dy @ dy) / (2 * sigma):
                break
            tau *= 0.7
        ratio_next = ratio * (1 + mu * tau)
        sigma_prev = ratio * tau
        tau, ratio = tau * np.sqrt(ratio / ratio_next), ratio_next
        x_prev, y_prev, theta_prev = x, y, theta
        x, y = x_next, y_next
        theta = theta - 0.1 * 2.0 * (theta - THETA_TRUE)


CASES = {
    "learning_aware": ({"momentum": "learning_aware", "mu": 0.3}, {"naive": False, "mu": 0.3}),
    "naive": ({"momentum": "naive"}, {"naive": True}),
    "backtracking": ({"backtracking": True}, {"naive": False, "backtracking": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_method_is_its_twin_and_not_a_mutant(name):
    given, same = CASES[name]
    tau = 2.0 if name == "backtracking" else 0.15
    method = vv.LearningAwarePrimalDual(tau, ratio=1.5, learning_rate=0.1, **given)
    points, state = run(PROBLEM, method, 14, START, THETA0)
    for k, z in enumerate(twin(15, tau, 1.5, **same)):
        np.testing.assert_allclose(points.x[k], z, rtol=1e-11, atol=1e-12)
    mutants = [{"mutant": "no momentum"}, {"mutant": "old y"}, {"naive": not same["naive"]}]
    for mutant in mutants:
        apart = [
            np.abs(points.x[k] - z).max() for k, z in enumerate(twin(15, tau, 1.5, **{**same, **mutant}))
        ]
        assert max(apart) > 1e-3, mutant
    assert (float(state.method.tau) < tau) == (name != "naive")


def test_on_a_bilinear_saddle_point_momentum_is_what_converges():
    """min_x max_y θ(x − 1)(y − 1): without momentum the steps circle; with it the last iterate arrives."""
    one = vv.Box([-9.0], [9.0])
    problem = vv.SaddlePoint(lambda x, y, t: t * (x[0] - 1.0) * (y[0] - 1.0), one, one, learning())
    points, _ = run(problem, vv.LearningAwarePrimalDual(0.4), 400, [3.0, 0.0], THETA0)
    assert np.abs(points.x[-1] - 1.0).max() < 1e-6
    x, y = 3.0, 0.0
    for _ in range(400):
        y = y + 0.4 * (x - 1.0)
        x = x - 0.4 * (y - 1.0)
    assert np.hypot(x - 1.0, y - 1.0) > 1.0
    backtracked, _ = run(
        problem, vv.LearningAwarePrimalDual(50.0, backtracking=True), 400, [3.0, 0.0], THETA0
    )
    assert np.abs(backtracked.x[-1] - 1.0).max() < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_declared_gradient_counts_are_the_counted_ones(name):
    calls = []

    def counted(x, y, theta):
        jax.debug.callback(lambda: calls.append(1))
        return phi(x, y, theta)

    problem = vv.SaddlePoint(counted, BOX, BOX, learning())
    scheme = as_scheme(vv.LearningAwarePrimalDual(0.4, learning_rate=0.1, **CASES[name][0]))
    with precision.double():
        starts = [jax.numpy.asarray(a) for a in (START, THETA0, np.zeros(0))]
        jax.effects_barrier()
        calls.clear()
        state = scheme.init(problem, *starts, jax.random.key(0))
        for _ in range(3):
            state, _ = scheme.step(problem, state)
        jax.effects_barrier()
        declared = int(scheme.counts(problem, state, 3).F)
    assert declared == len(calls)


def test_a_saddle_point_is_a_vi_for_every_other_method():
    points, _ = run(PROBLEM, vv.Extragradient(0.1, learning_rate=0.1), 3000, START, THETA0)
    same, _ = run(PROBLEM, vv.LearningAwarePrimalDual(0.2, learning_rate=0.1), 3000, START, THETA0)
    np.testing.assert_allclose(points.x[-1], same.x[-1], atol=1e-8)
    x, y = PROBLEM.operator.split(points.x[-1])
    assert isinstance(x, np.ndarray)
    np.testing.assert_allclose(clip(x - phi_x(x, y, THETA_TRUE)), x, atol=1e-7)
    np.testing.assert_allclose(clip(y + phi_y(x, y, THETA_TRUE)), y, atol=1e-7)


def test_learning_by_a_saddle_point_finds_its_parameter_while_x_follows():
    """min_θ max_w (θ − 1)² + 2θw − w²: ∇ = 0 gives w = θ and 2(θ − 1) + 2w = 0, so θ* = w* = ½."""
    box = vv.Box(-3.0, 3.0, shape=())
    robust = vv.SaddleLearning(lambda t, w: (t - 1.0) ** 2 + 2.0 * t * w - w**2, box, box)
    problem = vv.MisspecifiedVI(lambda x, p: x - p["theta"], set=vv.Box([-5.0], [5.0]), learning=robust)
    method = vv.ProjectionMethod(0.5, learner=vv.PrimalDualLearner(0.2, ratio=0.5))
    points, _ = run(problem, method, 200, [4.0], {"theta": 2.0, "w": -1.0})
    theta, w, old = 2.0, -1.0, 2 * 2.0 - 2 * -1.0
    for k in range(12):
        np.testing.assert_allclose([points.theta["theta"][k], points.theta["w"][k]], [theta, w], rtol=1e-12)
        new = 2 * theta - 2 * w
        w, old = min(max(w + 0.1 * (2 * new - old), -3.0), 3.0), new
        theta = min(max(theta - 0.2 * (2 * (theta - 1.0) + 2 * w), -3.0), 3.0)
    np.testing.assert_allclose(points.theta["theta"][-1], 0.5, atol=1e-10)
    np.testing.assert_allclose(points.x[-1], 0.5, atol=1e-9)


def test_with_many_minimisers_the_worst_one_is_played():
    """g = ½(θ₁ + θ₂ − 1)² has a line of minimisers; against ½(x − 2)² + x(θ₁ − θ₂) the worst is (1, 0), and x* = 1.

    The least-norm minimiser (½, ½) would give x = 2.
    """
    problem = vv.PessimisticSaddlePoint(
        lambda x, y, t: 0.5 * (x[0] - 2.0) ** 2 + x[0] * (t[0] - t[1]) - 0.5 * (y[0] - 1.0) ** 2,
        vv.Box([0.0], [3.0]),
        vv.Box([0.0], [3.0]),
        lambda t: 0.5 * (t.sum() - 1.0) ** 2,
        vv.Box([0.0, 0.0], [1.0, 1.0]),
        horizon=400,
    )
    points, _ = run(
        problem, vv.LearningAwarePrimalDual(1.0, backtracking=True), 400, [0.0, 0.0, 0.5, 0.5], 0.0
    )
    np.testing.assert_allclose(points.x[-1], [1.0, 1.0, 1.0, 0.0], atol=2e-3)


def test_saddle_points_say_what_they_need():
    with pytest.raises(vv.InputError, match="the problem is not a saddle point"):
        vv.solve(
            vv.MisspecifiedVI(lambda x, t: x, set=BOX, learning=vv.Known(1.0)),
            vv.LearningAwarePrimalDual(),
            max_iter=1,
        )
    with pytest.raises(vv.UserFunctionError, match=r"SaddlePoint: phi returns \(2,\); one number is needed"):
        vv.SaddlePoint(lambda x, y, t: x * y, BOX, BOX, vv.Known(1.0))
    constrained = vv.SaddlePoint(phi, BOX, BOX, learning(), constraints=lambda z, t: z.sum() - t)
    with pytest.raises(vv.InputError, match="the problem has constraints"):
        vv.LearningAwarePrimalDual().check(constrained)
    with pytest.raises(vv.InputError, match="not a saddle point in"):
        run(PROBLEM, vv.ProjectionMethod(0.1, learner=vv.PrimalDualLearner()), 1, START, THETA0)
