"""Every wrong argument is answered by a sentence that names it; changing numbers does not compile again."""

from __future__ import annotations

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from viceversa import precision
from viceversa.errors import InputError, MissingExtra
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

INF, NAN = np.inf, np.nan
BOX = Box(0.0, 1.0, shape=(2,))
TREE = Product({"a": BOX})

SENTENCES = [
    (lambda: Box(0.0, 1.0), "both bounds are scalars.*Pass shape="),
    (
        lambda: Box([0.0, 5.0, 3.0], [1.0, 2.0, 2.0]),
        r"lower exceeds upper at 2 of 3 coordinates \(first: 1\)",
    ),
    (lambda: Box([[0.0], [5.0]], [[1.0], [2.0]]), r"1 of 2 coordinates \(first: \[1, 0\]\)"),
    (lambda: Box([0.0, 0.0], [1.0, 1.0, 1.0]), r"\(2,\) and upper has shape \(3,\)"),
    (lambda: Box([0.0, 0.0], 1.0, shape=(3,)), r"shape \(2,\) do not broadcast to shape=\(3,\)"),
    (lambda: Box([[0.0], [0.0]], 1.0, shape=(2,)), r"do not broadcast to shape=\(2,\)"),
    (lambda: Box([0.0, NAN], 1.0), r"Box: lower has NaN at 1 of 2 entries \(first: \[1\]\)"),
    (lambda: Box(0.0, [1.0, "a"]), "Box: upper is list, which does not convert"),
    (lambda: Box([INF], [INF]), "so the box is empty"),
    (lambda: Box(0.0, 1.0, shape=(-1,)), "sizes cannot be negative"),
    (lambda: NonNegative("3"), "NonNegative: shape is '3'"),
    (lambda: Free(2.5), "Free: shape is 2.5"),
    (lambda: Ball([0.0], -1.0), "Ball: radius is -1.0"),
    (lambda: Ball([0.0], 0.0), "a positive number is needed"),
    (lambda: Ball([0.0], [1.0, 2.0]), r"radius has shape \(2,\)"),
    (lambda: Ball([0.0], INF), "Ball: radius is infinite"),
    (lambda: Ball([0.0, INF], 1.0), r"Ball: center is infinite at 1 of 2 entries \(first: 1\)"),
    (lambda: Ball(0.0, 1.0), "center is a scalar.*Pass shape="),
    (lambda: Ball([0.0, 1.0], 1.0, shape=(3,)), r"center of shape \(2,\) does not broadcast"),
    (lambda: Simplex(()), "a simplex needs a last axis"),
    (lambda: Simplex(3, total=-1.0), "total is negative at 1 of 1 rows, so the set is empty"),
    (lambda: Simplex((2, 3), total=[1.0, -1.0]), r"negative at 1 of 2 rows \(first: 1\)"),
    (lambda: Simplex((2, 3), total=[1.0, 1.0, 1.0]), r"total has shape \(3,\).*one per row, shape \(2,\)"),
    (lambda: Simplex(3, total=INF), "Simplex: total is infinite"),
    (lambda: Simplex(3, mask=[1.0, 0.0, 1.0]), "mask has dtype float64; booleans are needed"),
    (lambda: Simplex(3, mask=[True, False]), r"mask of shape \(2,\) does not broadcast to shape \(3,\)"),
    (
        lambda: Simplex((2, 2), mask=[[True, True], [False, False]]),
        r"1 of 2 rows \(first: 1\).*so the set is empty",
    ),
    (lambda: Simplex(0), "1 of 1 rows have a positive total"),
    (lambda: Halfspace([0.0, 0.0], 1.0), "normal is zero"),
    (lambda: Halfspace([1.0], [1.0]), r"offset has shape \(1,\); one number is needed"),
    (lambda: Affine([1.0, 1.0], [1.0]), r"A has shape \(2,\); a matrix"),
    (lambda: Affine([[1.0, 1.0]], 1.0), r"b has shape \(\); A has 1 rows"),
    (lambda: Affine([[1.0, 1.0]], [1.0], shape=(3,)), r"A has 2 columns, but a point of shape \(3,\) has 3"),
    (lambda: Affine([[1.0, 1.0]], [INF]), "b is infinite"),
    (lambda: Affine([[1.0, 1.0], [2.0, 2.0]], [1.0, 3.0]), "A x = b has no solution.*the set is empty"),
    (lambda: Affine([[0.0, 0.0]], [1.0]), "no solution: 1 of 1 rows"),
    (lambda: Polyhedron(), "neither A nor C is given"),
    (lambda: Polyhedron([[1.0, 1.0]]), "A and b belong together"),
    (lambda: Polyhedron([[1.0, 1.0]], [1.0], C=[[1.0, 0.0]]), "C and d belong together"),
    (lambda: Polyhedron([[1.0, 1.0]], [1.0], C=[[1.0]], d=[1.0]), "C has 1 columns"),
    (lambda: Polyhedron([[1.0, 1.0]], [1.0], C=[[1.0, 2.0]], d=[INF]), "d is infinite"),
    (lambda: Polyhedron([[1.0, 1.0]], [1.0], lower=2.0, upper=1.0), "lower exceeds upper at 2 of 2"),
    (lambda: Polyhedron([[1.0, 1.0]], [1.0], lower=1.0), "no point satisfies all of A x ≤ b"),
    (lambda: Polyhedron([[0.0, 0.0]], [-1.0]), "row 0 of A x ≤ b holds nowhere"),
    (lambda: Polyhedron([[1.0, 1.0]], [-INF]), "row 0 of A x ≤ b holds nowhere"),
    (lambda: Polyhedron([[1.0, 0.0], [-1.0, 0.0]], [1.0, -2.0]), "leave coordinate 0 no value"),
    (lambda: Polyhedron(C=[[1.0, 1.0]], d=[5.0], lower=0.0, upper=1.0), "so the set is empty"),
    (lambda: Polyhedron([[1.0, 1.0], [-1.0, -1.0]], [1.0, -2.0]), "no point satisfies all of"),
    (lambda: Polyhedron(C=[[1.0, 1.0], [1.0, 1.0]], d=[1.0, 2.0]), "C x = d has no solution"),
    (
        lambda: Polyhedron(np.ones((2, 301)), [1.0, 2.0]),
        "2 rows over 301 coordinates.*Pass the rows as constraints",
    ),
    (lambda: Product([]), "the list of blocks is empty"),
    (lambda: Product({}), "blocks is empty"),
    (lambda: Product([BOX, 3]), r"blocks\[1\] is a int"),
    (lambda: Product({"a": (BOX, "b")}), r"blocks\['a'\]\[1\] is a str"),
    (lambda: Product([TREE]), r"blocks\[0\] has points that are trees"),
    (lambda: TREE.split(np.zeros(2)), "keeps its blocks apart already"),
    (
        lambda: Product([BOX]).split(np.zeros(3)),
        r"x has shape \(3,\); this product has points of shape \(2,\)",
    ),
    (lambda: Intersection([]), "give a list of sets"),
    (lambda: Intersection([BOX, 1.0]), r"sets\[1\] is a float"),
    (
        lambda: Intersection([BOX, NonNegative(3)]),
        r"sets\[1\] has points of shape \(3,\) and sets\[0\] of shape \(2,\)",
    ),
    (lambda: Intersection([TREE, TREE]), "points that are trees"),
    (
        lambda: Intersection([BOX, Box(2.0, 3.0, shape=(2,))]),
        "Box, Box, merged into one set: Box: lower exceeds upper",
    ),
    (lambda: Intersection([BOX, Halfspace([1.0, 1.0], -1.0)]), "Box, Halfspace, merged.*the set is empty"),
    (lambda: Intersection([BOX, Ball([3.0, 3.0], 1.0)]), "ends before the other sets begin"),
    (lambda: Intersection([Ball([0.0], 1.0), Ball([3.0], 1.0)]), "the intersection is empty"),
    (
        lambda: Intersection([Ball([0.0], r) for r in (1.0, 2.0, 3.0)]),
        "3 balls are given.*Pass the others as constraints",
    ),
    (
        lambda: Intersection([Product([Ball([0.0], 1.0), Free(1)]), BOX]),
        "a Ball inside another set has no exact projection.*pass one of the sets as constraints",
    ),
    (
        lambda: Intersection([Simplex((20, 20)), Box(0.0, 0.5, shape=(20, 20))]),
        "20 rows over 400 coordinates.*Pass one of the sets as constraints",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), SENTENCES, ids=range(len(SENTENCES)))
