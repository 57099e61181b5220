"""Markets solved by a search in their totals: against nested bisection, from any start, and what is left to Newton."""

from __future__ import annotations

import itertools

import equinox as eqx
import numpy as np
import pytest
from jaxtyping import Array

import viceversa as vv
from viceversa.precision import double
from viceversa.schemes.search_in_totals import SearchInTotals

N, D = 6, 3
SHAPE = (N, D)
SEEDS = range(40)


class Costs(eqx.Module):
    """F = c∘x + g + R∘Σx: every firm has its own idea of how the total changes its price."""

    c: np.ndarray
    g: np.ndarray
    R: np.ndarray

    def __call__(self, x: Array, theta: Array) -> Array:
        return self.c * x + self.g + theta * self.R * x.sum(axis=0)


class Limits(eqx.Module):
    """f = φ∘Σx − d: from above or from below."""

    phi: np.ndarray
    d: np.ndarray

    def __call__(self, x: Array, theta: Array) -> Array:
        return self.phi * x.sum(axis=0) - self.d


def a_market(seed: int, limited: bool = True) -> vv.MisspecifiedVI:
    """Markets whose firms have bounds of every kind; limits at totals that can be reached, some of which hold anyway."""
    rng = np.random.default_rng(seed)
    unit = 10.0 ** rng.uniform(-4, 4) if seed % 3 == 0 else 1.0
    c, g = unit * rng.uniform(0.5, 5.0, SHAPE), 10.0 * unit * rng.normal(size=SHAPE)
    R = unit * rng.uniform(0.0, 2.0, D) * (rng.uniform(0.9, 1.1, SHAPE) if seed % 2 else np.ones(SHAPE))
    low = np.where(rng.random(SHAPE) < 0.2, -np.inf, rng.uniform(-3.0, 0.0, SHAPE))
    high = np.where(rng.random(SHAPE) < 0.2, np.inf, rng.uniform(0.0, 3.0, SHAPE))
    is_fixed = (rng.random(SHAPE) < 0.2) & np.isfinite(low)
    high = np.where(is_fixed, low, high)
    if seed % 7 == 0:  # equal firms meet their bounds together
        c, g, R, low, high = (np.broadcast_to(each[:1], SHAPE).copy() for each in (c, g, R, low, high))
    phi = rng.choice([-1.0, 1.0], D) * rng.uniform(0.3, 3.0, D)
    reachable = np.clip(3.0 * rng.normal(size=SHAPE), low, high)
    limits = Limits(phi, phi * reachable.sum(axis=0)) if limited else None
    return vv.MisspecifiedVI(Costs(c, g, R), vv.Box(low, high), limits, vv.Known(1.0))


def by_bisection(problem: vv.MisspecifiedVI) -> tuple[np.ndarray, np.ndarray]:
    """The total between two guesses, and around it the multiplier between two guesses."""
    x, lam = np.zeros(SHAPE), np.zeros(problem.n_constraints)
    limits = problem.constraints
    for k in range(D):
        c, g, R = (
            np.asarray(each)[:, k] for each in (problem.operator.c, problem.operator.g, problem.operator.R)
        )
        low, high = np.asarray(problem.set.lower)[:, k], np.asarray(problem.set.upper)[:, k]
        phi, d = (0.0, 1.0) if limits is None else (limits.phi[k], limits.d[k])

        def at(total, multiplier, c=c, g=g, R=R, low=low, high=high, phi=phi):
            return np.clip(-(g + R * total + phi * multiplier) / c, low, high)

        def rest(multiplier, at=at):
            a, b = -1e6, 1e6
            for _ in range(90):
                total = 0.5 * (a + b)
                a, b = (total, b) if at(total, multiplier).sum() > total else (a, total)
            return at(0.5 * (a + b), multiplier)

        least, most = 0.0, 0.0
        if phi * rest(0.0).sum() > d + 1e-9 * abs(d):
            most = 1e-6
            while phi * rest(most).sum() > d:
                most *= 2.0
                assert most < 1e15
            for _ in range(90):
                middle = 0.5 * (least + most)
                least, most = (middle, most) if phi * rest(middle).sum() > d else (least, middle)
        x[:, k] = rest(most)
        if limits is not None:
            lam[k] = most
    return x, lam


