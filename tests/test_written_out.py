"""A function written out coordinate by coordinate is put back into arrays, and stays the same function."""

import jax
import numpy as np
import pytest

import viceversa as vv
from viceversa import functions
from viceversa.driver import loop
from viceversa.written_out import LONG

N = 14
RNG = np.random.default_rng(5)
M, K = RNG.normal(size=(2, N, N))
Q = RNG.normal(size=N)


def game(scale: float):
    """A loop over players, a sum over the others; the slope in θ multiplies x, the level is added."""

    def operator(x, theta):
        own = [(2.0 + M[i, i] ** 2) * x[i] for i in range(N)]
        others = [sum((M[i, j] - M[j, i]) * x[j] for j in range(N)) for i in range(N)]
        learned = [
            theta["slope"][0] * (x[i] + 0.1 * x[(i + 1) % N]) - theta["level"] * Q[i] for i in range(N)
        ]
        return np.stack([scale * (a + b) + c for a, b, c in zip(own, others, learned, strict=True)])

    return operator


def caps(x, theta):
    return np.stack([sum(K[i, j] ** 2 * x[j] for j in range(N)) - 3.0 - theta["level"] for i in range(N)])


def problem(operator, constraints=caps) -> vv.MisspecifiedVI:
    Theta = vv.Product({"slope": vv.Box([0.1], [4.0]), "level": vv.Box(-9.0, 9.0, shape=())})
    learning = vv.LeastSquares(np.eye(2), [5.0, 2.0], set=Theta)
    return vv.MisspecifiedVI(operator, vv.Box(np.zeros(N), np.ones(N)), constraints, learning)


def size_of(function) -> int:
    return len(function.jaxpr.eqns)


def test_it_is_short_and_the_same_function():
    made = problem(game(1.0))
    assert size_of(made.operator) < 20
    assert size_of(made.constraints) < 20
    for _ in range(3):
        x, theta = RNG.normal(size=N), {"slope": RNG.normal(size=1), "level": RNG.normal()}
        with vv.precision.double():
            found = np.asarray(made.operator(x, theta)), np.asarray(made.constraints(x, theta))
        np.testing.assert_allclose(found[0], game(1.0)(x, theta), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[1], caps(x, theta), rtol=1e-12, atol=1e-12)


def test_other_numbers_in_it_compile_nothing():
    assert vv.solve(problem(game(1.0))).success
    n_programs = len(loop.begin_compiled._programs)
    assert vv.solve(problem(game(1.5))).success
    assert len(loop.begin_compiled._programs) == n_programs


@pytest.mark.parametrize(
    ("name", "bent"),
    [("in x", lambda x, theta: x[0] ** 2), ("in theta", lambda x, theta: x[0] * theta["level"] ** 3)],
)
def test_what_is_not_affine_stays_as_it_is(name, bent):
    made = problem(lambda x, theta: game(1.0)(x, theta) + bent(x, theta))
    assert size_of(made.operator) > LONG, name


def test_x_of_several_axes_keeps_its_shape():
    def operator(x, theta):
        rows = [[sum(M[i, j] * x[j % 2, j % 7] for j in range(N)) for i in range(7)] for _ in range(2)]
        return np.stack([np.stack(row) for row in rows]) * theta

    likes = jax.ShapeDtypeStruct((2, 7), np.float64), jax.ShapeDtypeStruct((), np.float64)
    traced = functions.trace("operator", operator, *likes)
    x = RNG.normal(size=(2, 7))
    with vv.precision.double():
        np.testing.assert_allclose(np.asarray(traced(x, 1.5)), operator(x, 1.5), rtol=1e-12)
    assert size_of(traced) < 20