def test_wrong_arguments_are_refused_in_a_sentence(make, sentence):
    with pytest.raises(InputError, match=f"(?s){sentence}") as caught:
        make()
    assert str(caught.value).endswith((".", "shape=."))


def test_rows_that_rounding_spoils_are_refused():
    # Two halfplanes whose common points form a wedge of angle 1e-13 between contradicting sides.
    with pytest.raises(InputError, match="Polyhedron"):
        Polyhedron([[1.0, 1.0, 0.0], [-1.0, -1.0, 1e-13]], [0.0, -1e-6], upper=[INF, INF, 1.0])


def test_a_linear_program_is_refused_inside_a_compiled_function():
    # The four sides of a pyramid open downwards, each given twice.
    pyramid = Polyhedron(2 * [[1.0, 0, 1], [-1.0, 0, 1], [0, 1.0, 1], [0, -1.0, 1]], np.ones(8))
    assert float(pyramid.support(np.array([0.2, 0.3, 1.0]))[0]) == pytest.approx(1.0, abs=1e-13)
    assert pyramid.support(np.array([0.0, 0.0, -1.0]))[0] == INF
    with precision.double(), pytest.raises(InputError, match="runs on the host"):
        eqx.filter_jit(lambda c: pyramid.support(c)[0])(jnp.ones(3))
    with pytest.raises(InputError, match=r"has points of shape \(3,\)"):
        pyramid.support(np.ones(2))


