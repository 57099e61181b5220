"""Minimax with expectation constraints, imputed equilibria and the nonlinear oligopoly, beside formulas and other solvers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.apps import classifier_by_scipy, generated_people

import viceversa as vv
from unchecked import refused
from viceversa import precision
from viceversa.gallery.applications import wardrop


def test_the_fair_classifier_in_closed_form_is_certified_and_its_parity_binds():
    """Strictly convex in w and decided in p, so the certified point is the answer."""
    instance = vv.gallery.fair_classifier()
    assert instance.certify(tol=1e-12).holds
    assert instance.multiplier_true[0] > 0.1
    w, p = instance.problem.operator.split(instance.x_true)
    other = np.concatenate([w * [1.0, 1.01], p])
    assert not vv.certify(
        instance.problem, other, instance.multiplier_true, instance.theta_true, tol=1e-4
    ).holds


@pytest.mark.slow
def test_a_classifier_from_a_table_agrees_with_scipy_and_serves_the_worst_group():
    features, labels, groups = generated_people(300, 4)
    problem = vv.fair_classifier(features, labels, groups, parity=0.05, ridge=0.02, radius=5.0)
    solution = vv.solve(problem)
    assert solution.success
    w, p = problem.operator.split(solution.x)
    np.testing.assert_allclose(w, classifier_by_scipy(features, labels, groups, 0.05, 0.02, 5.0), atol=1e-5)
    loss = np.logaddexp(0.0, -np.where(labels, 1.0, -1.0) * (features @ w))
    by_group = np.array([loss[groups == g].mean() for g in range(3)])
    assert (p[by_group < by_group.max() - 1e-6] <= 1e-6).all()
    score = [(features @ w)[groups == g].mean() for g in range(3)]
    assert np.ptp(score) <= 0.05 + 1e-7
    assert solution.multiplier.max() > 1e-3


def test_expectations_are_taken_over_the_rows_with_their_weights():
    """min_x max_y E[(x − r)² + xy − y²], E[x − r + 1] ≤ 0, E[y − r] ≤ 0: by hand from the weighted mean alone."""
    rows, weights = np.array([1.0, 2.0, 6.0]), np.array([2.0, 1.0, 1.0])
    mean = 2.5
    line = vv.Box(-9.0, 9.0, shape=())
    problem = vv.constrained_minimax(
        lambda x, y, r, t: (x - r) ** 2 + x * y - y**2,
        rows,
        line,
        line,
        constraints_x=lambda x, r, t: x - r + 1.0,
        constraints_y=lambda y, r, t: np.stack([y - r, -y + t - r], axis=1),
        weights=weights,
        learning=vv.Known(1.0),
    )
    assert problem.n_constraints == 3
    x, y = mean - 1.0, (mean - 1.0) / 2
    multiplier = [-(2 * (x - mean) + y), 0.0, 0.0]
    assert vv.certify(problem, [x, y], multiplier, tol=1e-13).holds
    unweighted = [2.0, 1.0]
    assert not vv.certify(problem, unweighted, [1.0, 0.0, 0.0], tol=1e-3).holds
    np.testing.assert_allclose(
        vv.certify(problem, [x, y], multiplier).constraint_values, [0.0, y - mean, 1.0 - y - mean]
    )


def test_a_network_is_learned_from_flows_and_predicted_after_a_closure_and_a_cap():
    instance = vv.gallery.imputed_network()
    assert instance.theta_true.size >= 20
    assert instance.certify(tol=1e-10).holds
    solution = vv.solve(instance.problem, theta0=instance.theta0)
    np.testing.assert_allclose(solution.theta, instance.theta_true, rtol=1e-7)
    np.testing.assert_allclose(solution.x, instance.x_true, atol=1e-6)
    np.testing.assert_allclose(solution.multiplier, instance.multiplier_true, rtol=1e-6)
    # The closure and the cap both change the answer, and some observed links carried nothing.
    assert solution.x[0, 0] == 0
    assert np.abs(solution.x - instance.details["uncapped"]).max() > 1.0


def test_wardrop_flows_satisfy_wardrops_principle():
    rng = np.random.default_rng(3)
    free, slope, demand = rng.uniform(1, 9, (4, 6)), rng.uniform(0.2, 2, (4, 6)), rng.uniform(0.5, 20, 4)
    flow = wardrop(free, slope, demand, np.ones((4, 6), dtype=bool))
    time = np.where(flow > 0, free + slope * flow, np.inf)
    np.testing.assert_allclose(flow.sum(axis=1), demand)
    assert (flow == 0).any()
    np.testing.assert_allclose(
        np.where(flow > 0, time, time.min(axis=1, keepdims=True)).max(axis=1), time.min(axis=1)
    )
    assert (free >= np.where(flow > 0, 0, time.min(axis=1, keepdims=True)) - 1e-12).all()


def test_costs_are_imputed_from_capped_markets_with_bounds_and_a_shared_constraint_active():
    """Firms' linear and quadratic costs from equilibria with firms at zero, at capacity, and a market cap that binds."""
    rng = np.random.default_rng(0)
    n = 10
    truth = {"linear": rng.uniform(5, 12, n), "quadratic": rng.uniform(0.5, 2.0, n)}
    box = vv.Box(0.0, 12.0, shape=n)

    def operator_at(intercept):
        return lambda x, t: t["linear"] + t["quadratic"] * x + 0.5 * (x.sum() + x) - intercept

    cap = 75.0
    intercepts = np.linspace(8.0, 80.0, 13)

    # The intercept of demand differs between observations: it travels with x, as a coordinate that cannot move.
    def operator(z, t):
        x, a = z[:n], z[n]
        return np.concatenate([t["linear"] + t["quadratic"] * x + 0.5 * (x.sum() + x) - a, 0.0 * z[n:]])

    observations = []
    for a in intercepts:
        x = _market_by_bisection(truth, a, cap)
        fixed = vv.Product([box, vv.Box([a], [a])])
        observations.append((np.append(x, a), fixed, lambda z: z[:n].sum() - cap))
    seen = np.array([x[:n] for x, _, _ in observations])
    assert (seen == 0).any()
    assert (seen == 12.0).any()
    assert any(abs(x[:n].sum() - cap) < 1e-9 for x, _, _ in observations)
    theta_set = vv.Product({"linear": vv.Box(0.0, 50.0, shape=n), "quadratic": vv.Box(0.01, 5.0, shape=n)})
    problem = vv.imputed_equilibrium(
        operator_at(80.0), observations, theta_set, box, observed_operator=operator
    )
    learned = problem.learning.unconstrained_minimum()
    for name, values in truth.items():
        np.testing.assert_allclose(learned[name], values, rtol=1e-6)


