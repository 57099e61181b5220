"""The answer: a point, what is known about it, and how it was reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import PyTree

from viceversa.certificates.infeasibility import InfeasibilityProof
from viceversa.certificates.kkt import Certificate
from viceversa.driver.recording import Trace
from viceversa.driver.status import Status
from viceversa.methods.base import OracleCounts


@dataclass(frozen=True)
class Solution:
    """x, θ and λ as NumPy arrays, with status, certificate and trace.

    `x` is the last iterate of a named method; `x_average` the average its theorem is about.
    """

    x: np.ndarray
    theta: PyTree
    multiplier: np.ndarray
    x_average: np.ndarray
    status: Status
    certificate: Certificate
    trace: Trace = field(repr=False)
    nit: int
    counts: OracleCounts
    time: float
    standing: Any = field(default=None, repr=False)  # where the run stands, put together when looked at
    infeasibility: InfeasibilityProof | None = None
    notes: tuple[str, ...] = ()  # what was left out and why, in sentences

    @property
    def success(self) -> bool:
        """Whether the certificate says solved."""
        return self.status.success

    @property
    def state(self) -> Any:
        """The scheme's own state at the end, for those who know it; arrays lie as the scheme had them (driver/turned.py)."""
        return None if self.standing is None else self.standing.whole().progress.scheme

    @property
    def message(self) -> str:
        """The status as a sentence."""
        return self.status.value

    @property
    def nfev(self) -> int:
        """Evaluations of F."""
        return self.counts.F

    @property
    def maxcv(self) -> float:
        """The largest constraint violation, max_j [f_j(x, θ)]₊."""
        return float(np.max(self.certificate.constraint_values, initial=0.0))

    def __str__(self) -> str:
        head = f"{self.status}: {self.message}\n{self.nit} iterations, {self.nfev} operator evaluations, {self.time:.3g} s"
        return "\n".join([head, *self.notes, str(self.certificate)])
