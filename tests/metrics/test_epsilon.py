"""The paper's ε: the smallest at least the infeasibility with Gap_ε ≤ ε, against a scan."""

from __future__ import annotations

import numpy as np
import pytest

import viceversa as vv
from metrics.twins import INERT, cournot, cournot_gap, plane, random_plane

LINE = [[1.0, 0.0], [0.0, 1.0]]


def scan(gap, start: float, stop: float, n: int = 4001) -> float:
    """The first ε of a fine grid with gap(ε) ≤ ε."""
    return next(e for e in np.linspace(start, stop, n) if gap(e) <= e)


def test_by_hand():
    # max (y − 1)(1.5 − y) over y ≤ 1.5 + ε is 1/16 at y = 1.25 for every ε.
    problem = plane(LINE, [-1.0, 0.0], (([0.0, 0.0], [1.0, 0.0], 1.5), INERT))
    found = vv.epsilon(problem, [1.5, 0.0])
    assert found.lower - 1e-9 <= 1.0 / 16.0 <= found.upper + 1e-9
    assert found.upper - found.lower <= 1e-7
    # At x = 3: infeasibility 1.5, and Gap_1.5 = 1 is below it.
    found = vv.epsilon(problem, [3.0, 0.0])
    assert found.lower == found.upper == 1.5


def test_a_steep_multiplier_makes_small_epsilons_fail():
    # F = y − 3, y ≤ 1: x* = 1 and λ* = 2, so Gap_ε(x*) = (2 − ε)ε for ε ≤ 1: at most ε at 0, and again from 1 on.
    problem = plane(LINE, [-3.0, 0.0], (([0.0, 0.0], [1.0, 0.0], 1.0), INERT))
    gaps = vv.relaxed_gaps(problem, [[1.0, 0.0]] * 3, [0.0, 0.5, 1.0])
    np.testing.assert_allclose(gaps.upper, [0.0, 0.75, 1.0], atol=2e-8)


@pytest.mark.parametrize("s", [1.0, 1.5])
def test_just_beside_a_solution_the_other_branch_counts(s):
    # As above with s(y − 1) ≤ 0, so y = 1 + ε/s: near x* the gap exceeds ε until about ε = s(2 − s), where its slope in
    # ε is (2s − 2)/s: between 0 and 1 for s = 1.5.
    problem = plane(LINE, [-3.0, 0.0], (([0.0, 0.0], [s, 0.0], s), INERT))
    x = 0.999
    best = lambda e: min(1.0 + e / s, 0.5 * (3.0 + x))
    gap = lambda e: (best(e) - 3.0) * (x - best(e))
    found = vv.epsilon(problem, [x, 0.0])
    expected = scan(gap, 0.0, 2.0)
    assert gap(0.0) > 0.0
    assert expected == pytest.approx(s * (2.0 - s), abs=0.1)
    assert found.lower - 1e-8 <= expected <= found.upper + 1e-3
    assert found.upper - found.lower <= 1e-6
    assert gap(found.upper) <= found.upper + 1e-9
    assert gap(found.upper - 1e-4) > found.upper - 1e-4


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_agrees_with_a_scan_of_the_market(scale):
    problem = cournot()
    x = scale * np.random.default_rng(4).uniform(0.0, 5.0, problem.shape)
    v = vv.infeasibility(problem, x)
    found = vv.epsilon(problem, x)
    gap = lambda e: cournot_gap(problem, x, e)[0]
    assert found.lower >= v
    assert gap(found.upper) <= found.upper * (1.0 + 1e-9)
    assert found.upper - found.lower <= 1e-6 * (1.0 + found.upper)
    if found.lower > v:
        assert all(gap(e) > e for e in np.linspace(v, found.lower * (1.0 - 1e-6), 12))


def test_a_nonlinear_operator_gets_an_honest_interval():
    problem = random_plane(2, k=(0.5, 0.2))
    x = np.array([1.0, 1.0])
    found = vv.epsilon(problem, x)
    v = vv.infeasibility(problem, x)
    assert v <= found.lower <= found.upper < np.inf
    assert vv.relaxed_gap(problem, x, found.upper).upper <= found.upper * (1.0 + 1e-8) + 1e-8
    if found.lower > v:
        for e in (v, 0.5 * (v + found.lower)):
            assert vv.relaxed_gap(problem, x, e).lower > e


def test_a_point_outside_the_set_is_refused():
    with pytest.raises(vv.InputError, match="outside the set by 1"):
        vv.epsilon(plane(LINE, [-1.0, 0.0]), [5.0, 0.0])
