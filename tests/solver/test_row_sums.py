"""Rows with given sums: the smoothed simplex and its Newton systems against dense twins, and congestion through totals."""

from __future__ import annotations

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.corpus_congestion import FAMILIES, Congestion, judge, plant

import viceversa as vv
from viceversa.precision import double
from viceversa.schemes import newton_system, row_sums
from viceversa.schemes.newton_system import Metric, kkt_at
from viceversa.schemes.row_interior_point import meets_in_totals, row_interior_point
from viceversa.schemes.row_sums import RowStep, solve_with_row_sums
from viceversa.schemes.smoothed_newton import Smoothing, smoothed_direction, smoothed_map
from viceversa.schemes.smoothed_projection import row_multipliers, smoothed_projection

RNG = np.random.default_rng(0)


# -- the projection ------------------------------------------------------------------------------
@pytest.mark.parametrize("m", [0.0, 1e-3, 0.7])
def test_the_smoothed_simplex_solves_its_own_optimality_conditions(m):
    """p > 0 minimises ‖y − v‖²/(2γ) − m²/γ Σ log y on the simplex: y(y − v + γτ) = m², and rows have their sums."""
    mask = np.array([[True, True, False, True], [True, False, True, True], [True, True, True, True]])
    total, v, gamma = np.array([2.0, 0.5, 0.0]), RNG.normal(size=(3, 4)), RNG.uniform(0.1, 3.0, (3, 4))
    X = vv.Simplex((3, 4), total=total, mask=mask)
    with double():
        tau = row_multipliers(X, jnp.asarray(v), gamma, m * m)
        y = np.asarray(smoothed_projection(X, jnp.asarray(v - gamma * tau), m * m).value)
    free = mask & (total > 0)[:, None]
    force = y - v + gamma * np.asarray(tau)
    np.testing.assert_allclose(y.sum(1), total, atol=1e-14)
    np.testing.assert_array_equal(y[~free], 0.0)
    assert (y >= 0).all()
    np.testing.assert_allclose((y * force)[free], m * m, atol=1e-13)
    assert (force[free] >= -1e-13).all()


def test_without_smoothing_and_with_one_scale_it_is_the_projection():
    X = vv.Simplex((6, 9), total=RNG.uniform(0.1, 5.0, 6))
    with double():
        for size in (1e-6, 1.0, 1e6):
            v = jnp.asarray(size * RNG.normal(size=(6, 9)))
            tau = row_multipliers(X, v, 0.3, 0.0)
            found = smoothed_projection(X, v - 0.3 * tau, 0.0).value
            np.testing.assert_allclose(found, X.project(v), atol=1e-15 * max(1.0, size))


# -- the linear system ---------------------------------------------------------------------------
W = RNG.uniform(0.5, 1.5, (5, 7))
IDX = np.array([1, 4])
MATRIX = RNG.normal(size=(35, 35)) / 6.0
# x's shape, F, f (None: none), and whether coordinates meet only in totals
SYSTEMS = {
    "totals alone": ((5, 7), lambda x: x.sum(0) ** 2 + 0.0 * W, None, True),
    "more places than rows": ((3, 8), lambda x: x**2 + jnp.exp(x.sum(0)), None, True),
    "more rows than places": ((9, 4), lambda x: x**2 + jnp.exp(x.sum(0)), None, True),
    "two totals": ((5, 7), lambda x: W * x + x.sum(0) + W * (W * x).sum(0) ** 2, None, True),
    "one total of all": ((5, 7), lambda x: W * x + W * (W * x).sum(), None, True),
    "a capacity for each place": ((5, 7), lambda x: W * x + x.sum(0), lambda x: x.sum(0) ** 2 - 1.0, True),
    "a few capacities": ((5, 7), lambda x: x.sum(0) + 0.0 * W, lambda x: x.sum(0)[IDX] - 1.0, True),
    "periods side by side": (
        (3, 4, 5),
        lambda x: x**2 + x.sum(1)[:, None] ** 2,
        lambda x: x.sum((1, 2)) - 1.0,
        True,
    ),
    "one row": ((12,), lambda x: x**2 + jnp.sum(x), lambda x: jnp.sum(x * x)[None] - 1.0, True),
    "a matrix": (
        (5, 7),
        lambda x: ((MATRIX @ MATRIX.T) @ x.reshape(-1)).reshape(5, 7),
        lambda x: x.sum(0)[IDX],
        False,
    ),
}


