"""What is recorded, on which iterations, and the table that comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.certificates.residuals import Residuals, Scales, residuals
from viceversa.errors import InputError, MissingExtra
from viceversa.methods.base import Info, OracleCounts
from viceversa.numerics import positive_part, tree_norm, tree_subtract
from viceversa.precision import as_float64
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point

N_DEFAULT = 64  # rows of the default grid: enough for a curve and for stopping within a few percent


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
            steps = np.geomspace(1, max(max_iter, 1), self.n - 1)
            return np.concatenate([[0], np.minimum(np.round(steps), max_iter)]).astype(np.int64)
        given = as_float64("Record: at", self.at)
        at = np.unique(given.astype(np.int64))
        if at.size == 0 or at[0] < 0 or (given != np.round(given)).any():
            raise InputError(f"Record: at is {self.at}; whole numbers >= 0 (iterations) are needed.")
        return np.unique(np.concatenate([[0], at[at <= max_iter], [max_iter]]))


class Row(NamedTuple):
    """One recorded iteration; `*_true` and `*_error` are present only when the truth was given."""

    residual: Array
    relative: Array
    infeasibility: Array
    infeasibility_average: Array
    learning_error: Array
    step_size: Array
    penalty: Array
    truth: dict[str, Array]
    points: Point | None


def measure(
    problem: MisspecifiedVI, point: Point, info: Info, scales: Scales, truth: Truth | None, keep_points: bool
) -> tuple[Row, Residuals]:
    """The traced metrics of one recorded iteration."""
    found = residuals(problem, point.x, point.lam, point.theta, scales)
    f_average = problem.at(point.theta).f(point.x_average)
    row = Row(
        residual=found.kkt,
        relative=found.worst(),
        infeasibility=found.infeasibility,
        infeasibility_average=jnp.sum(positive_part(f_average)),
        learning_error=found.learning_error,
        step_size=info.step_size,
        penalty=info.penalty,
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


@dataclass(frozen=True)
class Trace:
    """Metrics over recorded iterations, as NumPy arrays under their names; times and oracle counts with them."""

    k: np.ndarray
    columns: dict[str, np.ndarray]
    counts: list[OracleCounts]
    points: Point | None = field(default=None, repr=False)

    def __getattr__(self, name: str) -> np.ndarray:
        columns = self.__dict__.get("columns", {})
        if name in columns:
            return columns[name]
        raise AttributeError(f"the trace has no column {name!r}; it has k, {', '.join(columns)}.")

    def __len__(self) -> int:
        return len(self.k)

    def to_frame(self):
        """The trace as a pandas DataFrame, one row per recorded iteration."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("Trace.to_frame", "pandas", "tables") from None
        counts = {f"n_{name}": [getattr(c, name) for c in self.counts] for name in OracleCounts._fields}
        return pd.DataFrame({"k": self.k, **self.columns, **counts})
