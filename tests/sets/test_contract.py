"""What every set promises: nearest points, exact maximisers, sizes that hold, samples inside."""

from __future__ import annotations

import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from viceversa import precision
from viceversa.errors import InputError
from viceversa.sets import Box, ConvexSet, NonNegative, Product, Simplex


def points(convex_set, n_points=6):
    """Points near, on and far from a set, the same on every run."""
    random = np.random.default_rng(zlib.crc32(str(convex_set.shape).encode()))
    middle = convex_set.interior_point()
    steps = random.standard_normal((n_points, *convex_set.shape))
    return [
        middle + size * step for size, step in zip(np.geomspace(0.1, 100.0, n_points), steps, strict=True)
    ]


def samples(convex_set, n_samples=12):
    return [convex_set.sample(jax.random.key(i)) for i in range(n_samples)]


def scale(*arrays):
    return 1.0 + sum(float(np.linalg.norm(a)) for a in arrays)


def test_projection_is_the_nearest_point(any_set):
    inside = samples(any_set)
    for x in points(any_set):
        y = any_set.project(x)
        assert y.shape == any_set.shape
        assert y.dtype == np.float64
        # ⟨x − y, z − y⟩ ≤ 0 for all z ∈ S is the definition; the maximiser along x − y is the worst z of all.
        best, _ = any_set.support(x - y)
        assert best - np.sum((x - y) * y) <= 1e-12 * scale(x, y) ** 2
        for z in inside:
            assert np.sum((x - y) * (z - y)) <= 1e-12 * scale(x, y, z) ** 2


def test_projection_stays_in_the_set(any_set):
    for x in points(any_set):
        y = any_set.project(x)
        assert np.max(np.abs(any_set.project(y) - y), initial=0.0) <= 1e-13 * scale(y)
        assert any_set.violation(y) <= 1e-13 * scale(y)
        assert any_set.violation(x) == pytest.approx(np.max(np.abs(x - y), initial=0.0), abs=1e-14 * scale(x))


def test_support_is_a_maximum(any_set):
    inside = samples(any_set)
    for c in points(any_set, 4):
        value, y = any_set.support(c)
        assert value.dtype == np.float64
        assert y.shape == any_set.shape
        assert any_set.violation(y) <= 1e-12 * scale(y)
        if np.isinf(value):
            assert not any_set.bounded
            # Far along c nothing holds the projection back.
            assert np.sum(c * any_set.project(y + 1e6 * c)) > np.sum(c * y) + 1e3
        else:
            assert value == pytest.approx(np.sum(c * y), rel=1e-12, abs=1e-12)
            assert max(np.sum(c * z) for z in inside) <= value + 1e-12 * scale(c, y)
            # y maximises ⟨c, ·⟩ exactly when a step along c projects back to it.
            assert np.max(np.abs(any_set.project(y + c) - y)) <= 1e-8 * scale(c, y)


def test_support_of_zero_is_zero(any_set):
    value, y = any_set.support(np.zeros(any_set.shape))
    assert value == 0.0
    assert any_set.violation(y) <= 1e-13 * scale(y)


def test_samples_and_interior_point_are_inside(any_set):
    drawn = samples(any_set)
    for z in [*drawn, any_set.interior_point()]:
        assert z.shape == any_set.shape
        assert z.dtype == np.float64
        assert any_set.violation(z) <= 1e-13 * scale(z)
    moving = np.ptp(np.stack(drawn), axis=0)
    assert np.all((moving > 0.0) == (any_set.width() > 0.0))


def test_interior_point_is_relatively_interior(any_set):
    # From a relative interior point one can step a little away from any other point of the set and stay inside.
    middle = any_set.interior_point()
    for z in samples(any_set, 6):
        beyond = middle + 1e-4 * (middle - z)
        assert any_set.violation(beyond) <= 1e-12 * scale(z)


def test_width_and_diameter_hold(any_set):
    width, diameter = any_set.width(), any_set.diameter()
    assert width.shape == any_set.shape
    drawn = np.stack(samples(any_set))
    assert np.all(np.ptp(drawn, axis=0) <= width * (1 + 1e-12) + 1e-13)
    gaps = [np.linalg.norm(a - b) for a in drawn for b in drawn]
    assert max(gaps) <= diameter * (1 + 1e-12) + 1e-13
    assert any_set.bounded == bool(np.all(np.isfinite(width)))
    # Against the linear oracle, coordinate by coordinate: an upper bound, and the exact value where promised.
    for index in np.ndindex(any_set.shape):
        e = np.zeros(any_set.shape)
        e[index] = 1.0
        exact = any_set.support(e)[0] + any_set.support(-e)[0]
        assert exact <= width[index] + 1e-10
        if getattr(any_set, "ball", None) is None:
            assert exact == pytest.approx(width[index], abs=1e-9)