def is_searched(solution: vv.Solution) -> bool:
    phases = solution.trace.phase
    return len(phases) > 1 and all(phase.startswith("search") for phase in phases[1:])


@pytest.mark.parametrize("limited", [True, False])
def test_the_answer_is_that_of_nested_bisection(limited):
    kinds = set()
    for seed in SEEDS:
        problem = a_market(seed, limited)
        solution = vv.solve(problem)
        x, lam = by_bisection(problem)
        assert solution.success, seed
        assert solution.nit <= 2, seed
        assert solution.nit == 0 or is_searched(solution), seed
        np.testing.assert_allclose(
            solution.x, x, rtol=0, atol=1e-7 * (1.0 + np.abs(x).max()), err_msg=f"{seed}"
        )
        # With every firm at a bound a whole interval of multipliers will do; the certificate has looked at ours.
        free = ((x > problem.set.lower + 1e-9) & (x < problem.set.upper - 1e-9)).any(axis=0)
        if limited:
            unit = 1.0 + np.abs(lam).max()
            np.testing.assert_allclose(solution.multiplier[free], lam[free], rtol=0, atol=1e-6 * unit)
            kinds |= {(bool(each > 0), bool(some)) for each, some in zip(lam, free, strict=True)}
    assert not limited or len(kinds) >= 3


def test_any_start_leads_to_the_same_answer_in_one_iteration():
    for seed in (1, 2, 3):
        problem, rng = a_market(seed), np.random.default_rng(seed)
        usual = vv.solve(problem)
        start = problem.set.project(10.0 * rng.normal(size=SHAPE))
        far = vv.solve(problem, x0=start, multiplier0=100.0 * rng.random(D))
        near = vv.solve(problem, x0=usual.x + 1e-3, multiplier0=1.001 * usual.multiplier)
        for solution in (far, near):
            assert solution.success
            assert solution.nit <= 2
            np.testing.assert_allclose(solution.x, usual.x, rtol=0, atol=1e-7)
        assert near.counts.F <= far.counts.F


def test_a_search_takes_a_handful_of_evaluations_whatever_the_size():
    for n_firms in (50, 2000):
        solution = vv.solve(vv.gallery.cournot(n_firms, 2, 0).problem)
        assert solution.success
        assert solution.nit == 1
        assert solution.counts.F <= 15
        assert max(solution.certificate.relative.values()) < 1e-12


def test_markets_in_very_different_units_are_each_solved_to_their_own():
    plain = a_market(4)
    unit = np.array([1e-9, 1.0, 1e9])
    F, f = plain.operator, plain.constraints
    scaled = vv.MisspecifiedVI(
        Costs(unit * F.c, unit * F.g, unit * F.R), plain.set, Limits(f.phi / unit, f.d / unit), vv.Known(1.0)
    )
    one, other = vv.solve(plain), vv.solve(scaled)
    np.testing.assert_allclose(other.x, one.x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(other.multiplier, one.multiplier * unit**2, rtol=1e-10)


def test_weights_belong_to_the_total():
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 8)
    problem = vv.MisspecifiedVI(
        lambda x, t: np.arange(1.0, 9.0) * x - 4.0 + t * weights * (weights * x).sum(),
        vv.Box(0.0, 0.8, shape=8),
        learning=vv.Known(0.7),
    )
    solution = vv.solve(problem)
    assert is_searched(solution)
    M = np.diag(np.arange(1.0, 9.0)) + 0.7 * np.outer(weights, weights)
    force = M @ solution.x - 4.0
    np.testing.assert_allclose(solution.x, np.clip(solution.x - force, 0.0, 0.8), rtol=0, atol=1e-12)


def test_coordinates_that_do_not_meet_are_solved_one_by_one():
    c, low, high = np.array([1.0, 2.0, 4.0]), np.array([0.0, -np.inf, 0.5]), np.array([0.3, np.inf, 0.5])
    problem = vv.MisspecifiedVI(lambda x, t: c * x - t, vv.Box(low, high), learning=vv.Known(1.0))
    solution = vv.solve(problem)
    assert solution.success
    assert solution.nit == 1
    np.testing.assert_array_equal(solution.x, [0.3, 0.5, 0.5])


