"""What users write for F and f: NumPy style, JAX style, callbacks; and the sentence for everything else."""

from __future__ import annotations

import functools
import math
import random

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.special
from numpy import zeros

import viceversa as vv
from viceversa import functions
from viceversa.errors import PrecisionWarning, UserFunctionError

A = np.array([[2.0, 1.0, 0.0], [-1.0, 2.0, 0.5], [0.0, 0.3, 1.0]])
NUMBERS = [0.5, 2.0, -1.5]
X, THETA = np.array([0.7, 1.9, -0.4]), np.array([1.3, 0.2])


def traced_value(function, x=X, theta=THETA):
    """The value of a traced user function at a point other than the one it was traced at."""
    program = functions.trace("operator", function, np.zeros_like(x), jax.tree.map(np.zeros_like, theta))
    with vv.precision.double():
        return np.asarray(program(jnp.asarray(x), jax.tree.map(jnp.asarray, theta)))


def fill_zeros(x, theta):
    out = np.zeros(3)
    for i in range(3):
        out[i] = x[i] ** 2 - theta[0]
    return out


def fill_imported_zeros(x, theta):
    out = zeros(3)
    out[0], out[1:] = x[0], np.exp(x[1:]) - theta
    return out


def fill_empty(x, theta):
    out = np.empty(3)
    out[:] = np.sin(x)
    out[0] += theta[0]
    out *= 2.0
    return out


def fill_zeros_like(x, theta):
    out = np.zeros_like(x)
    for i, value in enumerate(x):
        out[i] = value - theta[1]
    return out


def fill_a_copy(x, theta):
    out = x.copy()
    out[1:] = x[1:] - theta
    out[:1] *= 3.0
    return out


def fill_through_a_view(x, theta):
    out = np.zeros((2, 3))
    row = out[1]
    row[:] = x - theta[0]
    row += 1.0
    return out[1] + out[0]


def fill_by_mask(x, theta):
    out = 2.0 * x
    out[x > 1.0] = 5.0
    return out


def called(x, i):
    part = np.zeros(2)
    part[0] = x[i]
    return part.sum()


def call_a_function_of_the_module(x, theta):
    return np.array([called(x, i) - theta[0] for i in range(3)], dtype=float)


def closure_over_numpy():
    import numpy as other_name

    def inner(x, theta):
        out = other_name.ones(3)
        out[2] = x[2] * theta[1]
        return out

    return inner


class Firm:
    def __init__(self, cost):
        self.cost = cost

    def __call__(self, x, theta):
        return np.exp(self.cost * x) - theta[0]

    def marginal(self, x, theta):
        out = np.zeros(3)
        out[:] = self.cost * x
        return out


