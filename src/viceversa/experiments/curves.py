"""Curves of the long table over the three x-axes, medians over seeds, and the rates fitted to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

METHODS = ("AugmentedLagrangian", "TikhonovLagrangian", "ExtragradientLagrangian")
OURS, TIKHONOV, EXTRAGRADIENT = METHODS
BASELINES = (TIKHONOV, EXTRAGRADIENT)
# The names of the paper's legend.
LABELS = {OURS: "ALM-Misspecified VI", TIKHONOV: "Lagrangian–Tikhonov", EXTRAGRADIENT: "EG–Lagrangian"}
METRICS = {"gap_upper": "gap", "infeasibility": "infeasibility"}
AXES = {"iteration": "iterations", "operator_evaluations": "operator evaluations", "seconds": "seconds"}

ROUNDING = 1e-10  # errors below this are rounding, not convergence
SOLVED_FRACTION = 0.01  # "reached" means: 1% of the value at the start


Size = tuple[int, int]
_CURVE = ["n_firms", "n_products", "step_rule", "method", "point", "multipliers"]


class Curve(NamedTuple):
    """A metric over one axis at the recorded iterations: median, smallest and largest over seeds."""

    iteration: np.ndarray
    at: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def where(self, keep: np.ndarray) -> Curve:
        """The rows to keep."""
        return Curve(*(column[keep] for column in self))

    def visible(self) -> Curve:
        """The rows that have a place on a logarithmic axis."""
        return self.where((self.at > 0) & np.isfinite(self.median))


class Curves:
    """The long table by its curves: one for each instance, step rule, method, point and kind of multipliers."""

    def __init__(self, frame: pd.DataFrame):
        self.frame = frame
        self.rules = set(frame["step_rule"])
        self._rows: dict[Any, Any] = dict(iter(frame.groupby(_CURVE, sort=False)))
        self._curves: dict[Any, Curve] = {}

    def sizes(self, step_rule: str | None = None, multipliers: str = "shared") -> list[Size]:
        """(N, D) of the instances (that were run with a rule), smallest first."""
        found = {key[:2] for key in self._rows if key[2] == (step_rule or key[2]) and key[5] == multipliers}
        return sorted((int(n), int(d)) for n, d in found)

    def rows(self, size: Size, rule: str, method: str, point="average", multipliers="shared") -> Any:
        """The rows of one curve as a DataFrame, all seeds; empty if it was not run."""
        return self._rows.get((*size, rule, method, point, multipliers), self.frame.iloc[:0])

    def median(self, column: str, size: Size, rule: str, method: str, multipliers="shared") -> float:
        """The median of a column that is the same in all rows of a run, such as its step size."""
        return float(
            np.median(self.rows(size, rule, method, multipliers=multipliers)[column].to_numpy(dtype=float))
        )

    def curve(
        self,
        size: Size,
        rule: str,
        method: str,
        metric: str,
        axis: str = "iteration",
        point: str = "average",
        multipliers: str = "shared",
    ) -> Curve:
        """One metric over one axis."""
        key = (size, rule, method, metric, axis, point, multipliers)
        if key not in self._curves:
            self._curves[key] = _over_seeds(self.rows(size, rule, method, point, multipliers), axis, metric)
        return self._curves[key]

    def pair(self, size: Size, rule: str, method: str, axis="iteration", multipliers="shared") -> list[Curve]:
        """Gap and infeasibility of the average."""
        return [self.curve(size, rule, method, metric, axis, multipliers=multipliers) for metric in METRICS]


def _over_seeds(rows: Any, axis: str, metric: str) -> Curve:
    order = np.argsort(rows["iteration"].to_numpy(), kind="stable")
    iterations, first = np.unique(rows["iteration"].to_numpy()[order], return_index=True)
    at, values = (np.split(rows[name].to_numpy(dtype=float)[order], first)[1:] for name in (axis, metric))
    return Curve(
        iteration=iterations,
        at=np.array([np.median(group) for group in at]),
        median=np.array([np.median(group) for group in values]),
        low=np.array([group.min() for group in values]),
        high=np.array([group.max() for group in values]),
    )


def final_value(curve: Curve) -> float:
    """The median at the end of the run."""
    return float(curve.median[-1])


def left_over(curve: Curve) -> float:
    """The median at the end of the run over the one at the start."""
    return ratio(final_value(curve), float(curve.median[0]))


def ratio(numerator: float, denominator: float) -> float:
    """numerator/denominator; infinite for a positive number over zero."""
    return float(numerator / denominator) if denominator > 0 else float("inf" if numerator > 0 else "nan")


def value_at(curve: Curve, at: float) -> float:
    """The curve's median at a value of its axis, interpolated on log-log scales; nan before its first row."""
    seen = curve.visible()
    if seen.at.size == 0 or at < seen.at[0] * (1 - 1e-12):
        return float("nan")
    return float(np.exp(np.interp(np.log(at), np.log(seen.at), _log(seen.median))))


def reached_at(curves: list[Curve], fraction: float = SOLVED_FRACTION) -> float:
    """Where on the axis all curves have come to `fraction` of their start and stay there; inf if not within the run."""
    return max(_reached_one(curve, fraction) for curve in curves)


def _reached_one(curve: Curve, fraction: float) -> float:
    target = fraction * curve.median[0]
    above = np.flatnonzero(~(curve.median <= target))  # nan counts as above
    if above.size == 0:
        return 0.0
    last = int(above[-1])
    if last + 1 == len(curve.at):
        return float("inf")
    if curve.at[last] <= 0 or not np.isfinite(curve.median[last]):
        return float(curve.at[last + 1])
    # log-log interpolation between the last row above the target and the first below it
    before, goal, after = _log(np.array([curve.median[last], target, curve.median[last + 1]]))
    share = (before - goal) / (before - after)
    return float(curve.at[last] ** (1 - share) * curve.at[last + 1] ** share)


def tail_slope(curve: Curve) -> float:
    """The exponent p of C·K^p fitted by least squares over the last factor of ten of the axis."""
    seen = curve.visible()
    tail = seen.where((seen.at >= seen.at[-1:] / 10) & (seen.median > 0))
    if tail.at.size < 3:
        return float("nan")
    return float(np.polyfit(np.log(tail.at), np.log(tail.median), 1)[0])


def linear_rate(curve: Curve) -> float:
    """The factor per iteration of an error that decreases geometrically; nan where the fit has no line to hold on to.

    Fitted where the error lies between 10⁻² of its start and rounding: before that is the transient, after it noise.
    Less than three factors of ten could be any curve.
    """
    start = float(curve.median[0])
    part = curve.where((curve.median < 1e-2 * start) & (curve.median > ROUNDING * max(start, 1.0)))
    if part.at.size < 3 or part.median.max() < 1e3 * part.median.min():
        return float("nan")
    slope = float(np.polyfit(part.at, np.log(part.median), 1)[0])
    return float(np.exp(slope)) if slope < 0 else float("nan")


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(values, 1e-300))
