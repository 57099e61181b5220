"""The certified gap of affine operators against grids, nested bisection, Clarabel, and on sets that are not boxes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from metrics.twins import (
    AffineOperator,
    QuadraticConstraints,
    array,
    cournot,
    cournot_gap,
    grid_gap,
    random_plane,
)
from viceversa import precision
from viceversa.metrics import cone_program
from viceversa.metrics.certified_maximum import CertifiedMaximiser
from viceversa.metrics.objectives import Minty


@pytest.mark.parametrize("seed", range(9))
def test_agrees_with_a_grid(seed):
    problem = random_plane(seed, rank=2 - seed % 3)
    rng = np.random.default_rng(100 + seed)
    for epsilon in (0.0, 0.4):
        x = rng.uniform(0.0, 4.0, 2)
        gap = vv.relaxed_gap(problem, x, epsilon)
        expected = grid_gap(problem, x, epsilon)
        assert gap.exact
        # The grid is a lower bound by construction; the certificate may not fall below it.
        assert gap.upper >= expected - 1e-12 * (1.0 + abs(expected))
        assert gap.lower <= expected + 1e-5 * (1.0 + abs(expected))
        assert gap.upper <= expected + 1e-5 * (1.0 + abs(expected))


@pytest.fixture(scope="module")
def market():
    problem = cournot()
    rng = np.random.default_rng(3)
    points = [rng.uniform(0.0, 5.0, problem.shape) * scale for scale in (1.0, 0.6, 0.3, 0.0)]
    return problem, points


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 12.0])
def test_cournot_agrees_with_nested_bisection(market, epsilon):
    problem, points = market
    gaps = vv.relaxed_gaps(problem, points, epsilon)
    assert gaps.exact.all()
    for gap, x in zip(gaps.intervals, points, strict=True):
        value, multiplier = cournot_gap(problem, x, epsilon)
        scale = 1e-8 * (1.0 + abs(value))
        assert gap.lower - 0.1 * scale <= value <= gap.upper + 0.1 * scale
        assert gap.upper - value <= scale
        np.testing.assert_allclose(
            gap.multiplier.max(), multiplier.max(), atol=1e-3 * (1.0 + multiplier.max())
        )


def test_the_lower_end_is_attained_in_the_enlargement(market):
    problem, points = market
    for epsilon in (0.0, 1.0):
        gap = vv.relaxed_gap(problem, points[0], epsilon)
        r, g, b = problem.operator.r, problem.operator.g, 2.0
        F = r * gap.point + g + b * (gap.point.sum(0) + gap.point) - 100.0
        assert gap.lower == pytest.approx((F * (points[0] - gap.point)).sum(), rel=1e-12)
        assert vv.infeasibility(problem, gap.point) <= epsilon
        assert problem.set.violation(gap.point) == 0.0


def test_the_gap_grows_with_epsilon_and_concavely(market):
    problem, points = market
    epsilons = np.linspace(0.0, 12.0, 7)
    gaps = vv.relaxed_gaps(problem, [points[1]] * 7, epsilons)
    middle, tol = 0.5 * (gaps.lower + gaps.upper), 1e-7 * (1.0 + np.abs(gaps.upper).max())
    assert (np.diff(middle) >= -tol).all()
    assert (np.diff(middle, 2) <= tol).all()
    # The multiplier is the slope, so its line lies above.
    line = gaps.upper[2] + gaps[2].multiplier.max() * (epsilons - epsilons[2])
    assert (middle <= line + tol).all()


def test_left_out_epsilon_is_the_infeasibility(market):
    problem, points = market
    assert vv.infeasibility(problem, points[2]) > 0.0
    relaxed, explicit = (
        vv.relaxed_gap(problem, points[2], e) for e in (None, vv.infeasibility(problem, points[2]))
    )
    assert relaxed.lower >= 0.0
    assert abs(relaxed.upper - explicit.upper) <= 2e-8 * (1.0 + abs(explicit.upper))


def test_any_point_and_multiplier_give_an_upper_bound(market):
    """D.1: U(ŷ, μ) is a bound for every ŷ in X and μ ≥ 0, however bad."""
    problem, points = market
    rng = np.random.default_rng(5)
    r, g, b, a, room = problem.operator.r, problem.operator.g, 2.0, 100.0, float(problem.constraints.room)
    x, epsilon = points[0], 1.0
    gap = vv.relaxed_gap(problem, x, epsilon)

    def U(y, mu):
        F = r * y + g + b * (y.sum(0) + y) - a
        slope = -F + (r + b) * (x - y) + b * (x - y).sum(0) + mu * b  # ∇h, with ∇(−μᵀf) = μ_d b
        h = (F * (x - y)).sum() - mu @ (room - b * y.sum(0))
        return epsilon * mu.max() + h + np.maximum(-slope * y, slope * (5.0 - y)).sum()

    for _ in range(50):
        assert U(rng.uniform(0.0, 5.0, x.shape), rng.exponential(20.0, 2)) >= gap.lower
    # The reported multiplier with a point near the maximiser comes close.
    assert U(gap.point, gap.multiplier) == pytest.approx(gap.upper, rel=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_clarabel_starts_the_certificate(seed):
    """Clarabel's point and multipliers are those of the same program, for affine and for quadratic f."""
    problem = [random_plane(7), cournot()][seed]
    x = np.full(problem.shape, 1.5)
    with precision.double():
        theta = jnp.asarray(problem.learning.theta)
        objective = Minty(problem.operator, theta, jnp.asarray(x))
        guess = cone_program.solve(objective, problem, theta, 0.3)
        assert guess is not None
        gap = vv.relaxed_gap(problem, x, 0.3)
        assert float(objective(guess.y)) == pytest.approx(gap.upper, rel=1e-5, abs=1e-5)
        np.testing.assert_allclose(guess.mu, gap.multiplier, atol=2e-3 * (1.0 + gap.multiplier.max()))
        maximiser = CertifiedMaximiser(problem, theta, objective)
        maximiser.guess = guess
        bounds = maximiser(objective, 0.3)
    assert int(bounds.n_newton) <= 6
    assert float(bounds.upper - bounds.lower) <= 1e-8 * (1.0 + abs(float(bounds.upper)))


