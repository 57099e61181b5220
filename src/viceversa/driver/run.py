"""One run of a scheme: in one compiled program, or segment by segment with visits to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from viceversa.certificates.infeasibility import InfeasibilityProof, prove_infeasible
from viceversa.certificates.kkt import Certificate, build_certificate, certificate_of, certify
from viceversa.certificates.residuals import Relative, Residuals, way_come
from viceversa.driver import loop
from viceversa.driver.one_blas_thread import while_factoring
from viceversa.driver.packing import Later, Packed
from viceversa.driver.recording import Recorded, Row, Trace, scalars_of
from viceversa.driver.solution import Solution
from viceversa.driver.status import Status
from viceversa.driver.table import ProgressTable
from viceversa.driver.turned import View
from viceversa.methods.base import OracleCounts
from viceversa.problem import MisspecifiedVI
from viceversa.quick_module import made
from viceversa.schemes.base import Scheme

# How often a chunked run goes on where its own test passed and the certificate, by rounding, did not.
_N_TIGHTENINGS = 3
# Relative violation above which a scheme that gives up may be facing an empty feasible set.
_SUSPICIOUS = 1e-6
_FAR = 0.1  # the relative residual of a point that has come nowhere
_STOPPED = {
    loop.NONFINITE: Status.nonfinite,
    loop.DIVERGED: Status.diverged,
    loop.STALLED: Status.stalled,
}


class Run:
    """The inputs of one solve, where it stands, and what it has recorded."""

    infeasibility: InfeasibilityProof | None = None
    progress: Any = None
    standing: Later | None = None
    point: Any = None  # a Point of NumPy arrays
    counts: OracleCounts | None = None
    moved: Sequence[float] = ()  # how far projections moved x0 and θ0
    way: float = 0.0  # from x0 to x, in lengths of the problem

    def __init__(
        self,
        problem: MisspecifiedVI,
        scheme: Scheme,
        starts: loop.Starts | Packed,
        settings: loop.Settings,
        clock: Callable[[], float],
    ):
        self.problem, self.scheme, self.starts = problem, scheme, starts
        self.settings, self.clock = settings, clock
        self.pieces: list[Recorded] = []

    # -- the two ways to go round --------------------------------------------------------------
    def fused(self, packed: Packed | None = None) -> Solution:
        """One compiled program; it goes on after the host has helped a scheme that gave up. `packed` is the problem, if it is known."""
        began, since = self.clock(), (0, 0.0)
        outcome = loop.begin_compiled(packed or self.problem, self.scheme, self.settings, self.starts)
        while True:
            verdict, k, n_rows, certificate = self._read(outcome)
            now = (k, self.clock() - began)
            self.pieces.append(Recorded(outcome.rows, n_rows, since, now))
            if verdict != loop.STALLED:
                return self._solution(self._status(verdict, certificate), certificate, k, now[1])
            standing = outcome.standing.whole()
            self.progress = standing.progress
            forced = self._helped(certificate, View(self.problem, self.scheme).problem(self.problem))
            if forced is not None:
                return self._solution(forced, certificate, k, now[1])
            since = (int(self.progress.k), now[1])
            standing = replace(standing, progress=self.progress)
            outcome = loop.go_on_compiled(self.problem, self.scheme, self.settings, standing)

    def chunked(self, callback: Callable | None, time_limit: float | None, verbose: int) -> Solution:
        """The same segments one at a time, visiting the host (callback, clock, printing) after each."""
        on_host = self.problem.runs_on_host
        advance, look, start = (
            (loop.advance, loop.look, loop.start)
            if on_host
            else (loop.advance_compiled, loop.look_compiled, loop.start_compiled)
        )
        settings, starts = self.settings, loop.unpacked(self.starts)
        x0, theta0, moved = loop.projected(self.problem, starts)
        self.moved = [float(each) for each in moved]
        key = jax.random.key(settings.seed)
        self.progress, scales = start(self.problem, self.scheme, x0, theta0, starts.lam, key)
        tol, spent, forced, n_tightenings = settings.tol, 0.0, None, 0
        table = ProgressTable(verbose)
        grid, k, first = settings.grid, 0, True
        while first or k < grid[-1]:
            until = 0 if first else grid[np.searchsorted(grid, k, side="right")]
            began, first = self.clock(), False
            with while_factoring(self.problem):
                self.progress = jax.block_until_ready(
                    advance(self.problem, self.scheme, self.progress, np.int64(until))
                )
            k = int(self.progress.k)
            spent += self.clock() - began
            self.progress, row, _ = look(
                self.problem,
                self.scheme,
                self.progress,
                scales,
                tol,
                settings.truth,
                settings.keep_points,
                grid[-1],
            )
            self._keep(row, k, spent)
            seen = self._seen(row, k, spent)
            table.row(seen)
            verdict = int(self.progress.verdict)
            if callback is not None and callback(seen):
                forced = Status.interrupted
            elif time_limit is not None and spent >= time_limit:
                forced = Status.time_limit
            elif verdict == loop.STALLED:
                forced = self._helped(self._certify(x0, theta0), self.problem)
                k = int(self.progress.k)
            if forced or verdict in (loop.NONFINITE, loop.DIVERGED):
                break
            if verdict == loop.REACHED:
                if n_tightenings == _N_TIGHTENINGS or self._certify(x0, theta0).holds:
                    break
                tol, n_tightenings = tol / 10.0, n_tightenings + 1
        certificate = self._certify(x0, theta0)
        status = self._status(int(self.progress.verdict), certificate)
        self.way = float(way_come(self.problem, jnp.asarray(self.point.x), x0))
        self.standing = Later(loop.Standing(self.progress, scales, moved))
        self.counts = OracleCounts(*map(int, self.scheme.counts(self.problem, self.progress.scheme, k)))
        return self._solution(status if status.success or forced is None else forced, certificate, k, spent)

    # -- what the host decides -----------------------------------------------------------------
    def _helped(self, certificate: Certificate, as_seen: MisspecifiedVI) -> Status | None:
        with while_factoring(self.problem):
            return self._help(certificate, as_seen)

    def _help(self, certificate: Certificate, as_seen: MisspecifiedVI) -> Status | None:
        """For a scheme that gives up: look for a proof of infeasibility, else rescue it, with the problem as it sees it."""
        point = self.point
        blamed = self.scheme.blames_constraints(self.progress.scheme)
        if blamed and certificate.relative["feasibility"] > _SUSPICIOUS:
            self.infeasibility = prove_infeasible(self.problem, point.x, point.lam, point.theta)
            if self.infeasibility is not None and self.infeasibility.proved:
                return Status.infeasible
            if self.infeasibility is not None and certificate.relative["learning"] <= _SUSPICIOUS:
                return Status.infeasible_suspected
            self.infeasibility = None  # evidence at a θ that is still to be learned is none
        is_far = not max(certificate.relative.values()) <= _FAR
        was_tentative = self.scheme.is_tentative(self.progress.scheme)
        state = self.scheme.rescued(as_seen, self.progress.scheme, is_far)
        self.progress = eqx.tree_at(
            lambda now: (now.scheme, now.k, now.verdict),
            self.progress,
            (state, np.asarray(0) if was_tentative else self.progress.k, np.asarray(loop.RUNNING)),
        )
        return None

    def _status(self, verdict: int, certificate: Certificate) -> Status:
        if certificate.holds and self.settings.tol > 0:
            estimated = certificate.learning_provenance == "estimated"
            return Status.solved_estimated_learning if estimated else Status.solved
        return _STOPPED.get(verdict, Status.max_iterations)

    # -- what comes of it ----------------------------------------------------------------------
    def _read(self, outcome: loop.Outcome) -> tuple[int, int, int, Certificate]:
        """The verdict, the iteration, the number of rows and the certificate of a compiled stretch."""
        self.standing, self.point = outcome.standing, outcome.point
        verdict, k, n_rows, kkt, infeasibility, learning_error, *numbers = outcome.summary.tolist()
        stationarity, feasibility, complementarity, learning, F, f, pullback, H, self.way, *self.moved = (
            numbers
        )
        relative = {
            "stationarity": stationarity,
            "feasibility": feasibility,
            "complementarity": complementarity,
            "learning": learning,
        }
        certificate = certificate_of(
            self.problem,
            float(self.settings.tol),
            kkt,
            infeasibility,
            learning_error,
            relative,
            outcome.constraint_values,
            outcome.constraint_units,
        )
        self.counts = OracleCounts(int(F), int(f), int(pullback), int(H))
        return int(verdict), int(k), int(n_rows), certificate

    def _certify(self, x0, theta0) -> Certificate:
        point = self.point = jax.tree.map(np.asarray, self.scheme.output(self.progress.scheme))
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(point)):
            worst, nothing = jnp.asarray(jnp.inf), jnp.full(self.problem.n_constraints, jnp.nan)
            relative = Relative(worst, worst, worst, worst)
            found = Residuals(worst, worst, worst, relative, f=nothing, f_hat=nothing)
            return build_certificate(self.problem, found, float(self.settings.tol))
        return certify(
            self.problem, point.x, point.lam, point.theta, x0=x0, theta0=theta0, tol=float(self.settings.tol)
        )

    def _solution(self, status: Status, certificate: Certificate, n_steps: int, seconds: float) -> Solution:
        point, phases = self.point, self.scheme.phases(self.problem)
        assert self.counts is not None
        return made(
            Solution,
            x=point.x,
            theta=point.theta,
            multiplier=point.lam,
            x_average=point.x_average,
            status=status,
            certificate=certificate,
            trace=Trace(self.pieces, phases),
            nit=n_steps,
            counts=self.counts,
            time=seconds,
            standing=self.standing,
            infeasibility=self.infeasibility,
            notes=(),
        )

    def _keep(self, row: Row, k: int, seconds: float) -> None:
        rows = jax.tree.map(lambda leaf: np.asarray(leaf)[None], row)
        self.pieces.append(Recorded(Later((rows, np.array([k]))), 1, (k, seconds), (k, seconds)))

    def _seen(self, row: Row, k: int, seconds: float) -> dict[str, Any]:
        point = jax.tree.map(np.asarray, self.scheme.output(self.progress.scheme))
        phases = self.scheme.phases(self.problem)
        phase = (
            {"phase": phases[int(row.phase)] if k else "start"} if phases and row.phase is not None else {}
        )
        return {"k": k, "time": seconds, **point._asdict(), **scalars_of(row), **phase}
