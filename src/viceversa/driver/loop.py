"""The compiled loop over a scheme's steps, with metrics only on the recording grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from viceversa.certificates.residuals import Residuals, Scales, force_at_start, start_scales, way_come
from viceversa.driver.compiled import Compiled
from viceversa.driver.packing import Later, Packed
from viceversa.driver.recording import Row, Truth, measure
from viceversa.driver.turned import View
from viceversa.methods.base import Info
from viceversa.numerics import (
    all_finite,
    cond,
    max_abs,
    safe_divide,
    tree_max_abs,
    tree_subtract,
    while_loop,
)
from viceversa.one_kernel import Kernel, through_the_queue
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point, Scheme

RUNNING, REACHED, NONFINITE, DIVERGED, STALLED = 0, 1, 2, 3, 4
_BETTER = 1e-2  # of tol: what one more step of a method that converges fast is taken for
_ROWS_OF_PAUSES = 64  # room for the rows of a scheme that asks to be looked at between those of the grid
_SHORT_GRID = 1000
# Operations up to which all parts of a run become one native function: that runs faster, but a long one compiles slowly.
_MOST_OPERATIONS_IN_ONE = 4500
# An unbounded iterate that has grown so many times larger than 1, the set and where it started: no unit explains that.
_DIVERGED = 1e18
_RESTLESS = 0.1  # the least relative residual of one that diverges
_ALMOST_ANYTHING = 0.1  # a tolerance that passes points at which residuals leave out f's slopes


class ForceAtStart(NamedTuple):
    """‖F(x_0, θ)‖∞ and the θ it was taken at: as long as θ rests, it is not asked again."""

    size: Float[Array, ""]
    theta: PyTree

    @classmethod
    def nowhere(cls, like: PyTree) -> ForceAtStart:
        """To be asked, at a θ of this form."""
        return cls(jnp.asarray(jnp.nan), jax.tree.map(jnp.zeros_like, like))

    def at(self, problem: MisspecifiedVI, x0: Array, theta: PyTree) -> ForceAtStart:
        """The same at another θ."""
        pairs = zip(jax.tree.leaves(theta), jax.tree.leaves(self.theta), strict=True)
        rests = [jnp.all(new == old) for new, old in pairs]
        size = cond(
            jnp.all(jnp.stack([~jnp.isnan(self.size), *rests])),
            lambda _: self.size,
            lambda now: force_at_start(problem, x0, now),
            theta,
            on_host=problem.runs_on_host,
        )
        return ForceAtStart(size, theta)


class Progress(eqx.Module):
    """The loop's state: the scheme's, the iteration, the last step's info, why it should stop, and a unit of force."""

    scheme: Any
    k: Int[Array, ""]
    info: Info
    verdict: Int[Array, ""]
    force: ForceAtStart


def projected(problem: MisspecifiedVI, starts: Starts) -> tuple[Array, PyTree, tuple[Array, Array]]:
    """x_0 and θ_0 on their sets, and how far each was moved, relative to its largest component."""
    x0, theta0 = problem.set.project(starts.x), problem.learning.set.project(starts.theta)

    def moved(given: PyTree, used: PyTree) -> Array:
        size, distance = tree_max_abs(given), tree_max_abs(tree_subtract(given, used))
        return safe_divide(distance, size, distance)

    return x0, theta0, (moved(starts.x, x0), moved(starts.theta, theta0))


def start(problem: MisspecifiedVI, scheme: Scheme, x0: Array, theta0: PyTree, lam0: Array, key: Array):
    """The state before the first step and the scales that `tol` refers to."""
    x0, theta0, lam0 = jax.tree.map(jnp.asarray, (x0, theta0, lam0))
    state = scheme.init(problem, x0, theta0, lam0, key)
    info = Info(step_size=jnp.zeros(()), penalty=jnp.zeros(()))
    scales = start_scales(problem, x0, theta0)
    force = ForceAtStart.nowhere(theta0)
    return Progress(
        scheme=state, k=jnp.asarray(0), info=info, verdict=jnp.asarray(RUNNING), force=force
    ), scales


