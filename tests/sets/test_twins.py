"""Every fast projection against a slow one that is obviously right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viceversa.sets import Affine, Ball, Box, Halfspace, Intersection, Polyhedron, Simplex

numbers = st.floats(-10, 10, allow_nan=False).map(lambda v: round(v, 3))


def vectors(n):
    return st.lists(numbers, min_size=n, max_size=n).map(np.array)


def box_twin(x, lower, upper):
    return np.array([max(l, min(u, v)) for v, l, u in zip(x, lower, upper, strict=True)])


def ball_twin(x, center, radius):
    length = sum((v - c) ** 2 for v, c in zip(x, center, strict=True)) ** 0.5
    factor = radius / length if length > radius else 1.0
    return np.array([c + factor * (v - c) for v, c in zip(x, center, strict=True)])


def simplex_twin(x, total):
    """The nearest point among those of all faces of the simplex."""
    best, best_distance = None, np.inf
    for size in range(1, len(x) + 1):
        for face in itertools.combinations(range(len(x)), size):
            y = np.zeros(len(x))
            for i in face:
                y[i] = x[i] - (sum(x[j] for j in face) - total) / size
            if min(y) >= -1e-12 and np.linalg.norm(x - y) < best_distance:
                best, best_distance = y, np.linalg.norm(x - y)
    return best


def polyhedron_twin(x, A, b, C, d):
    """The nearest feasible point among the projections on the intersections of all sets of rows taken as equations."""
    best, best_distance = None, np.inf
    for size in range(len(x) + 1):
        for face in itertools.combinations(range(len(b)), size):
            M, right = np.vstack([C, A[list(face)]]), np.concatenate([d, b[list(face)]])
            y = x - np.linalg.pinv(M) @ (M @ x - right)
            feasible = np.all(A @ y <= b + 1e-9) and np.all(np.abs(C @ y - d) <= 1e-9)
            if feasible and np.linalg.norm(x - y) < best_distance:
                best, best_distance = y, np.linalg.norm(x - y)
    return best


def dykstra_twin(x, projections, n_sweeps=4000):
    """The projection on an intersection by Dykstra's method; it may stand still for long, so every sweep is made."""
    y, corrections = x, [np.zeros_like(x) for _ in projections]
    for _ in range(n_sweeps):
        for i, project in enumerate(projections):
            z = project(y + corrections[i])
            corrections[i], y = y + corrections[i] - z, z
    return y


