"""What is recorded, on which iterations, and the table that comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.certificates.residuals import Residuals, Scales, residuals
from viceversa.driver.packing import Later, Packed
from viceversa.errors import InputError, MissingExtra
from viceversa.methods.base import Info, OracleCounts
from viceversa.numerics import positive_part, tree_norm, tree_subtract
from viceversa.precision import as_float64
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point

N_DEFAULT = 24  # rows of the default grid: enough for a curve; each stops the loop for a look


class Truth(eqx.Module):
    """The known answer, for metrics at θ*: what one wants to see but cannot observe."""

    theta: PyTree
    x: Array | np.ndarray | None = None


@dataclass(frozen=True)
class Record:
    """On which iterations to record, and whether to keep the points themselves.

    `at` lists iterations; left out, the grid is geometric with `n` rows. `points=True` keeps x, λ, θ and the
    average of every row, for metrics computed afterwards. `theta_true` (and `x_true`) add errors to the truth.
    """

    at: Any = None
    n: int = N_DEFAULT
    points: bool = False
    theta_true: Any = None
    x_true: Any = None

    def grid(self, max_iter: int) -> np.ndarray:
        """Iterations 0 = k_0 ≤ k_1 ≤ … = max_iter; the default has the same length for every max_iter."""
        if self.at is None:
            if self.n < 2:
                raise InputError(
                    f"Record: n is {self.n}; at least 2 rows (the start and the end) are needed."
                )
            return _geometric_grid(self.n, max_iter)
        given = as_float64("Record: at", self.at)
        at = np.unique(given.astype(np.int64))
        if at.size == 0 or at[0] < 0 or (given != np.round(given)).any():
            raise InputError(f"Record: at is {self.at}; whole numbers >= 0 (iterations) are needed.")
        return np.unique(np.concatenate([[0], at[at <= max_iter], [max_iter]]))


@lru_cache(maxsize=64)
def _geometric_grid(n: int, max_iter: int) -> np.ndarray:
    steps = np.geomspace(max(max_iter, 1), 1, n - 1)[::-1]  # two rows: the start and the end
    return np.concatenate([[0], np.minimum(np.round(steps), max_iter)]).astype(np.int64)


class Row(NamedTuple):
    """One recorded iteration; `*_true` and `*_error` are present only when the truth was given."""

    residual: Array
    relative: Array
    infeasibility: Array
    infeasibility_average: Array
    learning_error: Array
    step_size: Array
    penalty: Array
    counts: OracleCounts
    phase: Array | None
    truth: dict[str, Array]
    points: Point | None


def measure(
    problem: MisspecifiedVI,
    point: Point,
    info: Info,
    counts: OracleCounts,
    phase: Array | None,
    scales: Scales,
    truth: Truth | None,
    keep_points: bool,
    is_last: Array,
) -> tuple[Row, Residuals]:
    """The traced metrics of one recorded iteration; `is_last`: it may be the one that the certificate is about."""
    found = residuals(problem, point.x, point.lam, point.theta, scales, in_full=is_last)
    f_average = problem.at(point.theta).f(point.x_average)
    row = Row(
        residual=found.kkt,
        relative=found.worst(),
        infeasibility=found.infeasibility,
        infeasibility_average=jnp.sum(positive_part(f_average)),
        learning_error=found.learning_error,
        step_size=info.step_size,
        penalty=info.penalty,
        counts=jax.tree.map(jnp.asarray, counts),
        phase=phase,
        truth={} if truth is None else _against_truth(problem, point, truth),
        points=point if keep_points else None,
    )
    return row, found


def _against_truth(problem: MisspecifiedVI, point: Point, truth: Truth) -> dict[str, Array]:
    f = problem.at(truth.theta).f
    errors = {
        "theta_error": tree_norm(tree_subtract(point.theta, truth.theta)),
        "infeasibility_true": jnp.sum(positive_part(f(point.x))),
        "infeasibility_average_true": jnp.sum(positive_part(f(point.x_average))),
    }
    if truth.x is not None:
        errors["x_error"] = tree_norm(point.x - truth.x)
        errors["x_average_error"] = tree_norm(point.x_average - truth.x)
    return errors


class Trace:
    """Metrics over recorded iterations, as NumPy arrays under their names; times and oracle counts with them.

    Built from the recorded rows when it is first looked at.
    """

    def __init__(self, pieces: list[Recorded], phases: tuple[str, ...] = ()):
        self._pieces, self._phases = pieces, phases

    @cached_property
    def _rows(self) -> list[tuple[int, float, Row]]:
        """(iteration, seconds, row) in order, each iteration once."""
        kept: list[tuple[int, float, Row]] = []
        for piece in self._pieces:
            rows, ks = piece.rows.whole()
            rows = jax.tree.map(np.asarray, rows.whole() if isinstance(rows, Packed) else rows)
            for n, k in enumerate(np.asarray(ks)[: int(piece.n)]):
                while kept and k <= kept[-1][0]:
                    kept.pop()  # seen before the run went on with a tighter test, or by a scheme that gave up
                row = jax.tree.map(lambda column, n=n: column[n], rows)
                kept.append((int(k), piece.seconds_at(int(k)), row))
        return kept

    @cached_property
    def k(self) -> np.ndarray:
        """The recorded iterations."""
        return np.array([k for k, _, _ in self._rows], dtype=np.int64)

    @cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Metrics by name; `time` in seconds (spread evenly over the iterations of a run without host visits)."""
        scalars = [scalars_of(row) for _, _, row in self._rows]
        columns = {name: np.array([s[name] for s in scalars]) for name in (scalars[0] if scalars else {})}
        return {**columns, "time": np.array([seconds for _, seconds, _ in self._rows])}

    @cached_property
    def counts(self) -> list[OracleCounts]:
        """Oracle calls up to each recorded iteration."""
        return [OracleCounts(*(int(count) for count in row.counts)) for _, _, row in self._rows]

    @cached_property
    def phase(self) -> list[str] | None:
        """What kind of step led to each recorded iteration and which blocks it moved; None where all are of one kind."""
        if not self._phases:
            return None
        return [self._phases[int(np.asarray(row.phase))] if k else "start" for k, _, row in self._rows]

    @cached_property
    def points(self) -> Point | None:
        """x, λ, θ and the average of every row, where `Record(points=True)` kept them."""
        if not self._rows or self._rows[0][2].points is None:
            return None
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(row.points for _, _, row in self._rows))

    def __getattr__(self, name: str) -> np.ndarray:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self.columns:
            return self.columns[name]
        raise AttributeError(f"the trace has no column {name!r}; it has k, {', '.join(self.columns)}.")

    def __len__(self) -> int:
        return len(self.k)

    def __repr__(self) -> str:
        return f"Trace({len(self)} rows: k, {', '.join(self.columns)}; .to_frame() for a table)"

    def to_frame(self):
        """The trace as a pandas DataFrame, one row per recorded iteration."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("Trace.to_frame", "pandas", "tables") from None
        counts = {f"n_{name}": [getattr(c, name) for c in self.counts] for name in OracleCounts._fields}
        phase = {} if self.phase is None else {"phase": self.phase}
        return pd.DataFrame({"k": self.k, **self.columns, **counts, **phase})


class Recorded(NamedTuple):
    """Rows of one stretch of a run, of which the first `n` count, and the time it took."""

    rows: Later  # a Row of columns, packed or not, and their iterations
    n: int
    begun: tuple[int, float]
    ended: tuple[int, float]

    def seconds_at(self, k: int) -> float:
        """The time at iteration k, spread evenly between the two moments the clock was read."""
        (k0, t0), (k1, t1) = self.begun, self.ended
        return t1 if k1 <= k0 else t0 + (t1 - t0) * (k - k0) / (k1 - k0)


def scalars_of(row: Row) -> dict[str, float]:
    """The numbers of a row by name."""
    values = {
        name: value
        for name, value in row._asdict().items()
        if name not in ("truth", "points", "counts", "phase")
    }
    return {name: float(value) for name, value in {**values, **row.truth}.items()}
