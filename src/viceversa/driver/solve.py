"""`solve` and `iterate`: one run in the compiled or the host loop, begun elsewhere where it must be, and its notes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from viceversa import precision
from viceversa.certificates.kkt import certify
from viceversa.driver import loop
from viceversa.driver.inputs import (
    check_calls,
    check_seed,
    check_time_limit,
    check_verbose,
    chosen_scheme,
    point_inside,
    projection_notes,
    require_problem,
    settings_of,
    starts_of,
    usual_settings,
)
from viceversa.driver.one_blas_thread import while_factoring
from viceversa.driver.own_device import in_this_thread
from viceversa.driver.recording import Record
from viceversa.driver.run import Run
from viceversa.driver.solution import Solution
from viceversa.driver.status import Status
from viceversa.errors import SolveError
from viceversa.numerics import max_abs
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point, Scheme
from viceversa.schemes.semismooth_newton import NO_DERIVATIVES

MAX_ITER = 100_000
_STARTED_INSIDE = (
    "F, f or a derivative of theirs is not finite at the default start P_X(0), so the run began at a point inside X. "
    "Pass x0 to choose another."
)
_FAR = 1e4  # lengths of the problem between start and answer from which on `tol`, relative to that way, is another one
_BEGUN_NEARBY = (
    "The start was so far away (over 10 000 lengths of the answer) that tol, which is relative to the way, would say little: the run "
    "began again at its first answer. The trace is that of the first run."
)
_FIRST_ORDER_ONLY = f"First order only: {NO_DERIVATIVES}"


def solve(
    problem: MisspecifiedVI,
    method: Any = None,
    *,
    x0: Any = None,
    theta0: Any = None,
    multiplier0: Any = None,
    tol: float = 1e-8,
    max_iter: int = MAX_ITER,
    record: Record | None = None,
    init: Solution | None = None,
    callback: Callable[[dict[str, Any]], Any] | None = None,
    time_limit: float | None = None,
    throw: bool = False,
    verbose: int = 0,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Solution:
    """Learn θ and solve for x at the same time.

    `tol` is relative and scale-free, below 1; `tol=0` runs exactly `max_iter` iterations. Starts default to
    P_X(0) (a point inside X where F or f is not finite there), P_Θ(0) and λ = 0, or to the point of `init`; they
    are projected on X and Θ. `callback` receives a dict at every recorded iteration and stops the solve by
    returning True; `time_limit`, in seconds with those of compilation, is looked at there. `throw=True` raises
    when the point is not solved.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [9.0]), learning=vv.Known(2.0))
        >>> print(vv.solve(problem).x.round(6), vv.solve(problem).status)
        [2.] solved
    """
    require_problem(problem)
    scheme = chosen_scheme(problem, method)
    settings = (
        usual_settings(tol, max_iter, seed)
        if record is None
        else settings_of(problem, record, tol, max_iter, seed)
    )
    check_time_limit(time_limit)
    check_calls(callback, clock)
    check_verbose(verbose)
    on_host = problem.runs_on_host
    chunked = on_host or callback is not None or time_limit is not None or verbose > 0

    def go(run: Run, spent: float = 0.0) -> Solution:
        if chunked:
            left = None if time_limit is None else max(time_limit - spent, 0.0)
            return run.chunked(callback, left, verbose)
        with in_this_thread():
            return run.fused()

    def run_from(x0: Any) -> tuple[Solution, tuple[str, ...]]:
        starts = starts_of(problem, x0, theta0, multiplier0, init)
        with precision.double():
            run = Run(problem, scheme, starts, settings, clock)
            solution = go(run)
        if method is None and (x0 is not None or init is not None):
            spent = solution.time
            solution = found_nearby(problem, solution, run, lambda again: go(again, spent))
        x_given, theta_given = x0 is not None or init is not None, theta0 is not None or init is not None
        notes = projection_notes(run.moved, x=x_given, theta=theta_given)
        return solution, (*notes, *solution.notes)

    solution, notes = run_from(x0)
    if x0 is None and init is None and solution.status is Status.nonfinite and solution.nit == 0:
        solution, notes = run_from(point_inside(problem))
        notes = (_STARTED_INSIDE, *notes)
    if method is None and on_host:
        notes += (_FIRST_ORDER_ONLY,)
    if notes:
        solution = replace(solution, notes=notes)
    if throw and not solution.success:
        raise SolveError(f"{solution.status}: {solution.message}")
    return solution


def found_nearby(
    problem: MisspecifiedVI, solution: Solution, run: Run, go: Callable[[Run], Solution]
) -> Solution:
    """A solution that was found from far away, found again from where it is: there `tol` refers to the problem's own lengths.

    The way is long only if forces say so too: where they are at the answer what they were at the start, x* is small, not the
    start far away. Whatever comes of the second run is the outcome of both.
    """
    if not (solution.success and run.way > _FAR):
        return solution
    assert run.standing is not None
    with precision.double():
        at_start = float(run.standing.whole().progress.force.size)
        here = float(max_abs(jnp.asarray(problem.at(solution.theta).F(jnp.asarray(solution.x)))))
        if not at_start > _FAR * here:
            return solution
        starts = starts_of(problem, None, None, None, solution)
        settings = usual_settings(float(run.settings.tol), int(run.settings.grid[-1]), int(run.settings.seed))
        nearby = go(Run(problem, run.scheme, starts, settings, run.clock))
    return replace(
        nearby,
        trace=solution.trace,
        nit=solution.nit + nearby.nit,
        counts=solution.counts + nearby.counts,
        time=solution.time + nearby.time,
        notes=(_BEGUN_NEARBY,),
    )


def iterate(
    problem: MisspecifiedVI,
    method: Any = None,
    *,
    x0: Any = None,
    theta0: Any = None,
    multiplier0: Any = None,
    init: Solution | None = None,
    seed: int = 0,
) -> Iterator[Point]:
    """The points of a method one at a time, from the start on, as NumPy arrays; the same numbers as `solve`.

    The default method that gives up where `solve` would not stop is helped in the same way, but no proof of infeasibility is looked for,
    and a run from far away is not begun again.

    Example:
        >>> import itertools, viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [9.0]), learning=vv.Known(2.0))
        >>> points = vv.iterate(problem, vv.AugmentedLagrangian(step_size=0.5, penalty=1.0))
        >>> [float(point.x[0]) for point in itertools.islice(points, 3)]
        [0.0, 1.0, 1.0]
    """
    require_problem(problem)
    check_seed(seed)
    scheme = chosen_scheme(problem, method)
    starts = starts_of(problem, x0, theta0, multiplier0, init)
    with precision.double():
        starts = loop.unpacked(starts)
        x0, theta0 = problem.set.project(starts.x), problem.learning.set.project(starts.theta)
        begin = loop.start if problem.runs_on_host else loop.start_compiled
        progress, _ = begin(problem, scheme, x0, theta0, starts.lam, jax.random.key(seed))
        state = progress.scheme
    while True:
        with precision.double():
            point = jax.tree.map(np.asarray, scheme.output(state))
        yield point
        with precision.double():
            state = _next_state(problem, scheme, state)
            gives_up = scheme.gives_up(state)
            if gives_up is not None and bool(gives_up) and not _is_solved(problem, scheme, state):
                was_tentative = scheme.is_tentative(state)
                with while_factoring(problem):
                    state = scheme.rescued(problem, state, is_far=False)
                state = _next_state(problem, scheme, state) if was_tentative else state


def _next_state(problem: MisspecifiedVI, scheme: Scheme, state: Any) -> Any:
    if problem.runs_on_host:
        return scheme.step(problem, state)[0]
    with while_factoring(problem):
        return jax.block_until_ready(loop.step_compiled(problem, scheme, state)[0])


def _is_solved(problem: MisspecifiedVI, scheme: Scheme, state: Any) -> bool:
    """Whether a method gives up because there is nothing left to do."""
    point = scheme.output(state)
    is_finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(point))
    return is_finite and certify(problem, point.x, point.lam, point.theta).holds
