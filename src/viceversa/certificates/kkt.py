"""The core certificate: the inequalities behind the word `solved`, recomputed at the point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from viceversa import precision
from viceversa.certificates.residuals import (
    Relative,
    Residuals,
    force_at_start,
    residuals,
    start_scales,
)
from viceversa.certificates.statements import Statement
from viceversa.errors import InputError
from viceversa.problem import MisspecifiedVI
from viceversa.quick_module import made


@dataclass(frozen=True)
class Certificate:
    """What holds at a point, with the words for it. `relative` parts at most tol are what `solved` means.

    `statements` are the lines that need constants of the problem; `certify(..., detail=True)` fills them.
    """

    kkt_residual: float
    infeasibility: float
    relative: dict[str, float]
    constraint_values: np.ndarray
    violated: tuple[str, ...]
    learning_error: float
    learning_provenance: str
    tol: float
    statements: tuple[Statement, ...] = ()

    def statement(self, name: str) -> Statement:
        """The line whose name begins with `name`, such as "‖x − x*‖"."""
        for line in self.statements:
            if line.name.startswith(name):
                return line
        names = ", ".join(repr(line.name) for line in self.statements) or "none (ask certify for detail=True)"
        raise InputError(f"statement: there is no line {name!r}; there are: {names}.")

    @property
    def holds(self) -> bool:
        """Whether every inequality of `solved` holds (the learning one as surely as its constants)."""
        stationarity, feasibility, complementarity, learning = self.relative.values()
        tol = self.tol  # a NaN does not hold
        return stationarity <= tol and feasibility <= tol and complementarity <= tol and learning <= tol

    def __str__(self) -> str:
        rows = [f"{'condition':<17}{'relative':>10}   needed   verdict"]
        for part, value in self.relative.items():
            rows.append(
                f"{part:<17}{value:>10.2e}   {self.tol:.0e}    {'holds' if value <= self.tol else 'FAILS'}"
            )
        learned = f"‖θ − θ*‖ ≤ {self.learning_error:.2e} (μ_H and L_H {self.learning_provenance})"
        violated = ", ".join(self.violated[:5]) + (" ..." if len(self.violated) > 5 else "")
        rows.append(
            f"KKT residual {self.kkt_residual:.2e}; infeasibility 1ᵀ[f]₊ {self.infeasibility:.2e}; {learned}"
        )
        rows.append(f"violated constraints: {violated or 'none'}")
        rows += [str(line) for line in self.statements]
        return "\n".join(rows)


def certify(
    problem: MisspecifiedVI,
    x: Any,
    multiplier: Any = None,
    theta: Any = None,
    *,
    x0: Any = None,
    theta0: Any = None,
    tol: float = 1e-8,
    detail: bool = False,
    declared: Mapping[str, Any] | None = None,
    constants: Any = None,
) -> Certificate:
    """What can be proved about a point from anywhere, another solver included.

    `theta` may be left out when it is known. `x0` is where relative units are taken (default: P_X(0)). `detail=True` adds
    what the learning error can do to infeasibility and gap, and a bound on ‖x − x*‖ where F is proved strongly monotone;
    these need `constants` (computed with `declared` if left out, see `vv.constants`).

    Example:
        >>> import numpy as np, viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [1.0]), learning=vv.Known(0.5))
        >>> vv.certify(problem, [0.5]).holds
        True
    """
    x = problem.check_x("x", x)
    multiplier = np.zeros(problem.n_constraints) if multiplier is None else multiplier
    multiplier = problem.check_multiplier("multiplier", multiplier)
    theta = problem.theta_or_known(theta)
    with precision.double():
        start = jnp.asarray(np.zeros(problem.shape) if x0 is None else problem.check_x("x0", x0))
        start = problem.set.project(start) if x0 is None else start
        theta_start = theta if theta0 is None else problem.check_theta("theta0", theta0)
        run = evaluate if problem.runs_on_host else evaluate_compiled
        found = jax.tree.map(np.asarray, run(problem, x, multiplier, theta, start, theta_start))
    certificate = build_certificate(problem, found, tol)
    if not detail:
        return certificate
    from viceversa.certificates.detail import detailed_statements  # late: constants need this package first

    error = certificate.learning_error
    lines = detailed_statements(problem, x, multiplier, theta, found.f, error, constants, declared)
    return replace(certificate, statements=lines)


def build_certificate(problem: MisspecifiedVI, found: Residuals, tol: float) -> Certificate:
    """Words and names for computed residuals."""
    relative = dict(zip(Relative._fields, map(float, found.relative), strict=True))
    numbers = float(found.kkt), float(found.infeasibility), float(found.learning_error)
    return certificate_of(problem, tol, *numbers, relative, np.asarray(found.f), np.asarray(found.f_hat))


def certificate_of(
    problem: MisspecifiedVI,
    tol: float,
    kkt: float,
    infeasibility: float,
    learning_error: float,
    relative: dict[str, float],
    f: np.ndarray,
    f_hat: np.ndarray,
) -> Certificate:
    """The same of plain numbers; a constraint is violated when f_j > tol·f̂_j."""
    violated: tuple[str, ...] = ()
    if not relative["feasibility"] <= tol:
        is_violated = f > tol * f_hat
        worst_first = np.argsort(-f)
        violated = tuple(problem.constraint_names[j] for j in worst_first if is_violated[j])
    return made(
        Certificate,
        kkt_residual=kkt,
        infeasibility=infeasibility,
        relative=relative,
        constraint_values=f,
        violated=violated,
        learning_error=learning_error,
        learning_provenance=problem.learning.provenance,
        tol=tol,
        statements=(),
    )


def evaluate(problem: MisspecifiedVI, x: Any, lam: Any, theta: PyTree, x0: Any, theta0: PyTree) -> Residuals:
    """The residuals at a point of a problem that was begun at (x_0, θ_0), with nothing left out."""
    x, lam, x0 = jnp.asarray(x), jnp.asarray(lam), jnp.asarray(x0)
    theta, theta0 = jax.tree.map(jnp.asarray, (theta, theta0))
    scales = start_scales(problem, x0, theta0)
    scales = scales._replace(F_start=force_at_start(problem, x0, theta))
    return residuals(problem, x, lam, theta, scales, in_full=True)


evaluate_compiled = eqx.filter_jit(evaluate)
