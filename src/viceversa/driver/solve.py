"""`solve` and `iterate`: defaults, precision, the compiled or the host loop, and the status."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from viceversa import precision
from viceversa.certificates.infeasibility import InfeasibilityProof, prove_infeasible
from viceversa.certificates.kkt import Certificate, certify
from viceversa.driver import loop
from viceversa.driver.recording import Record, Row, Trace, Truth
from viceversa.driver.solution import Solution
from viceversa.driver.status import Status
from viceversa.errors import InputError, SolveError
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point, Scheme, as_scheme
from viceversa.schemes.semismooth_newton import SemismoothNewton

MAX_ITER = 100_000
_N_TIGHTENINGS = 3  # how often the loop goes on after its own cheap test passed but the certificate did not

_SUSPICIOUS = (
    1e-6  # relative violation above which a scheme that gives up may be facing an empty feasible set
)

_STOPPED = {loop.NONFINITE: Status.nonfinite, loop.DIVERGED: Status.diverged}


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

    `tol` is relative and scale-free; `tol=0` runs exactly `max_iter` iterations. Starts default to P_X(0), P_Θ(0)
    and λ = 0, or to the point of `init`. `callback` receives a dict at every recorded iteration and stops the
    solve by returning True. `throw=True` raises when the point is not solved.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [9.0]), learning=vv.Known(2.0))
        >>> print(vv.solve(problem).x.round(6), vv.solve(problem).status)
        [2.] solved
    """
    scheme = as_scheme(SemismoothNewton() if method is None else method)
    scheme.check(problem)
    tol, max_iter = _check_limits(tol, max_iter, time_limit)
    record = Record() if record is None else record
    starts = _starts(problem, x0, theta0, multiplier0, init)
    chunked = problem.runs_on_host or callback is not None or time_limit is not None or verbose > 0
    began = clock()
    with precision.double():
        run = _Run(problem, scheme, starts, record, tol, max_iter, seed, clock)
        status, certificate = run.chunked(callback, time_limit, verbose) if chunked else run.fused()
        solution = run.solution(status, certificate, clock() - began)
    if throw and not solution.success:
        raise SolveError(f"{solution.status}: {solution.message}")
    return solution


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

    Example:
        >>> import itertools, viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [9.0]), learning=vv.Known(2.0))
        >>> points = vv.iterate(problem, vv.AugmentedLagrangian(step_size=0.5, penalty=1.0))
        >>> [float(point.x[0]) for point in itertools.islice(points, 3)]
        [0.0, 1.0, 1.0]
    """
    scheme = as_scheme(SemismoothNewton() if method is None else method)
    scheme.check(problem)
    x0, theta0, lam0 = _starts(problem, x0, theta0, multiplier0, init)
    with precision.double():
        begin = loop.start if problem.runs_on_host else loop.start_compiled
        progress, _ = begin(problem, scheme, x0, theta0, lam0, jax.random.key(seed))
        state = progress.scheme
    while True:
        with precision.double():
            point = jax.tree.map(np.asarray, scheme.output(state))
        yield point
        with precision.double():
            step = scheme.step if problem.runs_on_host else None
            state, _ = step(problem, state) if step else loop.step_compiled(problem, scheme, state)


class _Run:
    """One solve: its inputs, where it stands, and the rows it has recorded."""

    def __init__(self, problem, scheme: Scheme, starts, record: Record, tol, max_iter, seed, clock):
        self.problem, self.scheme, self.record, self.clock = problem, scheme, record, clock
        self.tol, self.max_iter = np.float64(tol), max_iter
        self.x0, self.theta0, self.lam0 = starts
        self.truth = _truth(problem, record)
        begin = loop.start if problem.runs_on_host else loop.start_compiled
        self.progress, self.scales = begin(
            problem, scheme, self.x0, self.theta0, self.lam0, jax.random.key(seed)
        )
        self.infeasibility: InfeasibilityProof | None = None
        self.rows: list[Row] = []
        self.ks: list[int] = []
        self.times: list[float] = []
        self.counts: list[Any] = []

    # -- the two ways to go round --------------------------------------------------------------
    def fused(self) -> tuple[Status, Certificate]:
        """One compiled program; it goes on with a tighter test while the certificate disagrees with its own."""
        grid, tol = self.record.grid(self.max_iter), self.tol
        began, n_tightenings = self.clock(), 0
        while True:
            progress, rows, ks, n = loop.run_fused(
                self.problem,
                self.scheme,
                self.progress,
                self.scales,
                grid,
                tol,
                self.truth,
                self.record.points,
            )
            self.progress = jax.block_until_ready(progress)
            self._keep(rows, np.asarray(ks)[: int(n)], self.clock() - began)
            certificate = self.certificate()
            if int(progress.verdict) == loop.STALLED:
                status = self.help(certificate)
                if status is not None:
                    return status, certificate
                continue
            disagree = int(progress.verdict) == loop.REACHED and not certificate.holds
            if not disagree or n_tightenings == _N_TIGHTENINGS:
                return self.status(certificate), certificate
            tol, n_tightenings = tol / 10.0, n_tightenings + 1

    def chunked(self, callback, time_limit, verbose) -> tuple[Status, Certificate]:
        """The same segments one at a time, visiting the host (callback, clock, printing) after each."""
        on_host = self.problem.runs_on_host
        advance, look = (loop.advance, loop.look) if on_host else (loop.advance_compiled, loop.look_compiled)
        tol, spent, forced, n_tightenings = self.tol, 0.0, None, 0
        report = _Report(verbose)
        grid, k, first = self.record.grid(self.max_iter), 0, True
        while first or k < self.max_iter:
            until = 0 if first else grid[np.searchsorted(grid, k, side="right")]
            began, first = self.clock(), False
            self.progress = jax.block_until_ready(
                advance(self.problem, self.scheme, self.progress, np.int64(until))
            )
            k = int(self.progress.k)
            spent += self.clock() - began
            self.progress, row = look(
                self.problem, self.scheme, self.progress, self.scales, tol, self.truth, self.record.points
            )
            self._keep_one(row, k, spent)
            seen = self._seen(row, k, spent)
            report.row(seen)
            if callback is not None and callback(seen):
                forced = Status.interrupted
            elif time_limit is not None and spent >= time_limit:
                forced = Status.time_limit
            if int(self.progress.verdict) == loop.STALLED and not forced:
                forced = self.help(self.certificate())
            if int(self.progress.verdict) == loop.REACHED and n_tightenings < _N_TIGHTENINGS and not forced:
                if self.certificate().holds:
                    break
                tol, n_tightenings = tol / 10.0, n_tightenings + 1
            elif forced or int(self.progress.verdict) != loop.RUNNING:
                break
        certificate = self.certificate()
        solved = certificate.holds and self.tol > 0
        return (self.status(certificate) if solved or forced is None else forced), certificate

    def help(self, certificate: Certificate) -> Status | None:
        """What the host does for a scheme that gives up: look for a proof of infeasibility, else rescue it."""
        point = self.scheme.output(self.progress.scheme)
        if certificate.relative["feasibility"] > _SUSPICIOUS:
            self.infeasibility = prove_infeasible(self.problem, point.x, point.lam, point.theta)
            if self.infeasibility is not None:
                return Status.infeasible if self.infeasibility.proved else Status.infeasible_suspected
        state = self.scheme.rescued(self.problem, self.progress.scheme)
        self.progress = eqx.tree_at(
            lambda now: (now.scheme, now.verdict), self.progress, (state, jnp.asarray(loop.RUNNING))
        )
        return None

    # -- what comes of it ----------------------------------------------------------------------
    def certificate(self) -> Certificate:
        point = self.scheme.output(self.progress.scheme)
        if not all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(point)):
            return _no_certificate(self.problem, float(self.tol))
        return certify(
            self.problem, point.x, point.lam, point.theta, x0=self.x0, theta0=self.theta0, tol=float(self.tol)
        )

    def status(self, certificate: Certificate) -> Status:
        if certificate.holds and self.tol > 0:
            estimated = certificate.learning_provenance == "estimated"
            return Status.solved_estimated_learning if estimated else Status.solved
        return _STOPPED.get(int(self.progress.verdict), Status.max_iterations)

    def solution(self, status: Status, certificate: Certificate, seconds: float) -> Solution:
        point = jax.tree.map(np.asarray, self.scheme.output(self.progress.scheme))
        n_steps = int(self.progress.k)
        return Solution(
            x=point.x,
            theta=point.theta,
            multiplier=point.lam,
            x_average=point.x_average,
            status=status,
            certificate=certificate,
            trace=self._trace(),
            nit=n_steps,
            counts=self.scheme.counts(self.problem, self.progress.scheme, n_steps),
            time=seconds,
            state=self.progress.scheme,
            infeasibility=self.infeasibility,
        )

    def _keep(self, rows: Row, ks: np.ndarray, seconds: float) -> None:
        """Rows of a fused run; its clock is read once, so times are spread evenly over the iterations."""
        host = jax.tree.map(np.asarray, rows)
        last = max(int(ks[-1]), 1)
        for n, k in enumerate(ks):
            if self.ks and k <= self.ks[-1]:
                continue  # the padded end of the default grid, or a row seen before a tightening
            row = jax.tree.map(lambda column, n=n: column[n], host)
            self._keep_one(row, int(k), seconds * float(k) / last)

    def _keep_one(self, row: Row, k: int, seconds: float) -> None:
        self.rows.append(jax.tree.map(np.asarray, row))
        self.ks.append(k)
        self.times.append(seconds)
        self.counts.append(self.scheme.counts(self.problem, self.progress.scheme, k))

    def _seen(self, row: Row, k: int, seconds: float) -> dict[str, Any]:
        point = jax.tree.map(np.asarray, self.scheme.output(self.progress.scheme))
        return {"k": k, "time": seconds, **point._asdict(), **_scalars(row)}

    def _trace(self) -> Trace:
        scalars = [_scalars(row) for row in self.rows]
        columns = {name: np.array([s[name] for s in scalars]) for name in (scalars[0] if scalars else {})}
        points = None
        if self.record.points and self.rows:
            points = jax.tree.map(lambda *leaves: np.stack(leaves), *(row.points for row in self.rows))
        columns["time"] = np.array(self.times)
        return Trace(k=np.array(self.ks), columns=columns, counts=self.counts, points=points)


class _Report:
    """The verbose table: one line per recorded iteration."""

    _COLUMNS = (
        "k",
        "relative",
        "residual",
        "infeasibility",
        "learning_error",
        "step_size",
        "penalty",
        "time",
    )

    def __init__(self, verbose: int):
        self.verbose = verbose
        if verbose > 0:
            self._write("".join(f"{name:>15}" for name in self._COLUMNS))

    def row(self, seen: dict[str, Any]) -> None:
        if self.verbose > 0:
            self._write(
                f"{seen['k']:>15d}" + "".join(f"{float(seen[name]):>15.3e}" for name in self._COLUMNS[1:])
            )

    @staticmethod
    def _write(line: str) -> None:
        import sys

        sys.stdout.write(line + "\n")


def _scalars(row: Row) -> dict[str, float]:
    values = {name: value for name, value in row._asdict().items() if name not in ("truth", "points")}
    return {name: float(value) for name, value in {**values, **row.truth}.items()}


def _truth(problem: MisspecifiedVI, record: Record) -> Truth | None:
    if record.theta_true is None:
        if record.x_true is not None:
            raise InputError("Record: x_true was given without theta_true. Give both, or theta_true alone.")
        return None
    x = None if record.x_true is None else problem.check_x("Record: x_true", record.x_true)
    return Truth(theta=problem.check_theta("Record: theta_true", record.theta_true), x=x)


def _starts(
    problem: MisspecifiedVI, x0, theta0, multiplier0, init: Solution | None
) -> tuple[Any, PyTree, Any]:
    if init is not None:
        x0 = init.x if x0 is None else x0
        theta0 = init.theta if theta0 is None else theta0
        multiplier0 = init.multiplier if multiplier0 is None else multiplier0
    x = np.zeros(problem.shape) if x0 is None else problem.check_x("x0", x0)
    theta = problem.learning.set.zeros() if theta0 is None else problem.check_theta("theta0", theta0)
    multiplier = np.zeros(problem.n_constraints) if multiplier0 is None else multiplier0
    with precision.double():
        return (
            np.asarray(problem.set.project(x)),
            jax.tree.map(np.asarray, problem.learning.set.project(theta)),
            problem.check_multiplier("multiplier0", multiplier),
        )


def _check_limits(tol, max_iter, time_limit) -> tuple[float, int]:
    if not (np.ndim(tol) == 0 and np.isfinite(tol) and tol >= 0):
        raise InputError(f"tol is {tol}; a number >= 0 is needed (0 runs exactly max_iter iterations).")
    if int(max_iter) != max_iter or max_iter < 0:
        raise InputError(f"max_iter is {max_iter}; a whole number >= 0 is needed.")
    if time_limit is not None and not time_limit > 0:
        raise InputError(f"time_limit is {time_limit}; seconds > 0 are needed.")
    return float(tol), int(max_iter)


def _no_certificate(problem: MisspecifiedVI, tol: float) -> Certificate:
    worst = {part: float("inf") for part in ("stationarity", "feasibility", "complementarity", "learning")}
    return Certificate(
        kkt_residual=float("inf"),
        infeasibility=float("inf"),
        relative=worst,
        constraint_values=np.full(problem.n_constraints, np.nan),
        violated=(),
        learning_error=float("inf"),
        learning_provenance=problem.learning.provenance,
        tol=tol,
    )
