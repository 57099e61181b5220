"""Problems whose x lies the other way or in one long vector: the same functions, derivatives, answers and records, in the user's own shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa.driver.turned import TurnedFunction, View
from viceversa.precision import double
from viceversa.schemes.semismooth_newton import SemismoothNewton

SHAPE = (7, 3)


@pytest.fixture(autouse=True)
def _whatever_the_size(monkeypatch):
    """Long loops take longer to compile, so that few coordinates are left as they lie; here they are turned."""
    monkeypatch.setattr("viceversa.driver.turned._SMALLEST", 1)


RNG = np.random.default_rng(0)
R, ROW, COLUMN = RNG.uniform(1.0, 2.0, SHAPE), RNG.normal(size=3), RNG.normal(size=(7, 1))
M = RNG.normal(size=(3, 3))

FUNCTIONS = {
    "one number at a time": lambda x, t: R * jnp.exp(x) - t[0] * jnp.where(x > 0.2, x**3, 2.0 * x),
    "a total of each column": lambda x, t: R * x + t[0] * (x.sum(axis=0) + x) + ROW,
    "a total of each row": lambda x, t: R * x + x.sum(axis=1, keepdims=True) * COLUMN - t[1],
    "both, and of all": lambda x, t: x.sum(axis=0) * x.sum(axis=1, keepdims=True) + x.max() * R,
    "in columns": lambda x, t: (x.T * R.T + x.T.sum(axis=1, keepdims=True)).T,
    "a matrix": lambda x, t: x @ M + t[1] * x,
    "blocks": lambda x, t: jnp.concatenate([x[:2] ** 2, jnp.cumsum(x[2:], axis=0)]),
    "its own derivative rule": lambda x, t: jax.nn.relu(x - 0.1) * R,
    "within a compiled function": jax.jit(lambda x, t: jnp.tanh(x) * R + x.mean(axis=0)),
    "one long row": lambda x, t: x.reshape(-1)[::-1].reshape(SHAPE) * R,
    "nothing of x": lambda x, t: R * t[0],
    "x itself": lambda x, t: x,
}


def a_problem(F, f=None, shape=SHAPE, **rest) -> vv.MisspecifiedVI:
    return vv.MisspecifiedVI(F, vv.Box(-1.0, 1.0, shape=shape), f, vv.Known([0.7, -0.4]), **rest)


@pytest.mark.parametrize(
    ("order", "is_vector"),
    [((1, 0), True), ((1, 0), False), ((0, 1), True)],
    ids=["a turned vector", "turned", "a vector"],
)
@pytest.mark.parametrize("F", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_turned_function_and_its_derivative_are_the_function_and_its_derivative(F, order, is_vector):
    problem = a_problem(F)
    x, dx, theta = RNG.normal(size=SHAPE), RNG.normal(size=SHAPE), np.array([0.7, -0.4])

    def lying(array):
        turned = np.transpose(array, order)
        return turned.reshape(-1) if is_vector else turned

    with double():
        turned = TurnedFunction.of(problem.operator, problem, order, is_vector)
        found = jax.jvp(lambda y: turned(y, theta), (lying(x),), (lying(dx),))
        expected = jax.jvp(lambda y: problem.operator(y, theta), (jnp.asarray(x),), (jnp.asarray(dx),))
    for ours, plain in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, lying(np.asarray(plain)), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("is_vector", [True, False], ids=["a vector", "turned"])
def test_three_axes_and_constraints(is_vector, monkeypatch):
    monkeypatch.setattr("viceversa.driver.turned._LARGEST_VECTOR", 72 if is_vector else 71)
    shape, order = (4, 9, 2), (0, 2, 1)
    problem = a_problem(
        lambda x, t: x * x.sum(axis=(0, 2), keepdims=True) + x.sum(axis=1, keepdims=True) * t[0],
        lambda x, t: x.sum(axis=1).max(axis=0) - t[0],
        shape,
    )
    view = View(problem, SemismoothNewton())
    assert view.order == order
    x, theta = RNG.normal(size=shape), np.array([0.7, -0.4])
    with double():
        turned = view.problem(problem)
        F, f = (part(jnp.asarray(view.x(x)), theta) for part in (turned.operator, turned.constraints))
        np.testing.assert_allclose(view.back(F), problem.operator(jnp.asarray(x), theta), rtol=1e-14)
        np.testing.assert_allclose(f, problem.constraints(jnp.asarray(x), theta), rtol=1e-14)
    assert turned.shape == turned.set.shape == ((72,) if is_vector else (4, 2, 9))


NEWTON = SemismoothNewton()
NAMED = vv.schemes.Simultaneous(vv.ExtragradientLagrangian(0.1, 0.1), vv.ProjectedGradient())


@pytest.mark.parametrize(
    ("shape", "scheme", "order", "seen"),
    [
        ((7, 3), NEWTON, (1, 0), (21,)),
        ((3, 7), NEWTON, (0, 1), (21,)),
        ((5, 5), NEWTON, (0, 1), (25,)),
        ((7,), NEWTON, None, None),
        ((7, 3), NAMED, None, None),
        ((40, 3), NEWTON, (1, 0), (3, 40)),
        ((3, 40), NEWTON, None, None),
    ],
)
def test_only_what_gains_is_turned(shape, scheme, order, seen, monkeypatch):
    monkeypatch.setattr("viceversa.driver.turned._LARGEST_VECTOR", 100)
    view = View(a_problem(lambda x, t: x, shape=shape), scheme)
    assert (view.order, view.shape) == (order, seen)


def test_bounds_of_every_form():
    for low in (0.0, np.zeros(3), np.full((7, 1), -1.0), R - 3.0):
        for X in (vv.Box(low, R + 3.0), vv.NonNegative(SHAPE), vv.Free(SHAPE)):
            x = 5.0 * RNG.normal(size=SHAPE)
            turned, vector = X.rearranged(np.transpose, (3, 7)), X.rearranged(np.ravel, (21,))
            np.testing.assert_array_equal(turned.project(x.T), np.asarray(X.project(x)).T)
            np.testing.assert_array_equal(vector.project(x.ravel()), np.asarray(X.project(x)).ravel())


def test_answers_records_and_warm_starts_have_the_shape_of_x():
    def F(x, t):
        return R * x + t[0] * (x.sum(axis=0) + x) - 4.0 - ROW

    def f(x, t):
        return x.sum(axis=0) - 1.5

    tall = a_problem(F, f)
    wide = a_problem(lambda x, t: F(x.T, t).T, lambda x, t: f(x.T, t), SHAPE[::-1])
    x_true = vv.solve(tall).x
    record = vv.Record(points=True, theta_true=[0.7, -0.4], x_true=x_true)
    solution, other = vv.solve(tall, NEWTON, record=record), vv.solve(wide, NEWTON)
    assert solution.status == other.status == "solved"
    assert solution.nit == other.nit
    assert solution.x.shape == solution.x_average.shape == SHAPE
    np.testing.assert_allclose(solution.x, other.x.T, rtol=0, atol=1e-9)
    np.testing.assert_allclose(solution.multiplier, other.multiplier, rtol=0, atol=1e-8)
    np.testing.assert_allclose(solution.trace.points.x[-1], solution.x, rtol=0, atol=0)
    assert solution.trace.x_error[-1] < 1e-12 < solution.trace.x_error[0]
    start = solution.x + 0.01 * RNG.normal(size=SHAPE)
    assert vv.solve(tall, NEWTON, x0=start, multiplier0=solution.multiplier).nit <= solution.nit
    assert vv.solve(tall, NEWTON, init=solution).nit <= 1


def test_a_rescue_sees_the_problem_as_the_run_does():
    """Skew forces in units over eight decades: Newton alone does not do, and the dense method gets turned arrays."""
    rng = np.random.default_rng(0)
    unit = 10.0 ** (0.5 * rng.uniform(-8.0, 0.0, SHAPE))
    A = rng.normal(size=(21, 21))
    skew = np.outer(unit, unit) * (A - A.T)

    def F(x, t):
        return (skew @ x.reshape(-1)).reshape(SHAPE) - ROW * unit**2

    def f(x, t):
        return x.sum(axis=0) - 0.5

    solution = vv.solve(a_problem(F, f))
    assert solution.success
    assert any(phase.startswith("interior point") for phase in solution.trace.phase)
