"""Gaps that can be worked out by hand: the sign, the sharing of one ε, both ends, and the words."""

from __future__ import annotations

import numpy as np
import pytest

import viceversa as vv
from metrics.twins import INERT, plane

LINE = [[1.0, 0.0], [0.0, 1.0]]
# A bound within 1e-8 of a smooth maximum fixes its point and its multiplier to the square root of that.
MULTIPLIER = 5e-4


def close(gap: vv.GapInterval, value: float) -> bool:
    tol = 1e-8 * (1.0 + abs(value))
    return gap.exact and gap.lower - 1e-12 <= value <= gap.upper + 1e-12 and gap.upper - value <= tol


@pytest.mark.parametrize(
    ("epsilon", "value", "slope"), [(0.0, 0.75, 1.0), (0.25, 0.9375, 0.5), (1.0, 1.0, 0.0)]
)
def test_one_binding_constraint(epsilon, value, slope):
    # (y − 1)(3 − y) over y ≤ 1.5 + ε: the maximiser is min(2, 1.5 + ε), the slope in ε is 4 − 2y.
    problem = plane(LINE, [-1.0, 0.0], (([0.0, 0.0], [1.0, 0.0], 1.5), INERT))
    gap = vv.relaxed_gap(problem, [3.0, 0.0], epsilon)
    assert close(gap, value)
    np.testing.assert_allclose(gap.multiplier, [slope, 0.0], atol=MULTIPLIER)
    np.testing.assert_allclose(gap.point, [min(2.0, 1.5 + epsilon), 0.0], atol=MULTIPLIER)


@pytest.mark.parametrize(
    ("epsilon", "value", "multiplier"),
    [(0.0, 3.0 + 7.0, [2.0, 6.0]), (1.0, 3.0 + 12.0, [2.0, 4.0]), (3.0, 3.75 + 15.75, [1.0, 1.0])],
)
def test_one_epsilon_is_shared_by_all_constraints(epsilon, value, multiplier):
    # y₁(4 − y₁) + y₂(8 − y₂) over [y₁ − 1]₊ + [y₂ − 1]₊ ≤ ε: ε goes where the slope is steepest, then equalises slopes.
    rows = (([0.0, 0.0], [1.0, 0.0], 1.0), ([0.0, 0.0], [0.0, 1.0], 1.0))
    gap = vv.relaxed_gap(plane(LINE, [0.0, 0.0], rows), [4.0, 8.0], epsilon)
    assert close(gap, value)
    np.testing.assert_allclose(gap.multiplier, multiplier, atol=MULTIPLIER)


def test_the_gap_is_negative_at_an_infeasible_point():
    # (y − 3)(2 − y) over y ≤ 1 is largest at y = 1; λ* = 2, so −λ*·infeasibility = −2 is the least it can be.
    problem = plane(LINE, [-3.0, 0.0], (([0.0, 0.0], [1.0, 0.0], 1.0), INERT))
    assert close(vv.minty_gap(problem, [2.0, 0.0]), -2.0)
    assert vv.relaxed_gap(problem, [2.0, 0.0]).lower >= -1e-12  # ε = infeasibility: x itself is allowed


def test_rotation():
    # F = (y₂, −y₁): F(y)ᵀ(x − y) = x₁y₂ − x₂y₁, linear; swapping x and y, or F's sign, changes it.
    problem = plane([[0.0, 1.0], [-1.0, 0.0]], [0.0, 0.0], lower=[-1.0, -3.0], upper=[3.0, 1.0])
    assert close(vv.minty_gap(problem, [1.0, -1.0]), 1.0 + 3.0)
    assert close(vv.minty_gap(problem, [-2.0, 1.0]), 6.0 + 1.0)


def test_quadratic_constraint():
    # −qᵀy over ‖y‖² ≤ 1 + ε is largest at −√(1 + ε) q/‖q‖.
    rows = (([2.0, 2.0], [0.0, 0.0], 1.0), INERT)
    problem = plane(np.zeros((2, 2)), [3.0, -4.0], rows, lower=[-4.0, -4.0])
    for epsilon in (0.0, 1.25):
        radius = np.sqrt(1.0 + epsilon)
        gap = vv.relaxed_gap(problem, [1.0, 1.0], epsilon)
        assert close(gap, -1.0 + 5.0 * radius)
        np.testing.assert_allclose(gap.multiplier[0], 5.0 / (2.0 * radius), rtol=MULTIPLIER)


