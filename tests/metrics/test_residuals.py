"""Infeasibility, residuals and parameter error, at the θ asked for; the enlargement's projection against a naive one."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import viceversa as vv
from metrics.twins import INERT, cournot, plane, random_plane, values
from viceversa import precision
from viceversa.metrics.enlargement import distance_vector

LINE = [[1.0, 0.0], [0.0, 1.0]]


def test_infeasibility_adds_up_violations_and_ignores_slack():
    rows = (([0.0, 0.0], [1.0, 0.0], 1.0), ([2.0, 2.0], [0.0, 0.0], 4.0))
    problem = plane(LINE, [0.0, 0.0], rows)
    assert vv.infeasibility(problem, [3.0, 1.0]) == pytest.approx(2.0 + 6.0)
    assert vv.infeasibility(problem, [1.5, 0.0]) == pytest.approx(0.5)
    assert vv.infeasibility(problem, [1.0, 0.0]) == 0.0
    market = cournot()
    x = np.full(market.shape, 2.0)
    assert vv.infeasibility(market, x) == pytest.approx(2 * (45.0 - 2.0 * 10.0))


def test_kkt_residual_is_zero_exactly_at_kkt_points():
    problem = plane(LINE, [-3.0, 0.0], (([0.0, 0.0], [1.0, 0.0], 1.0), INERT))  # x* = (1, 0), λ* = (2, 0)
    assert vv.kkt_residual(problem, [1.0, 0.0], [2.0, 0.0]) == pytest.approx(0.0, abs=1e-14)
    assert vv.kkt_residual(problem, [1.0, 0.0], [1.5, 0.0]) == pytest.approx(0.5)  # 1 − P(1 + 2 − 1.5)
    assert vv.kkt_residual(problem, [1.25, 0.0], [2.0, 0.0]) == pytest.approx(0.25)
    assert vv.kkt_residual(problem, [1.0, 0.0], [2.0, 0.5]) == pytest.approx(0.5)  # slack: λ − [λ − 1]₊
    agrees = vv.certify(problem, [1.25, 0.3], [2.0, 0.5]).kkt_residual
    assert vv.kkt_residual(problem, [1.25, 0.3], [2.0, 0.5]) == pytest.approx(agrees, rel=1e-14)


def project_by_scipy(problem, z: np.ndarray) -> np.ndarray:
    """P_{X(θ)}(z) by sequential quadratic programming, with exact derivatives."""
    f = problem.constraints
    answer = minimize(
        lambda y: 0.5 * ((y - z) ** 2).sum(),
        problem.set.interior_point(),
        jac=lambda y: y - z,
        bounds=list(zip(problem.set.lower, problem.set.upper, strict=True)),
        constraints={
            "type": "ineq",
            "fun": lambda y: -values(problem, y[None])[1][0],
            "jac": lambda y: -(f.Q * y + f.c),
        },
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return answer.x


@pytest.mark.parametrize("seed", range(3))
def test_natural_residual_projects_on_the_feasible_set(seed):
    problem = random_plane(seed)
    x = np.random.default_rng(seed).uniform(0.0, 4.0, 2)
    F, _ = values(problem, x[None])
    expected = np.linalg.norm(x - project_by_scipy(problem, x - F[0]))
    assert vv.natural_residual(problem, x) == pytest.approx(expected, abs=1e-7)


def test_natural_residual_is_exact():
    # x − F(x) = (3, 4) for every x, and its projection on the disc ‖y‖² ≤ 1 is (3, 4)/5.
    problem = plane(LINE, [-3.0, -4.0], (([2.0, 2.0], [0.0, 0.0], 1.0), INERT))
    expected = np.hypot(0.5 - 0.6, 0.0 - 0.8)
    assert vv.natural_residual(problem, [0.5, 0.0]) == pytest.approx(expected, abs=1e-10)
    assert vv.natural_residual(problem, [0.6, 0.8]) == pytest.approx(0.0, abs=1e-10)  # the solution
    # A face: y₁ ≤ 1 cuts z = (3, 4) to (1, 4).
    problem = plane(LINE, [-3.0, -4.0], (([0.0, 0.0], [1.0, 0.0], 1.0), INERT))
    assert vv.natural_residual(problem, [0.0, 0.0]) == pytest.approx(np.hypot(1.0, 4.0), abs=1e-10)
    empty = plane(LINE, [-3.0, -4.0], (([0.0, 0.0], [1.0, 0.0], -1.0), INERT))
    with pytest.raises(vv.SolveError, match=r"is empty \(proved\)"):
        vv.natural_residual(empty, [0.0, 0.0])


def test_metrics_see_the_parameter_they_are_given():
    box = vv.Product({"b": vv.Box(0.1, 5.0, shape=()), "a": vv.Box([0.0, 0.0], [9.0, 9.0])})
    learning = vv.SecondaryVI(lambda t: jax.tree.map(lambda u: u - 1.0, t), set=box, mu=1.0, lipschitz=1.0)
    problem = vv.MisspecifiedVI(
        lambda x, t: t["b"] * x - t["a"],
        vv.Box([0.0, 0.0], [4.0, 4.0]),
        lambda x, t: t["b"] * x.sum() - 2.0,
        learning,
    )
    one, two = {"b": 1.0, "a": [3.0, 0.0]}, {"b": 2.0, "a": [3.0, 4.0]}
    assert vv.infeasibility(problem, [2.0, 1.0], one) == pytest.approx(1.0)
    assert vv.infeasibility(problem, [2.0, 1.0], two) == pytest.approx(4.0)
    assert vv.parameter_error(problem, one, two) == pytest.approx(np.sqrt(1.0 + 16.0))
    assert vv.parameter_error(problem, two, two) == 0.0
    with pytest.raises(vv.InputError, match="say at which θ"):
        vv.infeasibility(problem, [2.0, 1.0])


numbers = st.floats(-5.0, 5.0)


distance_compiled = jax.jit(distance_vector)


@given(st.lists(numbers, min_size=4, max_size=4), st.floats(0.0, 4.0))
def test_distance_to_the_enlarged_cone(u, epsilon):
    """u − P(u) for K_ε = { v : 1ᵀ[v]₊ ≤ ε }: P(u) is in K_ε, and u − P(u) is normal to it there."""
    u = np.array(u)
    with precision.double():
        away = np.asarray(distance_compiled(u, epsilon))
    p = u - away
    total = np.maximum(p, 0.0).sum()
    assert total <= epsilon + 1e-12
    assert (away >= 0.0).all()
    # The support function of K_ε is ε‖·‖∞ on the nonnegative orthant: attained at p.
    assert away @ p == pytest.approx(epsilon * away.max(), abs=1e-10)


slope_compiled = jax.jit(lambda u, epsilon, du: jax.jvp(lambda v: distance_vector(v, epsilon), (u,), (du,)))


def test_distance_has_the_right_slope():
    rng = np.random.default_rng(0)
    with precision.double():
        for epsilon in (0.0, 0.7, 100.0):
            for size in (4, 40):  # compared in pairs, and sorted
                u, du = rng.normal(size=size), rng.normal(size=size)
                _, slope = slope_compiled(u, epsilon, du)
                ends = [np.asarray(distance_compiled(u + h * du, epsilon)) for h in (1e-6, -1e-6)]
                numeric = (ends[0] - ends[1]) / 2e-6
                np.testing.assert_allclose(slope, numeric, atol=1e-8)