def advance(problem: MisspecifiedVI, scheme: Scheme, progress: Progress, until) -> Progress:
    """Steps until iteration `until`, or until the scheme asks to be looked at."""
    progress = eqx.tree_at(lambda now: now.scheme, progress, scheme.resumed(progress.scheme))

    def one_step(now: Progress) -> Progress:
        state, info = scheme.step(problem, now.scheme)
        return Progress(scheme=state, k=now.k + 1, info=info, verdict=now.verdict, force=now.force)

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
    last,
) -> tuple[Progress, Row, Residuals]:
    """Metrics of the current point, and whether they or the `last` iteration say stop; then the residuals are the certificate's."""
    point = scheme.output(progress.scheme)
    counts = scheme.counts(problem, progress.scheme, progress.k)
    phase = scheme.phase(progress.scheme)
    force = progress.force.at(problem, scales.x0, point.theta)
    scales = scales._replace(F_start=force.size)
    size = max_abs(point.x)
    width = jnp.max(jnp.where(jnp.isfinite(problem.x_width), problem.x_width, 0.0), initial=0.0)
    usual = 1.0 + max_abs(scales.x0) + width
    is_huge = size > _DIVERGED * usual
    gives_up = scheme.gives_up(progress.scheme)
    gives_up = jnp.asarray(False) if gives_up is None else gives_up
    may_end = is_huge | gives_up | (progress.k >= last) | (tol > _ALMOST_ANYTHING)
    row, found = measure(problem, point, progress.info, counts, phase, scales, truth, keep_points, may_end)
    converging = scheme.converging(progress.scheme)
    target = tol if converging is None else jnp.where(converging, _BETTER * tol, tol)
    settled = scheme.settled(progress.scheme)
    reached = (found.worst() <= target) & (tol > 0) & (True if settled is None else settled)
    finite = all_finite((point, found))
    running = jnp.where(gives_up, STALLED, RUNNING)
    diverged = is_huge & (found.worst() > _RESTLESS)
    verdict = jnp.where(reached, REACHED, jnp.where(diverged, DIVERGED, running))
    verdict = jnp.where(finite, verdict, NONFINITE)
    if scheme.is_tentative(progress.scheme):
        verdict = jnp.where(finite & ~diverged, verdict, STALLED)
    return eqx.tree_at(lambda now: (now.verdict, now.force), progress, (verdict, force)), row, found


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """On which iterations to look, how closely, against what, whether to keep the points, and the seed of what is random."""

    grid: Int[Array | np.ndarray, " R"]
    tol: Any
    truth: Truth | None
    keep_points: bool
    seed: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Starts:
    """Where a run is to begin; x and θ are yet to be projected on their sets."""

    x: Any
    theta: PyTree
    lam: Any


def unpacked(starts: Starts | Packed) -> Starts:
    """Where to begin, as arrays of JAX."""
    return jax.tree.map(jnp.asarray, starts.whole() if isinstance(starts, Packed) else starts)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Standing:
    """Where a run stands, as its scheme sees it, and what is known of its start: enough to go on."""

    progress: Any  # a Progress
    scales: Scales
    moved: Any  # how far projections moved x0 and θ0


class Outcome(NamedTuple):
    """What a compiled stretch of a run leaves behind; `summary` holds the scalars the host needs, in one array."""

    standing: Later  # a Standing
    rows: Later  # a Row of columns, and their iterations
    point: Point
    constraint_values: Any
    constraint_units: Any
    summary: Float[Array, " 17"]


class Given(NamedTuple):
    """What does not change during a run, as its scheme sees it."""

    problem: Packed
    scheme: Packed
    settings: Packed
    began: Packed  # the scales, and how far projections moved x0 and θ0

    def unpacked(self) -> tuple[MisspecifiedVI, Scheme, Settings]:
        return self.problem.whole(), self.scheme.whole(), self.settings.whole()


