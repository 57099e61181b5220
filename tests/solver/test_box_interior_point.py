"""The interior-point method for boxes with totals: the answers of bisection and of the dense method, and whole solves that need it."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa.precision import double
from viceversa.schemes.box_interior_point import box_interior_point, box_meets_in_totals
from viceversa.schemes.interior_point import interior_point_compiled, lift

RNG = np.random.default_rng(0)
C, G, W = RNG.uniform(0.5, 2.0, (9, 3)), RNG.normal(size=(9, 3)) - 3.0, RNG.uniform(0.3, 3.0, (9, 3))
LOW = np.where(RNG.random((9, 3)) < 0.2, -np.inf, 0.0)
HIGH = np.where(RNG.random((9, 3)) < 0.3, np.inf, RNG.uniform(0.2, 3.0, (9, 3)))
LOW[2, 1] = HIGH[2, 1] = 0.7  # fixed
PROBLEMS = {
    "a market": (lambda x, t: C * x + G + x.sum(0), None),
    "limits": (lambda x, t: C * x + G + x.sum(0), lambda x, t: x.sum(0) - jnp.array([1.0, 2.0, 90.0])),
    "limits from below": (lambda x, t: C * x + G + x.sum(0), lambda x, t: 9.0 - x.sum(0)),
    "two kinds of totals": (
        lambda x, t: C * x + G + x.sum(0) + W * (W * x).sum(0),
        lambda x, t: (W * x).sum(0) - 1.0,
    ),
    "not symmetric": (lambda x, t: C * x + G + W * x.sum(0), lambda x, t: x.sum(0) - 1.5),
    "one limit for all": (lambda x, t: C * x + G + x.sum(), lambda x, t: (W * x).sum() - 4.0),
    "nonlinear": (
        lambda x, t: C * x + jnp.exp(x) + G + x.sum(0) ** 3 / 9.0,
        lambda x, t: (x * x).sum(0) - 1.2,
    ),
}


def a_problem(name: str) -> vv.MisspecifiedVI:
    F, f = PROBLEMS[name]
    return vv.MisspecifiedVI(F, vv.Box(LOW, HIGH), f, vv.Known(1.0))


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_finds_what_the_dense_method_finds(name):
    problem = a_problem(name)
    with double():
        assert box_meets_in_totals(problem)
        start = problem.set.project(jnp.zeros(problem.shape))
        found = eqx.filter_jit(box_interior_point)(problem, start, jnp.asarray(1.0))
        dense = interior_point_compiled(problem, lift(problem.set), start, jnp.asarray(1.0))
    np.testing.assert_allclose(found.x, dense.x, rtol=0, atol=1e-5)  # the dense one stops first
    np.testing.assert_allclose(found.lam, dense.lam, rtol=0, atol=1e-5)
    assert vv.certify(problem, found.x, found.lam, tol=1e-6).holds
    assert int(found.n_steps) < 40


def test_it_knows_what_it_does_not_know():
    neighbours = vv.MisspecifiedVI(lambda x, t: x + 0.1 * jnp.roll(x, 1), vv.Free(6), learning=vv.Known(1.0))
    two_limits = vv.MisspecifiedVI(
        lambda x, t: x + x.sum(),
        vv.Free(6),
        lambda x, t: jnp.stack([x.sum() - 1.0, (x * x).sum() - 1.0]),
        vv.Known(1.0),
    )
    with double():
        assert not box_meets_in_totals(neighbours)
        assert not box_meets_in_totals(two_limits)


def spread(n: int, decades: float, seed: int, kind: str = "widths"):
    """Slopes, forces, widths and weights of the total and of its limit over so many decades to either side; the limit holds."""
    rng = np.random.default_rng(seed)
    c, g, high = (10.0 ** rng.uniform(-decades, decades, n) for _ in range(3))
    w, v = (10.0 ** rng.uniform(-decades / 2, decades / 2, n) for _ in range(2))
    low = np.where(rng.random(n) < 0.2, 0.3 * high, 0.0) if kind == "fixed" else np.zeros(n)
    high = np.where(low > 0, low, high) if kind == "fixed" else high
    high = np.full(n, np.inf) if kind == "no widths" else high
    free = by_bisection(c, g, w, v, low, high, np.inf)
    cap = v @ low + 0.3 * v @ (free - low)
    problem = vv.MisspecifiedVI(
        lambda x, t: c * x - g + w * (w * x).sum(),
        vv.Box(low, high),
        lambda x, t: (v * x).sum() - t,
        vv.Known(cap),
    )
    return problem, by_bisection(c, g, w, v, low, high, cap)


def by_bisection(c, g, w, v, low, high, cap) -> np.ndarray:
    """The total that is what it is at that total, within the multiplier that holds the limit."""

    def between(least, most, is_low) -> float:
        for _ in range(110):
            middle = 0.5 * (least + most)
            least, most = (middle, most) if is_low(middle) else (least, middle)
        return 0.5 * (least + most)

    def at(multiplier) -> np.ndarray:
        def x(total):
            return np.clip((g - w * total - v * multiplier) / c, low, high)

        return x(between(0.0, 1e12, lambda total: w @ x(total) > total))

    return at(0.0 if v @ at(0.0) <= cap else between(0.0, 1e12, lambda m: v @ at(m) > cap))


@pytest.mark.parametrize(
    ("n", "decades", "kind"),
    [
        pytest.param(2000, 2, "widths", marks=pytest.mark.slow),
        (2000, 3, "widths"),
        (600, 3, "fixed"),
        pytest.param(600, 3, "no widths", marks=pytest.mark.slow),
    ],
)
def test_large_problems_that_newton_finds_too_hard_are_solved(n, decades, kind):
    n_rescued = 0
    for seed in range(4):
        problem, x = spread(n, decades, seed, kind)
        solution = vv.solve(problem, max_iter=1000)
        assert solution.success, seed
        np.testing.assert_allclose(solution.x, x, rtol=0, atol=1e-6 * x.max())
        n_rescued += "interior point: x and λ" in solution.trace.phase
    assert n_rescued >= 1
