"""`solve` and `iterate`: the same numbers on every path, what is recorded, how a run ends, and what stays untouched."""

from __future__ import annotations

import itertools
import pickle
import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small_nonlinear as small
import viceversa as vv
from unchecked import refused
from viceversa.driver import loop
from viceversa.driver.packing import Packed
from viceversa.errors import PrecisionWarning

STARTS = {"x0": small.X0, "theta0": small.THETA0, "multiplier0": small.LAM0}
PROBLEM = small.problem()
ALGORITHM_1 = vv.AugmentedLagrangian(step_size=0.05, penalty=0.4, learning_rate=0.15)


def solve(**changes):
    return vv.solve(PROBLEM, ALGORITHM_1, **{**STARTS, **changes})


# -- one run, four ways to see it --------------------------------------------------------------------
def test_iterate_fused_and_chunked_give_the_same_numbers():
    fused = solve(tol=0.0, max_iter=37)
    seen = []
    chunked = solve(tol=0.0, max_iter=37, callback=lambda now: seen.append(now))
    last = next(itertools.islice(vv.iterate(PROBLEM, ALGORITHM_1, **STARTS), 37, None))
    for name in ("x", "x_average"):
        np.testing.assert_allclose(getattr(fused, name), getattr(last, name), atol=1e-12)
        np.testing.assert_allclose(getattr(chunked, name), getattr(last, name), atol=1e-12)
    np.testing.assert_allclose(fused.multiplier, last.lam, atol=1e-12)
    np.testing.assert_allclose(fused.theta, last.theta, atol=1e-12)
    assert [now["k"] for now in seen] == fused.trace.k.tolist() == chunked.trace.k.tolist()
    np.testing.assert_allclose(fused.trace.relative, chunked.trace.relative, rtol=1e-9, atol=1e-14)
    assert fused.counts == chunked.counts == vv.methods.OracleCounts(F=38, f=74, pullback=37, H=37)


@pytest.mark.parametrize("max_iter", [0, 1, 2, 37, 100])
def test_tolerance_zero_runs_exactly_the_iterations(max_iter):
    solution = solve(tol=0.0, max_iter=max_iter)
    assert solution.nit == max_iter
    assert solution.status is vv.Status.max_iterations
    assert solution.trace.k[0] == 0
    assert solution.trace.k[-1] == max_iter
    assert (np.diff(solution.trace.k) > 0).all()


def test_no_step_leaves_the_start():
    solution = solve(tol=0.0, max_iter=0)
    np.testing.assert_array_equal(solution.x, small.X0)
    np.testing.assert_array_equal(solution.x_average, small.X0)
    np.testing.assert_array_equal(solution.multiplier, small.LAM0)
    np.testing.assert_array_equal(solution.theta, small.THETA0)


def test_solved_is_what_the_certificate_says():
    solution = solve(max_iter=20_000)
    assert solution.status is vv.Status.solved
    assert solution.success
    assert solution.certificate.holds
    np.testing.assert_allclose(solution.theta, small.THETA_TRUE, atol=1e-7)
    again = vv.certify(
        PROBLEM, solution.x, solution.multiplier, solution.theta, x0=small.X0, theta0=small.THETA0
    )
    assert again.relative == pytest.approx(solution.certificate.relative, rel=1e-6, abs=1e-15)
    assert solution.nit < 20_000
    assert solution.trace.relative[-1] <= 1e-8
    # SciPy's words.
    assert solution.nfev == solution.counts.F == solution.nit + 1
    assert solution.maxcv == max(np.max(solution.certificate.constraint_values), 0.0)
    assert solution.message == vv.Status.solved.value
    assert "stationarity" in str(solution)


