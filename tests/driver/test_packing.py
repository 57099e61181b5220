"""A tree comes back from its arrays as it went in: shapes, types, repeated leaves, and what is no array."""

import jax
import jax.numpy as jnp
import numpy as np

from viceversa import precision
from viceversa.driver.packing import Later, Packed
from viceversa.once import once_for_each

TREE = {
    "matrix": np.arange(6.0).reshape(2, 3),
    "empty": np.zeros((0, 2)),
    "flags": np.array([True, False]),
    "largest": np.int64(np.iinfo(np.int64).max),
    "single": np.array([1.5], np.float32),
    "many": np.arange(5000.0),
    "name": "fixed",
}


def assert_same(found, expected):
    assert found["name"] == expected["name"]
    for key in set(expected) - {"name"}:
        np.testing.assert_array_equal(found[key], expected[key], strict=True, err_msg=key)


def test_on_the_host_small_leaves_share_a_vector():
    packed = Packed.on_host(TREE)
    assert sorted(array.size for array in packed.arrays) == [1, 3, 6, 5000]
    assert_same(packed.whole(), TREE)


def test_structures_are_told_apart_by_shape_and_by_what_is_fixed():
    packings = [
        Packed.on_host(tree).packing
        for tree in (
            TREE,
            TREE | {"matrix": np.zeros((3, 2))},
            TREE | {"matrix": np.zeros((2, 3), int)},
            TREE | {"name": "other"},
        )
    ]
    assert len(set(packings)) == 4
    again = Packed.on_host(TREE | {"matrix": np.ones((2, 3))}).packing
    assert again == packings[0]
    assert hash(again) == hash(packings[0])


def test_in_a_program_a_leaf_that_is_there_twice_is_kept_once_and_later_parts_are_later():
    def program(x):
        doubled = 2.0 * x
        return Packed.of((doubled, Later({"again": doubled, "count": jnp.asarray(3)}), x > 1.0))

    with precision.double():
        packed = jax.jit(program)(np.arange(3.0))
        first, later, flags = packed.whole()
        rest = later.whole()
    assert [array.size for array in packed.arrays] == [7]
    np.testing.assert_array_equal(first, [0.0, 2.0, 4.0])
    np.testing.assert_array_equal(rest["again"], first)
    assert int(rest["count"]) == 3
    np.testing.assert_array_equal(flags, [False, False, True], strict=True)


def test_a_table_of_packed_rows_is_unpacked_to_columns():
    with precision.double():
        same = jnp.asarray(7)
        row = Packed.like({"a": jnp.arange(2.0), "n": same, "again": same, "ok": jnp.asarray(True)})
        assert [array.size for array in row.arrays] == [2, 3]
        columns = Packed([jnp.stack([part, 2 * part]) for part in row.arrays], row.packing).whole()
    np.testing.assert_array_equal(columns["a"], [[0.0, 1.0], [0.0, 2.0]])
    np.testing.assert_array_equal(columns["n"], [7, 14])
    np.testing.assert_array_equal(columns["again"], [7, 14])
    np.testing.assert_array_equal(columns["ok"], [True, True], strict=True)


def test_an_immutable_object_is_looked_at_once_and_forgotten_with_it():
    class Thing:
        pass

    calls = []
    look = once_for_each(lambda thing: calls.append(id(thing)) or len(calls))
    first, second = Thing(), Thing()
    assert [look(first), look(second), look(first)] == [1, 2, 1]
    del first
    third = Thing()  # it may well get the identity of the first
    assert look(third) == 3
