"""Which coordinates a function's entries have for themselves, against its Jacobian."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa.precision import double
from viceversa.problem import Constraints
from viceversa.totals import owners

RNG = np.random.default_rng(0)
R = RNG.uniform(1.0, 2.0, (6, 4))
OWN = {
    "a total of each column": ((6, 4), lambda x: x.sum(axis=0) - 1.0),
    "a total of each row": ((6, 4), lambda x: (R * x**2).sum(axis=1) - 1.0),
    "a function of a total": ((6, 4), lambda x: jnp.exp(x.sum(axis=0)) * jnp.arange(4.0)),
    "rows of a square": ((5, 5), lambda x: jnp.sqrt(1.0 + (x**2).sum(axis=1))),
    "one long vector, folded": ((24,), lambda x: x.reshape(6, 4).sum(axis=1) - 1.0),
    "each by itself": ((7,), lambda x: x**2 - 1.0),
    "each by itself, unfolded": ((6, 4), lambda x: (R * jnp.tanh(x)).reshape(-1)),
    "three axes": ((2, 3, 5), lambda x: (x.sum(axis=2) ** 2).sum(axis=0) - 1.0),
}
SHARED = {
    "a total of all": ((6, 4), lambda x: x.sum(axis=0) - x.sum()),
    "all but one": ((7,), lambda x: x.sum() - x),
    "a matrix": ((7,), lambda x: jnp.asarray(RNG.normal(size=(7, 7))) @ x),
    "in another order": ((6, 4), lambda x: x.sum(axis=0)[::-1]),
    "neighbours": ((7,), lambda x: x + jnp.roll(x, 1)),
    "rows and columns": ((5, 5), lambda x: x.sum(axis=0) + x.sum(axis=1)),
    "columns next to rows": ((6, 4), lambda x: jnp.concatenate([x.sum(axis=0), x.sum(axis=1)])),
    "a total that others have": ((4, 4), lambda x: x.sum(axis=0) + x.sum(axis=0).sum()),
    "folded, and a mean of all": ((36,), lambda x: x.reshape(4, 9).sum(axis=1) - x.mean()),
    "folded, after a total of all": ((36,), lambda x: (x.reshape(4, 9) + x.sum()).sum(axis=1)),
    "folded twice": ((36,), lambda x: x.reshape(6, 6).sum(axis=1) + x.reshape(4, 9).sum(axis=1).sum()),
}


@pytest.mark.parametrize(("shape", "f"), OWN.values(), ids=OWN)
def test_gradients_side_by_side_are_those_one_by_one(shape, f):
    x, weights = RNG.normal(size=shape), RNG.uniform(size=shape)
    with double():
        x = jnp.asarray(x)
        assert owners(f, x, f(x).size) is not None
        constraints = Constraints(lambda x, _: f(x), None)
        value, (weighted, largest) = constraints.of_gradients(
            x, (lambda g: weights * jnp.abs(g), jnp.sum), (jnp.abs, jnp.max)
        )
        J = np.abs(jax.jacobian(f)(x)).reshape(value.size, -1)
        np.testing.assert_allclose(value, f(x), rtol=1e-15)
    np.testing.assert_allclose(weighted, J @ weights.ravel(), rtol=1e-13)
    np.testing.assert_allclose(largest, J.max(axis=1), rtol=1e-13)


@pytest.mark.parametrize(("shape", "f"), SHARED.values(), ids=SHARED)
def test_shared_coordinates_are_seen(shape, f):
    with double():
        x = jnp.asarray(RNG.normal(size=shape))
        assert owners(f, x, f(x).size) is None


def test_the_jacobian_of_a_large_market_is_not_formed():
    """One pullback, whatever the number of constraints: no array of the program is larger than x by more than a few numbers."""
    problem = vv.gallery.cournot(300, 40, seed=0).problem
    theta = problem.learning.set.zeros()

    def slopes(x):
        return problem.at(theta).f.of_gradients(x, (jnp.square, jnp.sum))

    with double():
        program = jax.make_jaxpr(slopes)(jnp.zeros(problem.shape))
    sizes = [var.aval.size for eqn in program.jaxpr.eqns for var in eqn.outvars]
    assert max(sizes) == 300 * 40
