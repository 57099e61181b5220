"""Numerical primitives where a shortcut could go wrong: special numbers, empty arrays, patterns."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from viceversa.numerics import irregular_signs, max_abs, tree_max_abs
from viceversa.precision import double

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1.0, -3.0, 2.0], 3.0),
        ([0.0, -0.0], 0.0),
        ([-5e-324, 0.0], 5e-324),
        ([1.0, -INF], INF),
        ([NAN, 1.0], NAN),
        ([-INF, -NAN, 1.0], NAN),
        ([], 0.0),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_largest_size_of_ordinary_and_of_special_numbers(numbers, expected, dtype):
    with double():
        found = max_abs(jnp.asarray(numbers, dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found), dtype(expected))


def test_the_largest_size_in_a_tree():
    with double():
        tree = {"a": jnp.asarray([[1.0, -4.0]]), "b": jnp.zeros(0), "c": jnp.asarray(2.0)}
        assert float(tree_max_abs(tree)) == 4.0
        assert float(tree_max_abs(())) == 0.0
        assert np.isnan(float(tree_max_abs({**tree, "d": jnp.asarray([0.0, NAN])})))


def test_irregular_signs_follow_no_short_pattern():
    """A sum over every k-th sign, from any start, is that of coin tosses: far below its number of terms."""
    with double():
        signs = np.asarray(irregular_signs((64, 150))).ravel()
    assert set(signs) == {-1.0, 1.0}
    for k in range(1, 40):
        for start in range(k):
            some = signs[start::k]
            assert abs(some.sum()) < 5.5 * np.sqrt(some.size), (k, start)
