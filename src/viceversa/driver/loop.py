"""The compiled loop over a scheme's steps, with metrics only on the recording grid."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa.certificates.kkt import evaluate
from viceversa.certificates.residuals import Scales, start_scales
from viceversa.driver.compiled import Compiled, Later
from viceversa.driver.recording import Row, Truth, measure
from viceversa.methods.base import Info
from viceversa.numerics import all_finite, while_loop
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point, Scheme

RUNNING, REACHED, NONFINITE, DIVERGED, STALLED = 0, 1, 2, 3, 4
_BETTER = 1e-2  # of tol: what one more step of a method that converges fast is taken for
_ROWS_OF_PAUSES = 64  # room for the rows of a scheme that asks to be looked at between those of the grid
_SHORT_GRID = 1000
_DIVERGED = 1e12  # an unbounded iterate this many times larger than where it started


class Progress(eqx.Module):
    """The loop's state: the scheme's, the iteration, the last step's info, and why it should stop."""

    scheme: Any
    k: Int[Array, ""]
    info: Info
    verdict: Int[Array, ""]


def start(problem: MisspecifiedVI, scheme: Scheme, x0: Array, theta0: PyTree, lam0: Array, key: Array):
    """The state before the first step and the scales that `tol` refers to."""
    x0, theta0, lam0 = jax.tree.map(jnp.asarray, (x0, theta0, lam0))
    state = scheme.init(problem, x0, theta0, lam0, key)
    info = Info(step_size=jnp.zeros(()), penalty=jnp.zeros(()))
    progress = Progress(scheme=state, k=jnp.asarray(0), info=info, verdict=jnp.asarray(RUNNING))
    return progress, start_scales(problem, x0, theta0)


def advance(problem: MisspecifiedVI, scheme: Scheme, progress: Progress, until) -> Progress:
    """Steps until iteration `until`, or until the scheme asks to be looked at."""
    progress = eqx.tree_at(lambda now: now.scheme, progress, scheme.resumed(progress.scheme))

    def one_step(now: Progress) -> Progress:
        state, info = scheme.step(problem, now.scheme)
        return Progress(scheme=state, k=now.k + 1, info=info, verdict=now.verdict)

    def goes_on(now: Progress) -> Array:
        pauses = scheme.pauses(now.scheme)
        return now.k < until if pauses is None else (now.k < until) & ~pauses

    if not problem.runs_on_host and scheme.pauses(progress.scheme) is None:
        # In pairs: a loop that reads and rewrites the same buffer copies it first; two steps take turns with two.
        progress = jax.lax.while_loop(
            lambda now: now.k + 1 < until, lambda now: one_step(one_step(now)), progress
        )
    return while_loop(goes_on, one_step, progress, on_host=problem.runs_on_host)


def look(
    problem: MisspecifiedVI,
    scheme: Scheme,
    progress: Progress,
    scales: Scales,
    tol,
    truth: Truth | None,
    keep_points: bool,
) -> tuple[Progress, Row]:
    """Metrics of the current point, and whether they say stop."""
    point = scheme.output(progress.scheme)
    counts = scheme.counts(problem, progress.scheme, progress.k)
    phase = scheme.phase(progress.scheme)
    row, found = measure(problem, point, progress.info, counts, phase, scales, truth, keep_points)
    converging = scheme.converging(progress.scheme)
    target = tol if converging is None else jnp.where(converging, _BETTER * tol, tol)
    reached = (found.worst() <= target) & (tol > 0)
    finite = all_finite((point, found))
    size = jnp.max(jnp.abs(point.x), initial=0.0)
    width = jnp.max(jnp.where(jnp.isfinite(problem.x_width), problem.x_width, 0.0), initial=0.0)
    usual = 1.0 + jnp.max(jnp.abs(scales.x0), initial=0.0) + width
    gives_up = scheme.gives_up(progress.scheme)
    running = RUNNING if gives_up is None else jnp.where(gives_up, STALLED, RUNNING)
    verdict = jnp.where(reached, REACHED, jnp.where(size > _DIVERGED * usual, DIVERGED, running))
    verdict = jnp.where(finite, verdict, NONFINITE)
    return eqx.tree_at(lambda now: now.verdict, progress, verdict), row