def test_everything_traced_can_be_traced(any_set):
    # The set itself is an argument here, so that no method may look at its numbers.
    def traced(convex_set, x, key):
        return convex_set.project(x), convex_set.violation(x), convex_set.sample(key)

    with precision.double():
        y, violation, z = eqx.filter_eval_shape(traced, any_set, jnp.zeros(any_set.shape), jax.random.key(0))
    assert (y.shape, violation.shape, z.shape) == (any_set.shape, (), any_set.shape)
    assert {y.dtype, violation.dtype, z.dtype} == {np.dtype(np.float64)}


def test_a_point_of_another_shape_is_refused_in_a_sentence(any_set):
    wrong = np.zeros((*any_set.shape, 7))
    with pytest.raises(InputError, match=r"has points of shape \("):
        any_set.project(wrong)
    with precision.double(), pytest.raises(InputError, match=r"has points of shape \("):
        any_set.project(jnp.asarray(wrong))
    with pytest.raises(InputError, match="NaN"):
        any_set.project(np.full(any_set.shape, np.nan))


def test_every_number_of_a_set_is_a_float64_array(any_set):
    leaves = jax.tree.leaves(any_set)
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
    assert {leaf.dtype for leaf in leaves} <= {np.dtype(np.float64), np.dtype(bool)}
    assert isinstance(any_set, ConvexSet)
    assert any_set.zeros().shape == any_set.shape


class TestProductOfParts:
    parts = Product(
        {"slope": Box(0.1, 5.0, shape=()), "rest": (Simplex(3), [NonNegative(2), Box([0.0], [1.0])])}
    )

    def test_shape_is_a_tree_of_shapes(self):
        assert self.parts.shape == {"slope": (), "rest": ((3,), (3,))}
        assert jax.tree.map(np.shape, self.parts.zeros()) == {"slope": (), "rest": ((3,), (3,))}

    def test_every_part_meets_its_own_set(self):
        x = {"slope": np.array(9.0), "rest": (np.array([2.0, 1.0, 0.0]), np.array([-1.0, 2.0, 3.0]))}
        y = self.parts.project(x)
        assert float(y["slope"]) == 5.0
        np.testing.assert_allclose(y["rest"][0], [1.0, 0.0, 0.0])
        np.testing.assert_allclose(y["rest"][1], [0.0, 2.0, 1.0])
        assert self.parts.violation(x) == 4.0
        assert self.parts.violation(y) == 0.0

    def test_oracle_sizes_and_samples(self):
        c = {"slope": np.array(-2.0), "rest": (np.array([0.0, 3.0, 1.0]), np.array([-1.0, -2.0, 4.0]))}
        value, y = self.parts.support(c)
        assert float(value) == pytest.approx(-0.2 + 3.0 + 4.0)
        assert self.parts.violation(y) == 0.0
        assert self.parts.diameter() == np.inf
        assert float(self.parts.width()["slope"]) == pytest.approx(4.9)
        for z in (self.parts.sample(jax.random.key(0)), self.parts.interior_point()):
            assert self.parts.violation(z) <= 1e-15

    def test_another_structure_is_refused(self):
        with pytest.raises(InputError, match="tree"):
            self.parts.project({"slope": np.array(1.0)})
        with pytest.raises(InputError, match="parts given have shapes"):
            self.parts.project({"slope": np.zeros(2), "rest": (np.zeros(3), np.zeros(3))})

    def test_split_gives_the_blocks_back(self):
        joined = Product([Box(0.0, 1.0, shape=(2, 2)), Simplex(3)])
        first, second = joined.split(np.arange(7.0))
        np.testing.assert_array_equal(first, [[0.0, 1.0], [2.0, 3.0]])
        np.testing.assert_array_equal(second, [4.0, 5.0, 6.0])


def test_bounds_of_a_box_read_in_full_shape():
    box = Box(0.0, [1.0, 2.0])
    np.testing.assert_array_equal(box.lower, [0.0, 0.0])
    np.testing.assert_array_equal(box.upper, [1.0, 2.0])
