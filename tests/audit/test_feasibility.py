"""Slater's condition, empty sets at the start, and infeasibility: what is said, and that `solve` still solves."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa.audit import feasibility


class Rows(eqx.Module):
    """f(x, θ) = Ax + aθ + b; a module, so that every problem here shares its compiled programs."""

    A: np.ndarray
    a: np.ndarray
    b: np.ndarray

    def __call__(self, x, theta):
        return self.A @ x + self.a * theta[0] + self.b


class Towards(eqx.Module):
    """H(θ) = 2(θ − θ*)."""

    target: np.ndarray

    def __call__(self, theta):
        return 2.0 * (theta - self.target)


class Shifted(eqx.Module):
    """F(x, θ) = x − 3."""

    def __call__(self, x, theta):
        return x - 3.0


NAMES = ("demand", "other")
NO_ROW = ([0.0, 0.0], 0.0, -1.0)


def problem_with(first, second, target):
    """F = x − 3 on [0, 2]², two rows (A_j, a_j, b_j), θ* = target learned from 0 on [0, 4]."""
    rows = Rows(*(np.array([first[i], second[i]], dtype=float) for i in range(3)))
    return vv.MisspecifiedVI(
        Shifted(),
        set=vv.Box([0.0, 0.0], [2.0, 2.0]),
        constraints=rows,
        learning=vv.SecondaryVI(Towards(np.array([target])), set=vv.Box([0.0], [4.0])),
        constraint_names=NAMES,
    )


def test_a_set_that_is_empty_at_the_start_only_is_said_so_and_solved():
    """x₁ + x₂ ≤ θ − 1: nothing satisfies it at θ₀ = 0 (on x ≥ 0), the sum is at most 2 at θ* = 3."""
    problem = problem_with(([1.0, 1.0], -1.0, 1.0), NO_ROW, 3.0)
    found = vv.audit(problem)
    assert found.items["vi"].verdict == "proved"
    assert found.notes == (feasibility.EMPTY_AT_START,)
    slater = found.items["vi"].points[0]
    assert slater.sum() < 2.0
    solution = vv.solve(problem)
    assert solution.success
    assert solution.x == pytest.approx([1.0, 1.0], abs=1e-6)
    assert feasibility.EMPTY_AT_START in vv.explain(problem, solution).notes


def test_constraints_without_a_strictly_feasible_point_are_said_so_and_solved():
    """x₁ + x₂ ≤ 1 and ≥ 1 together: an equation, for which no x̂ has f < 0."""
    problem = problem_with(([1.0, 1.0], -1.0, 0.0), ([-1.0, -1.0], 1.0, 0.0), 1.0)
    found = vv.audit(problem)
    assert found.refuted == ["vi"]
    assert feasibility.NO_SLATER in found.notes
    solution = vv.solve(problem)
    assert solution.success
    assert solution.x == pytest.approx([0.5, 0.5], abs=1e-6)
    # λ* is a ray, λ₁ − λ₂ = 2.5: no Slater bound exists, and none is claimed.
    line = vv.explain(problem, solution)["‖x − x*‖"]
    assert line.value is None
    assert "Slater" in line.how


def test_an_empty_set_is_refuted_with_the_solver_s_own_status():
    problem = problem_with(([-1.0, -1.0], 1.0, 5.0), NO_ROW, 1.0)  # 6 ≤ x₁ + x₂, which is at most 4
    found = vv.audit(problem)
    assert found.refuted == ["vi"]
    assert found.notes == (feasibility.EMPTY,)
    assert "2" in found.items["vi"].evidence  # 6 − 4: the floor of the constraint on X
    solution = vv.solve(problem)
    assert solution.status is vv.Status.infeasible
    assert "demand" in str(solution.infeasibility)


def test_the_floor_is_below_every_value_and_the_slack_is_met():
    """A naive grid: max_j f_j is at least the floor everywhere and −slack at the point returned."""
    from viceversa.audit.slater import depth

    f = lambda x, t: jnp.stack([jnp.sum(x**2) - 1.0, 1.8 - x[0] - x[1], x[0] - 3.0 * x[1] - 1.0])
    problem = vv.MisspecifiedVI(
        Shifted(), set=vv.Box([0.0, 0.0], [2.0, 2.0]), constraints=f, learning=vv.Known([0.0])
    )
    found = depth(problem, np.array([0.0]))
    grid = np.stack(np.meshgrid(*[np.linspace(0, 2, 201)] * 2), -1).reshape(-1, 2)
    values = np.array([np.max(np.asarray(f(x, 0.0))) for x in grid[::37]])
    assert found.empty  # the unit disc stays below x₁ + x₂ = √2
    assert 0 < found.floor <= values.min() + 1e-12
    assert found.slack == pytest.approx(-np.max(np.asarray(f(found.x, 0.0))))


def test_an_unbounded_set_can_be_deep_and_has_no_floor():
    """x₁ + x₂ ≥ 1 on all of R²: as deep as one likes, and −∞ is no evidence of anything."""
    problem = vv.MisspecifiedVI(
        Shifted(), set=vv.Free(2), constraints=lambda x, t: 1.0 - jnp.sum(x), learning=vv.Known(0.0)
    )
    found = vv.audit(problem)
    assert found.items["vi"].verdict == "proved"
    assert found.items["vi"].points[0].sum() > 1.0
    assert found.refuted == ["v"]
