"""Small reductions written otherwise: the same numbers, and none of them left as a reduction."""

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
import numpy as np
import pytest

from viceversa import precision
from viceversa.operations import inner_programs
from viceversa.plain_sums import with_plain_sums

RNG = np.random.default_rng(0)


def both(function, *args):
    """What a function finds, what it finds rewritten, and the rewritten program."""
    with precision.double():
        program = jax.make_jaxpr(function)(*args)
        plain = with_plain_sums(program)
        found = jax.jit(jax_core.jaxpr_as_fun(program))(*args)
        return found, jax.jit(jax_core.jaxpr_as_fun(plain))(*args), plain


def reductions(jaxpr) -> list[str]:
    names = [eqn.primitive.name for eqn in jaxpr.eqns if eqn.primitive.name.startswith("reduce_")]
    return names + [
        name for eqn in jaxpr.eqns for inner in inner_programs(eqn.params) for name in reductions(inner)
    ]


@pytest.mark.parametrize("shape", [(2,), (7,), (8,), (9,), (250,), (512,)])
@pytest.mark.parametrize("name", ["sum", "any", "all"])
def test_reductions_of_vectors_are_gone_and_right(shape, name):
    values = RNG.normal(size=shape)
    array = values if name == "sum" else values > 0
    (expected,), (found,), plain = both(getattr(jnp, name), array)
    assert not reductions(plain.jaxpr)
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (2, 1), None])
@pytest.mark.parametrize("function", [jnp.max, jnp.min])
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 2, 125), (8, 9, 2)])
def test_the_largest_and_the_least_along_axes(function, shape, axis):
    array = RNG.permutation(np.prod(shape)).reshape(shape).astype(float)
    (expected,), (found,), plain = both(lambda a: function(a, axis=axis), array)
    assert not reductions(plain.jaxpr)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [2, 3, 7, 9, 16, 22])
def test_the_largest_and_the_least_may_stand_anywhere(n):
    _, (largest,), _ = both(lambda rows: jnp.max(rows, axis=1), np.eye(n))
    _, (least,), _ = both(lambda rows: jnp.min(rows, axis=1), 1.0 - np.eye(n))
    np.testing.assert_array_equal(largest, np.ones(n))
    np.testing.assert_array_equal(least, np.zeros(n))


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("n", [3, 40])
def test_flags_that_are_all_alike(filled, n):
    for function in (jnp.any, jnp.all):
        (expected,), (found,), _ = both(function, np.full(n, filled))
        assert found == expected
        assert found.dtype == np.bool_


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (2, 1), None])
def test_sums_along_axes(axis):
    array = RNG.normal(size=(3, 5, 7))
    (expected,), (found,), plain = both(lambda a: jnp.sum(a, axis=axis), array)
    assert not reductions(plain.jaxpr)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("function", [jnp.max, jnp.min, jnp.sum])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [5, 30])
def test_numbers_that_are_not_finite_come_through(function, value, n):
    array = RNG.normal(size=n)
    array[3] = value
    (expected,), (found,), _ = both(function, array)
    np.testing.assert_equal(np.asarray(found), np.asarray(expected))


def test_whole_numbers_are_compared_and_summed_as_such():
    large = np.array([2**60 + 1, 2**60, -3])
    for function in (jnp.max, jnp.min, jnp.sum):
        (expected,), (found,), plain = both(function, large)
        assert found == expected
        assert found.dtype == expected.dtype
        assert not reductions(plain.jaxpr)


def test_what_is_large_or_another_kind_stays():
    assert both(jnp.sum, np.ones(513))[2].jaxpr.eqns[0].primitive.name == "reduce_sum"
    assert reductions(both(jnp.max, np.ones(513))[2].jaxpr) == ["reduce_max"]
    assert reductions(both(jnp.prod, np.ones(4))[2].jaxpr) == ["reduce_prod"]
    assert reductions(both(jnp.sum, np.arange(20))[2].jaxpr) == ["reduce_sum"]


def test_arrays_without_numbers():
    (expected,), (found,), _ = both(lambda a: jnp.sum(a, axis=0), np.ones((3, 0)))
    assert found.shape == expected.shape == (0,)
    assert float(both(jnp.sum, np.ones(0))[1][0]) == 0.0


def test_programs_within_programs():
    def function(x):
        def body(state):
            k, x = state
            x = jax.lax.cond(jnp.any(x > 1.0), lambda v: v / jnp.sum(v), lambda v: v + jnp.max(v[:3]), x)
            return k + 1, jax.lax.fori_loop(0, 2, lambda _, v: v + 0.1 * jnp.sum(v * v), x)

        inner = jax.jit(lambda v: jnp.sum(v) + jnp.linalg.norm(v))
        x = jax.lax.while_loop(lambda s: (s[0] < 4) & jnp.all(s[1] < 50.0), body, (0, x))[1]
        return x, inner(x), inner(2.0 * x)

    expected, found, plain = both(function, RNG.uniform(size=12))
    assert not reductions(plain.jaxpr)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-13)


@pytest.mark.parametrize("setting", ["F32_F32_F32", "BF16_BF16_F32", "bfloat16"])
def test_sums_do_not_mind_the_precision_of_products(setting):
    values = RNG.normal(size=37)
    with jax.default_matmul_precision(setting):
        (expected,), (found,), _ = both(lambda x: jnp.sum(x * x) + 0.0, values)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_programs_in_parameters_of_other_kinds_are_left_alone():
    def solve(b):
        return jax.lax.custom_linear_solve(
            lambda x: 2.0 * x + jnp.sum(x), b, lambda A, y: y / 7.0, symmetric=True
        )

    (expected,), (found,), _ = both(solve, np.ones(5))
    np.testing.assert_allclose(found, expected)


def test_a_function_called_twice_stays_one_function():
    inner = jax.jit(lambda v: jnp.sum(v * v))
    plain = both(lambda x: inner(x) + inner(x + 1.0), np.ones(5))[2]
    calls = [eqn.params["jaxpr"] for eqn in plain.jaxpr.eqns if eqn.primitive.name in ("jit", "pjit")]
    assert len(calls) == 2
    assert calls[0] is calls[1]
