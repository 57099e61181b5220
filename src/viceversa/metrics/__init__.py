"""Metrics: numbers about (x, λ, θ) that never know which method made them."""

from viceversa.metrics.approximate_solution import epsilon
from viceversa.metrics.gap import minty_gap, relaxed_gap, relaxed_gaps
from viceversa.metrics.intervals import EpsilonInterval, GapInterval, GapIntervals
from viceversa.metrics.residuals import infeasibility, kkt_residual, natural_residual, parameter_error

__all__ = [
    "EpsilonInterval",
    "GapInterval",
    "GapIntervals",
    "epsilon",
    "infeasibility",
    "kkt_residual",
    "minty_gap",
    "natural_residual",
    "parameter_error",
    "relaxed_gap",
    "relaxed_gaps",
]