NUMPY_STYLE = {
    "ufunc": lambda x, theta: np.exp(x) - theta[0],
    "sum over an axis": lambda x, theta: np.sum(A * x, axis=1) - theta[0],
    "np.array of entries": lambda x, theta: np.array([x[0], np.exp(x[1]), x[2] * theta[1]]),
    "ufunc of np.array of entries": lambda x, theta: np.exp(np.array([x[0], x[1], x[2]])),
    "nested np.array": lambda x, theta: np.array([[x[0], x[1], x[2]], [1.0, 2.0, theta[0]]]).sum(axis=0),
    "concatenate": lambda x, theta: np.concatenate([x[:1] - theta[0], x[1:] * 2.0]),
    "concatenate a list of entries": lambda x, theta: np.concatenate([[x[0] - 1.0], np.diff(x)]),
    "stack, hstack, append, r_": lambda x, theta: (
        np.stack([x[0], x[1], x[2]])
        + np.hstack([x[0], x[1:]])
        + np.append(x[:2], theta[0])
        + np.r_[x[0], x[1:]]
    ),
    "norm": lambda x, theta: x * np.linalg.norm(x - 9.0) + np.linalg.norm(np.stack([x, x + 1.0]), axis=0),
    "matmul and dot": lambda x, theta: (
        A @ x + np.dot(A, x) + x @ A + A.dot(x) + np.matmul(A, x) + np.einsum("ij,j->i", A, x)
    ),
    "inner, outer, vdot": lambda x, theta: (
        np.outer(x, x).sum(1) + np.inner(x, x) + np.vdot(x, x) + np.subtract.outer(x, x).sum(0)
    ),
    "where, maximum, clip": lambda x, theta: (
        np.where(x > theta[0], 2.0 * x, x) + np.maximum(x, 0.5) + np.clip(x, 0.0, 1.0) + np.minimum(x, 1.0)
    ),
    "fancy indexing": lambda x, theta: (
        x[[2, 1, 0]] + x[np.array([0, 0, 1])] + x[np.array([True, False, True])].sum()
    ),
    "iteration": lambda x, theta: np.array([value - theta[0] for value in x]) + sum(x),
    "methods": lambda x, theta: (
        x - x.mean() + x.max() + x.sum() + x.reshape(3, 1).T.ravel() + x.clip(0.0, 1.0)
    ),
    "linear solves": lambda x, theta: np.linalg.solve(A, x) + np.linalg.inv(A) @ x,
    "special functions": lambda x, theta: scipy.special.expit(x) * theta[0],
    "np.full of a parameter": lambda x, theta: np.exp(x) - np.full(3, theta[0]),
    "np.asarray": lambda x, theta: np.asarray(x, dtype=float) * np.ones(3) - np.ones_like(x),
    "augmented assignment": lambda x, theta: functools.reduce(lambda a, b: a + b, [x, np.exp(x), theta[0]]),
    "np.zeros filled": fill_zeros,
    "zeros imported by name": fill_imported_zeros,
    "np.empty filled": fill_empty,
    "zeros_like filled": fill_zeros_like,
    "a copy changed": fill_a_copy,
    "through a view": fill_through_a_view,
    "through a mask": fill_by_mask,
    "in a function it calls": call_a_function_of_the_module,
    "numpy under another name": closure_over_numpy(),
    "an object": Firm(0.4),
    "a bound method": Firm(0.4).marginal,
    "a partial": functools.partial(lambda x, theta, c: np.exp(x) - c, c=2.0),
    "a list": lambda x, theta: (x - NUMBERS) * NUMBERS + tuple(NUMBERS),
    "a list before the array": lambda x, theta: NUMBERS - NUMBERS * x + NUMBERS @ np.exp(x),
    "a list in a function": lambda x, theta: np.maximum(x, NUMBERS) + np.dot(NUMBERS, np.exp(x)),
    "power": lambda x, theta: (
        (x + 2.0) ** 1.5 - 2.0**x + 1.0 / (3.0 + x) - (-x) + abs(x) + x // 0.3 + x % 0.3
    ),
}


def change_at(x, theta):
    out = np.zeros(3)
    np.add.at(out, np.array([0, 2, 0]), np.exp(x))
    np.subtract.at(out, [1], theta[:1])
    np.maximum.at(out, np.array([0, -1]), 9.0)
    return out


def change_at_a_copy(x, theta):
    out = np.exp(x)
    np.multiply.at(out, (np.array([1, 1]),), x[:2])
    return out


NUMPY_STYLE |= {"np.add.at": change_at, "np.multiply.at": change_at_a_copy}


@pytest.mark.parametrize("function", NUMPY_STYLE.values(), ids=NUMPY_STYLE)
def test_numpy_style(function):
    np.testing.assert_allclose(
        traced_value(function), function(X.copy(), THETA.copy()), rtol=1e-13, atol=1e-14
    )


def test_numpy_style_with_a_tree_of_parameters():
    function = lambda x, theta: np.exp(x) - theta["a"] + np.sum(np.exp(-theta["b"]))
    theta = {"a": np.array(1.5), "b": THETA}
    np.testing.assert_allclose(traced_value(function, theta=theta), function(X, theta), rtol=1e-14)


def test_numpy_style_has_derivatives():
    _, pull = functions.vjp(functions.trace("f", fill_zeros, X, THETA), jnp.asarray(X), jnp.asarray(THETA))
    np.testing.assert_allclose(pull(jnp.ones(3)), 2 * X, rtol=1e-6)