# -- starts -----------------------------------------------------------------------------------------
def test_starts_default_to_projected_zeros():
    problem = vv.MisspecifiedVI(
        lambda x, t: x - t,
        set=vv.Box([1.0], [2.0]),
        learning=vv.LeastSquares([1.0], [3.0], set=vv.Box(0.5, 5.0, shape=())),
    )
    point = next(vv.iterate(problem, ALGORITHM_1))
    assert (point.x, point.theta) == (1.0, 0.5)
    assert point.lam.shape == (0,)
    outside = next(vv.iterate(problem, ALGORITHM_1, x0=[9.0], theta0=-4.0))
    assert (outside.x, outside.theta) == (2.0, 0.5)


def test_a_solution_is_a_start():
    first = solve(tol=0.0, max_iter=37)
    point = next(vv.iterate(PROBLEM, ALGORITHM_1, init=first))
    np.testing.assert_array_equal(point.x, first.x)
    np.testing.assert_array_equal(point.lam, first.multiplier)
    np.testing.assert_array_equal(point.theta, first.theta)
    other = next(vv.iterate(PROBLEM, ALGORITHM_1, init=first, x0=small.X0))
    np.testing.assert_array_equal(other.x, small.X0)
    np.testing.assert_array_equal(other.theta, first.theta)


# -- what is recorded ---------------------------------------------------------------------------------
def test_recording_grid():
    assert vv.Record(at=[5, 3, 3, 90]).grid(10).tolist() == [0, 3, 5, 10]
    for max_iter in (0, 1, 5, 1000, 10**6):
        grid = vv.Record().grid(max_iter)
        assert grid.size == vv.Record().n  # one length for all, so that changing max_iter does not recompile
        assert (grid[0], grid[-1]) == (0, max_iter)
        assert (np.diff(grid) >= 0).all()
    for at, words in (
        ([-1], "whole numbers >= 0"),
        ([1.5], "whole numbers >= 0"),
        ([], "whole numbers >= 0"),
        (["a"], "Record: at is"),
    ):
        with refused(words):
            vv.Record(at=at).grid(10)
    with refused("Record: n is 1; at least 2 rows"):
        vv.Record(n=1).grid(10)


def test_points_and_truth_are_recorded():
    record = vv.Record(at=[1, 2, 5], points=True, theta_true=small.THETA_TRUE, x_true=small.X0)
    solution = solve(tol=0.0, max_iter=8, record=record)
    trace = solution.trace
    assert trace.k.tolist() == [0, 1, 2, 5, 8]
    path = list(itertools.islice(vv.iterate(PROBLEM, ALGORITHM_1, **STARTS), 9))
    for row, k in enumerate(trace.k):
        np.testing.assert_allclose(trace.points.x[row], path[k].x, atol=1e-13)
        np.testing.assert_allclose(trace.points.x_average[row], path[k].x_average, atol=1e-13)
        error = np.linalg.norm(path[k].theta - small.THETA_TRUE)
        assert trace.theta_error[row] == pytest.approx(error, rel=1e-12)
        assert trace.x_error[row] == pytest.approx(np.linalg.norm(path[k].x - small.X0), rel=1e-12, abs=1e-15)
        naive = small.Oracles().f(path[k].x, path[k].theta)
        assert trace.infeasibility[row] == pytest.approx(np.maximum(naive, 0).sum(), rel=1e-11, abs=1e-14)
    frame = trace.to_frame()
    assert frame["k"].tolist() == trace.k.tolist()
    assert frame["n_F"].tolist() == [1 + k for k in trace.k]
    with pytest.raises(AttributeError, match="no column 'gap'; it has k, residual"):
        _ = trace.gap


def test_truth_is_checked():
    with refused("Record: x_true was given without theta_true"):
        solve(record=vv.Record(x_true=small.X0))
    with refused("Record: theta_true has shape (3,)"):
        solve(record=vv.Record(theta_true=np.ones(3)))