SETS = {
    "ball": lambda: vv.Ball([0.5, 0.5, 0.5], radius=1.5),
    # Several rows: its support function is a linear program, so the certificate uses the projection.
    "polyhedron": lambda: vv.Polyhedron(
        A=[[1.0, 1.0, 1.0], [1.0, -1.0, 0.5]], b=[2.0, 1.0], lower=0.0, upper=[2.0, 2.0, 2.0]
    ),
}


@pytest.mark.parametrize("kind", ["ball", pytest.param("polyhedron", marks=pytest.mark.slow)])
def test_other_sets(kind):
    """At the maximiser of a concave function, −∇ is normal to the feasible set: no feasible direction ascends."""
    rng = np.random.default_rng(11)
    B, S = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    M, q = B @ B.T + S - S.T, rng.normal(size=3)
    Q, c = array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]), array([[0.0, 1.0, 0.0], [-1.0, 0.5, 0.0]])
    X = SETS[kind]()
    inside = X.interior_point()
    d = 0.5 * Q @ inside**2 + c @ inside + 0.1
    problem = vv.MisspecifiedVI(AffineOperator(M, q), X, QuadraticConstraints(Q, c, d), vv.Known(1.0))
    x = X.project(array([2.0, -1.0, 0.5]))
    for epsilon in (0.0, 0.3):
        gap = vv.relaxed_gap(problem, x, epsilon)
        assert gap.exact
        violation = lambda z: np.maximum(0.5 * Q @ z**2 + c @ z - d, 0.0).sum()
        assert violation(gap.point) <= epsilon
        assert X.violation(gap.point) <= 1e-12
        value = lambda z: (M @ z + q) @ (x - z)
        assert value(gap.point) == pytest.approx(gap.lower, rel=1e-12, abs=1e-12)
        trials = [X.project(gap.point + s * v) for s in (1.0, 1e-1, 1e-2) for v in rng.normal(size=(60, 3))]
        feasible = [z for z in trials if violation(z) <= epsilon]
        assert len(feasible) > 20
        assert max(value(z) for z in feasible) <= gap.upper


def test_other_data_do_not_compile_again(caplog):
    vv.relaxed_gap(random_plane(0), [1.0, 2.0], 0.1)
    with jax.log_compiles(True), caplog.at_level("WARNING", logger="jax"):
        vv.relaxed_gap(random_plane(1), [3.0, 0.5], 0.7, theta=0.8)
        vv.relaxed_gaps(random_plane(2, rank=0), [[1.0, 1.0], [2.0, 0.0]], [0.0, 1.0])
    compiled = [record.getMessage() for record in caplog.records if "Compiling" in record.getMessage()]
    assert not [message for message in compiled if "_solve" in message or "_scales" in message]
