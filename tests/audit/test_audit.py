"""Verdicts on Assumption 1: what must be proved, what must be refuted (and by which points), what must be left open."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv


def product(F, item):
    """⟨F(x) − F(y), x − y⟩ at the refuting pair, in plain NumPy."""
    x, y = item.points
    return float(np.sum((np.asarray(F(x, item.theta)) - np.asarray(F(y, item.theta))) * (x - y)))


def plain(F, X, **more):
    return vv.MisspecifiedVI(F, set=X, learning=vv.Known(0.0), **more)


# -- (i) -----------------------------------------------------------------------------------------------
def test_kojima_shindo_is_refuted():
    instance = vv.gallery.kojima_shindo()
    found = vv.audit(instance.problem)
    assert found.refuted == ["i", "v"]  # its set is the orthant, which is not compact either
    x, y = found.items["i"].points
    assert (x >= 0).all()
    assert (y >= 0).all()

    def F(x, q):  # Kojima & Shindo (1986), written out
        a, b, c, d = x
        return np.array(
            [
                3 * a * a + 2 * a * b + 2 * b * b + c + 3 * d - 6,
                2 * a * a + a + b * b + 10 * c + 2 * d - 2,
                3 * a * a + a * b + 2 * b * b + 2 * c + 9 * d - 9,
                a * a + 3 * b * b + 2 * c + 3 * d - 3,
            ]
        )

    assert product(F, found.items["i"]) < 0
    assert "not monotone" in str(found)


CENTRE = np.array([0.3, -0.2, 0.45])


def test_a_cell_of_a_millionth_of_the_volume_is_found():
    """J = I − c·(bump), λ_min = 1 − c/(1 + s), s = ‖x − p‖²/w²: negative only within w√(c − 1) of p."""
    width, c = 0.5, 1.0005
    radius = width * np.sqrt(c - 1.0)
    assert 4.0 / 3.0 * np.pi * radius**3 / 8.0 < 1e-6

    def F(x, theta):
        step = x - CENTRE
        return x - c * step / (1.0 + jnp.sum(step**2) / width**2)

    item = vv.audit(plain(F, vv.Box(-np.ones(3), np.ones(3)))).items["i"]
    assert item.verdict == "refuted"
    assert product(F, item) < 0
    # Where all pairs are within the cell, the numbers in the sentence are those of the formula.
    assert "-0.0005" in item.evidence
    rng = np.random.default_rng(0)
    pairs = rng.uniform(-1, 1, (2000, 2, 3))
    assert all(np.dot(np.asarray(F(x, 0)) - np.asarray(F(y, 0)), x - y) >= 0 for x, y in pairs[:50])


def test_lanczos_finds_one_bad_coordinate_of_eighty():
    """Only ∂F₁/∂x₁ = 1 − 1.2 exp(−(x₁ − 0.4)²/0.02) becomes negative; a skew part hides it from the diagonal."""
    n = 80
    skew = np.triu(np.random.default_rng(0).normal(size=(n, n)), 1)
    skew = skew - skew.T

    def F(x, theta):
        bump = 0.6 * jnp.sqrt(0.02 * jnp.pi) * (1.0 + jnp.tanh(12.0 * (x[0] - 0.4)))
        return x + skew @ x - jnp.zeros(n).at[0].set(bump)

    item = vv.audit(plain(F, vv.Box(-np.ones(n), np.ones(n)))).items["i"]
    assert item.verdict == "refuted"
    assert product(F, item) < 0


class Tilted(eqx.Module):
    """F = d∘x + x³/10 − 2(Σx)1."""

    d: np.ndarray

    def __call__(self, x, theta):
        return self.d * x + 0.1 * x**3 - 2.0 * jnp.sum(x)


def test_only_directions_of_the_set_count():
    """On the simplex, J ≈ I − 2·11ᵀ is negative along 1, in which no point can move; with d = (1, 1, −1) some can."""
    bowl, saddle = Tilted(np.array([1.0, 1.0, 1.0])), Tilted(np.array([1.0, 1.0, -1.0]))
    assert vv.audit(plain(bowl, vv.Simplex(3))).items["i"].verdict == "not_refuted"
    item = vv.audit(plain(saddle, vv.Simplex(3))).items["i"]
    assert item.verdict == "refuted"
    assert product(saddle, item) < 0
    assert np.allclose([x.sum() for x in item.points], 1.0)


def test_structure_proves_and_its_numbers_are_right():
    instance = vv.gallery.cournot(20, 2, 0)
    found = vv.audit(instance.problem)
    assert found.refuted == []
    assert set(found.proved) == set(found.items)
    low = float(np.ravel(instance.problem.learning.set.lower)[0])
    r = np.asarray(instance.problem.operator.costs.r)
    blocks = [np.diag(r[:, d]) + low * (np.eye(20) + np.ones((20, 20))) for d in range(2)]
    smallest = min(np.linalg.eigvalsh(block)[0] for block in blocks)
    assert found.constants.mu_F.value == pytest.approx(smallest)
    assert f"{smallest:.6g}" in found.items["i"].evidence


def test_a_jump_is_not_proved_away():
    """The Jacobian is the identity almost everywhere; the jump down at 0 shows only in pairs."""
    F = lambda x, t: jnp.where(x > 0.0, x - 1.0, x)
    item = vv.audit(plain(F, vv.Box([-1.0, -1.0], [1.0, 1.0]))).items["i"]
    assert item.verdict == "refuted"
    assert product(F, item) < 0


def test_a_callback_is_tried_with_pairs():
    F = lambda x, t: -x
    problem = plain(vv.callback_operator(F), vv.Box([-1.0], [1.0]))
    found = vv.audit(problem)
    assert found.items["i"].verdict == "refuted"
    assert product(F, found.items["i"]) < 0


def test_a_declared_modulus_is_not_a_proof():
    problem = plain(vv.callback_operator(lambda x, t: 2.0 * x), vv.Box([-1.0], [1.0]))
    assert vv.audit(problem, declared={"mu_F": 2.0}).items["i"].verdict == "not_refuted"


# -- (ii) ----------------------------------------------------------------------------------------------
def test_a_declared_modulus_of_H_is_refuted_where_sampling_misses_it():
    """H' = 1 − 0.9/(1 + 1e6(θ − 0.77)²): below the declared ½ only on a thousandth of Θ."""
    H = lambda t: t - 0.9e-3 * jnp.arctan(1e3 * (t - 0.77))
    learning = vv.SecondaryVI(H, set=vv.Box([0.0], [2.0]), mu=0.5, lipschitz=1.0)
    problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [1.0]), learning=learning)
    item = vv.audit(problem).items["ii"]
    assert item.verdict == "refuted"
    a, b = (float(p[0]) for p in item.points)
    assert (float(H(a)) - float(H(b))) * (a - b) < 0.5 * (a - b) ** 2