class Carry(NamedTuple):
    """What changes: a packed Progress, packed residuals at its point, packed rows below one another, their iterations, how many,
    and whether to go on."""

    run: Packed
    found: Packed
    rows: Packed
    ks: Int[Array, " rows"]
    n: Int[Array, ""]
    going: Bool[Array, ""]


def begin(problem: Packed, scheme: Packed, settings: Packed, starts: Packed) -> Packed:
    """A whole run: starts projected, and the loop, whose last look has the residuals of the certificate; an Outcome."""
    view, seen = _seen_by(problem, scheme)

    def stand(problem: Packed, scheme: Packed, settings: Packed, starts: Packed) -> tuple[Packed, Packed]:
        the_problem, seed = problem.whole(), settings.whole().seed
        given = jax.tree.map(jnp.asarray, starts.whole())
        given = replace(given, x=view.x(given.x))
        x0, theta0, moved = projected(the_problem, given)
        progress, scales = start(the_problem, scheme.whole(), x0, theta0, given.lam, jax.random.key(seed))
        return Packed.like(progress), Packed.like((scales, moved))

    first = Kernel(stand, seen, scheme, settings, starts)
    run, began = first(seen, scheme, settings, starts)
    given = Given(seen, scheme, settings, began)
    if not first.is_one:
        # What this part cannot contain the others cannot either; and what comes out of it might be known to XLA while it
        # compiles, which nothing that goes into a native function may be.
        with through_the_queue():
            return _Stretch(view, given, run, begins=True)(given, run)
    stretch = _Stretch(view, given, run, begins=True)
    if not (stretch.is_native and first.n_operations + stretch.n_operations <= _MOST_OPERATIONS_IN_ONE):
        return stretch(given, run)

    def all_of_it(problem: Packed, scheme: Packed, settings: Packed, starts: Packed) -> Packed:
        _, seen = _seen_by(problem, scheme)
        run, began = first(seen, scheme, settings, starts)
        return stretch(Given(seen, scheme, settings, began), run)

    whole = Kernel(all_of_it, problem, scheme, settings, starts)
    return whole(problem, scheme, settings, starts) if whole.is_one else stretch(given, run)


def go_on(problem: Packed, scheme: Packed, settings: Packed, standing: Packed) -> Packed:
    """The rest of a run."""
    view, problem = _seen_by(problem, scheme)
    now = standing.whole()
    given, run = (
        Given(problem, scheme, settings, Packed.like((now.scales, now.moved))),
        Packed.like(now.progress),
    )
    return _Stretch(view, given, run, begins=False)(given, run)


def _seen_by(problem: Packed, scheme: Packed) -> tuple[View, Packed]:
    """How a problem's arrays lie for a scheme, and the problem with them."""
    whole = problem.whole()
    view = View(whole, scheme.whole())
    return view, problem if view.order is None else Packed.like(view.problem(whole))


