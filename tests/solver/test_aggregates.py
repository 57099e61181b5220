"""Newton systems through totals, against dense ones; and programs in which coordinates meet otherwise, which are refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from viceversa.precision import double
from viceversa.schemes.aggregates import Aggregates, solve_by_aggregates
from viceversa.schemes.newton_system import Metric

SHAPE = (4, 9)
RNG = np.random.default_rng(0)
R, W = RNG.uniform(1.0, 5.0, SHAPE), RNG.uniform(0.5, 1.5, SHAPE)
P = RNG.uniform(0.5, 2.0, 4)
M = RNG.normal(size=(4, 4))

# F, f (None: no constraints), the kinds of totals and multipliers
MEETING_IN_TOTALS = {
    "a total for each row": (
        lambda x: R * x + P[:, None] * (x.sum(1, keepdims=True) + x),
        lambda x: -x.sum(1),
        2,
    ),
    "no constraints": (lambda x: R * x**3 + x.sum(1)[:, None], None, 1),
    "a nonlinear price": (
        lambda x: R * x - jnp.exp(-0.1 * x.sum(1))[:, None] * (1 - 0.1 * x),
        lambda x: x.sum(1),
        2,
    ),
    "two totals": (
        lambda x: R * x + x.sum(1)[:, None] - W * (W * x).sum(1)[:, None] * 0.1,
        lambda x: P * (W * x).sum(1),
        3,
    ),
    "curved constraints": (lambda x: R * x + x.sum(1)[:, None], lambda x: (W * x**2).sum(1) - 1.0, 3),
    "one total of all": (lambda x: R * x + 0.2 * jnp.sum(x), lambda x: jnp.sum(W * x)[None], 3),
    "a total of totals": (lambda x: R * x + (x * (1.0 + x.sum(1)[:, None])).sum(1)[:, None], None, 2),
    "totals the other way": (lambda x: R * x + x.sum(0), lambda x: 1.0 - x.sum(0), 2),
    "within a compiled function": (
        jax.jit(lambda x: R * x + x.sum(1)[:, None]),
        jax.jit(lambda x: x.sum(1)),
        2,
    ),
}
MEETING_OTHERWISE = {
    "a matrix": (lambda x: x + (M @ x), lambda x: x.sum(1)),
    "neighbours": (lambda x: R * x + jnp.roll(x, 1, axis=1), None),
    "markets that know each other": (lambda x: R * x + (M @ x.sum(1))[:, None], lambda x: x.sum(1)),
    "a total for each row and one of all": (lambda x: R * x + x.sum(1)[:, None] + x.sum(), None),
    "totals along both axes": (lambda x: R * x + x.sum(1)[:, None] + x.sum(0), None),
    "a constraint on one market": (lambda x: R * x + x.sum(1)[:, None], lambda x: x[0].sum()[None]),
    "constraints in another order": (lambda x: R * x + x.sum(1)[:, None], lambda x: x.sum(1)[::-1]),
    "nothing but totals": (lambda x: x.sum(1)[:, None] * jnp.ones(SHAPE), None),
    "nothing but coordinates": (lambda x: R * x, None),
    "the transpose of its square": (lambda x: (x[:, :4].T @ x)[:4] + x, None),
    "a total of all of what was unfolded": (
        lambda x: R * x + jnp.broadcast_to(x.sum(1)[:, None], SHAPE).reshape(-1).sum(),
        None,
    ),
    "a total for each coordinate": (
        lambda x: R * x + (x.reshape(-1, 1) * jnp.ones((36, 1))).sum(1).reshape(SHAPE),
        None,
    ),
    "a constraint for each coordinate": (lambda x: R * x + x.sum(1)[:, None], lambda x: x.reshape(-1)),
}


@pytest.fixture(autouse=True)
def _double():
    with double():
        yield


def _linearised(F, f, shape=SHAPE):
    """At a point of this shape, which F and f fold to theirs."""
    x = jnp.asarray(RNG.uniform(0.5, 2.0, shape))
    f = f or (lambda x: jnp.zeros(0))
    if shape != SHAPE:
        F, f = (
            lambda x, F=F: F(x.reshape(SHAPE)).reshape(shape),
            lambda x, f=f: f(x.reshape(SHAPE)),
        )
    lam = jnp.asarray(RNG.uniform(0.1, 1.0, f(x).shape))

    def kkt(at, multiplier):
        value, pullback = jax.vjp(f, at)
        return F(at) + pullback(multiplier)[0], value

    return x, lam, jax.linearize(kkt, x, lam)[1]


both_ways = pytest.mark.parametrize("shape", [SHAPE, (36,)], ids=["as it is", "a vector"])


@both_ways
@pytest.mark.parametrize(("F", "f", "n_kinds"), MEETING_IN_TOTALS.values(), ids=MEETING_IN_TOTALS)
def test_the_solution_is_that_of_the_dense_system(F, f, n_kinds, shape):
    x, lam, product = _linearised(F, f, shape)
    aggregates = Aggregates.of(product, x, lam)
    assert aggregates is not None
    assert aggregates.n_kinds == n_kinds
    E, C = jnp.asarray(RNG.uniform(0.0, 3.0, shape)), jnp.asarray(RNG.uniform(0.0, 3.0, lam.shape))
    rhs = jnp.asarray(RNG.normal(size=shape)), jnp.asarray(RNG.normal(size=lam.shape))

    def matvec(step):
        Hu, Ju = product(*step)
        return Hu + E * step[0], Ju - C * step[1]

    units = Metric(jnp.ones(shape), jnp.ones(lam.shape))
    found = solve_by_aggregates(aggregates, matvec, rhs, Metric(E, C), units, 1e-12)
    flat, split = jax.flatten_util.ravel_pytree(rhs)
    dense = jax.jacfwd(lambda v: jax.flatten_util.ravel_pytree(matvec(split(v)))[0])(flat)
    expected = split(jnp.linalg.solve(dense, flat))
    for ours, theirs in zip(found.solution, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)


@both_ways
@pytest.mark.parametrize(("F", "f"), MEETING_OTHERWISE.values(), ids=MEETING_OTHERWISE)
def test_coordinates_that_meet_otherwise_are_left_to_other_methods(F, f, shape):
    x, lam, product = _linearised(F, f, shape)
    assert Aggregates.of(product, x, lam) is None


def test_coordinates_that_do_not_meet_are_a_diagonal_where_that_is_asked_for():
    x, lam, product = _linearised(lambda x: R * x**2, None)
    aggregates = Aggregates.of(product, x, lam, coordinates_alone=True)
    assert aggregates is not None
    np.testing.assert_allclose(aggregates.c, 2.0 * R * x, rtol=1e-15)
    u, _ = aggregates.solver(jnp.ones(SHAPE), lam)(jnp.asarray(P[:, None] * W), lam)
    np.testing.assert_allclose(u, P[:, None] * W / (2.0 * R * x + 1.0), rtol=1e-15)
    x, lam, product = _linearised(lambda x: R * x, lambda x: x.reshape(-1))
    assert Aggregates.of(product, x, lam, coordinates_alone=True) is None


def test_costs_of_very_different_size_are_corrected_for():
    """Ten decades of slopes below a common total: elimination alone would lose the total's digits."""
    slopes = 10.0 ** np.linspace(-6.0, 4.0, 36).reshape(SHAPE)
    x, lam, product = _linearised(lambda x: slopes * x + 1e3 * x.sum(1)[:, None], lambda x: x.sum(1))
    aggregates = Aggregates.of(product, x, lam)
    assert aggregates is not None
    E, C = jnp.zeros(SHAPE), jnp.full(4, 1e-9)
    rhs = jnp.asarray(RNG.normal(size=SHAPE)), jnp.asarray(RNG.normal(size=4))

    def matvec(step):
        Hu, Ju = product(*step)
        return Hu, Ju - C * step[1]

    units = Metric(1.0 / slopes, jnp.ones(4))
    found = solve_by_aggregates(aggregates, matvec, rhs, Metric(E, C), units, 1e-10)
    left = [np.asarray(b - a) for a, b in zip(matvec(found.solution), rhs, strict=True)]
    assert np.sum(left[0] ** 2 / slopes) + np.sum(left[1] ** 2) <= 1e-12 * np.sum(rhs[0] ** 2 / slopes)


@pytest.mark.parametrize(
    ("shape", "F"),
    [
        ((6, 6), lambda x: jnp.broadcast_to(x.sum(1)[None, :], (6, 6))),
        ((3, 3, 3), lambda x: jnp.broadcast_to(x.sum(2).T[:, :, None], (3, 3, 3))),
    ],
)
def test_totals_that_come_back_along_another_axis_of_the_same_length_are_seen(shape, F):
    x, none = jnp.asarray(RNG.normal(size=shape)), jnp.zeros(0)
    product = jax.linearize(lambda x, y: (F(x), y), x, none)[1]
    assert Aggregates.of(product, x, none, totals_alone=True) is None
