"""Declared oracle counts are the real ones, counted by callbacks in the host loop; callbacks give the same numbers."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small_nonlinear as small
import viceversa as vv

STARTS = {"x0": small.X0, "theta0": small.THETA0, "multiplier0": small.LAM0}
N_STEPS = 4
METHODS = {
    "algorithm 1": vv.AugmentedLagrangian(step_size=0.05, penalty=0.4, learning_rate=0.1),
    "adaptive": vv.AdaptiveAugmentedLagrangian(learning_rate=0.1),
    "extragradient": vv.ExtragradientLagrangian(step_size=0.04, learning_rate=0.1),
    "tikhonov": vv.TikhonovLagrangian(step_size=vv.steps.Power(0.1, 0.5), learning_rate=0.1),
}


def asked(oracles):
    return np.array([oracles.F_calls, oracles.f_calls, oracles.pullback_calls])


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_callbacks_are_asked_as_often_as_declared(method):
    oracles = small.Oracles()
    problem = small.callback_problem(oracles)
    scheme = vv.schemes.as_scheme(method)
    counted = []
    with vv.precision.double():
        x0, theta0, lam0 = (jnp.asarray(start) for start in (small.X0, small.THETA0, small.LAM0))
        before = asked(oracles)
        state = scheme.init(problem, x0, theta0, lam0, jax.random.key(0))
        for n_steps in range(N_STEPS + 1):
            declared = [int(n) for n in scheme.counts(problem, state, n_steps)]
            counted.append((declared[:3], (asked(oracles) - before).tolist()))
            assert declared[3] == n_steps  # one H per step
            state, _ = scheme.step(problem, state)
    for declared, really in counted:
        assert declared == really


def test_a_steep_operator_is_asked_no_more_often_for_the_first_step():
    """Firms that share a market make F as steep as they are many; halvings from across X would grow with that."""
    asked_for = []
    for n in (100, 100_000):
        X = vv.Box(0.0, 5.0, shape=(n,))
        problem = vv.MisspecifiedVI(lambda x, t: x + x.sum() - t, X, learning=vv.Known(1.0))
        method = vv.AdaptiveAugmentedLagrangian()
        with vv.precision.double():
            state = method.init(problem, jnp.asarray(1.0), jnp.zeros(n), jnp.zeros(0))
        asked_for.append(int(state.n_first))
        assert 0.125 < float(state.gamma) * (n + 1) <= 0.25  # the longest of the halved steps that ν allows
    assert asked_for == [6, 6]


def test_algorithm_1_asks_one_F_two_f_one_pullback_one_H():
    assert METHODS["algorithm 1"].step_counts == vv.methods.OracleCounts(F=1, f=2, pullback=1)
    oracles = small.Oracles()
    solution = vv.solve(
        small.callback_problem(oracles), METHODS["algorithm 1"], **STARTS, tol=0.0, max_iter=3
    )
    assert solution.counts == vv.methods.OracleCounts(F=1 + 3, f=6, pullback=3, H=3)


def test_counts_of_a_compiled_run_are_those_of_the_host_loop():
    method = METHODS["adaptive"]
    compiled = vv.solve(small.problem(), method, **STARTS, tol=0.0, max_iter=N_STEPS)
    hosted = vv.solve(small.callback_problem(small.Oracles()), method, **STARTS, tol=0.0, max_iter=N_STEPS)
    assert compiled.counts == hosted.counts
    assert compiled.nfev == compiled.counts.F > 2 * N_STEPS
    np.testing.assert_allclose(hosted.x, compiled.x, atol=1e-12)
    np.testing.assert_allclose(hosted.multiplier, compiled.multiplier, atol=1e-12)
    assert compiled.trace.counts[-1] == compiled.counts


@pytest.mark.parametrize("name", METHODS)
def test_callbacks_give_the_numbers_of_the_compiled_program(name):
    method = METHODS[name]
    traced = itertools.islice(vv.iterate(small.problem(), method, **STARTS), N_STEPS + 1)
    hosted = itertools.islice(
        vv.iterate(small.callback_problem(small.Oracles()), method, **STARTS), N_STEPS + 1
    )
    for a, b in zip(traced, hosted, strict=True):
        np.testing.assert_allclose(a.x, b.x, atol=1e-12)
        np.testing.assert_allclose(a.lam, b.lam, atol=1e-12)


def test_a_callback_that_fails_midway_is_named():
    calls = []

    def simulator(x, theta):
        calls.append(x)
        if len(calls) > 6:
            raise RuntimeError("license expired")
        return x - theta

    problem = vv.MisspecifiedVI(
        vv.callback_operator(simulator), set=vv.Box([0.0], [1.0]), learning=vv.Known(0.3)
    )
    with pytest.raises(
        vv.UserFunctionError, match=r"operator: your function simulator\(array\[1\].*license expired"
    ):
        vv.solve(problem, vv.AugmentedLagrangian(step_size=0.1, penalty=1.0))


def test_a_callback_receives_arrays_of_its_own():
    def in_place(x, theta):
        x -= theta
        return x

    problem = vv.MisspecifiedVI(
        vv.callback_operator(in_place), set=vv.Box([0.0], [1.0]), learning=vv.Known(0.3)
    )
    solution = vv.solve(problem, vv.AugmentedLagrangian(step_size=0.5, penalty=1.0), max_iter=60)
    np.testing.assert_allclose(solution.x, [0.3], atol=1e-7)


def test_per_player_multipliers_run_with_callbacks():
    method = vv.ExtragradientLagrangian(step_size=0.03, multipliers="per_player", learning_rate=0.1)
    traced = list(itertools.islice(vv.iterate(small.problem(), method, **STARTS), 4))
    hosted = list(itertools.islice(vv.iterate(small.callback_problem(small.Oracles()), method, **STARTS), 4))
    np.testing.assert_allclose(hosted[-1].x, traced[-1].x, atol=1e-12)
