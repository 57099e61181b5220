"""IPALM: its twin, its certified inner stop, its rates in outer steps, and what it refuses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import viceversa as vv
from methods_zoo import small_problems as P
from methods_zoo import twins
from methods_zoo.running import count_oracles, run

OPTIMIZATION = P.optimization()
CONSTANTS = {"lipschitz": 40.0, "jacobian_norm": 6.0}  # over X and Θ: ‖B‖ + 3θ₁x², θ₁‖C‖
GROWING = vv.IPALM(**CONSTANTS, penalty=0.5, growth=1.2, accuracy=0.5, learning_rate=P.RATE)
CONSTANT = vv.IPALM(**CONSTANTS, penalty=0.5, accuracy=0.5, learning_rate=P.RATE)


def test_ipalm_is_its_twin_inner_iterations_included():
    points, state = run(OPTIMIZATION, GROWING, 15, P.X0, P.THETA0, P.LAM0)

    def twin(mutant):
        return twins.ipalm(twins.optimization(), 40.0, 6.0, 0.5, 1.2, 0.5, 0.1, mutant)

    expected = list(itertools.islice(twin(None), 16))
    for k, (x, lam, _) in enumerate(expected):
        np.testing.assert_allclose(points.x[k], x, rtol=1e-9)
        np.testing.assert_allclose(points.lam[k], lam, rtol=1e-9, atol=1e-12)
    assert int(state.method.n_inner) == expected[-1][2] > 15
    for mutant in ("new theta", "no momentum"):
        apart = [np.abs(points.x[k] - x).max() for k, (x, _, _) in zip(range(16), twin(mutant), strict=False)]
        assert max(apart) > 1e-5, mutant


def test_both_penalties_reach_the_solution_and_growing_ones_in_fewer_outer_steps():
    exact, _ = run(
        OPTIMIZATION, vv.AugmentedLagrangian(0.05, 0.5, learning_rate=P.RATE), 3000, P.X0, P.THETA0
    )
    errors = {}
    for name, method, theta0 in (
        ("growing", GROWING, P.THETA_TRUE),
        ("constant", CONSTANT, P.THETA_TRUE),
        ("growing, learning", GROWING, P.THETA0),
        ("constant, learning", CONSTANT, P.THETA0),
    ):
        points, _ = run(OPTIMIZATION, method, 60, P.X0, theta0)
        errors[name] = np.abs(points.x - exact.x[-1]).max(axis=1)
    # With θ known the growing penalty is there after 20 outer steps, the constant one is linear at a slow factor.
    assert errors["growing"][20] < 1e-5 < 1e-3 < errors["constant"][20]
    # While θ is learned neither can be faster than the learning step, and both keep up with it.
    assert errors["growing, learning"][60] < 1e-5
    assert errors["constant, learning"][60] < 1e-5


def test_the_inner_stop_is_certified():
    """At every outer step ∇L(x)ᵀ(x − v) ≤ α_k for all v in X, recomputed here."""
    points, _ = run(OPTIMIZATION, CONSTANT, 12, P.X0, P.THETA0)
    for k in range(12):
        x, lam, theta = points.x[k + 1], points.lam[k], points.theta[k]
        w = np.maximum(lam + 0.5 * P.affine(x, theta), 0.0)
        g = P.gradient(x, theta) + (theta[0] * P.C).T @ w
        gap = g @ x - np.minimum(g * P.LOWER, g * P.UPPER).sum()
        assert gap <= 0.5 / (k + 1.0) ** 2.2 * (1 + 1e-9)


def test_declared_oracle_counts_are_the_counted_ones():
    counted, declared = count_oracles(vv.IPALM(**CONSTANTS, accuracy=10.0), 3)
    assert (declared.F, declared.f, declared.pullback) == counted


def test_ipalm_refuses_what_it_is_not_for():
    box = vv.Box(P.LOWER, P.UPPER)
    problem = vv.MisspecifiedVI(P.F, set=box, constraints=P.affine, learning=P.learning())
    with pytest.raises(vv.InputError, match="IPALM: F is not the gradient of a function"):
        vv.solve(problem, CONSTANT, max_iter=1)
    with pytest.raises(vv.InputError, match="IPALM: the constraints are not provably affine in x"):
        CONSTANT.check(P.nonlinear())
    with pytest.raises(vv.InputError, match="IPALM: the set X is unbounded"):
        CONSTANT.check(vv.MisspecifiedVI(lambda x, t: x, set=vv.Free(2), learning=vv.Known(1.0)))