# -- (iii) ---------------------------------------------------------------------------------------------
def test_the_constraint_that_is_not_convex_is_named():
    problem = plain(
        lambda x, t: x,
        vv.Box([-1.0, -1.0], [1.0, 1.0]),
        constraints=lambda x, t: jnp.stack([x @ x - 3.0, jnp.cos(x[0]) - 2.0, jnp.sum(x) - 9.0]),
        constraint_names=("round", "wavy", "flat"),
    )
    item = vv.audit(problem).items["iii"]
    assert item.verdict == "refuted"
    assert item.details == {"round": "proved", "wavy": "refuted", "flat": "proved"}
    assert "wavy" in item.evidence
    assert "round" not in item.evidence
    x, y = item.points
    assert (-np.sin(x[0]) + np.sin(y[0])) * (x[0] - y[0]) < 0


def test_a_kink_upside_down_is_not_convex():
    """−|x| has second derivative 0 wherever it has one."""
    problem = plain(lambda x, t: x, vv.Box([-1.0], [1.0]), constraints=lambda x, t: -jnp.abs(x) - 1.0)
    assert vv.audit(problem).items["iii"].verdict == "refuted"


# -- printing ------------------------------------------------------------------------------------------
def test_the_table_has_a_row_for_every_assumption():
    text = str(vv.audit(plain(lambda x, t: x, vv.Box([0.0], [1.0]))))
    assert [
        line.split()[0] for line in text.splitlines() if line and not line[0].isspace()
    ] == "i ii iii iv v vi".split()
    assert text.count("proved") == 6