def test_a_parameter_that_is_learned_on_the_way():
    """H(θ) = θ³ + θ − 10, so that θ = 2 takes several steps, and every one has its market solved."""
    costs = a_market(1).operator
    problem = vv.MisspecifiedVI(
        costs,
        vv.Box(0.0, 3.0, shape=SHAPE),
        learning=vv.SecondaryVI(lambda t: t**3 + t - 10.0, set=vv.Box(0.0, 5.0, shape=())),
    )
    solution = vv.solve(problem)
    assert solution.success
    assert is_searched(solution)
    assert 2 <= solution.nit <= 15
    np.testing.assert_allclose(solution.theta, 2.0, rtol=1e-10)
    np.testing.assert_allclose(solution.x, vv.solve(problem.with_known(2.0)).x, rtol=0, atol=1e-10)


def test_what_the_search_is_not_for_is_newtons():
    """A firm without a slope of its own jumps from bound to bound: the search gives up, and the answer is found all the same."""
    slope = np.array([0.0, 1.0, 2.0])
    problem = vv.MisspecifiedVI(
        lambda x, t: slope * x + np.array([-1.2, -2.0, -1.0]) + t * x.sum(),
        vv.Box(0.0, 1.0, shape=3),
        learning=vv.Known(1.0),
    )
    solution = vv.solve(problem)
    assert solution.success
    assert not any(phase.startswith("search") for phase in solution.trace.phase)
    x = solution.x
    force = slope * x + np.array([-1.2, -2.0, -1.0]) + x.sum()
    np.testing.assert_allclose(x, np.clip(x - force, 0.0, 1.0), rtol=0, atol=1e-8)
    newton = vv.solve(problem, vv.SemismoothNewton())
    assert solution.nit == newton.nit
    assert solution.counts.F > newton.counts.F


def test_a_limit_that_cannot_be_kept_is_proved_to_be_one():
    problem = vv.MisspecifiedVI(
        lambda x, t: x + t * x.sum() - 1.0,
        vv.Box(0.0, 1.0, shape=4),
        lambda x, t: 5.0 - x.sum(),
        vv.Known(1.0),
    )
    solution = vv.solve(problem)
    assert solution.status == "infeasible"


def _without_a_slope(learning: vv.Known | None = None) -> vv.MisspecifiedVI:
    """The first coordinate has no slope of its own: (2, 1, 2)."""
    slope, q = np.array([0.0, 1.0, 1.0]), np.array([5.0, 6.0, 7.0])
    return vv.MisspecifiedVI(
        lambda x, t: slope * x + t * x.sum() - q,
        vv.Box(0.0, 4.0, shape=3),
        learning=learning or vv.Known(1.0),
    )


def test_iterations_of_a_search_that_fails_are_not_counted():
    """So that a solver that is given one at a time comes forward all the same."""
    for tol in (0.0, 1e-8):
        solver = vv.Solver(_without_a_slope(), tol=tol, max_iter=1)
        errors = [np.abs(solver.solve().x - [2.0, 1.0, 2.0]).max() for _ in range(12)]
        assert errors[-1] < 0.5 * errors[0]
    cut = vv.solve(_without_a_slope(), tol=0.0, max_iter=3)
    expected = vv.solve(_without_a_slope(), vv.SemismoothNewton(), tol=0.0, max_iter=3)
    assert cut.nit == 3
    assert list(cut.trace.k) == [0, 1, 2, 3]
    np.testing.assert_array_equal(cut.x, expected.x)
    chunked = vv.solve(_without_a_slope(), tol=0.0, max_iter=3, callback=lambda _: False)
    np.testing.assert_allclose(chunked.x, expected.x, rtol=0, atol=1e-12)
    assert list(chunked.trace.k) == [0, 1, 2, 3]


