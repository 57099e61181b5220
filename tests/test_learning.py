"""The learning side: H as defined, exact constants, honest provenance, contraction factors, and sentences."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viceversa as vv
from unchecked import refused
from viceversa.errors import UserFunctionError

BOX1, BOX2 = vv.Box([0.0], [1.0]), vv.Box([0.0, 0.0], [5.0, 5.0])

WRONG_DATA = {
    "NaN in A": (([[np.nan]], [1.0], BOX1), {}, "LeastSquares: A has NaN at 1 of 1 entries"),
    "infinite A": (([[np.inf]], [1.0], BOX1), {}, "LeastSquares: A is infinite at 1 of 1 entries"),
    "NaN in b": (([[1.0]], [np.nan], BOX1), {}, "LeastSquares: b has NaN"),
    "infinite b": (([[1.0]], [np.inf], BOX1), {}, "LeastSquares: b is infinite"),
    "columns": (([[1.0, 2.0]], [1.0], BOX1), {}, "A has shape (1, 2); one row per observation and 1 columns"),
    "rows": (([[1.0], [2.0]], [1.0], BOX1), {}, "b has shape (1,); A has 2 rows, so (2,) is needed"),
    "no rows": ((np.zeros((0, 1)), [], BOX1), {}, "A has shape (0, 1)"),
    "rank": (([[1.0, 1.0], [2.0, 2.0]], [1.0, 2.0], BOX2), {}, "A has rank 1 but θ has 2 components"),
    "too few rows": (([[1.0, 1.0]], [1.0], BOX2), {}, "A has rank 1 but θ has 2 components"),
    "zeros": (([[0.0]], [1.0], BOX1), {}, "A has rank 0"),
    "negative weights": (
        ([[1.0]], [1.0], BOX1),
        {"weights": [-1.0]},
        "smallest entry -1; 1 nonnegative numbers",
    ),
    "infinite weights": (([[1.0]], [1.0], BOX1), {"weights": [np.inf]}, "weights is infinite"),
    "ridge": (([[1.0]], [1.0], BOX1), {"ridge": -1.0}, "ridge is -1.0; one number >= 0"),
    "NaN ridge": (([[1.0]], [1.0], BOX1), {"ridge": np.nan}, "ridge is NaN"),
    "no set": (([[1.0]], [1.0], 3), {}, "LeastSquares: set is int"),
    "words": (
        (["a"], [1.0], BOX1),
        {},
        "LeastSquares: A is list, which does not convert to an array of numbers",
    ),
}


@pytest.mark.parametrize(("given_data", "options", "words"), WRONG_DATA.values(), ids=WRONG_DATA)
def test_wrong_data_for_least_squares(given_data, options, words):
    with refused(words):
        vv.LeastSquares(*given_data, **options)


def test_known_refuses():
    for theta, words in (
        (np.nan, "theta is NaN"),
        (np.inf, "theta is infinite"),
        (None, "theta is None"),
        ({}, "theta is {}"),
        ("a", "theta is str"),
    ):
        with refused(f"Known: {words}"):
            vv.Known(theta)


@given(
    seed=st.integers(0, 10**6),
    n_rows=st.integers(3, 30),
    n_theta=st.integers(1, 3),
    ridge=st.sampled_from([0.0, 0.7]),
)
@settings(max_examples=25)
def test_least_squares_is_its_definition(seed, n_rows, n_theta, ridge):
    """H(θ) = Aᵀ diag(w)(Aθ − b) + ridge·θ, a sum over rows; μ and L the extreme eigenvalues of its matrix."""
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(n_rows, n_theta)), rng.normal(size=n_rows)
    weights, theta = rng.uniform(0.1, 2.0, n_rows), rng.normal(size=n_theta)
    learning = vv.LeastSquares(A, b, set=vv.Free((n_theta,)), weights=weights, ridge=ridge)
    expected = ridge * theta
    for t in range(n_rows):
        expected = expected + A[t] * weights[t] * (A[t] @ theta - b[t])
    with vv.precision.double():
        found = np.asarray(learning.operator(jax.numpy.asarray(theta)))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    eigenvalues = np.linalg.eigvalsh(A.T @ np.diag(weights) @ A + ridge * np.eye(n_theta))
    np.testing.assert_allclose([learning.mu, learning.lipschitz], eigenvalues[[0, -1]], rtol=1e-9)
    assert learning.provenance == "exact"
    assert learning.is_gradient
    minimum = learning.unconstrained_minimum()
    with vv.precision.double():
        assert np.abs(learning.operator(jax.numpy.asarray(minimum))).max() < 1e-9 * (1 + eigenvalues[-1])


def test_a_tree_of_parameters_is_raveled_in_the_order_of_its_set():
    theta_set = vv.Product({"a": vv.Box(0.0, 5.0, shape=()), "b": BOX2})
    learning = vv.LeastSquares(np.eye(3), [1.0, 2.0, 3.0], set=theta_set)
    minimum = learning.unconstrained_minimum()
    assert minimum["a"] == pytest.approx(1.0)
    np.testing.assert_allclose(minimum["b"], [2.0, 3.0])


WRONG_H = {
    "raises": (
        lambda t: {}["a"],
        {},
        "SecondaryVI: operator: your function <lambda>(array[1]) raised KeyError",
    ),
    "shape": (lambda t: np.ones(2), {}, "SecondaryVI: operator returns (2,); θ has (1,) (from `set`)"),
    "integers": (lambda t: np.array([1]), {}, "SecondaryVI: operator returns int64 numbers"),
    "two arguments": (lambda t, x: t, {}, "missing 1 required positional argument"),
}
WRONG_MODULI = {
    "decreasing": (lambda t: -t, {}, "mu is -1, so H is not strongly monotone"),
    "constant": (lambda t: 0.0 * t, {}, "mu is 0, so H is not strongly monotone"),
    "mu too large": (
        lambda t: 2.0 * t,
        {"mu": 3.0, "lipschitz": 5.0},
        "mu = 3, lipschitz = 5 were declared, but its matrix",
    ),
    "lipschitz too small": (
        lambda t: 2 * t + t**3,
        {"mu": 1.0, "lipschitz": 2.1},
        "but a sampled Jacobian has",
    ),
    "mu in words": (lambda t: t, {"mu": "a"}, "SecondaryVI: mu is str"),
    "mu negative": (lambda t: t, {"mu": -1.0}, "SecondaryVI: mu is -1.0; one positive number"),
    "a callback": (vv.callback_operator(lambda t: t), {}, "SecondaryVI: operator is a callback"),
    "no set": (lambda t: t, {"set": 3}, "SecondaryVI: set is int"),
}


@pytest.mark.parametrize(("H", "options", "words"), WRONG_H.values(), ids=WRONG_H)
def test_wrong_operator_for_secondary_vi(H, options, words):
    with refused(words, UserFunctionError):
        vv.SecondaryVI(H, set=BOX1, **options)


@pytest.mark.parametrize(("H", "options", "words"), WRONG_MODULI.values(), ids=WRONG_MODULI)
def test_wrong_moduli_for_secondary_vi(H, options, words):
    with refused(words):
        vv.SecondaryVI(H, **{"set": BOX1, **options})


def test_provenance_says_how_the_constants_are_known():
    W = np.array([[2.0, 1.0], [-1.0, 2.0]])
    affine = vv.SecondaryVI(lambda t: W @ (t - 1.0), set=BOX2)
    assert affine.provenance == "exact"
    assert not affine.is_gradient
    assert (float(affine.mu), float(affine.lipschitz)) == pytest.approx((2.0, np.sqrt(5.0)))
    assert vv.SecondaryVI(lambda t: 2 * t + t**3, set=BOX1, mu=2.0, lipschitz=5.0).provenance == "declared"
    assert vv.SecondaryVI(lambda t: 2 * t + t**3, set=BOX1).provenance == "estimated"
    assert vv.SecondaryVI(lambda t: 2 * t + t**3, set=BOX1, mu=2.0).provenance == "estimated"
    assert vv.SecondaryVI(lambda t: np.exp(t) + t, set=BOX1).provenance == "estimated"  # NumPy style
    symmetric = vv.SecondaryVI(lambda t: np.diag([1.0, 3.0]) @ t, set=BOX2)
    assert symmetric.is_gradient


SKEW = vv.SecondaryVI(lambda t: np.array([[2.0, 1.0], [-1.0, 2.0]]) @ t, set=BOX2)
LINE = vv.LeastSquares([1.0, 2.0], [1.0, 2.0], set=vv.Box(0.0, 3.0, shape=()))


@pytest.mark.parametrize("learning", [SKEW, LINE])
@given(q=st.floats(0.9, 0.999))
def test_a_rate_is_found_for_a_contraction(learning, q):
    assert learning.contraction(learning.rate_for(q)) == pytest.approx(q, abs=1e-9)
    assert learning.contraction(float(learning.default_rate())) < q


def test_an_impossible_contraction_is_refused():
    with refused("can be given any factor in [0.447214, 1)"):
        SKEW.rate_for(0.1)


def test_contraction_is_a_bound_on_the_real_one():
    """One projected step brings two points at least as close as the factor says."""
    rng = np.random.default_rng(0)
    matrix = np.array([[2.0, 1.0], [-1.0, 2.0]])
    for rate in (0.1, 0.3, 0.6):
        q = SKEW.contraction(rate)
        for _ in range(50):
            a, b = rng.uniform(0.0, 5.0, (2, 2))
            moved = np.clip(a - rate * matrix @ a, 0, 5) - np.clip(b - rate * matrix @ b, 0, 5)
            assert np.linalg.norm(moved) <= q * np.linalg.norm(a - b) + 1e-12


@pytest.mark.parametrize("learner", [vv.ProjectedGradient(), vv.ExtragradientLearner()])
def test_learners_reach_the_constrained_answer(learner):
    """θ* on the boundary of Θ: H does not vanish there, its projection does."""
    learning = vv.LeastSquares(np.eye(2), [7.0, 1.0], set=BOX2)
    with vv.precision.double():
        state = learner.init(learning, jax.numpy.zeros(2))
        for _ in range(200):
            state = learner.step(learning, state)
    np.testing.assert_allclose(learner.theta(state), [5.0, 1.0], atol=1e-12)