def test_the_verbose_table(capsys):
    solve(tol=0.0, max_iter=3, verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["k", "relative", "residual"]
    assert [int(line.split()[0]) for line in lines[1:5]] == [0, 1, 2, 3]


# -- how a run ends -----------------------------------------------------------------------------------
def test_a_callback_interrupts():
    solution = solve(tol=0.0, max_iter=100, callback=lambda now: now["k"] >= 5)
    assert solution.status is vv.Status.interrupted
    assert not solution.success
    assert 5 <= solution.nit < 100
    np.testing.assert_allclose(solution.x, solution.x, atol=0)


def test_a_time_limit_counts_the_seconds_of_its_clock():
    ticks = itertools.count()
    solution = solve(tol=0.0, max_iter=100, time_limit=4.5, clock=lambda: float(next(ticks)))
    assert solution.status is vv.Status.time_limit
    assert len(solution.trace) == 5  # one second of this clock for each segment
    assert solution.trace.time.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_status_equals_its_word_and_stays_itself():
    for status in vv.Status:
        assert status == status.name
        assert status.name == status
        assert status != "Solved"
        assert {status: 1}[status.name] == 1
        assert pickle.loads(pickle.dumps(status)) is status
        assert str(status) == f"{status}" == status.name
    assert vv.Status.solved != vv.Status.stalled
    assert [status.name for status in vv.Status if status.success] == ["solved", "solved_estimated_learning"]


def test_advice_about_a_step_size_is_for_those_who_named_one():
    for status in (vv.Status.diverged, vv.Status.nonfinite):
        assert status.value.endswith("If you named a step size, reduce it.")
    assert "may have no solution" in vv.Status.diverged.value
    assert "bound the set" in vv.Status.diverged.value


def test_a_class_for_a_method_is_answered_with_how_to_make_one():
    with refused(
        "method is the class ExtragradientLagrangian. Make an instance: vv.ExtragradientLagrangian(step_size=...)"
    ):
        vv.solve(PROBLEM, vv.Extragradient)
    with refused("Make an instance: vv.SemismoothNewton()"):
        vv.solve(PROBLEM, vv.SemismoothNewton)


def test_a_printed_trace_says_how_to_see_its_rows():
    assert repr(solve(tol=0.0, max_iter=3).trace).endswith("time; .to_frame() for a table)")


def test_throw():
    with pytest.raises(vv.SolveError, match="max_iterations: Stopped at the iteration limit"):
        solve(max_iter=3, throw=True)


@pytest.mark.parametrize("chunked", [False, True])
def test_divergence_has_a_name(chunked):
    problem = vv.MisspecifiedVI(lambda x, t: 3.0 * x, set=vv.Free((2,)), learning=vv.Known(0.0))
    too_long = vv.AugmentedLagrangian(step_size=1.0, penalty=1.0)
    callback = (lambda now: False) if chunked else None
    solution = vv.solve(problem, too_long, x0=[1.0, 1.0], max_iter=10_000, callback=callback)
    assert solution.status in (vv.Status.diverged, vv.Status.nonfinite)
    assert solution.nit < 10_000
    assert not solution.success
    assert not solution.certificate.holds


@pytest.mark.parametrize("chunked", [False, True])
def test_a_value_that_is_not_a_number_has_a_name(chunked):
    problem = vv.MisspecifiedVI(
        lambda x, t: np.log(x - 0.5), set=vv.Box([0.0], [1.0]), learning=vv.Known(0.0)
    )
    callback = (lambda now: False) if chunked else None
    solution = vv.solve(problem, ALGORITHM_1, x0=[0.0], callback=callback)
    assert solution.status is vv.Status.nonfinite
    assert "operator or constraints, or a derivative of them, became infinite or NaN" in solution.message
    assert "Pass x0= inside the set where both are finite and differentiable" in solution.message
    assert not solution.certificate.holds


WRONG = {
    "tol": ({"tol": -1.0}, "tol is -1.0; a number >= 0"),
    "tol in words": ({"tol": "small"}, "tol is small; a number >= 0"),
    "no tol": ({"tol": None}, "tol is None; a number >= 0"),
    "max_iter": ({"max_iter": 1.5}, "max_iter is 1.5; a whole number >= 0"),
    "max_iter in words": ({"max_iter": "a"}, "max_iter is a; a whole number >= 0"),
    "endless": ({"max_iter": np.inf}, "max_iter is inf; a whole number >= 0"),
    "time_limit": ({"time_limit": -1.0}, "time_limit is -1.0; seconds > 0"),
    "x0": ({"x0": [1.0]}, "x0 has shape (1,); x has shape (4,)"),
    "theta0": ({"theta0": 1.0}, "theta0 has shape (); θ has (2,)"),
    "multiplier0": ({"multiplier0": [-1.0, 0.0]}, "multiplier0 has 1 negative entries"),
    "record": ({"record": 3}, "record is int; vv.Record(...) is needed"),
    "init": ({"init": 3}, "init is int; a Solution of vv.solve is needed"),
    "callback": ({"callback": 3}, "callback is int; a function of one dict is needed"),
}


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_wrong_arguments(changes, words):
    with refused(words):
        solve(**changes)


def test_wrong_problem_and_method():
    with refused("problem is int; a vv.MisspecifiedVI is needed"):
        vv.solve(3)
    with refused("problem is int; a vv.MisspecifiedVI is needed"):
        next(vv.iterate(3))
    with refused("method is str; a viceversa method such as vv.AugmentedLagrangian(...)"):
        vv.solve(PROBLEM, "fast")
    with refused("learner is 3; a learner such as vv.ProjectedGradient(rate)"):
        vv.AugmentedLagrangian(step_size=1.0, penalty=1.0, learner=3)
    with refused("both learner and learning_rate were given"):
        vv.AugmentedLagrangian(1.0, 1.0, learning_rate=1.0, learner=vv.ProjectedGradient())


STEPS = {
    "zero": (0.0, "step_size is 0.0; one positive finite number"),
    "NaN": (np.nan, "step_size is NaN"),
    "two": ([0.1, 0.2], "one positive finite number"),
    "words": ("0.1", "step_size is str"),
    "negative schedule": (lambda k: -1.0, "the schedule returns -1 at k = 0; positive numbers"),
    "vanishing schedule": (lambda k: 5.0 - 0.01 * k, "at k = 1000; positive numbers"),
    "array schedule": (lambda k: np.ones(2), "one number is needed"),
    "deciding schedule": (lambda k: 0.1 if k < 5 else 0.01, "Use np.where for `if`"),
}


@pytest.mark.parametrize(("step", "words"), STEPS.values(), ids=STEPS)
def test_wrong_steps(step, words):
    with refused(words):
        vv.AugmentedLagrangian(step_size=step, penalty=1.0)


# -- what stays as it was ---------------------------------------------------------------------------------
def test_double_precision_is_scoped():
    before = jax.numpy.ones(2).dtype, jax.config.jax_enable_x64
    solution = solve(tol=0.0, max_iter=3)
    assert (jax.numpy.ones(2).dtype, jax.config.jax_enable_x64) == before == (np.float32, False)
    for array in (solution.x, solution.theta, solution.multiplier, solution.x_average):
        assert isinstance(array, np.ndarray)
        assert array.dtype == np.float64
    points = vv.iterate(PROBLEM, ALGORITHM_1, **STARTS)
    next(points)
    assert jax.numpy.ones(2).dtype == np.float32  # also while a generator is half way


def test_single_precision_data_warns_once_at_construction():
    single = jnp.ones(2, dtype=jnp.float32)
    with pytest.warns(PrecisionWarning, match="about 7 digits"):
        vv.MisspecifiedVI(lambda x, t: x - single, set=vv.Box([0.0, 0.0], [1.0, 1.0]), learning=vv.Known(0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vv.MisspecifiedVI(
            lambda x, t: x - np.ones(2), set=vv.Box([0.0, 0.0], [1.0, 1.0]), learning=vv.Known(0.0)
        )


# -- what is compiled, and how often --------------------------------------------------------------------
class Counted(eqx.Module):
    """An operator that notes every time it is traced."""

    matrix: np.ndarray
    n_traces = [0]  # noqa: RUF012 - shared on purpose

    def __call__(self, x, theta):
        self.n_traces[0] += 1
        return self.matrix @ x - theta[0]


def test_new_numbers_do_not_recompile():
    observed = np.array([[1.0, 0.5], [0.3, 2.0], [1.0, 1.0]])

    def market(matrix, answers, upper=5.0):
        return vv.MisspecifiedVI(
            Counted(matrix),
            set=vv.Box(np.zeros(3), np.full(3, upper)),
            learning=vv.LeastSquares(observed, answers, set=vv.Box(np.zeros(2), np.full(2, 3.0))),
        )

    def run(matrix, answers, gamma, rate, upper=5.0, **options):
        problem = market(matrix, answers, upper)
        method = vv.AugmentedLagrangian(step_size=gamma, penalty=1.0, learning_rate=rate)
        built = Counted.n_traces[0]
        solution = vv.solve(problem, method, **options)
        next(vv.iterate(problem, method))
        return Counted.n_traces[0] - built, solution

    identity, data = np.eye(3), np.array([1.0, 2.0, 3.0])
    first, _ = run(identity, data, 0.1, 0.1)
    assert first > 0
    for changes in (
        {"gamma": 0.2},
        {"rate": 0.05},
        {"tol": 1e-4},
        {"max_iter": 77},
        {"x0": np.ones(3)},
        {"theta0": np.ones(2)},
        {"answers": data + 1.0},
        {"matrix": 2.0 * identity},
        {"upper": 4.0},
        {"seed": 3},
    ):
        arguments = {"matrix": identity, "answers": data, "gamma": 0.1, "rate": 0.1, **changes}
        traces, _ = run(**arguments)
        assert traces == 0, f"{changes} compiled again"
    _, slow = run(identity, data, 0.01, 0.1, tol=0.0, max_iter=5)
    _, fast = run(identity, data, 0.1, 0.1, tol=0.0, max_iter=5)
    assert np.abs(slow.x - fast.x).max() > 0.1  # the new numbers are used


def test_captured_arrays_are_arguments_of_the_compiled_program():
    big = np.random.default_rng(0).normal(size=(300, 40))
    problem = vv.MisspecifiedVI(
        lambda x, theta: big.T @ (big @ x) - theta,
        set=vv.Box(np.zeros(40), np.ones(40)),
        learning=vv.Known(1.0),
    )
    scheme = vv.schemes.as_scheme(ALGORITHM_1)
    settings = loop.Settings(vv.Record().grid(10), np.float64(0.0), None, False, np.int64(0))
    starts = loop.Starts(np.zeros(40), np.asarray(1.0), np.zeros(0))
    with vv.precision.double():
        given = [Packed.on_host(part) for part in (problem, scheme, settings, starts)]
        text = jax.jit(loop.begin).lower(*given).as_text()
    largest = max(
        (
            int(np.prod([int(n) for n in dims.split("x")]))
            for dims in re.findall(r"stablehlo\.constant dense<[^>]*> : tensor<([\dx]+)x", text)
        ),
        default=1,
    )
    assert "tensor<300x40xf64>" in text  # it is there, as an argument
    assert largest < big.size


def test_a_solution_of_another_problem_is_refused_by_its_own_name():
    small_problem, large_problem = (
        vv.MisspecifiedVI(lambda x, t: x - t, vv.Box(np.zeros(n), np.ones(n)), learning=vv.Known(0.5))
        for n in (1, 2)
    )
    with pytest.raises(vv.InputError, match=r"init\.x has shape \(2,\); x has shape \(1,\)"):
        vv.solve(small_problem, init=vv.solve(large_problem))
