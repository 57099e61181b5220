"""The learning side: H as defined, exact constants, honest provenance, contraction factors, and sentences."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

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
    "a zero column": (
        (np.outer(np.arange(4.0), [1.0, 0.0]), np.ones(4), BOX2),
        {},
        "A has rank 1 but θ has 2 components (column 1 of A is 0 in every row)",
    ),
    "dependent columns in bad units": (
        (np.column_stack([np.ones(9), np.arange(9) * 1e7, np.arange(9) * 3e-8]), np.ones(9), vv.Free(3)),
        {},
        "A has rank 2 but θ has 3 components (columns 1, 2 of A (from 0) depend on each other linearly)",
    ),
    "almost dependent columns": (
        (np.column_stack([np.arange(9.0), np.arange(9) * 1e6 + 1e-3 * np.eye(9)[4]]), np.ones(9), BOX2),
        {},
        "columns 0, 1 of A (from 0) depend on each other almost linearly (condition number ",
    ),
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


UNITS = [1e-6, 1e-3, 1.0, 1e3, 1e6, 1e7, 1e8]


def _demand(unit: float, noise: float = 0.0):
    """Rows (1, −Q) and prices 10 − Q/unit + noise, with the answer found on columns of one size."""
    q = np.linspace(2.0, 9.0, 20)
    price = 10.0 - q + noise * np.cos(np.arange(20.0))
    rows = np.column_stack([np.ones(20), -q])
    return rows * [1.0, unit], price, np.linalg.lstsq(rows, price, rcond=None)[0] / [1.0, unit]


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("unit", UNITS)
def test_least_squares_is_learned_to_all_digits_in_any_units(unit, noise):
    """Exactly the components of a regression on scaled columns; with AᵀA or with ‖r‖ in the units of L they are not."""
    A, price, expected = _demand(unit, noise)
    learning = vv.LeastSquares(A, price, set=vv.Free(2))
    problem = vv.MisspecifiedVI(lambda x, t: x - t[0], vv.Box(0.0, 50.0, shape=1), learning=learning)
    found = vv.solve(problem, max_iter=50)
    np.testing.assert_allclose(found.theta, expected, rtol=1e-10)
    np.testing.assert_allclose(found.x, expected[0], rtol=1e-8)
    np.testing.assert_allclose(learning.unconstrained_minimum(), expected, rtol=1e-12)


def test_the_market_is_learned_in_any_units_of_quantity():
    found = {}
    for unit in (1e-3, 1.0, 1e3, 1e6):
        q = np.linspace(2.0, 9.0, 20)
        market = vv.cournot((np.array([1.0, 1.0]) / unit, [1.0, 2.0]), 5.0 * unit, (10.0 - q, q * unit))
        solution = vv.solve(market)
        assert solution.status == vv.Status.solved
        assert solution.nit <= 20
        found[unit] = solution.x.ravel() / unit
    for x in found.values():
        np.testing.assert_allclose(x, [2.375, 1.875], atol=1e-7)


NEWTON = vv.NewtonLearner()
NEWTON_STEP = jax.jit(lambda learning, state: NEWTON.step(learning, state))


def _steps_until(learning, expected, start, rtol=1e-9, at_most=60):
    """Newton steps until θ has `expected`, relative to each component's own size in it."""
    with vv.precision.double():
        state = NEWTON.init(learning, learning.set.project(jax.numpy.asarray(start)))
        for k in range(1, at_most + 1):
            state = NEWTON_STEP(learning, state)
            if (np.abs(np.asarray(state.theta) - expected) <= rtol * np.abs(expected)).all():
                return k
    return np.inf


