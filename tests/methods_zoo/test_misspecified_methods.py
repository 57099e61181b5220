"""The misspecified subgradient method, accelerated Algorithm 1, the second names, and learning that depends on x."""

from __future__ import annotations

import numpy as np
import pytest

import viceversa as vv
from methods_zoo import small_problems as P
from methods_zoo import twins
from methods_zoo.running import count_oracles, run

NONLINEAR, OPTIMIZATION = P.nonlinear(), P.optimization()
ACCELERATED = {"mu": 0.5, "inverse_step": 20.0, "curvature": 6.0, "penalty": 1e-2}
SUBGRADIENT = vv.MisspecifiedSubgradient(vv.steps.Power(0.2, 0.5), dual_ratio=2.0, learning_rate=P.RATE)


def assert_twin_and_average(points, twin, mutants):
    for k, (x, lam, average) in zip(range(16), twin(None), strict=False):
        np.testing.assert_allclose(points.x[k], x, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(points.lam[k], lam, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(points.x_average[k], average, rtol=1e-11, atol=1e-12)
    for mutant in mutants:
        apart = 0.0
        for k, (x, _, average) in zip(range(16), twin(mutant), strict=False):
            apart = max(apart, np.abs(points.x[k] - x).max(), np.abs(points.x_average[k] - average).max())
        assert apart > 1e-5, mutant


def test_second_names_are_the_same_methods():
    assert vv.Extragradient is vv.MisspecifiedExtragradient is vv.ExtragradientLagrangian
    assert vv.MisspecifiedTikhonov is vv.TikhonovLagrangian


def test_the_subgradient_method_is_its_twin():
    points, _ = run(OPTIMIZATION, SUBGRADIENT, 15, P.X0, P.THETA0, P.LAM0)
    assert_twin_and_average(
        points, lambda m: twins.subgradient(twins.optimization(2.0), 0.2, m), ["new point"]
    )


def test_the_subgradient_average_reaches_a_nonsmooth_minimum_at_its_rate():
    """min |x₁ − θ| + 3|x₂| over a box, θ learned: O(1/√K) for the average; constant steps only hover."""
    problem = vv.MisspecifiedVI(
        lambda x, theta: np.stack([np.sign(x[0] - theta), 3.0 * np.sign(x[1])]),
        set=vv.Box([-2.0, -2.0], [4.0, 2.0]),
        learning=vv.SecondaryVI(lambda theta: 2.0 * (theta - 1.0), set=vv.Box(0.5, 3.0, shape=())),
    )
    method = vv.MisspecifiedSubgradient(vv.steps.Power(0.5, 0.5))
    points, _ = run(problem, method, 4000, [-1.0, 1.7], 2.5)
    value = np.abs(points.x_average[:, 0] - 1.0) + 3.0 * np.abs(points.x_average[:, 1])
    K = np.array([100, 1000, 4000])
    assert (np.sqrt(K) * value[K] < 10.0).all()
    assert value[4000] < 0.3 * value[100]


def test_optimization_methods_refuse_an_operator_that_is_not_a_gradient():
    with pytest.raises(vv.InputError, match="MisspecifiedSubgradient: F is not the gradient of a function"):
        vv.solve(NONLINEAR, SUBGRADIENT, max_iter=1)
    SUBGRADIENT.check(OPTIMIZATION)  # symmetric: accepted


def test_accelerated_algorithm_1_is_its_twin():
    method = vv.AcceleratedAugmentedLagrangian(**ACCELERATED, learning_rate=P.RATE)
    points, _ = run(NONLINEAR, method, 15, P.X0, P.THETA0, P.LAM0)
    assert_twin_and_average(
        points,
        lambda m: twins.accelerated(twins.nonlinear(), 0.5, 20.0, 6.0, 1e-2, m),
        ["inverted weight", "old x", "new theta"],
    )


def test_theorem_accelerated_average_is_of_order_one_over_K_squared():
    """On one run: infeasibility falls 4² = 16-fold from K to 4K where Algorithm 1's falls 4-fold."""
    fast = vv.AcceleratedAugmentedLagrangian(**ACCELERATED, learning_rate=P.RATE)
    plain = vv.AugmentedLagrangian(0.02, 0.1, learning_rate=P.RATE)
    falls = []
    for method in (fast, plain):
        points, _ = run(OPTIMIZATION, method, 4000, P.X0, P.THETA0)
        infeasibility = [
            np.maximum(P.affine(points.x_average[K], P.THETA_TRUE), 0.0).sum() for K in (1000, 4000)
        ]
        falls.append(infeasibility[0] / infeasibility[1])
    assert 14.0 < falls[0] < 25.0
    assert 3.5 < falls[1] < 4.5


@pytest.mark.parametrize(
    "method",
    [vv.AcceleratedAugmentedLagrangian(**ACCELERATED), SUBGRADIENT],
    ids=lambda m: type(m).__name__,
)
def test_declared_oracle_counts_are_the_counted_ones(method):
    counted, declared = count_oracles(method, 5)
    assert (declared.F, declared.f, declared.pullback) == counted


# Two firms that see the price a − b(x₁ + x₂) but not the slope b; each x moves the data that b is learned from.
a, b_true, costs = 10.0, 2.0, np.array([1.0, 1.5])


def coupled_market():
    with pytest.warns(
        vv.CoupledLearningWarning, match="The convergence theorem assumes learning that does not"
    ):
        learning = vv.CoupledLearning(
            lambda theta, x: x.sum() * (theta * x.sum() - (a - (a - b_true * x.sum()))),
            set=vv.Box(0.5, 5.0, shape=()),
            mu=4.0,
            lipschitz=10.0,
        )
    return vv.MisspecifiedVI(
        lambda x, theta: costs - (a - b_true * x.sum()) + theta * x,
        set=vv.Box([0.5, 0.5], [4.0, 4.0]),
        learning=learning,
    )


def test_coupled_learning_sees_what_is_played_and_finds_slope_and_equilibrium():
    points, _ = run(coupled_market(), vv.ProjectionMethod(0.05, learning_rate=0.05), 400, [2.0, 1.0], 4.0)
    x, theta = np.array([2.0, 1.0]), 4.0
    for k in range(12):
        np.testing.assert_allclose(points.x[k], x, rtol=1e-12)
        np.testing.assert_allclose(points.theta[k], theta, rtol=1e-12)
        total = x[0] + x[1]
        price = a - b_true * total
        x_next = np.clip([x[i] - 0.05 * (costs[i] - price + theta * x[i]) for i in range(2)], 0.5, 4.0)
        # The learner sees x_k, what was on the market, not x_{k+1}.
        theta = min(max(theta - 0.05 * total * (theta * total - (a - price)), 0.5), 5.0)
        x = x_next
    equilibrium = np.linalg.solve(b_true * (np.ones((2, 2)) + np.eye(2)), a - costs)
    np.testing.assert_allclose(points.theta[-1], b_true, rtol=1e-9)
    np.testing.assert_allclose(points.x[-1], equilibrium, rtol=1e-9)


def test_coupled_learning_runs_through_solve_and_does_not_claim_a_proof():
    solution = vv.solve(
        coupled_market(), vv.ProjectionMethod(0.05, learning_rate=0.05), x0=[2.0, 1.0], theta0=4.0
    )
    assert solution.status is vv.Status.solved_estimated_learning


def test_coupled_learning_says_what_it_needs():
    with pytest.raises(vv.InputError, match="0 < mu <= lipschitz is needed"):
        vv.CoupledLearning(lambda theta, x: theta, set=vv.Box([0.0], [1.0]), mu=2.0, lipschitz=1.0)