def test_a_missing_solver_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingExtra, match=r"scipy.*viceversa\[certify\]"):
        Polyhedron([[1.0, 1.0], [1.0, -1.0]], [1.0, 1.0])


PAIRS = {
    "box": (Box(0.0, [1.0, 2.0]), Box(-1.0, [3.0, 2.0])),
    "ball": (Ball([0.0, 0.0], 1.0), Ball([1.0, 0.0], 2.0)),
    "simplex": (Simplex(2, total=1.0, mask=[True, True]), Simplex(2, total=3.0, mask=[False, True])),
    "halfspace": (Halfspace([1.0, 1.0], 1.0), Halfspace([2.0, 0.5], -1.0)),
    "affine": (Affine([[1.0, 1.0]], [1.0]), Affine([[3.0, 1.0]], [2.0])),
    "polyhedron": (Polyhedron([[1.0, 1.0]], [1.0], lower=0.0), Polyhedron([[2.0, 1.0]], [2.0], lower=-1.0)),
    "product": (Product([Box([0.0], [1.0]), Free(1)]), Product([Box([-1.0], [3.0]), Free(1)])),
    "intersection": (Intersection([BOX, Ball([0.0, 0.0], 1.0)]), Intersection([BOX, Ball([0.5, 0.0], 0.8)])),
}


@pytest.mark.parametrize("name", PAIRS)
def test_other_numbers_do_not_compile_again(name):
    traces = []

    @eqx.filter_jit
    def project(convex_set, x):
        traces.append(convex_set.shape)
        return convex_set.project(x)

    x = np.array([2.0, 3.0])
    with precision.double():
        answers = [np.asarray(project(one, jnp.asarray(x))) for one in PAIRS[name]]
    assert len(traces) == 1
    for one, answer in zip(PAIRS[name], answers, strict=True):
        np.testing.assert_allclose(answer, one.project(x), atol=1e-14)
    assert not np.allclose(*answers)


def test_a_box_compiles_to_a_plain_clip():
    box = Box(0.0, 1.0, shape=(1000,))
    with precision.double():
        jaxpr = jax.make_jaxpr(lambda x: box.project(x))(jnp.zeros(1000))
        text = jax.jit(lambda x: box.project(x)).lower(jnp.zeros(1000)).compile().as_text()
    assert "1000" in str(jaxpr)
    assert text.count("fusion(") <= 1
    assert len(jax.tree.leaves(box)) == 2
    assert all(leaf.size == 1 for leaf in jax.tree.leaves(box))


def test_importing_and_projecting_change_no_global_setting():
    before = jax.config.jax_enable_x64
    assert BOX.project(np.array([0.1, 2.0])).dtype == np.float64
    assert jax.config.jax_enable_x64 == before