@pytest.mark.parametrize("unit", UNITS)
def test_one_newton_step_is_exact_where_bounds_do_not_bind(unit):
    A, price, expected = _demand(unit, noise=0.5)
    for learning in (
        vv.LeastSquares(A, price, set=vv.Free(2)),
        vv.LeastSquares(A, price, set=vv.Box(0.25 * expected, 4.0 * expected)),
    ):
        for start in (np.zeros(2), 4.0 * expected, [0.0, 1e9]):
            assert _steps_until(learning, expected, start, rtol=1e-12) == 1


@pytest.mark.parametrize(
    ("n", "shared", "at_most"),
    [(2, 0.9, 4), (6, 0.9, 10), (20, 0.9, 20), pytest.param(310, 0.0, 20, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("units", ["one", "many"])
def test_bounds_that_bind_are_found_in_a_few_steps_in_any_units(n, shared, at_most, units):
    """Against the active-set method of Stark and Parker, on columns of one size; also from the farthest corner."""
    for seed in range(5 if n < 100 else 1):
        rng = np.random.default_rng(seed)
        A = np.sqrt(1.0 - shared) * rng.normal(size=(3 * n, n)) + np.sqrt(shared) * rng.normal(
            size=(3 * n, 1)
        )
        b, low = rng.normal(size=3 * n) * 3.0, rng.uniform(-0.3, -0.1, n)
        high = low + rng.uniform(0.05, 0.5, n)
        size = 10.0 ** rng.uniform(-6.0, 8.0, n) if units == "many" else np.ones(n)
        reference = lsq_linear(A, b, (low, high), tol=1e-15, method="bvls")
        assert reference.active_mask.any()
        learning = vv.LeastSquares(A * size, b, set=vv.Box(low / size, high / size))
        for start in (np.zeros(n), np.where(reference.x > (low + high) / 2, low, high) / size):
            assert _steps_until(learning, reference.x / size, start, rtol=1e-7) <= at_most


def test_the_newton_learner_takes_any_operator_in_bad_units():
    """H affine without its least squares being known, nonlinear, and not a gradient; bounds bind."""
    size, target = np.array([1.0, 1e-6, 1e5]), np.array([3.0, 0.5, 2.0])
    M = np.array([[2.0, 1.0, 0.5], [1.0, 2.0, 0.3], [0.5, 0.3, 1.0]])
    skew = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.4], [0.0, -0.4, 0.0]])
    box = vv.Box(np.zeros(3), np.array([1.0, 1.0, 3.0]) * size)
    for H in (
        lambda t: M @ (t / size - target) / size,
        lambda t: (M @ (t / size - target) + (t / size) ** 3) / size,
        lambda t: (M + skew) @ (t / size - target) / size,
    ):
        learning = vv.SecondaryVI(H, set=box)
        answer = np.full(3, 0.5)
        for _ in range(20_000):  # a naive twin: projected steps in good units
            answer = np.clip(answer - 0.02 * H(answer * size) * size, 0.0, [1.0, 1.0, 3.0])
        assert ((answer == 1.0) | (answer == 0.0)).any()
        assert _steps_until(learning, answer * size, np.zeros(3), rtol=1e-9) <= 12


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e7, 1e12])
def test_full_rank_is_not_a_matter_of_units(unit):
    q = np.linspace(1.0, 2.0, 30)
    A = np.column_stack([np.ones(30), q * unit])
    learning = vv.LeastSquares(A, 3.0 + 2.0 * q, set=vv.Free(2))
    np.testing.assert_allclose(learning.unconstrained_minimum(), [3.0, 2.0 / unit], rtol=1e-12)
    # The eigenvalues of a 2×2 matrix from its determinant and trace, without cancellation.
    determinant = 30.0 * unit**2 * np.sum((q - q.mean()) ** 2)
    trace = 30.0 + unit**2 * np.sum(q**2)
    largest = trace / 2 * (1.0 + np.sqrt(1.0 - 4.0 * determinant / trace**2))
    np.testing.assert_allclose([learning.mu, learning.lipschitz], [determinant / largest, largest], rtol=1e-9)