def test_the_parameter_is_the_one_asked_for():
    # (y − θ)(3 − y) is largest at y = (3 + θ)/2.
    box = vv.Box(0.1, 2.0, shape=())
    learning = vv.SecondaryVI(lambda t: t - 1.0, set=box, mu=1.0, lipschitz=1.0)
    known = plane(LINE, [-1.0, 0.0])
    problem = vv.MisspecifiedVI(known.operator, known.set, known.constraints, learning)
    for theta in (1.0, 0.5):
        assert close(vv.minty_gap(problem, [3.0, 0.0], theta), (1.5 - 0.5 * theta) ** 2)
    with pytest.raises(vv.InputError, match="learns its parameter, so say at which θ"):
        vv.minty_gap(problem, [3.0, 0.0])


def test_an_empty_enlargement_is_proved_empty():
    problem = plane(LINE, [-1.0, 0.0], (([0.0, 0.0], [1.0, 0.0], -1.0), INERT))  # y₁ ≤ −1 over y₁ ≥ 0
    gap = vv.minty_gap(problem, [3.0, 0.0])
    assert gap.lower == gap.upper == -np.inf
    assert "empty (proved" in gap.upper_rule
    assert close(vv.relaxed_gap(problem, [3.0, 0.0], 1.5), -0.5 * 2.5)  # y₁ ≤ ½


def test_a_feasible_set_without_interior():
    rows = (([0.0, 0.0], [1.0, 0.0], 1.5), ([0.0, 0.0], [-1.0, 0.0], -1.5))  # y₁ = 1.5
    gap = vv.minty_gap(plane(LINE, [-1.0, 0.0], rows), [3.0, 0.0])
    assert close(gap, 0.75)
    assert "by rounding only" in gap.lower_rule
    assert "lies in X_ε" in vv.relaxed_gap(plane(LINE, [-1.0, 0.0], rows), [3.0, 0.0], 0.1).lower_rule


def test_no_constraints():
    problem = vv.MisspecifiedVI(
        plane(LINE, [-1.0, 0.0]).operator, vv.Box([0.0, 0.0], [4.0, 4.0]), None, vv.Known(1.0)
    )
    gaps = vv.relaxed_gaps(problem, [[3.0, 0.0], [1.0, 0.0]], [0.0, 7.0])
    assert close(gaps[0], 1.0)
    assert close(gaps[1], 0.0)  # the solution
    assert gaps[0].multiplier.shape == (0,)


def test_an_unbounded_set_needs_a_modulus():
    flat = plane([[1.0, 0.0], [0.0, 0.0]], [-1.0, -1.0])  # (y₁ − 1)(3 − y₁) + y₂: no largest value
    gap = vv.minty_gap(vv.MisspecifiedVI(flat.operator, vv.NonNegative(2), None, vv.Known(1.0)), [3.0, 0.0])
    assert gap.lower >= 1.0
    assert gap.upper == np.inf
    assert not gap.exact
    assert "X is unbounded" in gap.upper_rule
    # With F = y − 1 the modulus 1 is the least eigenvalue, found by itself.
    problem = vv.MisspecifiedVI(plane(LINE, [-1.0, 0.0]).operator, vv.NonNegative(2), None, vv.Known(1.0))
    assert close(vv.minty_gap(problem, [3.0, 0.0]), 1.0)
    assert close(vv.minty_gap(problem, [3.0, 0.0], mu=0.5), 1.0)


def test_an_operator_that_is_not_monotone_gets_no_upper_end():
    gap = vv.minty_gap(plane([[1.0, 0.0], [0.0, -0.1]], [-1.0, 0.0]), [3.0, 0.0])
    assert gap.upper == np.inf
    assert "F is not monotone on X" in gap.upper_rule
    assert gap.lower >= 1.0 - 1e-8


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epsilon": -1.0}, "epsilon is -1; it is the size of an enlargement"),
        ({"mu": -0.5}, "mu is -0.5; one proved modulus"),
        ({"x": [1.0]}, r"x has shape \(1,\)"),
        ({"epsilon": [0.0, 1.0]}, "one number, or one for each of the 1 points"),
        ({"epsilon": np.nan}, "NaN"),
    ],
)
def test_sentences(change, sentence):
    arguments = {"x": [3.0, 0.0], "epsilon": 0.0} | change
    with pytest.raises(vv.InputError, match=sentence):
        vv.relaxed_gap(plane(LINE, [-1.0, 0.0]), **arguments)