def run_fused(
    problem: MisspecifiedVI,
    scheme: Scheme,
    progress: Progress,
    scales: Scales,
    grid: Int[Array | np.ndarray, " R"],
    tol,
    truth: Truth | None,
    keep_points: bool,
) -> tuple[Progress, Row, Int[Array, " rows"], Int[Array, ""]]:
    """All segments of the grid in one program: no host visit between the start and the answer.

    Returns the rows, the iterations they are of, and how many there are; when a scheme that pauses has filled
    them all, the last one is overwritten.
    """
    n_grid = grid.shape[0]
    n_rows = n_grid if scheme.pauses(progress.scheme) is None else max(n_grid, _ROWS_OF_PAUSES)
    look_now: Any = eqx.filter_closure_convert(  # traced once, for the shape of a row and for the loop
        lambda now: look(problem, scheme, now, scales, tol, truth, keep_points), progress
    )
    table = _Table(look_now.out_struct[1])
    rows = table.empty(n_rows)
    grid = jnp.asarray(grid)
    search = "compare_all" if n_grid <= _SHORT_GRID else "scan"  # a scan is a loop of its own

    def segment(carry):
        now, rows, ks, n = carry
        ahead = jnp.searchsorted(grid, now.k, side="right", method=search)
        # The first row is the start. A run that goes on has that row already: it moves before it looks, so that a rescued
        # point gets its Newton step even if it would pass as it is.
        until = jnp.where((n == 0) & (now.k == 0), now.k, grid[jnp.minimum(ahead, n_grid - 1)])
        now = advance(problem, scheme, now, until)
        now, row = look_now(now)
        at = jnp.minimum(n, n_rows - 1)
        rows = jax.tree.map(lambda column, value: column.at[at].set(value), rows, table.packed(row))
        return now, rows, ks.at[at].set(now.k), n + 1

    def unfinished(carry) -> Array:
        now, _, _, n = carry
        return (now.verdict == RUNNING) & ((n == 0) | (now.k < grid[-1]))

    start_of_run = (progress, rows, jnp.zeros(n_rows, grid.dtype), jnp.asarray(0))
    now, rows, ks, n = jax.lax.while_loop(unfinished, segment, start_of_run)
    return now, table.unpacked(rows), ks, jnp.minimum(n, n_rows)


class _Table:
    """Rows whose numbers stand side by side in one array: one write a row instead of one for every number."""

    def __init__(self, row: PyTree):
        leaves, self.tree = jax.tree.flatten(row)
        self.is_number = [leaf.shape == () for leaf in leaves]
        self.leaves = leaves

    def empty(self, n_rows: int) -> tuple[Array, list[Array]]:
        numbers = jnp.zeros((n_rows, sum(self.is_number)))
        return numbers, [jnp.zeros((n_rows, *leaf.shape), leaf.dtype) for leaf in self._others(self.leaves)]

    def packed(self, row: PyTree) -> tuple[Array, list]:
        leaves = self.tree.flatten_up_to(row)
        numbers = [leaf for leaf, is_number in zip(leaves, self.is_number, strict=True) if is_number]
        return jnp.stack([jnp.asarray(number, jnp.float64) for number in numbers]), self._others(leaves)

    def unpacked(self, rows: tuple[Array, list]) -> PyTree:
        columns, others = iter(rows[0].T), iter(rows[1])
        return self.tree.unflatten(
            next(columns).astype(leaf.dtype) if is_number else next(others)
            for leaf, is_number in zip(self.leaves, self.is_number, strict=True)
        )

    def _others(self, leaves: list) -> list:
        return [leaf for leaf, is_number in zip(leaves, self.is_number, strict=True) if not is_number]


class Standing(NamedTuple):
    """Where a run stands and where it began: enough to go on."""

    progress: Progress
    scales: Scales
    x0: Array
    theta0: PyTree


class Outcome(NamedTuple):
    """What a compiled stretch of a run leaves behind; `summary` holds the scalars the host needs, in one array."""

    standing: Later  # a Standing
    rows: Later  # a Row of columns
    ks: Int[Array, " rows"]
    point: Point
    constraint_values: Array
    constraint_units: Array
    summary: Float[Array, " 14"]


def begin(
    problem: MisspecifiedVI, scheme: Scheme, given: PyTree, seed, grid, tol, truth, keep_points: bool
) -> Outcome:
    """A whole run: starts projected, the loop, and the residuals that the certificate is made of."""
    x0, theta0, lam0 = jax.tree.map(jnp.asarray, given)
    x0, theta0 = problem.set.project(x0), problem.learning.set.project(theta0)
    progress, scales = start(problem, scheme, x0, theta0, lam0, jax.random.key(seed))
    standing = Standing(progress, scales, x0, theta0)
    return go_on(problem, scheme, standing, grid, tol, truth, keep_points)


def go_on(
    problem: MisspecifiedVI,
    scheme: Scheme,
    standing: Standing,
    grid,
    tol,
    truth: Truth | None,
    keep_points: bool,
) -> Outcome:
    """The rest of a run, from where it stands."""
    progress, scales, x0, theta0 = standing
    progress, rows, ks, n = run_fused(problem, scheme, progress, scales, grid, tol, truth, keep_points)
    point = scheme.output(progress.scheme)
    found, values, units = evaluate(problem, point.x, point.lam, point.theta, x0, theta0)
    summary = [
        progress.verdict,
        progress.k,
        n,
        found.kkt,
        found.infeasibility,
        found.learning_error,
        *found.relative,
    ]
    summary = [*summary, *scheme.counts(problem, progress.scheme, progress.k)]
    summary = jnp.stack([jnp.asarray(number, jnp.float64) for number in summary])
    standing = standing._replace(progress=progress)
    return Outcome(Later(standing), Later(rows), ks, point, values, units, summary)


begin_compiled = Compiled(begin)
go_on_compiled = Compiled(go_on)
start_compiled = eqx.filter_jit(start)
advance_compiled = eqx.filter_jit(advance)
look_compiled = eqx.filter_jit(look)


@eqx.filter_jit
def step_compiled(problem: MisspecifiedVI, scheme: Scheme, state: Any) -> tuple[Any, Info]:
    """One step, for `iterate`."""
    return scheme.step(problem, state)