@given(
    seed=st.integers(0, 10**6),
    n_theta=st.integers(1, 12),
    n_more=st.integers(0, 2000),
    ridge=st.sampled_from([0.0, 0.7]),
    near=st.booleans(),
)
@settings(max_examples=20)
def test_rounding_bounds_the_error_of_H(seed, n_theta, n_more, ridge, near):
    """H of the stored factor and H of the rows themselves, both in long double, against H as computed."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.uniform(-4.0, 4.0, n_theta)
    A = rng.normal(size=(n_theta + n_more, n_theta)) + rng.normal(size=n_theta) * 3.0
    A, b = A * size, rng.normal(size=n_theta + n_more) * 10.0 ** rng.uniform(-3.0, 3.0)
    weights = rng.uniform(0.1, 2.0, b.size)
    learning = vv.LeastSquares(A, b, set=vv.Free((n_theta,)), weights=weights, ridge=ridge)
    theta = learning.minimum if near else rng.normal(size=n_theta) / size
    with vv.precision.double():
        computed = np.asarray(jax.jit(lambda given, t: given.operator(t))(learning, theta))
        bound = float(jax.jit(lambda given, t: given.rounding(t))(learning, theta))
    given = (learning.factor, learning.target, A, b, weights, theta)
    R, z, A_wide, b_wide, w, t = (np.asarray(v).astype(np.longdouble) for v in given)
    by_factor = R.T @ (R @ t - z) + learning.ridge * t
    by_rows = A_wide.T @ (w * (A_wide @ t - b_wide)) + learning.ridge * t
    for exact in (by_factor, by_rows):
        assert float(np.sqrt(np.sum((computed - exact) ** 2))) <= bound
    size_sq = float(np.abs(A_wide).T.sum() ** 2 + 1) * (1.0 + np.abs(theta).max() + np.abs(b).max())
    assert 0.0 < bound < 1e-10 * (n_theta + 10) * size_sq


def test_rounding_is_nothing_where_it_is_not_known():
    with vv.precision.double():
        assert float(SKEW.rounding(np.ones(2))) == 0.0
        assert float(SKEW.scaled_error_bound(np.ones(2))) == np.inf
        in_a_ball = vv.LeastSquares(np.eye(2), [7.0, 1.0], set=vv.Ball(np.zeros(2), 1.0))
        assert float(in_a_ball.scaled_error_bound(np.zeros(2))) == np.inf


@pytest.mark.parametrize("unit", UNITS)
def test_the_scaled_error_bound_is_one_and_small_at_the_answer(unit):
    """Above the real error at any θ, and within 1e-9 of θ's size at the answer, whatever the units."""
    A, price, free = _demand(unit, noise=0.5)
    rng = np.random.default_rng(0)
    for theta_set in (
        vv.Free(2),
        vv.Box(0.0 * free, free * [0.9, 2.0]),
        vv.Box(free * [0.5, 1.1], free * 2.0),
    ):
        learning = vv.LeastSquares(A, price, set=theta_set)
        bounds = (-np.inf, np.inf) if isinstance(theta_set, vv.Free) else (theta_set.lower, theta_set.upper)
        bounds = tuple(np.asarray(bound) * [1.0, unit] for bound in bounds)
        answer = lsq_linear(A / [1.0, unit], price, bounds, tol=1e-15, method="bvls").x / [1.0, unit]
        with vv.precision.double():
            bound = jax.jit(lambda t, given=learning: given.scaled_error_bound(t))
            for spread in (1.0, 1e-3, 1e-8):
                theta = np.asarray(theta_set.project(answer * (1.0 + spread * rng.normal(size=2))))
                assert np.linalg.norm(theta - answer) <= float(bound(theta)) + 1e-14 * np.linalg.norm(answer)
            assert 0.0 < float(bound(answer)) <= 1e-9 * np.linalg.norm(answer)


