"""Answers of the metrics that are intervals: both ends proved, and the words for how."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class GapInterval:
    """lower ≤ gap ≤ upper: the rule behind each side, the point that shows `lower`, the multiplier behind `upper`.

    `exact` says whether the sides agree to 1e-8·(1 + |upper|).
    """

    lower: float
    upper: float
    lower_rule: str
    upper_rule: str
    point: np.ndarray
    multiplier: np.ndarray
    exact: bool

    @property
    def width(self) -> float:
        """upper − lower; 0 where both are the same infinity."""
        return 0.0 if self.upper == self.lower else self.upper - self.lower

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper

    def __str__(self) -> str:
        return f"[{self.lower:.10g}, {self.upper:.10g}]  lower: {self.lower_rule}; upper: {self.upper_rule}"


@dataclass(frozen=True)
class GapIntervals:
    """One `GapInterval` for each point of a stack; `lower`, `upper` and `exact` as arrays."""

    intervals: tuple[GapInterval, ...]

    @property
    def lower(self) -> np.ndarray:
        """The lower ends."""
        return np.array([interval.lower for interval in self.intervals])

    @property
    def upper(self) -> np.ndarray:
        """The upper ends."""
        return np.array([interval.upper for interval in self.intervals])

    @property
    def exact(self) -> np.ndarray:
        """Which of them are tight."""
        return np.array([interval.exact for interval in self.intervals], dtype=bool)

    def __len__(self) -> int:
        return len(self.intervals)

    def __getitem__(self, i: int) -> GapInterval:
        return self.intervals[i]


@dataclass(frozen=True)
class EpsilonInterval:
    """lower ≤ ε ≤ upper for the smallest ε that makes a point an ε-approximate solution, with the rules."""

    lower: float
    upper: float
    lower_rule: str
    upper_rule: str

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper
