"""The detailed lines of a certificate: every bound holds against the known truth, and none comes from samples."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa.certificates.distance import distance_statement
from viceversa.errors import InputError


def market():
    """Two firms, total at most θ: F = (2x₁ + x₂ − 6, x₁ + 2x₂ − 6 + skew), x₁ + x₂ ≤ θ, θ* = 2: x* by symmetry-free KKT."""
    M, q = np.array([[2.0, 1.5], [0.5, 2.0]]), np.array([-6.0, -5.0])
    problem = vv.MisspecifiedVI(
        lambda x, t: M @ x + q * t[0] / 2.0,
        set=vv.Box([0.0, 0.0], [4.0, 4.0]),
        constraints=lambda x, t: jnp.sum(x) - t[0],
        constraint_names=("total",),
        learning=vv.SecondaryVI(lambda t: 3.0 * (t - 2.0), set=vv.Box([1.0], [3.0])),
    )
    # Mx + q + λ1 = 0 and x₁ + x₂ = 2, solved as a linear system; λ > 0 and x inside the box.
    system = np.block([[M, np.ones((2, 1))], [np.ones((1, 2)), np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.concatenate([-q, [2.0]]))
    return problem, solution[:2], solution[2:]


PROBLEM, X_TRUE, LAM_TRUE = market()
CONSTANTS = vv.constants(PROBLEM)


def certify(x, lam, theta):
    return vv.certify(PROBLEM, x, lam, [theta], detail=True, constants=CONSTANTS)


def test_the_answer_used_as_truth_is_one():
    assert (LAM_TRUE > 0).all()
    assert vv.certify(PROBLEM, X_TRUE, LAM_TRUE, [2.0]).holds


@pytest.mark.parametrize("seed", range(8))
def test_every_line_bounds_the_truth(seed):
    """Random points, multipliers and wrong parameters: distance, infeasibility and learning error are all bounded."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.uniform(-4, 0)
    x = np.clip(X_TRUE + size * rng.normal(size=2), 0.0, 4.0)
    lam = np.maximum(LAM_TRUE + size * rng.normal(size=1), 0.0)
    theta = float(np.clip(2.0 + 0.1 * size * rng.normal(), 1.0, 3.0))
    found = certify(x, lam, theta)
    assert all(line.value is not None for line in found.statements)
    assert found.statement("‖θ − θ*‖").value >= abs(theta - 2.0) * (1 - 1e-12)
    assert found.statement("infeasibility").value >= max(x.sum() - 2.0, 0.0) - 1e-15
    assert found.statement("‖x − x*‖").value >= np.linalg.norm(x - X_TRUE)


def test_the_distance_is_tight_without_constraints_and_exact_where_it_can_be():
    """F = μ(x − c) inside the box: R = μ‖x − c‖²/2, so the bound is the distance itself."""
    problem = vv.MisspecifiedVI(
        lambda x, t: 4.0 * (x - 1.0), set=vv.Box([-9.0, -9.0], [9.0, 9.0]), learning=vv.Known(0.0)
    )
    found = vv.certify(problem, [4.0, 5.0], detail=True)
    assert found.statement("‖x − x*‖").value == pytest.approx(5.0)
    # A point outside X is first brought back: √(3² + 4²) from P_X(x) = (9, ·) would be wrong without the way back.
    outside = vv.certify(problem, [12.0, 1.0], detail=True)
    assert outside.statement("‖x − x*‖").value == pytest.approx(8.0 + 3.0)


def test_learning_lines_are_the_formulas():
    error, x = 0.1 * 3.0 / 3.0, np.array([1.5, 0.7])
    found = certify(x, LAM_TRUE, 2.1)
    assert found.learning_error == pytest.approx(error)
    assert found.statement("infeasibility").value == pytest.approx(1.5 + 0.7 - 2.1 + 1.0 * error)
    L_F_theta = np.linalg.norm([3.0, 2.5])
    assert found.statement("added to the gap").value == pytest.approx(L_F_theta * error * np.sqrt(32.0))
    assert found.statement("added to ε").value == pytest.approx(error)


def test_no_bound_from_an_estimated_constant():
    """A callback's constants are sampled: the lines say so and hold no number."""
    problem = vv.MisspecifiedVI(
        vv.callback_operator(lambda x, t: 2.0 * x - t),
        set=vv.Box([0.0], [4.0]),
        learning=vv.SecondaryVI(lambda t: t - 2.0, set=vv.Box([0.0], [3.0])),
    )
    found = vv.certify(problem, [1.0], theta=[1.9], detail=True)
    assert found.statement("‖x − x*‖").value is None
    assert "mu_F" in found.statement("‖x − x*‖").how
    assert found.statement("added to the gap").value is None
    assert "estimated" in str(found)
    declared = vv.certify(
        problem, [1.0], theta=[1.9], detail=True, declared={"mu_F": 2.0, "L_F_theta": 1.0, "L_F_x": 2.0}
    )
    line = declared.statement("‖x − x*‖")
    assert line.provenance == "declared"
    assert 0.0 < line.value < 0.2


def test_merely_monotone_has_no_distance():
    problem = vv.MisspecifiedVI(
        lambda x, t: jnp.stack([x[1], -x[0]]), set=vv.Box([-1.0, -1.0], [1.0, 1.0]), learning=vv.Known(0.0)
    )
    line = vv.certify(problem, [0.1, 0.1], detail=True).statement("‖x − x*‖")
    assert line.value is None
    assert "not proved strongly monotone" in line.how


def test_an_unknown_line_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="detail=True"):
        vv.certify(PROBLEM, X_TRUE, LAM_TRUE, [2.0]).statement("‖x")


def test_a_wrong_multiplier_size_would_show():
    """With λ* taken as 0 the bound at an infeasible point falls below the distance: the term is needed."""
    from viceversa.constants import Constant

    # Along the constraint's normal, far beyond it, the Lagrangian with a too large λ looks stationary.
    M, q = np.array([[2.0, 1.5], [0.5, 2.0]]), np.array([-6.0, -5.0])
    x = np.linalg.solve(M, -q)
    args = (PROBLEM, x, np.zeros(1), np.array([2.0]), 0.0, CONSTANTS)
    honest = distance_statement(*args, Constant(float(LAM_TRUE.sum()), "exact", "known"))
    wrong = distance_statement(*args, Constant(0.0, "exact", "wrong on purpose"))
    true = np.linalg.norm(x - X_TRUE)
    assert wrong.value < true <= honest.value
