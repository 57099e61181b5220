"""Gaps of nonlinear operators: between a climb and monotonicity, on grids; the order of the three gaps; D.3."""

from __future__ import annotations

import numpy as np
import pytest

import viceversa as vv
from metrics.twins import INERT, grid_gap, plane, random_plane, values
from viceversa.metrics.nonlinear_gap import BY_MONOTONICITY, BY_STRONG_MONOTONICITY, OUTSIDE

CUBIC = (0.5, 0.2)


def auslender(problem, x, epsilon, m=0.0, n=401):
    """max F(x)ᵀ(x − y) − m‖x − y‖² over a grid of X_ε: Auslender's gap, or Fukushima's with parameter 2m."""
    axes = [np.linspace(a, b, n) for a, b in zip(problem.set.lower, problem.set.upper, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    F_x, _ = values(problem, x[None])
    _, f = values(problem, points)
    gaps = (x - points) @ F_x[0] - m * ((x - points) ** 2).sum(1)
    return gaps[np.maximum(f, 0.0).sum(1) <= epsilon].max()


def modulus(problem):
    """The least eigenvalue of the symmetric part of M: a proved modulus, since k y³ is monotone too."""
    return float(np.linalg.eigvalsh(0.5 * (problem.operator.M + problem.operator.M.T))[0])


@pytest.mark.parametrize("seed", range(4))
def test_both_ends_against_grids(seed):
    problem = random_plane(seed, k=CUBIC)
    m = modulus(problem)
    assert m > 0.0
    x = np.random.default_rng(50 + seed).uniform(0.0, 4.0, 2)
    for epsilon in (0.0, 0.4):
        truth = grid_gap(problem, x, epsilon)
        plain, regularised = vv.relaxed_gap(problem, x, epsilon), vv.relaxed_gap(problem, x, epsilon, mu=m)
        for gap in (plain, regularised):
            # The climb finds the global maximum here, and nothing in X_ε is above the upper end.
            assert abs(gap.lower - truth) <= 1e-5 * (1.0 + abs(truth))
            assert truth <= gap.upper + 1e-12
            assert vv.infeasibility(problem, gap.point) <= epsilon
        assert plain.upper_rule == BY_MONOTONICITY
        assert regularised.upper_rule == BY_STRONG_MONOTONICITY
        # Minty ≤ Fukushima(2m) ≤ Auslender, and each end is the gap it says it is.
        assert regularised.upper <= plain.upper + 1e-8 * (1.0 + abs(plain.upper))
        for gap, parameter in ((plain, 0.0), (regularised, m)):
            expected = auslender(problem, x, epsilon, parameter)
            assert expected <= gap.upper + 1e-9
            assert gap.upper - expected <= 0.05 * (1.0 + abs(expected))  # the grid's step


def test_the_regularised_bound_is_second_order():
    # F = y + y³ − 2 with y ≤ ½ of its solution's side inactive: x* = 1, F(x*) = 0, Gap(x* + h) ~ h²; Auslender's ~ h.
    problem = plane(np.eye(2), [-2.0, 0.0], k=[1.0, 0.0])
    for h in (0.1, 0.01):
        x = [1.0 + h, 0.0]
        plain, regularised = vv.minty_gap(problem, x), vv.minty_gap(problem, x, mu=1.0)
        slope = 4.0 * h + 3.0 * h**2 + h**3  # F(1 + h)
        assert plain.upper == pytest.approx(
            slope * (1.0 + h), rel=1e-7
        )  # y = 0 is best for a linear function
        assert regularised.upper == pytest.approx(slope**2 / 4.0, rel=1e-4)  # max over t of slope·t − t²
        assert 0.0 < regularised.lower <= regularised.upper
        assert regularised.lower == pytest.approx(4.0 * (h / 2.0) ** 2, rel=0.5 * h + 0.05)


def test_the_nonlinear_bounds_contain_the_exact_gap_of_an_affine_operator():
    affine, same = random_plane(3), random_plane(3, k=(0.0, 0.0))
    x = np.array([3.0, 0.5])
    exact, bounds = vv.relaxed_gap(affine, x, 0.1), vv.relaxed_gap(same, x, 0.1, mu=modulus(same))
    assert bounds.lower == pytest.approx(exact.lower, rel=1e-6, abs=1e-6)
    assert bounds.upper >= exact.lower


def test_strong_monotonicity_bounds_the_distance():
    """D.3: (μ/4)‖x − x*‖² − ½‖λ*‖∞ ε ≤ Gap_ε(x) and (μ − α/2)‖x − x*‖² ≤ regularised gap + ‖λ*‖∞ 1ᵀ[f(x)]₊."""
    # F = y + ½y³ − 3 with y₁ ≤ 1 active: x* = (1, 0), λ* = 3 − 1.5 = 1.5.
    problem = plane(np.eye(2), [-3.0, 0.0], (([0.0, 0.0], [1.0, 0.0], 1.0), INERT), k=[0.5, 0.0])
    x_star, lam, mu = np.array([1.0, 0.0]), 1.5, 1.0
    assert vv.kkt_residual(problem, x_star, [lam, 0.0]) <= 1e-12
    for x in ([0.3, 0.4], [1.2, 0.0], [1.0, 2.0]):
        infeasible = vv.infeasibility(problem, x)
        distance_sq = float(((np.array(x) - x_star) ** 2).sum())
        gap = vv.relaxed_gap(problem, x, infeasible, mu=mu)
        assert 0.25 * mu * distance_sq - 0.5 * lam * infeasible <= gap.lower + 1e-9
        regularised = vv.minty_gap(problem, x, mu=mu / 2.0)  # α = μ
        assert 0.5 * mu * distance_sq <= regularised.upper + lam * infeasible + 1e-9
        assert vv.minty_gap(problem, x, mu=mu).lower >= -lam * infeasible - 1e-9


def test_outside_the_set_nothing_is_known():
    gap = vv.minty_gap(random_plane(0, k=CUBIC), [5.0, 1.0])
    assert gap.upper == np.inf
    assert gap.upper_rule == OUTSIDE
    assert np.isfinite(gap.lower)


def test_a_callback_operator_has_a_gap():
    traced = random_plane(1, k=CUBIC)
    F = vv.callback_operator(lambda y, theta: values(traced, y[None])[0][0])
    problem = vv.MisspecifiedVI(F, traced.set, traced.constraints, vv.Known(1.0))
    x = np.array([2.0, 2.5])
    gap, expected = vv.minty_gap(problem, x), vv.minty_gap(traced, x)
    assert gap.upper == pytest.approx(expected.upper, rel=1e-7)
    assert -np.inf < gap.lower <= expected.lower + 1e-9 * (1.0 + abs(expected.lower))
    f = vv.callback_constraints(lambda y, theta: y[:1] - 1.0, lambda y, theta, w: np.array([w[0], 0.0]))
    hidden = vv.MisspecifiedVI(traced.operator, traced.set, f, vv.Known(1.0))
    with pytest.raises(vv.InputError, match="constraints is a callback"):
        vv.minty_gap(hidden, x)
    assert vv.infeasibility(hidden, [3.0, 0.0]) == 2.0