def _market_by_bisection(truth, intercept, cap):
    """x_i = clip((a − λ − c_i − X/2)/(r_i + ½), 0, 12) with Σx = X ≤ cap: bisection in X, then in λ."""
    c, r = truth["linear"], truth["quadratic"]

    def outputs(level):
        low, high = 0.0, 12.0 * c.size
        for _ in range(200):
            X = (low + high) / 2
            x = np.clip((level - c - 0.5 * X) / (r + 0.5), 0.0, 12.0)
            low, high = (X, high) if x.sum() > X else (low, X)
        return x

    x = outputs(intercept)
    if x.sum() <= cap:
        return x
    low, high = 0.0, intercept
    for _ in range(200):
        lam = (low + high) / 2
        low, high = (lam, high) if outputs(intercept - lam).sum() > cap else (low, lam)
    return outputs(intercept - high)


def test_the_five_firm_oligopoly_from_a_table_has_the_published_equilibria():
    price = np.linspace(12.0, 25.0, 20)
    c, beta = np.array([10.0, 8.0, 6.0, 4.0, 2.0]), np.array([1.2, 1.1, 1.0, 0.9, 0.8])
    power = 1.0 + 1.0 / beta
    table = {"price": price, "quantity": 5000.0 * price**-1.1}
    problem = vv.isoelastic_cournot(
        lambda q: c * q + 5.0 / power * (q / 5.0) ** power, (np.ones(5), 150.0), table, price_cap=16.0
    )
    instance = vv.gallery.murphy_price_cap()
    x, multiplier = instance.x_true, instance.multiplier_true
    np.testing.assert_allclose(x, instance.published["x_recomputed"], atol=1e-6)
    np.testing.assert_allclose(problem.learning.unconstrained_minimum(), [np.log(5000.0), 1.1], rtol=1e-12)
    assert vv.certify(problem, x, multiplier, instance.theta_true, tol=1e-10).holds
    assert not vv.certify(problem, x, 1.001 * multiplier, instance.theta_true, tol=1e-6).holds
    with precision.double():
        price_there = problem.operator.price(jnp.asarray(x), jnp.asarray(instance.theta_true))
    np.testing.assert_allclose(price_there, 16.0, rtol=1e-12)


