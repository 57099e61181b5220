"""The derivative of a projection: right where it exists, a limit of derivatives where it does not."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from viceversa import precision
from viceversa.sets import Affine, Ball, Box, Halfspace, Intersection, NonNegative, Polyhedron, Simplex


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0))
def _both_modes(convex_set, x):
    """The projection and the matrix of its derivative by columns (forward mode) and by rows (reverse mode)."""
    y, pushforward = jax.linearize(lambda v: convex_set.project(v), x)
    pullback = jax.linear_transpose(pushforward, x)
    units = jnp.eye(x.size).reshape(x.size, *x.shape)
    columns = jax.vmap(pushforward)(units).reshape(x.size, x.size).T
    return y, columns, jax.vmap(lambda u: pullback(u)[0])(units).reshape(x.size, x.size)


def jacobians(convex_set, points):
    """The matrices of the derivative at three points, compiled and batched, the same in both modes."""
    with precision.double():
        ys, forward, reverse = (
            np.asarray(out) for out in _both_modes(convex_set, jnp.asarray(np.stack(points)))
        )
    np.testing.assert_allclose(forward, reverse, atol=1e-13)
    for x, y in zip(points, ys, strict=True):
        np.testing.assert_allclose(y, convex_set.project(x), atol=1e-12 * (1 + np.linalg.norm(x)))
    return forward


def jacobian(convex_set, x):
    return jacobians(convex_set, [x, x, x])[0]


def differences(convex_set, x, step=1e-6):
    """Central differences, column by column."""
    columns = []
    for i in range(x.size):
        move = np.zeros(x.size)
        move[i] = step
        move = move.reshape(x.shape)
        columns.append(np.ravel(convex_set.project(x + move) - convex_set.project(x - move)) / (2 * step))
    return np.stack(columns, axis=1)


def generic_points(convex_set):
    random = np.random.default_rng(11)
    steps = random.standard_normal((3, *convex_set.shape))
    return [
        convex_set.interior_point() + size * step for size, step in zip((0.3, 3.0, 30.0), steps, strict=True)
    ]


def points_on_the_set(convex_set):
    middle = convex_set.interior_point()
    return [middle, convex_set.project(middle + 5.0), convex_set.project(middle - 50.0)]


def test_matches_finite_differences(any_set):
    points = generic_points(any_set)
    for x, J in zip(points, jacobians(any_set, points), strict=True):
        np.testing.assert_allclose(J, differences(any_set, x), atol=1e-7)


def test_is_a_symmetric_contraction(any_set):
    for points in (generic_points(any_set), points_on_the_set(any_set)):
        for J in jacobians(any_set, points):
            np.testing.assert_allclose(J, J.T, atol=1e-12)
            spectrum = np.linalg.eigvalsh(J)
            assert spectrum.min() >= -1e-12
            assert spectrum.max() <= 1 + 1e-12


CORNERS = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))
CROSS = Polyhedron(CORNERS, np.ones(8))
# Four sides, each given twice.
SQUARE_PYRAMID = Polyhedron(2 * [[1.0, 0, 1], [-1.0, 0, 1], [0, 1.0, 1], [0, -1.0, 1]], np.zeros(8))
CUT = Polyhedron([[1.0, 1.0, 1.0]], [2.0], lower=0.0, upper=1.0)

# Points where two or more pieces of the projection meet.
TIES = {
    "box at a bound": (Box(0.0, 1.0, shape=(3,)), [0.0, 1.0, 0.5]),
    "box that is a point": (Box([0.0, 0.0], [0.0, 1.0]), [0.0, 0.3]),
    "orthant at its corner": (NonNegative(2), [0.0, 0.0]),
    "ball at its centre": (Ball([1.0, 2.0], 1.0), [1.0, 2.0]),
    "ball on its sphere": (Ball([1.0, 2.0], 5.0), [4.0, 6.0]),
    "simplex at its own point": (Simplex(3), [0.5, 0.5, 0.0]),
    "simplex at a corner": (Simplex(3), [1.0, 0.0, 0.0]),
    "simplex at a threshold": (Simplex(3, total=2.0), [3.0, 1.0, 1.0]),
    "simplex of total 0": (Simplex(2, total=0.0), [1.0, 1.0]),
    "halfspace on its plane": (Halfspace([3.0, 4.0], 5.0), [0.6, 0.8]),
    "affine": (Affine([[1.0, 1.0]], [1.0]), [0.5, 0.5]),
    "cut box where row and bounds meet": (CUT, [1.0, 1.0, 0.0]),
    "cut box on its row": (CUT, [0.5, 0.75, 0.75]),
    "cut box beyond row and bound": (CUT, [2.0, 1.5, 0.5]),
    # x − y is the sum of two opposite normals: a working set of two rows, a corner of four.
    "cross-polytope over a corner": (CROSS, [3.0, 0.0, 0.0]),
    "cross-polytope at a corner": (CROSS, [1.0, 0.0, 0.0]),
    "cross-polytope over an edge": (CROSS, [2.0, 2.0, 0.0]),
    "cross-polytope on a facet": (CROSS, [0.25, 0.25, 0.5]),
    "pyramid over its apex": (SQUARE_PYRAMID, [0.0, 0.0, 2.0]),
    "pyramid at its apex": (SQUARE_PYRAMID, [0.0, 0.0, 0.0]),
    "capped simplex": (Intersection([Simplex(3), Box(0.0, 0.5, shape=(3,))]), [0.5, 0.5, 0.0]),
    "ball and box where both bind": (
        Intersection([Box(0.0, 1.0, shape=(2,)), Ball([0.0, 0.0], 1.25)]),
        [1.0, 0.75],
    ),
    "ball and halfspace on the sphere": (
        Intersection([Ball([0.0, 0.0], 5.0), Halfspace([1.0, 0.0], 4.0)]),
        [3.0, 4.0],
    ),
}


@pytest.mark.parametrize("name", TIES)
def test_at_a_tie_it_is_a_limit_of_nearby_derivatives(name):
    convex_set, x = TIES[name][0], np.array(TIES[name][1])
    J = jacobian(convex_set, x)
    assert np.all(np.isfinite(J))
    random = np.random.default_rng(0)
    nearby = x + 1e-4 * random.standard_normal((64, *x.shape))
    assert any(np.max(np.abs(J - differences(convex_set, v, step=1e-8))) <= 1e-3 for v in nearby)


@pytest.mark.parametrize("name", [name for name in TIES if "ball" not in name])
def test_at_a_tie_of_linear_pieces_it_is_a_projector(name):
    # The average of two pieces, the ½ of an autodiff clip, is not a projector.
    convex_set, x = TIES[name][0], np.array(TIES[name][1])
    J = jacobian(convex_set, x)
    np.testing.assert_allclose(J @ J, J, atol=1e-12)


def test_corners_with_too_many_rows_do_not_move():
    np.testing.assert_allclose(jacobian(CROSS, np.array([3.0, 0.0, 0.0])), np.zeros((3, 3)), atol=1e-12)
    np.testing.assert_allclose(
        jacobian(SQUARE_PYRAMID, np.array([0.0, 0.0, 2.0])), np.zeros((3, 3)), atol=1e-12
    )


def test_bounds_are_constants_of_the_derivative():
    @eqx.filter_jit
    def total(upper, x):
        box = eqx.tree_at(lambda b: b.high, Box(0.0, [1.0, 1.0]), upper)
        return jnp.sum(box.project(x))

    with precision.double():
        slope = jax.grad(total)(jnp.array([1.0, 1.0]), jnp.array([2.0, 0.5]))
    np.testing.assert_array_equal(slope, [0.0, 0.0])


@pytest.mark.parametrize("convex_set", [Simplex(3), CUT], ids=["simplex", "cut box"])
def test_second_derivatives_of_linear_pieces_are_zero(convex_set):
    @jax.jit
    def hessian(x):
        return jax.jacfwd(jax.jacfwd(lambda v: convex_set.project(v)))(x)

    with precision.double():
        np.testing.assert_array_equal(hessian(jnp.array([0.9, 0.3, -0.2])), np.zeros((3, 3, 3)))