class _Stretch:
    """All segments of the grid in one program, without a visit to the host; its parts are traced once, for arguments like these.

    When a scheme that pauses has filled all rows, the last one is overwritten.
    """

    def __init__(self, view: View, given: Given, run: Packed, begins: bool):
        self.view, self.begins = view, begins
        _, scheme, settings = given.unpacked()
        self.n_grid = settings.grid.shape[0]
        pauses = scheme.pauses(run.whole().scheme) is not None
        self.n_rows = max(self.n_grid, _ROWS_OF_PAUSES) if pauses else self.n_grid
        self.search = "compare_all" if self.n_grid <= _SHORT_GRID else "scan"  # a scan is a loop of its own
        self.move = Kernel(self._moved, given, run, jnp.asarray(0))
        self.see = Kernel(self._seen, given, run)
        self.close = Kernel(self._closed, given, self._carry(run))

    @property
    def is_native(self) -> bool:
        """Whether each part becomes one native function."""
        return self.move.is_one and self.see.is_one and self.close.is_one

    @property
    def n_operations(self) -> int:
        return self.move.n_operations + self.see.n_operations + self.close.n_operations

    def __call__(self, given: Given, run: Packed) -> Packed:
        """The Outcome."""

        def segment(carry: Carry) -> Carry:
            run, found, row, k, going = self.see(given, self.move(given, carry.run, carry.n))
            at = jnp.minimum(carry.n, self.n_rows - 1)
            rows = jax.tree.map(lambda table, part: _put(table, part, at), carry.rows, row)
            return Carry(run, found, rows, _put(carry.ks, k, at), carry.n + 1, going)

        carry = jax.lax.while_loop(lambda carry: carry.going, segment, self._carry(run))
        return self.close(given, carry)

    def _carry(self, run: Packed) -> Carry:
        """Before the first segment."""
        _, found, row, _, _ = self.see.shapes
        found = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), found)
        rows = jax.tree.map(lambda part: jnp.zeros((self.n_rows, *part.shape), part.dtype), row)
        none = jnp.asarray(0)
        return Carry(run, found, rows, jnp.zeros(self.n_rows, jnp.int64), none, jnp.asarray(True))

    def _moved(self, given: Given, run: Packed, n: Array) -> Packed:
        """The run at the next iteration of the grid, or where the scheme asks to be looked at."""
        (problem, scheme, settings), now = given.unpacked(), run.whole()
        grid = jnp.asarray(settings.grid)
        ahead = jnp.searchsorted(grid, now.k, side="right", method=self.search)
        until = _at(grid, jnp.minimum(ahead, self.n_grid - 1))
        # The first row is the start. A run that goes on has that row already: it moves before it looks, so that a rescued
        # point gets its Newton step even if it would pass as it is.
        until = jnp.where((n == 0) & (now.k == 0), now.k, until) if self.begins else until
        return Packed.like(advance(problem, scheme, now, until))

    def _seen(self, given: Given, run: Packed) -> tuple[Packed, Packed, Packed, Array, Array]:
        """The run with its verdict, the residuals, the row to be written, its iteration, and whether to go on."""
        problem, scheme, at = given.unpacked()
        scales, _ = given.began.whole()
        last, truth = jnp.asarray(at.grid)[-1], self.view.truth(at.truth)
        now, row, found = look(problem, scheme, run.whole(), scales, at.tol, truth, at.keep_points, last)
        going = (now.verdict == RUNNING) & (now.k < last)
        return Packed.like(now), Packed.like(found), Packed.like(self.view.row(row)), now.k, going

    def _closed(self, given: Given, carry: Carry) -> Packed:
        """The Outcome."""
        (problem, scheme, _), now = given.unpacked(), carry.run.whole()
        (scales, moved), found, point = given.began.whole(), carry.found.whole(), scheme.output(now.scheme)
        summary = [now.verdict, now.k, jnp.minimum(carry.n, self.n_rows)]
        summary += [found.kkt, found.infeasibility, found.learning_error, *found.relative]
        summary += [*scheme.counts(problem, now.scheme, now.k), way_come(problem, point.x, scales.x0), *moved]
        summary = jnp.stack([jnp.asarray(number, jnp.float64) for number in summary])
        return Packed.of(
            Outcome(
                Later(Standing(now, scales, moved)),
                Later((carry.rows, carry.ks)),
                self.view.point(point),
                found.f,
                found.f_hat,
                summary,
            )
        )


def _at(values: Array, i: Array) -> Array:
    return jax.lax.dynamic_index_in_dim(values, i, keepdims=False)


def _put(table: Array, row: Array, i: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(table, row, i, axis=0)


begin_compiled = Compiled(begin)
go_on_compiled = Compiled(go_on)
start_compiled = eqx.filter_jit(start)
advance_compiled = eqx.filter_jit(advance)
look_compiled = eqx.filter_jit(look)


@eqx.filter_jit
def step_compiled(problem: MisspecifiedVI, scheme: Scheme, state: Any) -> tuple[Any, Info]:
    """One step, for `iterate`."""
    return scheme.step(problem, state)