# -- a minimum inside a set that is no product of intervals -------------------------------------------------
def _steep(unit):
    """Observations of θ = (3, 2/unit) whose second column is as small as `unit`."""
    A, theta = np.column_stack([np.ones(50), unit * np.linspace(0.0, 1.0, 50)]), np.array([3.0, 2.0 / unit])
    return A, A @ theta, theta


def _around(unit):
    """Sets with (3, 2/unit) inside them, of which none is a box."""
    far = 20.0 / unit
    corner = vv.Polyhedron([[1.0, unit], [-1.0, unit]], [9.0, 9.0], lower=-far, upper=far)
    return {
        "ball": vv.Ball(np.zeros(2), far),
        "halfspace": vv.Halfspace([1.0, unit], 9.0),
        "polyhedron": corner,
        "intersection": vv.Intersection([corner, vv.Ball(np.zeros(2), far)]),
        "product": vv.Product([vv.Box([0.0], [9.0]), vv.Ball(np.zeros(1), far)]),
    }


@pytest.mark.parametrize(
    "unit", [1e-4, pytest.param(1.0, marks=pytest.mark.slow), pytest.param(1e-9, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("ball", "product") else pytest.param(name, marks=pytest.mark.slow)
        for name in _around(1.0)
    ],
)
def test_a_minimum_inside_any_set_is_learned_at_once(name, unit):
    A, b, theta = _steep(unit)
    learning = vv.LeastSquares(A, b, set=_around(unit)[name])
    np.testing.assert_allclose(learning.newton_point(), theta, rtol=1e-12)
    problem = vv.MisspecifiedVI(lambda x, t: x - t[1] * unit, vv.Box(0, 10, shape=3), None, learning)
    solution = vv.solve(problem)
    assert solution.status is vv.Status.solved
    assert solution.counts.H <= 10
    np.testing.assert_allclose(solution.theta, theta, rtol=1e-9)
    np.testing.assert_allclose(solution.x, 2.0, rtol=1e-7)


@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e-9])
def test_the_scaled_error_bound_is_one_around_a_minimum_inside_a_ball(unit):
    A, b, theta = _steep(unit)
    learning = vv.LeastSquares(A, b, set=vv.Ball(np.zeros(2), 20.0 / unit))
    free = vv.LeastSquares(A, b, set=vv.Free(2))
    rng = np.random.default_rng(0)
    with vv.precision.double():
        for spread in (1.0, 1e-3, 1e-8, 0.0):
            at = np.asarray(learning.set.project(theta * (1.0 + spread * rng.normal(size=2))))
            bound = float(learning.scaled_error_bound(at))
            assert np.linalg.norm(at - theta) <= bound
            assert float(free.scaled_error_bound(at)) <= bound * (1.0 + 1e-12)
        assert float(learning.scaled_error_bound(theta)) <= 1e-9 * np.linalg.norm(theta)


@pytest.mark.parametrize("beyond", [0.0, 1e-13, 0.5])
def test_a_minimum_on_the_sphere_or_beyond_is_no_zero_to_jump_to(beyond):
    """Rounding may not decide that it lies inside; the answer is found as on any other set."""
    A = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 3.0]])
    target = np.array([0.6, 0.8]) * (1.0 + beyond)
    learning = vv.LeastSquares(A, A @ target, set=vv.Ball(np.zeros(2), 1.0))
    assert learning.newton_point() is None
    with vv.precision.double():
        assert float(learning.scaled_error_bound(np.zeros(2))) == np.inf
    solution = vv.solve(vv.MisspecifiedVI(lambda x, t: x - t, vv.Free(2), None, learning))
    assert solution.success
    answer, eta = np.zeros(2), float(learning.default_rate())
    for _ in range(2000):  # a naive twin: projected gradient steps
        moved = answer - eta * A.T @ (A @ (answer - target))
        answer = moved / max(np.linalg.norm(moved), 1.0)
    np.testing.assert_allclose(solution.theta, answer, atol=1e-8)