def if_after_numpy(x, theta):
    y = np.exp(x)
    return y if y[0] > 0 else -y


def fails_after_filling(x, theta):
    out = np.zeros(3)
    out[0] = x[0]
    raise RuntimeError("no such firm")


SERIES, TABLE = pd.Series([1.0, 2.0, 3.0]), pd.DataFrame(A)
RNG = np.random.default_rng(0)


def draw_elsewhere():
    return RNG.normal(size=3)


class Noisy:
    def __init__(self):
        self.source = np.random.default_rng(0)

    def __call__(self, x, theta):
        return x + self.source.normal()


OUTSIDE = np.zeros(3)


def change_at_outside(x, theta):
    np.add.at(OUTSIDE, np.array([0, 1, 2]), x)
    return OUTSIDE


DRAWS = r"draws random numbers.*vv\.NoisyOperator\(operator, draw\)"
REFUSED = {
    "a list beside jax.numpy": (
        lambda x, theta: jnp.exp(x) - NUMBERS,
        "computes with a Python list or tuple.* np.asarray",
    ),
    "a series": (lambda x, theta: x - SERIES, r"uses the pandas Series `SERIES`.*Use \.to_numpy\(\)"),
    "a series first": (lambda x, theta: SERIES * x, "uses the pandas Series `SERIES`"),
    "a series in NumPy style": (lambda x, theta: np.exp(x) - SERIES, "uses the pandas Series `SERIES`"),
    "a table": (lambda x, theta: TABLE @ x, "uses the pandas DataFrame `TABLE`"),
    "a series made inside": (lambda x, theta: x - pd.Series(NUMBERS), "uses pandas, and arrays are needed"),
    "np.random": (lambda x, theta: x - 1.0 + np.random.normal(size=3), DRAWS),  # noqa: NPY002
    "np.random, one number": (lambda x, theta: x - np.random.normal(), DRAWS),  # noqa: NPY002
    "np.random in NumPy style": (lambda x, theta: np.exp(x) + np.random.rand(3), DRAWS),  # noqa: NPY002
    "a generator": (lambda x, theta: x - RNG.normal(size=3), DRAWS),
    "a generator's method": (functools.partial(lambda x, theta, draw: x * draw(), draw=RNG.normal), DRAWS),
    "a generator in a function it calls": (lambda x, theta: x - draw_elsewhere(), DRAWS),
    "a generator in an object": (Noisy(), DRAWS),
    "the random module": (lambda x, theta: x - random.random(), DRAWS),
    "math.exp": (lambda x, theta: x * math.exp(x[0]), "np.exp for math.exp"),
    "math.exp in NumPy style": (lambda x, theta: np.exp(x) * math.exp(x[0]), "np.exp for math.exp"),
    "if": (lambda x, theta: x if x[0] > 0 else -x, "Use np.where for `if`"),
    "if in NumPy style": (if_after_numpy, "if_after_numpy.* Use np.where for `if`"),
    "float": (lambda x, theta: x * float(theta[0]), "needs a number"),
    "loop bound": (lambda x, theta: sum(x for _ in range(int(theta[0]))), "needs a number"),
    "numpy and jax.numpy": (lambda x, theta: np.exp(x) + jnp.exp(x), "mixes numpy and jax.numpy"),
    "shapes, jax": (lambda x, theta: jnp.exp(x) + jnp.ones(2), r"incompatible shapes.*\(3,\), \(2,\)"),
    "shapes, numpy": (lambda x, theta: np.exp(x) + np.ones(2), r"incompatible shapes.*\(3,\), \(2,\)"),
    "a mistake of its own": (fails_after_filling, "fails_after_filling.*RuntimeError: no such firm"),
    "a missing key": (
        lambda x, theta: {}["price"],
        r"<lambda>\(array\[3\], array\[2\]\) raised KeyError: 'price'",
    ),
    "too few arguments": (lambda x: x, "takes 1 positional argument"),
    "np.add.at outside": (
        change_at_outside,
        r"np\.add\.at cannot change this array in place\. Write out = out\.at\[index\]\.add\(values\)",
    ),
    "traced mask": (lambda x, theta: x[x > 0], "boolean indices must be concrete"),
}