def _system(shape, F, f):
    """(u, y) ↦ (Hu + Jᵀy, Ju), diagonals and a right-hand side."""
    x = jnp.asarray(RNG.uniform(0.5, 2.0, shape))
    f = f or (lambda x: jnp.zeros(0))
    lam = jnp.asarray(RNG.uniform(0.1, 1.0, f(x).shape))

    def kkt(at, multiplier):
        value, pullback = jax.vjp(f, at)
        return F(at) + pullback(multiplier)[0], value

    product = jax.linearize(kkt, x, lam)[1]
    diagonals = Metric(
        jnp.asarray(10.0 ** RNG.uniform(-3, 3, shape)), jnp.asarray(RNG.uniform(0.1, 3, lam.shape))
    )
    rhs = RowStep(*(jnp.asarray(RNG.normal(size=s)) for s in (shape, lam.shape, (*shape[:-1], 1))))
    return product, diagonals, rhs


def _naive(product, diagonals, rhs) -> tuple[np.ndarray, np.ndarray]:
    """The saddle-point matrix written out in NumPy, row by row."""
    n, J = rhs.u.size, rhs.y.size
    H, Jf = np.zeros((n, n)), np.zeros((J, n))
    for i in range(n):
        unit = np.zeros(n)
        unit[i] = 1.0
        Hu, Ju = product(jnp.asarray(unit.reshape(rhs.u.shape)), jnp.zeros(J))
        H[:, i], Jf[:, i] = np.ravel(Hu), Ju
    rows = np.ravel(np.arange(rhs.t.size).reshape(rhs.t.shape) * np.ones(rhs.u.shape, int))
    B = (rows[None, :] == np.arange(rhs.t.size)[:, None]).astype(float)
    E, C, R = np.ravel(diagonals.gamma), np.asarray(diagonals.rho), B.shape[0]
    saddle = np.block(
        [
            [H + np.diag(E), Jf.T, B.T],
            [Jf, -np.diag(C), np.zeros((J, R))],
            [B, np.zeros((R, J)), np.zeros((R, R))],
        ]
    )
    step = np.linalg.solve(saddle, np.concatenate([np.ravel(part) for part in rhs]))
    return step[:n].reshape(rhs.u.shape), step[n : n + J]


