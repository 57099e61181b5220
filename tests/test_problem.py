"""The problem: what is accepted, what is checked at construction, and the sentence for each mistake."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from unchecked import refused
from viceversa.errors import UserFunctionError

X = vv.Box(np.zeros(2), np.ones(2))
KNOWN = vv.Known(1.0)


def build(**changes):
    arguments = {"operator": lambda x, theta: x - theta, "set": X, "learning": KNOWN, **changes}
    return vv.MisspecifiedVI(**arguments)


WRONG = {
    "no learning": ({"learning": None}, "learning is missing. Pass vv.LeastSquares"),
    "a number for learning": (
        {"learning": 2.0},
        "learning is float; vv.LeastSquares, vv.SecondaryVI or vv.Known",
    ),
    "bounds for a set": ({"set": (0.0, 1.0)}, "set is tuple; a viceversa set such as vv.Box(lower, upper)"),
    "a tree for a set": ({"set": vv.Product({"a": X})}, "set is a tree of arrays, but x is one array"),
    "no function": ({"operator": 3}, "operator is int; a function of (x, theta) is needed"),
    "too few names": (
        {"constraints": lambda x, t: x - 1.0, "constraint_names": ["a"]},
        "constraint_names has 1 entries; constraints returns 2 numbers",
    ),
    "names without constraints": ({"constraint_names": ["a"]}, "constraints returns 0 numbers"),
    "callback without vjp": (
        {"constraints": vv.callback_operator(lambda x, t: x)},
        "constraints: a callback needs its pullback. Use vv.callback_constraints(fn, vjp)",
    ),
}


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_wrong_arguments(changes, words):
    with refused(words):
        build(**changes)


WRONG_OUTPUT = {
    "shape": ("operator", lambda x, t: x[:1], "operator: returns shape (1,); x has shape (2,)"),
    "integers": (
        "operator",
        lambda x, t: np.array([1, 2]),
        "operator: returns int64 numbers; floating point",
    ),
    "truth values": ("operator", lambda x, t: x > 0, "operator: returns bool numbers"),
    "complex": ("operator", lambda x, t: x * 1j, "operator: returns complex128 numbers"),
    "a tuple": ("operator", lambda x, t: (x, x), "operator: returns tuple; one array of x's shape (2,)"),
    "a list": (
        "operator",
        lambda x, t: [x[0], x[1]],
        "operator: returns list; one array of x's shape (2,) is needed. Join its parts with np.stack",
    ),
    "nothing": ("operator", lambda x, t: None, "operator: returns NoneType"),
    "raises": (
        "operator",
        lambda x, t: x / {}["a"],
        "operator: your function <lambda>(array[2], array[]) raised KeyError",
    ),
    "constraints raise": (
        "constraints",
        lambda x, t: x[7:] @ x,
        "constraints: your function <lambda>(array[2], array[])",
    ),
    "constraints, a list": (
        "constraints",
        lambda x, t: [x[0], x[1]],
        "constraints: returns list; one array of shape (J,)",
    ),
    "constraints, a matrix": (
        "constraints",
        lambda x, t: x[None],
        "constraints: returns shape (1, 2); one dimension",
    ),
    "constraints, integers": (
        "constraints",
        lambda x, t: np.array([1]),
        "constraints: returns int64 numbers",
    ),
    "callback, shape": ("operator", vv.callback_operator(lambda x, t: x[:1]), "operator: returns shape (1,)"),
    "callback, nothing": ("operator", vv.callback_operator(lambda x, t: None), "it returned None"),
    "callback raises": (
        "operator",
        vv.callback_operator(lambda x, t: 1 / 0),
        "raised ZeroDivisionError: division by zero",
    ),
}


@pytest.mark.parametrize(("part", "function", "words"), WRONG_OUTPUT.values(), ids=WRONG_OUTPUT)
def test_wrong_outputs_of_user_functions(part, function, words):
    with refused(words, UserFunctionError):
        build(**{part: function})


def test_a_vjp_of_the_wrong_shape():
    problem = build(
        constraints=vv.callback_constraints(lambda x, t: x.sum() - 1.0, lambda x, t, w: np.ones(3) * w)
    )
    with refused("constraints vjp: returns shape (3,); Jfᵀw of x's shape (2,) is needed", UserFunctionError):
        problem.at(jnp.asarray(1.0)).f.vjp(jnp.ones(2))[1](jnp.ones(1))


@pytest.mark.parametrize(
    "function", [lambda x, t: x.sum() - 1.0, lambda x, t: -1.0, lambda x, t: np.array([x.sum()])]
)
def test_one_constraint_may_be_a_scalar(function):
    problem = build(constraints=function)
    assert problem.n_constraints == 1
    with vv.precision.double():
        values, pull = problem.at(jnp.asarray(1.0)).f.vjp(jnp.ones(2))
        assert values.shape == (1,)
        assert pull(jnp.ones(1)).shape == (2,)


def test_no_constraints():
    problem = build()
    with vv.precision.double():
        values, pull = problem.at(jnp.asarray(1.0)).f.vjp(jnp.ones(2))
    assert values.shape == (0,)
    assert (np.asarray(pull(jnp.zeros(0))) == 0).all()
    assert problem.constraint_names == ()


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
def test_any_shape_of_x(shape):
    problem = vv.MisspecifiedVI(
        lambda x, theta: x - theta,
        set=vv.Box(0.0, 2.0, shape=shape),
        constraints=lambda x, theta: x.sum() - 0.5 * x.size,
        learning=KNOWN,
    )
    assert problem.shape == shape
    points = vv.iterate(problem, vv.AugmentedLagrangian(step_size=0.2, penalty=0.2 / max(np.prod(shape), 1)))
    for _ in range(60):
        point = next(points)
    assert point.x.shape == shape
    assert point.x.dtype == np.float64
    np.testing.assert_allclose(point.x, 0.5, atol=0.01)


@pytest.mark.parametrize(
    "theta", [1.5, np.array([1.5, 0.5]), {"a": 1.5, "b": np.ones((2, 2))}, (0.5, np.ones(2))]
)
def test_any_tree_of_parameters(theta):
    import jax

    function = lambda x, t: x - sum(leaf.sum() for leaf in jax.tree.leaves(t))
    problem = build(operator=function, learning=vv.Known(theta))
    given = problem.check_theta("theta", theta)
    assert jax.tree.structure(given) == jax.tree.structure(theta)
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(given))


def test_a_list_is_an_array():
    problem = build(operator=lambda x, t: x - t, learning=vv.Known([0.2, 0.4]))
    np.testing.assert_array_equal(problem.learning.theta, [0.2, 0.4])
    np.testing.assert_array_equal(problem.check_theta("theta", [0.2, 0.4]), [0.2, 0.4])


def test_points_are_checked():
    problem = build(
        constraints=lambda x, t: x.sum() - 1.0,
        learning=vv.Known({"a": 1.0, "b": np.ones(2)}),
        operator=lambda x, t: x - t["a"],
    )
    with refused("x0 has shape (1,); x has shape (2,)"):
        problem.check_x("x0", [1.0])
    with refused("x0 has NaN at 1 of 2 entries (first: [1])"):
        problem.check_x("x0", [1.0, np.nan])
    with refused("x0 is infinite at 1 of 2 entries"):
        problem.check_x("x0", [1.0, np.inf])
    with refused("x0 is str"):
        problem.check_x("x0", "one")
    with refused("theta0 has another structure than θ"):
        problem.check_theta("theta0", {"a": 1.0})
    with refused("theta0 has shape {'a': (), 'b': (3,)}"):
        problem.check_theta("theta0", {"a": 1.0, "b": np.ones(3)})
    with refused("multiplier0 has 2 entries; there are 1 constraints"):
        problem.check_multiplier("multiplier0", [1.0, 2.0])
    with refused("multiplier0 has 1 negative entries"):
        problem.check_multiplier("multiplier0", [-1.0])
    with refused("multiplier0 is infinite"):
        problem.check_multiplier("multiplier0", [np.inf])


def test_with_known_is_the_plain_problem():
    learning = vv.LeastSquares([1.0, 2.0], [1.0, 2.0], set=vv.Box(0.0, 3.0, shape=()))
    plain = build(learning=learning).with_known(0.25)
    assert plain.learning.is_known
    with refused("theta has shape (2,)"):
        build(learning=learning).with_known([1.0, 2.0])
    assert vv.certify(plain, [0.25, 0.25]).holds


class Shifted(eqx.Module):
    aim: np.ndarray

    def __call__(self, x, theta):
        return x - self.aim


AIM, LEVEL = np.array([0.25, 0.5]), np.array(0.5)


@pytest.mark.parametrize(
    ("made", "data"),
    [
        (lambda: lambda x, t: x - AIM, AIM),
        (lambda: lambda x, t: x - np.exp(0 * x) * AIM, AIM),
        (lambda: jax.jit(lambda x, t: x - AIM), AIM),
        (lambda: lambda x, t: x - LEVEL, LEVEL),
        (lambda: Shifted(AIM), AIM),
        (lambda: functools.partial(lambda x, t, aim: x - aim, aim=AIM), AIM),
    ],
    ids=["captured", "NumPy style", "jitted", "a single number", "module", "partial"],
)
def test_data_that_change_afterwards_change_the_next_problem_and_not_this_one(made, data):
    before = data.copy()
    function = made()
    problem = build(operator=function)
    first = vv.solve(problem)
    data *= 0.5
    try:
        again, later = vv.solve(problem), build(operator=function)
        assert again.success
        np.testing.assert_allclose(again.x, first.x, rtol=1e-12)
        assert vv.certify(problem, first.x).holds
        if not isinstance(function, eqx.Module):
            np.testing.assert_allclose(vv.solve(later).x, 0.5 * first.x, rtol=1e-9)
    finally:
        data[...] = before
    np.testing.assert_allclose(first.x, np.broadcast_to(before, 2), rtol=1e-9)


def test_jax_arrays_and_modules_without_numpy_arrays_are_not_copied():
    with vv.precision.double():
        aim = jnp.asarray(AIM)
    module = Shifted(aim)
    assert build(operator=module).operator is module
    assert np.shares_memory(build(operator=lambda x, t: x - aim).operator.data[0], np.asarray(aim))


def test_a_problem_is_frozen():
    with pytest.raises(AttributeError):
        build().set = X


class Above(eqx.Module):
    """x ≥ 1 in every coordinate: as many constraints as x has coordinates."""

    def __call__(self, x, theta):
        return 1.0 - x


def test_a_part_used_again_is_asked_for_what_is_new():
    """What a module returned for one x says nothing about another."""
    above = Above()
    for n in (2, 3, 2):
        problem = vv.MisspecifiedVI(lambda x, t: x - t, vv.Free(n), above, vv.Known(0.0))
        assert problem.constraints is above
        assert problem.n_constraints == n


@pytest.mark.parametrize("kind", [vv.MisspecifiedVI, vv.LeastSquares])
def test_what_is_made_quickly_has_all_its_fields(kind):
    learning = vv.LeastSquares([1.0, 2.0], [1.0, 2.0], set=vv.Free(()))
    problem = vv.MisspecifiedVI(lambda x, t: x - t, vv.Free(2), learning=learning)
    made = problem if kind is vv.MisspecifiedVI else learning
    assert set(vars(made)) == {field.name for field in dataclasses.fields(kind)}
