"""The sets every test of the contract runs on: each kind, small, with the shapes and values that have gone wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from viceversa.sets import (
    Affine,
    Ball,
    Box,
    Free,
    Halfspace,
    Intersection,
    NonNegative,
    Polyhedron,
    Product,
    Simplex,
)

INF = np.inf
CROSS = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))

# Few different shapes, so that what compiles for one set serves the others.
MAKERS = {
    "box": lambda: Box([[0.0, -1.0, 2.0], [-INF, 1.0, -3.0]], [[1.0, INF, 2.0], [4.0, 1.5, -1.0]]),
    "box_scalar_point": lambda: Box(0.5, 2.0, shape=()),
    "nonnegative": lambda: NonNegative(3),
    "free": lambda: Free(3),
    "ball": lambda: Ball([1.0, -2.0, 0.5], radius=1.5),
    "simplex": lambda: Simplex(3, total=2.5),
    "simplex_batched": lambda: Simplex(
        (3, 3), total=[1.0, 0.0, 7.0], mask=[[True] * 3, [False] * 3, [True, False, True]]
    ),
    "halfspace": lambda: Halfspace([[1.0, -2.0, 0.0], [0.0, 3.0, 0.5]], offset=-1.0),
    "affine": lambda: Affine([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 2.0]], [1.0, 2.0, 3.0]),
    "polyhedron_bounds": lambda: Polyhedron([[2.0, 0.0, 0.0], [0.0, -1.0, 0.0]], [3.0, 1.0]),
    "polyhedron_row": lambda: Polyhedron([[1.0, -2.0, 1.5]], [-0.5], lower=-1.0, upper=[1.0, 2.0, 0.5]),
    "polyhedron_equation": lambda: Polyhedron(
        C=[[1.0, 1.0, -2.0]], d=[1.0], lower=[0.0, -INF, -1.0], upper=[2.0, 1.0, INF], shape=(3,)
    ),
    # Eight facets meet four at a time in every corner: more active rows than dimensions.
    "polyhedron_cross": lambda: Polyhedron(CROSS, np.ones(8)),
    # Nearly parallel rows, a redundant one, dependent equations, bounds, points of shape (3, 1).
    "polyhedron_mixed": lambda: Polyhedron(
        [
            [1.0, 1.0, 0.0],
            [0.0, 1.0, 2.0],
            [1.0, 1.0, 1e-3],
            [-1.0, 2.0, 0.5],
            [1.0, 0.0, 1.0],
            [2.0, 2.0, 0.0],
        ],
        [1.0, 0.5, 1.0, 3.0, 2.0, 2.0],
        C=[[1.0, -1.0, 1.0], [2.0, -2.0, 2.0]],
        d=[0.5, 1.0],
        lower=-2.0,
        upper=2.0,
        shape=(3, 1),
    ),
    "product_list": lambda: Product(
        [Ball([1.0, 0.0, 2.0], radius=2.0), Box([[0.0, 0.0, 0.0], [-1.0, -1.0, -1.0]], INF), Simplex(3)]
    ),
    "intersection_boxes": lambda: Intersection([Box(0.0, 2.0, shape=(3,)), Box(-1.0, [1.0, 3.0, 1.0])]),
    "intersection_capped_simplex": lambda: Intersection([Simplex(3), Box(0.0, 0.4, shape=(3,))]),
    "intersection_ball_box": lambda: Intersection(
        [Box(0.0, 1.0, shape=(3,)), Ball([0.2, 0.0, 1.1], radius=0.7)]
    ),
    "intersection_balls_halfspace": lambda: Intersection(
        [Ball([0.0, 0.0, 0.0], 1.0), Halfspace([0.0, 1.0, 1.0], offset=0.6), Ball([1.0, 0.0, 0.0], 1.2)]
    ),
    "intersection_ball_affine": lambda: Intersection(
        [Ball([0.0, 0.0, 0.0], 1.0), Affine([[1.0, 1.0, 1.0]], [0.5])]
    ),
}


@pytest.fixture(scope="session", params=list(MAKERS))
def any_set(request):
    """One set of arrays of every kind."""
    return MAKERS[request.param]()