@pytest.mark.parametrize(("function", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_traced_is_reported_as_the_users_function(function, words):
    with pytest.raises(UserFunctionError, match=words) as caught:
        functions.trace("operator", function, X, THETA)
    assert str(caught.value).startswith("operator: your function ")
    assert str(caught.value).endswith(".")
    assert ".." not in str(caught.value)


# -- indices ----------------------------------------------------------------------------------------------
LINK = np.array([1, 2, 3])


def add_at_links(x, theta):
    return jnp.zeros(3).at[LINK].add(x)


def set_at_links(x, theta):
    out = np.zeros(3)
    out[LINK] = np.exp(x)
    return out


@jax.jit
def picked(x, at):
    return x[at]


def looped(n):
    return lambda x, theta: x + jax.lax.fori_loop(0, n, lambda i, total: total + x[i], 0.0)


def mapped(at):
    return lambda x, theta: x + jax.lax.map(lambda i: x[i], at).sum()


BEYOND = {
    "one": (lambda x, theta: x - x[3], r"index 3 on axis 0 of an array of shape \(3,\)"),
    "from the end": (lambda x, theta: x - x[-4], "index -4 on axis 0.*0 to 2 are valid, or -3 to -1 from"),
    "of θ": (lambda x, theta: x - theta[2], r"index 2 on axis 0 of an array of shape \(2,\)"),
    "several": (lambda x, theta: x[LINK], "index 3 on axis 0"),
    "several, jax": (lambda x, theta: x[jnp.asarray(LINK)], "index 3 on axis 0"),
    "several from the end": (lambda x, theta: x[-1 - LINK], "index -4 on axis 0"),
    "computed": (lambda x, theta: x[jnp.arange(3) + 1], "index 3 on axis 0"),
    "of a matrix": (lambda x, theta: jnp.outer(x, x)[0, 4] + x, r"index 4 on axis 1 .*\(3, 3\)"),
    "rows": (lambda x, theta: jnp.outer(x, theta)[:, LINK], r"index 3 on axis 1 .*\(3, 2\)"),
    "pairs": (lambda x, theta: jnp.outer(x, x)[LINK, LINK - 1], "index 3 on axis 0"),
    "one of two": (lambda x, theta: x + jnp.outer(x, x)[jnp.argmax(x), 7], "index 7 on axis 1"),
    "of what it closes over": (lambda x, theta: x - jnp.asarray(A)[5], r"index 5 .*\(3, 3\)"),
    "added": (add_at_links, r"index 3 .*in line \d+ of test_functions.py \(`return jnp.zeros\(3\).at"),
    "set": (lambda x, theta: x.at[3].set(0.0), "index 3 on axis 0"),
    "set in NumPy style": (set_at_links, r"index 3 .*\(`out\[LINK\] = np.exp\(x\)`\)"),
    "read in NumPy style": (lambda x, theta: np.exp(x) - x[3], "index 3 on axis 0"),
    "np.take": (lambda x, theta: np.exp(np.take(x, LINK)), "index 3 on axis 0"),
    "jnp.take": (lambda x, theta: jnp.take(x, LINK), "index 3 on axis 0"),
    "in a jitted function": (lambda x, theta: picked(x, LINK), r"index 3 .*\(`return x\[at\]`\)"),
    "in a vmap": (lambda x, theta: jax.vmap(lambda i: x[i])(LINK), "index 3 on axis 0"),
    "in a loop": (looped(4), "index 3 on axis 0"),
    "in a map": (mapped(np.array([0, 5, 1])), "index 5 on axis 0"),
}
WITHIN = {
    "the last": lambda x, theta: x - x[-1] + x[2] + x[-3],
    "several from the end": lambda x, theta: x[np.array([-1, -3, 2])] + x[jnp.array([-1, 0, 1])],
    "a mask": lambda x, theta: x + x[np.array([True, False, True])].sum(),
    "a longer slice": lambda x, theta: x + x[1:7].sum() + x[5:].sum(),
    "none": lambda x, theta: x + x[np.zeros(0, dtype=int)].sum(),
    "a matrix": lambda x, theta: jnp.outer(x, theta)[LINK - 1, np.array([0, 1, -1])],
    "clip": lambda x, theta: x.at[LINK].get(mode="clip") + jnp.take(x, LINK, mode="clip"),
    "clip in NumPy style": lambda x, theta: np.exp(np.take(x, LINK, mode="clip")),
    "fill": lambda x, theta: x.at[LINK].get(mode="fill", fill_value=0.0),
    "drop": lambda x, theta: jnp.zeros(3).at[LINK].add(x, mode="drop"),
    "added": lambda x, theta: jnp.zeros(3).at[LINK - 1].add(x).at[-1].set(4.0),
    "take": lambda x, theta: jnp.take(x, LINK - 1) + jnp.take_along_axis(x, LINK - 3, 0),
    "segments": lambda x, theta: jax.ops.segment_sum(
        x, LINK, 3
    ),  # which leaves out what is beyond, as documented
    "counts": lambda x, theta: x * jnp.bincount(LINK, length=3),
    "interpolation": lambda x, theta: jnp.interp(x, np.arange(3.0), np.arange(3.0)),
    "depends on x": lambda x, theta: x[jnp.argsort(x)] + x[jnp.argmax(x) + 7],
    "dynamic_slice": lambda x, theta: x + jax.lax.dynamic_slice(x, (7,), (1,)),
    "in a loop": looped(3),
    "in a map": mapped(np.array([0, -3, 2])),
    "not reached": lambda x, theta: jax.lax.cond(x.sum() > 9.0, lambda: x * x[5], lambda: x),
    "halves": lambda x, theta: x[jnp.arange(3) // 2] + x[jnp.arange(5, 8) % 3],
    "roll and flip": lambda x, theta: jnp.roll(x, 1) + jnp.flip(x) + jnp.sort(x) + jnp.median(x),
}


@pytest.mark.parametrize(("function", "words"), BEYOND.values(), ids=BEYOND)
def test_an_index_that_numpy_would_refuse_is_refused(function, words):
    with pytest.raises(UserFunctionError, match=words) as caught:
        functions.trace("operator", function, X, THETA)
    assert str(caught.value).startswith("operator: your function ")
    assert "numbered from 0" in str(caught.value)


@pytest.mark.parametrize("function", WITHIN.values(), ids=WITHIN)
def test_other_indices_are_left_alone(function):
    with vv.precision.double():
        expected = (
            function(jnp.asarray(X), jnp.asarray(THETA)) if function is not WITHIN["not reached"] else X
        )
    np.testing.assert_allclose(traced_value(function), expected, rtol=1e-14)


def test_a_wrong_index_is_refused_when_the_problem_is_built():
    with pytest.raises(UserFunctionError, match=r"constraints: your function .* index 2 on axis 0"):
        vv.MisspecifiedVI(
            lambda x, theta: x - 1.0,
            vv.NonNegative(2),
            lambda x, theta: x[np.array([1, 2])] - 0.5,
            vv.Known(1.0),
        )


# -- derivatives --------------------------------------------------------------------------------------------
@jax.custom_vjp
def only_backwards(x):
    return x + x**3


only_backwards.defvjp(lambda x: (only_backwards(x), x), lambda x, w: ((1.0 + 3.0 * x**2) * w,))


def while_below(x, bound):
    return jax.lax.while_loop(lambda s: s[0] < bound, lambda s: (s[0] + 1.0, 1.1 * s[1]), (0.0, x))[1]


def doubled_by_python(x):
    return jax.pure_callback(lambda v: 2.0 * np.asarray(v), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


WITHOUT_DERIVATIVE = {
    "operator, custom_vjp": ("operator", only_backwards, r"no derivative in forward mode.* jax\.custom_jvp"),
    "operator, callback": (
        "operator",
        doubled_by_python,
        r"Pass the Python function .*vv\.callback_operator",
    ),
    "operator, no rule": (
        "operator",
        lambda x: jnp.nextafter(x, 9.0),
        "uses `nextafter`, which has no deriv",
    ),
    "constraints, callback": ("constraints", doubled_by_python, r"vv\.callback_constraints\(fn, vjp\)"),
    "constraints, loop": ("constraints", lambda x: while_below(x, 3.0), "number of rounds is not fixed"),
    "constraints, bound": (
        "constraints",
        lambda x: jax.lax.fori_loop(0, x.sum().astype(int), lambda i, y: 1.1 * y, x),
        "lax.fori_loop or lax.scan with a fixed number",
    ),
    "constraints, no rule": ("constraints", lambda x: jnp.nextafter(x, 9.0), "uses `nextafter`"),
    "in a jitted function": ("operator", jax.jit(lambda x: 2.0 * jnp.nextafter(x, 9.0)), "uses `nextafter`"),
}


def built(name, function):
    given = {"operator": lambda x, theta: x - theta, "constraints": None} | {name: function}
    return vv.MisspecifiedVI(set=vv.NonNegative(3), learning=vv.Known(1.0), **given)


@pytest.mark.parametrize(("name", "part", "words"), WITHOUT_DERIVATIVE.values(), ids=WITHOUT_DERIVATIVE)
def test_a_function_without_the_derivative_that_every_method_needs_is_refused(name, part, words):
    with pytest.raises(UserFunctionError, match=words) as caught:
        built(name, lambda x, theta: part(x) - theta)
    assert str(caught.value).startswith(f"{name}: your function <lambda>(array[3], array[]) ")


def test_what_has_no_derivative_may_stand_where_none_is_taken():
    built("operator", lambda x, theta: x - while_below(theta, 3.0) + jnp.nextafter(theta, 9.0))
    built("operator", lambda x, theta: while_below(x, 3.0) - only_backwards(theta))
    built("constraints", lambda x, theta: x - while_below(theta, 3.0) - doubled_by_python(theta))
    built("constraints", lambda x, theta: x - jnp.nextafter(jax.lax.stop_gradient(x), 9.0))
    beside = vv.MisspecifiedVI(
        lambda x, theta: only_backwards(x) - theta,
        vv.NonNegative(2),
        vv.callback_constraints(lambda x, theta: x.sum() - 9.0, lambda x, theta, w: w * np.ones(2)),
        vv.Known(2.0),
    )
    np.testing.assert_allclose(vv.solve(beside, max_iter=2000).x, 1.0, rtol=1e-6)


def test_constraints_with_a_gradient_only_are_solved_by_methods_of_first_order():
    given = built("constraints", lambda x, theta: only_backwards(x) - 1.0)
    assert vv.solve(given, vv.AdaptiveAugmentedLagrangian()).success
    with pytest.raises(UserFunctionError, match=r"jax\.custom_vjp .*; or name a method of first order"):
        functions.require_derivative(given.constraints, (np.zeros(3), np.zeros(())), "forward")
    functions.require_derivative(given.constraints, (np.zeros(3), np.zeros(())), "reverse")
    functions.require_derivative(given.operator, (np.zeros(3), np.zeros(())), "forward")


def test_pandas_turned_into_arrays_and_random_numbers_that_repeat_are_accepted():
    np.testing.assert_allclose(traced_value(lambda x, theta: TABLE.to_numpy() @ x), A @ X)
    seeded = lambda x, theta: x + np.random.default_rng(0).normal(size=3)
    np.testing.assert_allclose(traced_value(seeded), seeded(X, THETA))
    keyed = lambda x, theta: x + jax.random.normal(jax.random.key(0), (3,))
    assert traced_value(keyed).shape == (3,)


def test_a_function_is_traced_anew_and_its_program_found_again():
    """New numbers, and no new compilation: a program is known by its identity."""
    shifts = {"by": np.ones(3)}

    def shifted(x, theta):
        return jax.nn.relu(x) - shifts["by"] * 2.0 + theta[0]

    first = functions.trace("operator", shifted, X, THETA)
    shifts["by"] = np.zeros(3)
    second = functions.trace("operator", shifted, X, THETA)
    assert second.jaxpr is first.jaxpr
    assert [data.tolist() for data in (*first.data, *second.data)] == [[2.0] * 3, [0.0] * 3]
    made = [functions.trace("operator", lambda x, theta, c=c: x - c, X, THETA) for c in (A[0], A[1])]
    assert made[0].jaxpr is made[1].jaxpr


OTHER_PROGRAMS = [
    lambda x, theta: x - theta[0],
    lambda x, theta: x - theta[1],
    lambda x, theta: theta[0] - x,
    lambda x, theta: x - 1.0,
    lambda x, theta: x - 2.0,
    lambda x, theta: x - A[0],
    lambda x, theta: A[0] - x,
    lambda x, theta: jax.lax.fori_loop(0, 2, lambda i, y: y - 1.0, x),
    lambda x, theta: jax.lax.fori_loop(0, 2, lambda i, y: y - 2.0, x),
    lambda x, theta: x.sum(keepdims=True) * jnp.ones(3),
    lambda x, theta: x.reshape(3, 1).sum(0) * jnp.ones(3),
    lambda x, theta: jax.nn.relu(x),
    lambda x, theta: jax.nn.softplus(x),
]


def test_programs_that_differ_are_kept_apart():
    traced = [functions.trace("operator", function, X, THETA) for function in OTHER_PROGRAMS]
    again = [functions.trace("operator", function, X, THETA) for function in OTHER_PROGRAMS]
    assert len({id(program.jaxpr) for program in traced}) == len(OTHER_PROGRAMS)
    assert [program.jaxpr for program in again] == [program.jaxpr for program in traced]


def test_not_a_function():
    with pytest.raises(vv.InputError, match=r"operator is int; a function of \(x, theta\) is needed"):
        functions.trace("operator", 3, X)


def test_python_number_is_a_result():
    assert traced_value(lambda x, theta: -1.0) == -1.0


def test_single_precision_data_warns():
    single = jnp.ones(3, dtype=jnp.float32)
    with pytest.warns(
        PrecisionWarning, match=r"float32 arrays of shape \(3,\), so the answer has about 7 digits"
    ):
        functions.trace("operator", lambda x, theta: x - single, X, THETA)


def test_captured_arrays_are_arguments_of_the_program():
    big = np.random.default_rng(0).normal(size=(200, 3))
    program = functions.trace("operator", lambda x, theta: big.T @ (big @ x), X, THETA)
    assert sum(array.size for array in program.data) >= big.size
    assert all(np.size(const) < big.size for const in jaxpr_constants(program))


def jaxpr_constants(program):
    """Literals written into a program's text."""
    return [v.val for eqn in program.jaxpr.eqns for v in eqn.invars if hasattr(v, "val")]


def test_affine_is_proved_or_not_claimed():
    assert functions.is_affine_in(lambda theta: A @ theta + 1.0, 0, X)
    assert not functions.is_affine_in(lambda theta: theta**2, 0, X)
    assert functions.is_affine_in(lambda x, theta: jnp.exp(theta[0]) * x, 0, X, THETA)
    assert not functions.is_affine_in(lambda x, theta: jnp.exp(theta[0]) * x, 1, X, THETA)


def test_callbacks_need_functions():
    with pytest.raises(vv.InputError, match="callback_operator: fn is int"):
        vv.callback_operator(3)
    with pytest.raises(vv.InputError, match="callback_constraints: vjp is None"):
        vv.callback_constraints(lambda x, theta: x, None)


def test_a_callback_inside_a_compiled_program_is_refused():
    callback = functions.trace("operator", vv.callback_operator(lambda x, theta: x), X, THETA)
    with pytest.raises(UserFunctionError, match="cannot run inside a compiled program"):
        jax.jit(callback)(jnp.ones(3), jnp.ones(2))