@pytest.mark.parametrize(("shape", "F", "f", "in_totals"), SYSTEMS.values(), ids=SYSTEMS)
def test_a_step_is_that_of_the_dense_saddle_point_system(shape, F, f, in_totals):
    with double():
        product, diagonals, rhs = _system(shape, F, f)
        assert (row_sums.elimination(product, rhs, diagonals) is not None) == in_totals
        problem = vv.MisspecifiedVI(
            lambda x, _: F(x),
            vv.Simplex(shape),
            None if f is None else lambda x, _: f(x),
            vv.Known(0.0),
        )
        units = Metric(1.0 / (1.0 + diagonals.gamma), 1.0 / (1.0 + diagonals.rho))
        found = solve_with_row_sums(problem, product, rhs, diagonals, units, 1e-13)
        for ours, theirs in zip(found.solution, _naive(product, diagonals, rhs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)


def test_krylov_vectors_find_the_same_step(monkeypatch):
    monkeypatch.setattr(newton_system, "DENSE", 0)
    with double():
        product, diagonals, rhs = _system(*SYSTEMS["a matrix"][:3])
        problem = vv.MisspecifiedVI(
            lambda x, _: x, vv.Simplex((5, 7)), lambda x, _: x.sum(0)[IDX], vv.Known(0.0)
        )
        units = Metric(1.0 / (1.0 + diagonals.gamma), 1.0 / (1.0 + diagonals.rho))
        found = solve_with_row_sums(problem, product, rhs, diagonals, units, 1e-13)
        for ours, theirs in zip(found.solution, _naive(product, diagonals, rhs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)


def test_a_step_is_newtons_for_the_smoothed_map_in_x_lambda_and_the_smoothing():
    """Against the Jacobian of r(x, λ, c) by differences through τ(x, λ, c), without regularization."""
    problem = vv.MisspecifiedVI(
        lambda x, _: x + x.sum(0) ** 2,
        vv.Simplex((3, 4), total=[1.0, 2.0, 0.5], mask=np.arange(12).reshape(3, 4) != 5),
        lambda x, _: x.sum(0)[:2] - 0.7,
        vv.Known(0.0),
    )
    with double():
        x, lam = jnp.asarray(RNG.uniform(0.0, 1.0, (3, 4))), jnp.asarray([0.3, 0.0])
        metric = Metric(jnp.asarray(RNG.uniform(0.2, 1.0, (3, 4))), jnp.asarray([0.5, 2.0]))
        smoothing = Smoothing(jnp.asarray(0.05), jnp.asarray(0.1))
        flat, split = jax.flatten_util.ravel_pytree((x, lam, smoothing.c))

        @jax.jit
        def residual(v):
            x, lam, c = split(v)
            kkt = kkt_at(problem, x, lam, jnp.asarray(0.0))
            here = smoothed_map(problem, x, lam, kkt, metric, Smoothing(c, smoothing.share))
            return jnp.concatenate([jnp.ravel(here.r_x), here.r_lam])

        h = 1e-6
        J = np.column_stack(
            [(residual(flat + e) - residual(flat - e)) / (2 * h) for e in h * np.eye(flat.size)]
        )
        dc = float(smoothing.change())
        expected = np.linalg.solve(J[:, :-1], -residual(flat) - J[:, -1] * dc)
        kkt = kkt_at(problem, x, lam, jnp.asarray(0.0))
        here = smoothed_map(problem, x, lam, kkt, metric, smoothing)
        found = smoothed_direction(problem, here, rtol=1e-14, regularization=0.0)
    np.testing.assert_allclose(np.concatenate([np.ravel(found.x), found.lam]), expected, rtol=1e-5, atol=1e-6)


# -- congestion ----------------------------------------------------------------------------------
def _is_solved(problem, x_true, theta, solution):
    assert solution.success
    assert solution.nit <= 50
    certificate = vv.certify(problem, solution.x, solution.multiplier, solution.theta)
    assert certificate.holds
    assert problem.set.violation(solution.x) <= 1e-12
    v, v_true = solution.x.sum(0), x_true.sum(0)
    np.testing.assert_allclose(v, v_true, rtol=1e-6, atol=1e-6 * v_true.max())  # unique, where x may not be
    np.testing.assert_allclose(solution.theta, theta, rtol=1e-8)


CASES = (Congestion("totals alone", 60, 40, power=4, learned=False),)
SLOW_CASES = (
    Congestion("own costs and capacities", 60, 40, power=2, own=0.5, n_capacities=3),
    Congestion("masked", 60, 40, power=1, masked=True),
    Congestion("more links than demands", 8, 250, power=2, masked=True),
)


@pytest.mark.parametrize(
    "family",
    [*CASES, *(pytest.param(family, marks=pytest.mark.slow) for family in SLOW_CASES)],
    ids=lambda family: family.name,
)
def test_congestion_through_totals_takes_a_few_iterations(family):
    planted = plant(family, seed=0)
    solution = vv.solve(planted.problem, theta0=planted.theta0)
    _is_solved(planted.problem, planted.x_true, planted.theta_true, solution)
    assert not judge(planted, solution.x, solution.multiplier, solution.theta).is_wrong(1e-8)


def test_a_wrong_answer_is_judged_so():
    planted = plant(FAMILIES[1], seed=0)
    truth = planted.x_true, planted.multiplier_true, planted.theta_true
    assert not judge(planted, *truth).is_wrong(1e-8)
    assert judge(planted, np.roll(truth[0], 1, axis=1), *truth[1:]).is_wrong(1e-8)
    assert judge(planted, truth[0], 1.01 * truth[1], truth[2]).is_wrong(1e-8)
    assert judge(planted, *truth[:2], 1.01 * truth[2]).is_wrong(1e-8)


@pytest.mark.slow
def test_the_same_costs_for_all_is_degenerate_and_solved():
    """Every split of the same total is a solution, and no row has a slope of its own."""
    b = np.linspace(0.5, 2.0, 40)
    problem = vv.MisspecifiedVI(
        lambda x, _: jnp.broadcast_to(1.0 + b * x.sum(0) ** 2, x.shape),
        vv.Simplex((50, 40)),
        None,
        vv.Known(0.0),
    )
    solution = vv.solve(problem)
    v = np.sqrt(1.0 / b)  # b v² is the same for all links
    _is_solved(problem, 50.0 * (v / v.sum())[None, :], 0.0, solution)


def test_the_interior_point_method_finds_multipliers_of_capacities():
    planted = plant(Congestion("small", 20, 10, own=0.3, n_capacities=2), seed=0)
    with double():
        assert meets_in_totals(planted.problem)
        found = jax.jit(lambda at: row_interior_point(planted.problem, at))(jnp.asarray(planted.theta_true))
    np.testing.assert_allclose(found.x, planted.x_true, atol=1e-6)
    np.testing.assert_allclose(found.lam, planted.multiplier_true, rtol=1e-6)


def test_what_meets_otherwise_is_left_to_newton():
    A = RNG.normal(size=(40, 40)) / 6.0
    F = lambda x, _: (A @ A.T @ x.reshape(-1)).reshape(5, 8) + x
    problem = vv.MisspecifiedVI(F, vv.Simplex((5, 8)), None, vv.Known(0.0))
    with double():
        assert not meets_in_totals(problem)
    solution = vv.solve(problem)
    assert solution.success
    assert solution.nit <= 30