def test_points_one_at_a_time_come_to_the_answer():
    points = list(itertools.islice(vv.iterate(_without_a_slope()), 40))
    np.testing.assert_allclose(points[-1].x, [2.0, 1.0, 2.0], rtol=0, atol=1e-8)
    market = a_market(1)
    first, second, third = itertools.islice(vv.iterate(market), 3)
    assert np.abs(second.x - first.x).max() > 0.1
    np.testing.assert_allclose(third.x, second.x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(second.x, vv.solve(market).x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("slope", [1e-30, 1e-40, 1e-300])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_slopes_that_are_nothing_but_tiny_are_left_to_newton(slope, cap):
    """The search's answer is rounding, 1e29 or infinite: it is taken back."""
    c, q = np.array([slope, 1.0, 1.0]), np.array([8.0, 7.0, 6.0])
    f = None if cap is None else lambda x, t: x.sum() - cap
    problem = vv.MisspecifiedVI(lambda x, t: c * x + x.sum() - q, vv.NonNegative(3), f, vv.Known(1.0))
    solution = vv.solve(problem)
    assert solution.success
    np.testing.assert_allclose(solution.x, [8.0 if cap is None else cap, 0.0, 0.0], rtol=0, atol=1e-6)


def test_an_answer_that_is_nothing_but_rounding_is_no_start_for_newton():
    """The total cancels the only slope up to rounding, so that the force is 0.8 everywhere."""
    d = {"c": 1.9092481134105959, "R": -0.7517226884173053, "S": 1.2699151847008716}
    problem = vv.MisspecifiedVI(
        lambda x, t: t["c"] * x + 2 * t["R"] * (t["S"] * x).sum() + 0.8,
        vv.Box([1.0], [np.inf]),
        learning=vv.Known(d),
    )
    solution = vv.solve(problem, x0=[2.550242195659831], max_iter=2000)
    assert solution.success
    np.testing.assert_allclose(solution.x, [1.0], rtol=0, atol=1e-8)


def test_a_closed_market_is_closed():
    """Nothing may be sold: every firm is to lie on its bound, not 1e-18 above it."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        c, R, g = rng.uniform(0.5, 2.0, (4, 2)), rng.uniform(0.5, 2.0, (4, 2)), 5.0 * rng.normal(size=(4, 2))
        problem = vv.MisspecifiedVI(
            Costs(c, g, R), vv.NonNegative((4, 2)), Limits(np.ones(2), np.zeros(2)), vv.Known(1.0)
        )
        solution = vv.solve(problem)
        assert is_searched(solution), seed
        assert solution.success
        np.testing.assert_array_equal(solution.x, np.zeros((4, 2)))


@pytest.mark.parametrize("much", [1e14, 1e16])
def test_a_far_start_costs_no_digits(much):
    """Beside forces 1e9 as large, a small market's certificate passes with whatever rounding has left."""
    unit = np.array([1e9, 1.0])
    k, q = np.array([[1.0], [2.0], [3.0]]), np.array([[5.0], [6.0], [7.0]])
    problem = vv.MisspecifiedVI(
        lambda x, t: unit * (k * x + x.sum(0) - q),
        vv.Box(0.0, 10.0, shape=(3, 2)),
        lambda x, t: x.sum(0) - 2.0,
        vv.Known(1.0),
    )
    solution = vv.solve(problem, multiplier0=[much, much])
    assert solution.success
    assert solution.nit == 2
    np.testing.assert_allclose(solution.x, vv.solve(problem).x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(solution.multiplier, unit * vv.solve(problem).multiplier[1], rtol=1e-12)


def test_a_start_that_would_pass_is_searched_from():
    """At the start one coordinate's force is 1e8 times the others' and held by its bound: the others are to move all the same."""
    slope, force = np.array([1e8, 1.0, 1.0]), np.array([1e8, -1.0, -1.0])
    problem = vv.MisspecifiedVI(
        lambda x, t: slope * x + force, vv.Box(0.0, 2.0, shape=3), learning=vv.Known(1.0)
    )
    np.testing.assert_allclose(vv.solve(problem).x, [0.0, 1.0, 1.0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("bound", [-np.inf, -5.0])
def test_a_market_in_which_nothing_is_traded_rests_where_it_began(alike, bound):
    """x* = 0 = x_0: what rounding leaves of the forces is no output, and beside nothing it would pass for some."""
    closed = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        c = np.full(4, rng.uniform(0.5, 5.0)) if alike else rng.uniform(0.5, 5.0, 4)
        q, R, phi = rng.uniform(1.0, 10.0), rng.uniform(0.0, 2.0), rng.uniform(0.3, 3.0)
        problem = vv.MisspecifiedVI(
            lambda x, t: t["c"] * x - t["q"] + t["R"] * x.sum(),
            vv.Box(np.full(4, bound), np.full(4, np.inf)),
            lambda x, t: t["phi"] * x.sum(),
            vv.Known({"c": c, "q": q, "R": R, "phi": phi}),
        )
        solution = vv.solve(problem, max_iter=100)
        assert solution.success
        np.testing.assert_allclose(solution.x, 0.0, rtol=0, atol=1e-15)
        np.testing.assert_allclose(solution.multiplier, q / phi, rtol=1e-12)
        closed += int((solution.x == 0.0).all())
    assert closed >= 4


def test_what_is_small_beside_its_terms_has_moved_all_the_same():
    """Sums cancel to a millionth of their terms: that is no rounding."""
    problem = vv.MisspecifiedVI(lambda x, t: x - 1.0, vv.Free(3), lambda x, t: x.sum() - 3e-6, vv.Known(1.0))
    solution = vv.solve(problem)
    assert solution.success
    np.testing.assert_allclose(solution.x, 1e-6, rtol=1e-8)


def test_the_last_iteration_of_a_rescue_is_called_so():
    """The rescue's phase is counted from the end of all phases, of which the search has one."""
    c, q = np.array([0.0, 1.0, 1.0]), np.array([5.0, 6.0, 7.0])
    problem = vv.MisspecifiedVI(
        lambda x, t: c * x + t * x.sum() - q,
        vv.Box(0.0, 4.0, shape=3),
        lambda x, t: x.sum() - 4.5,
        vv.Known(1.0),
    )
    seen = set()
    for max_iter in range(50, 61):
        phases = vv.solve(problem, tol=0.0, max_iter=max_iter).trace.phase
        assert not any(phase.startswith("search") for phase in phases)
        seen.add(phases[-1])
    assert "interior point: x and λ" in seen


FITTING = {
    "a market": (lambda x, t: x + t * x.sum(0) - 1.0, lambda x, t: x.sum(0) - t),
    "no constraint": (lambda x, t: x + t * x.sum(0) - 1.0, None),
    "one total of all": (lambda x, t: x + t * x.sum() - 1.0, lambda x, t: x.sum() - t),
    "a total in the limit only": (lambda x, t: x - t, lambda x, t: x.sum() - t),
    "nothing in common": (lambda x, t: t * x - 1.0, None),
}
NOT_FITTING = {
    "a nonlinear cost": (lambda x, t: x**3 + t * x.sum(0) - 1.0, None),
    "a nonlinear limit": (lambda x, t: x + t * x.sum(0) - 1.0, lambda x, t: (x * x).sum(0) - t),
    "neighbours": (lambda x, t: x + 0.1 * np.roll(x, 1, axis=0) - t, None),
    "two totals": (
        lambda x, t: x + x.sum(0) + t * np.arange(4.0)[:, None] * (np.arange(4.0)[:, None] * x).sum(0),
        None,
    ),
    "another total in the limit": (
        lambda x, t: x + t * x.sum(0) - 1.0,
        lambda x, t: (np.arange(4.0)[:, None] * x).sum(0) - t,
    ),
    "two limits on one total": (
        lambda x, t: x + t * x.sum() - 1.0,
        lambda x, t: np.concatenate([x.sum()[None] - t, 0.1 - x.sum()[None]]),
    ),
    "a limit for each coordinate": (lambda x, t: t * x - 1.0, lambda x, t: x.ravel() - t),
}


@pytest.mark.parametrize(
    ("name", "fits"), [*((name, True) for name in FITTING), *((name, False) for name in NOT_FITTING)]
)
def test_what_it_is_for_is_read_off_the_program(name, fits):
    F, f = (FITTING if fits else NOT_FITTING)[name]
    box = vv.Box(0.0, 5.0, shape=(4, 3))
    with double():
        assert SearchInTotals().suits(vv.MisspecifiedVI(F, box, f, vv.Known(1.0))) is fits
        assert not SearchInTotals().suits(
            vv.MisspecifiedVI(F, vv.Ball(np.zeros((4, 3)), 1.0), f, vv.Known(1.0))
        )
