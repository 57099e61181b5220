"""A gallery problem with its truth: what the answer is, how sure that is, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from viceversa.certificates import Certificate, certify
from viceversa.errors import InputError
from viceversa.problem import MisspecifiedVI

Real = float | int | np.floating | np.integer  # a number a user may write


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem, its answer (x*, λ*, θ*), a start θ₀ that is wrong on purpose, and its source.

    `x_true` is one solution; where `x_unique` is False only the numbers in `aggregates(x)` are the same at every
    solution. `published` holds the digits of the source, to compare with, and `details` further exact numbers; `constants` the closed forms that are
    proved for the family; `monotone` is False for problems that are outside the theory on purpose.
    """

    name: str
    problem: MisspecifiedVI
    theta_true: PyTree
    x_true: np.ndarray
    multiplier_true: np.ndarray | None
    theta0: PyTree
    source: str
    units: str = "none"
    constants: dict[str, float] | None = None
    published: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    monotone: bool = True
    x_unique: bool = True
    multiplier_unique: bool = True
    aggregates: Callable[[np.ndarray], dict[str, np.ndarray]] | None = None

    @property
    def known(self) -> MisspecifiedVI:
        """The plain VI at θ*: nothing left to learn."""
        return self.problem.with_known(self.theta_true)

    def certify(self, tol: float = 1e-10) -> Certificate:
        """The certificate of the stored answer, computed from the problem alone."""
        if self.multiplier_true is None:
            raise InputError(f"{self.name}: its multiplier is not known, so the answer cannot be certified.")
        return certify(self.problem, self.x_true, self.multiplier_true, self.theta_true, tol=tol)

    def __repr__(self) -> str:
        n_theta = sum(np.size(leaf) for leaf in jax.tree.leaves(self.theta_true))
        sizes = f"n={int(np.prod(self.problem.shape))}, J={self.problem.n_constraints}, m={n_theta}"
        return f"Instance({self.name}: {sizes}; {self.source})"