@settings(max_examples=20)
@given(vectors(3))
def test_box(x):
    lower, upper = [0.0, -np.inf, 3.0], [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(Box(lower, upper).project(x), box_twin(x, lower, upper))


@settings(max_examples=20)
@given(vectors(3))
def test_ball(x):
    np.testing.assert_allclose(
        Ball([1.0, 2.0, 0.0], 2.0).project(x), ball_twin(x, [1.0, 2.0, 0.0], 2.0), atol=1e-14
    )


@settings(max_examples=40)
@given(vectors(4), st.sampled_from([1e-3, 1.0, 5.0]))
def test_simplex(x, total):
    np.testing.assert_allclose(Simplex(4, total=total).project(x), simplex_twin(x, total), atol=1e-13)


def test_simplex_rows_masks_and_zero_totals():
    x = np.random.default_rng(0).standard_normal((2, 3, 5)) * 3
    total, mask = np.array([[1.0, 0.0, 4.0], [2.0, 3.0, 0.0]]), np.array([True, True, False, True, True])
    y = Simplex((2, 3, 5), total=total, mask=mask).project(x)
    for row in np.ndindex(2, 3):
        expected = np.zeros(5)
        if total[row] > 0:
            expected[mask] = simplex_twin(x[row][mask], total[row])
        np.testing.assert_allclose(y[row], expected, atol=1e-14)


def test_simplex_keeps_its_digits_beside_huge_entries():
    # Measured from the largest entry, a common shift of 1e6 costs only the digits the shift itself has lost.
    x = np.array([0.5, 0.25, 0.125, -1e12])
    np.testing.assert_allclose(Simplex(4).project(x + 2.0**20), Simplex(4).project(x), atol=1e-15)


@settings(max_examples=20)
@given(vectors(3))
def test_halfspace(x):
    a, b = np.array([1.0, -2.0, 0.5]), -1.0
    excess = max(0.0, sum(a * x) - b)
    np.testing.assert_allclose(Halfspace(a, b).project(x), x - a * excess / sum(a * a), atol=1e-14)


@settings(max_examples=20)
@given(vectors(4))
def test_affine_with_dependent_rows(x):
    A, b = (
        np.array([[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0], [1.0, 3.0, 1.0, 1.0]]),
        np.array([1.0, 2.0, 3.0]),
    )
    y = Affine(A, b).project(x)
    np.testing.assert_allclose(y, x - np.linalg.pinv(A) @ (A @ x - b), atol=1e-13)
    np.testing.assert_allclose(A @ y, b, atol=1e-13)


def as_rows(A, b, lower, upper):
    n = len(lower)
    rows = np.vstack([A, np.eye(n)[np.isfinite(upper)], -np.eye(n)[np.isfinite(lower)]])
    return rows, np.concatenate([b, upper[np.isfinite(upper)], -lower[np.isfinite(lower)]])


@pytest.mark.parametrize("equality", [False, True])
@settings(max_examples=30)
@given(x=vectors(3), a=vectors(3))
def test_a_box_and_one_row(equality, x, a):
    lower, upper = np.array([0.0, -np.inf, -1.0]), np.array([1.0, 2.0, 1.0])
    if np.count_nonzero(a) < 2:
        return
    inner = np.array([0.5, 1.0, 0.25])
    row, right = a[None, :], np.array([a @ inner])
    if equality:
        one = Polyhedron(C=row, d=right, lower=lower, upper=upper)
        expected = polyhedron_twin(x, *as_rows(np.zeros((0, 3)), np.zeros(0), lower, upper), row, right)
    else:
        one = Polyhedron(row, right, lower=lower, upper=upper)
        expected = polyhedron_twin(x, *as_rows(row, right, lower, upper), np.zeros((0, 3)), np.zeros(0))
    np.testing.assert_allclose(one.project(x), expected, atol=1e-12 * (1 + np.abs(x).max()))


def test_one_row_at_size():
    # The condition that defines the answer: clip(x − λa) for one λ, on the row to the last digits.
    random = np.random.default_rng(5)
    n = 5_001
    a, x = random.standard_normal(n), 10 * random.standard_normal(n)
    one = Polyhedron(C=a[None, :], d=[3.0], lower=-1.0, upper=1.0)
    y = one.project(x)
    assert abs(a @ y - 3.0) <= 1e-11
    free = np.abs(y) < 1.0
    multipliers = (x - y)[free] / a[free]
    lam = np.median(multipliers)
    np.testing.assert_allclose(y, np.clip(x - lam * a, -1.0, 1.0), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_polyhedron(seed):
    # One shape for all seeds: one compilation. Half the rows pass through a common point: degenerate corners.
    random = np.random.default_rng(seed)
    A, C = random.standard_normal((6, 3)), random.standard_normal((1, 3))
    inner = random.standard_normal(3)
    b, d = A @ inner + random.uniform(0, 1, 6) * (np.arange(6) % 2), C @ inner
    lower, upper = np.full(3, -np.inf), inner + np.array([0.5, np.inf, np.inf])
    one = Polyhedron(A, b, C, d, upper=upper)
    for x in inner + random.standard_normal((6, 3)) * np.geomspace(0.1, 100, 6)[:, None]:
        expected = polyhedron_twin(x, *as_rows(A, b, lower, upper), C, d)
        np.testing.assert_allclose(one.project(x), expected, atol=1e-12 * (1 + np.abs(x).max()))


def test_polyhedron_with_dozens_of_active_rows():
    # ⟨x − y, z − y⟩ ≤ 0 at the maximiser z found by a linear program: a proof without a twin.
    random = np.random.default_rng(2)
    A = random.standard_normal((40, 20))
    one = Polyhedron(A, np.ones(40), C=random.standard_normal((3, 20)), d=np.zeros(3), lower=-1.0, upper=1.0)
    for size in (0.5, 5.0, 50.0):
        x = size * random.standard_normal(20)
        y = one.project(x)
        assert np.max(A @ y - 1.0) <= 1e-12
        best, _ = one.support(x - y)
        assert best - (x - y) @ y <= 1e-11 * (1 + x @ x) ** 0.5


def test_polyhedron_matches_an_interior_point_solver():
    clarabel = pytest.importorskip("clarabel", reason="the second witness needs the certify extra")
    from scipy import sparse

    random = np.random.default_rng(9)
    A, x = random.standard_normal((6, 3)), 4 * random.standard_normal(3)
    one = Polyhedron(A, np.ones(6), C=np.ones((1, 3)), d=[0.2], upper=[0.6, np.inf, np.inf])
    rows = sparse.csc_matrix(np.vstack([np.ones((1, 3)), A, [[1.0, 0.0, 0.0]]]))
    right = np.concatenate([[0.2], np.ones(6), [0.6]])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(7)]
    answer = clarabel.DefaultSolver(
        sparse.identity(3, format="csc"), -x, rows, right, cones, settings
    ).solve()
    np.testing.assert_allclose(one.project(x), answer.x, atol=1e-7)


@pytest.mark.parametrize("far", [1.0, 4.0])
def test_ball_and_box(far):
    random = np.random.default_rng(1)
    one = Intersection([Box(0.0, 1.0, shape=(3,)), Ball([0.2, 0.0, 1.1], 0.7)])
    for x in far * random.standard_normal((4, 3)):
        twin = dykstra_twin(x, [lambda v: np.clip(v, 0, 1), lambda v: ball_twin(v, [0.2, 0.0, 1.1], 0.7)])
        np.testing.assert_allclose(one.project(x), twin, atol=1e-8)


def test_two_balls_and_a_halfspace():
    one = Intersection([Ball(0.0, 1.0, shape=3), Ball([1.0, 0.0, 0.0], 1.2), Halfspace([0.0, 1.0, 0.0], 0.6)])

    def below(v):
        return np.array([v[0], min(v[1], 0.6), v[2]])

    for x in 3 * np.random.default_rng(0).standard_normal((4, 3)):
        balls = [lambda v: ball_twin(v, [0.0, 0.0, 0.0], 1.0), lambda v: ball_twin(v, [1.0, 0.0, 0.0], 1.2)]
        np.testing.assert_allclose(one.project(x), dykstra_twin(x, [*balls, below]), atol=1e-8)


def test_touching_sets_leave_one_point():
    # A tangent sphere fixes the point only to √ε: a set moved by ε has a projection moved by √ε.
    one = Intersection([Ball([0.0, 0.0], 1.0), Halfspace([-1.0, 0.0], -1.0)])
    np.testing.assert_allclose(one.project(np.array([5.0, 5.0])), [1.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(one.interior_point(), [1.0, 0.0])


def test_intersections_become_the_simplest_set():
    box, plane = Box(0.0, 1.0, shape=(3,)), Affine([[1.0, 1.0, 1.0]], [1.0])
    assert type(Intersection([box, Box(-1.0, 0.5, shape=(3,))]).rest) is Box
    assert type(Intersection([plane, Affine([[1.0, 0.0, 0.0]], [0.1])]).rest) is Affine
    assert Intersection([box, plane]).rest.kind == "equation"
    assert Intersection([box, Halfspace([1.0, 1.0, 0.0], 1.0)]).rest.kind == "inequality"
    # A row about one coordinate is a bound.
    assert Intersection([box, Halfspace([2.0, 0.0, 0.0], 1.0)]).rest.kind == "bounds"