def test_odd_arguments_are_answered_in_sentences():
    features = np.ones((4, 2))
    with refused("4 different values; (4,) with exactly two"):
        vv.fair_classifier(features, [0, 1, 2, 3], [0, 0, 1, 1], 0.1)
    with refused("the one group 7"):
        vv.fair_classifier(features, [0, 1, 0, 1], [7, 7, 7, 7], 0.1)
    with refused("one group per row, (4,)"):
        vv.fair_classifier(features, [0, 1, 0, 1], [0, 1], 0.1)
    line = vv.Box(0.0, 1.0, shape=())
    with refused("payoff: returns shape (); one number per row, (3,)", vv.UserFunctionError):
        vv.constrained_minimax(lambda x, y, r, t: x * y, np.ones(3), line, line)
    with refused("the same number of rows"):
        vv.constrained_minimax(lambda x, y, r, t: x, (np.ones(3), np.ones(2)), line, line)
    box, theta = vv.Simplex(2, total=3.0), vv.Box([0.1, 0.1], [9.0, 9.0])
    with refused("observations[0] is 1 away from its set"):
        vv.imputed_equilibrium(lambda x, t: t * x, [([2.0, 3.0], box)], theta, box)
    with refused("not provably affine in theta"):
        vv.imputed_equilibrium(lambda x, t: t**2 * x, [([2.0, 1.0], box)], theta, box)
    with refused("θ = 0 explains every observation"):
        vv.imputed_equilibrium(lambda x, t: t * x, [([2.0, 1.0], box)], theta, box)
    with refused("observations is empty"):
        vv.imputed_equilibrium(lambda x, t: t * x, [], theta, box)
    with refused("A has rank 1 but θ has 2"):
        vv.imputed_equilibrium(lambda x, t: t * x + np.array([1.0, 2.0]), [([2.0, 1.0], box)], theta, box)
    table = {"price": [10.0, 20.0], "quantity": [1.0, 2.0]}
    with refused("demand does not fall with the price"):
        vv.isoelastic_cournot(lambda q: q, (np.ones(2), 9.0), table)
    with refused("one cost per firm, (2,)", vv.UserFunctionError):
        vv.isoelastic_cournot(lambda q: q.sum(), (np.ones(2), 9.0), table)


def test_a_ridge_keeps_what_was_not_observed_at_its_reference():
    seen = [([2.0, 1.0], vv.Simplex(2, total=3.0))]
    theta = vv.Box([0.1, 0.1], [9.0, 9.0])
    problem = vv.imputed_equilibrium(
        lambda x, t: t * x + np.array([1.0, 2.0]),
        seen,
        theta,
        vv.Simplex(2, total=8.0),
        ridge=1e-8,
        reference=[1.5, 2.5],
    )
    learned = problem.learning.unconstrained_minimum()
    # Observed: 2θ₁ + 1 = θ₂ + 2. The nearest such θ to (1.5, 2.5) is (1.5, 2.5) + s(2, −1) with 2(1.5 + 2s) − (2.5 − s) = 1.
    np.testing.assert_allclose(learned, np.array([1.5, 2.5]) + 0.1 * np.array([2.0, -1.0]), atol=1e-6)
