"""Planted problems: the chosen answer satisfies the KKT conditions written out, with every knob turned."""

from __future__ import annotations

import numpy as np
import pytest

import viceversa as vv

KNOBS = [
    {},
    {"mu": 0.0, "n": 24, "n_constraints": 6, "learning": "least_squares", "condition": 1e3},
    {"degenerate": True, "mu": 0, "seed": 3},
    {"n": 7, "n_constraints": 0, "skew": 0.0, "n_theta": 1},
    {"n": 60, "n_constraints": 20, "n_theta": 10, "n_active": 12, "seed": 5, "rank": 4},
]


def kkt_by_hand(instance):
    """Stationarity, feasibility, complementarity and Slater from the arrays, with loops over constraints."""
    F, f = instance.problem.operator, instance.problem.constraints
    x, theta, lam = instance.x_true, instance.theta_true, instance.multiplier_true
    M = F.M0 + sum(t * K for t, K in zip(theta, F.K, strict=True))
    force = M @ x + F.q0 + F.q1 @ theta
    slater, values, slater_values = instance.details["slater_point"], [], []
    for j in range(lam.size):
        Q, slope = f.G[j].T @ f.G[j], f.c[j] + f.C[j] @ theta
        force = force + lam[j] * (Q @ x + slope)
        values.append(0.5 * x @ Q @ x + slope @ x - f.d[j])
        slater_values.append(0.5 * slater @ Q @ slater + slope @ slater - f.d[j])
    return force, np.array(values), np.array(slater_values), M


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_the_planted_answer_solves_the_problem(knobs):
    instance = vv.gallery.planted(**knobs)
    force, values, slater_values, M = kkt_by_hand(instance)
    x, lam, active = instance.x_true, instance.multiplier_true, instance.details["active"]
    scale = np.abs(M).sum(axis=1).max()
    inside, low, high = np.abs(x) < 1, x == -1, x == 1
    assert low.sum() == high.sum() == x.size // 5
    assert np.abs(force[inside]).max() <= 1e-13 * scale
    assert (force[low] >= -1e-13 * scale).all()
    assert (force[high] <= 1e-13 * scale).all()
    assert (np.abs(values[active]) <= 1e-13 * scale).all()
    assert (values[~active] <= -0.5).all()
    assert (lam[~active] == 0).all()
    assert (slater_values < 0).all()
    assert (np.abs(instance.details["slater_point"]) < 1).all()
    assert np.linalg.eigvalsh((M + M.T) / 2)[0] >= instance.details["mu_F"] - 1e-12
    if knobs.get("degenerate"):
        assert lam[active].min(initial=np.inf) == 0
        assert np.abs(force[low]).min() <= 1e-13 * scale
    else:
        assert (lam[active] >= 0.5).all()
        assert (np.abs(force[low | high]) >= 0.4).all()
    if instance.details["mu_F"] == 0:
        assert np.linalg.matrix_rank((M + M.T) / 2) == x.size // 2


@pytest.mark.parametrize("knobs", KNOBS[:2], ids=str)
def test_the_certificate_agrees_and_learning_has_its_condition(knobs):
    instance = vv.gallery.planted(**knobs)
    relative = instance.certify(tol=1e-12).relative
    # The bound on θ's error has rounding in it, times the condition.
    assert relative.pop("learning") <= (1e-11 if knobs else 1e-12)
    assert max(relative.values()) <= 1e-12
    learning = instance.problem.learning
    assert learning.provenance == "exact"
    assert float(learning.mu) == pytest.approx(1.0, rel=1e-8)
    if knobs:
        assert float(learning.lipschitz) == pytest.approx(1e3, rel=1e-8)
        assert learning.is_gradient
    else:
        assert float(learning.lipschitz) >= 5.0
        assert not learning.is_gradient  # W has a skew part
    wrong = vv.certify(
        instance.problem, instance.x_true, instance.multiplier_true, instance.theta0, tol=1e-12
    )
    assert wrong.learning_error > 0.5


def test_a_merely_monotone_answer_is_unique_only_when_its_kkt_matrix_is_regular():
    knobs = {"n": 12, "n_constraints": 4, "n_theta": 2, "mu": 0.0, "seed": 1}
    assert vv.gallery.planted(**knobs).x_unique
    assert not vv.gallery.planted(**knobs, degenerate=True).x_unique
    # Without rotation and constraints nothing holds the kernel of P, of dimension n/2.
    flat = vv.gallery.planted(n=20, n_constraints=0, n_theta=1, mu=0.0, skew=0.0)
    assert not flat.x_unique


def test_seeds_repeat_and_differ():
    one, same, other = (vv.gallery.planted(n=8, n_constraints=2, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.problem.operator.q0, same.problem.operator.q0)
    assert np.abs(one.x_true - other.x_true).max() > 0.1


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"n": 0}, "n is 0"),
        ({"mu": -1.0}, "mu is -1.0"),
        ({"condition": 0.5}, "condition is 0.5"),
        ({"learning": "oracle"}, "'vi' or 'least_squares'"),
        ({"n_active": 9}, "from 0 to n_constraints = 4"),
    ],
    ids=str,
)
def test_bad_knobs_are_refused_in_sentences(knobs, sentence):
    with pytest.raises(vv.InputError, match=sentence):
        vv.gallery.planted(**knobs)
    with pytest.raises(vv.InputError, match="n is 1"):
        vv.gallery.harker_pang(n=1)
