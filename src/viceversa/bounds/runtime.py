"""The run-time certificate: the theorem for one run, with the multipliers it had instead of D_Λ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from viceversa.bounds.evaluate import feasibility_constant, gap_constant, learning_rate_of
from viceversa.constants import Constants
from viceversa.constants import constants as compute_constants
from viceversa.constants.ingredients import Ingredients, ingredients
from viceversa.driver import Solution
from viceversa.errors import InputError
from viceversa.methods import AugmentedLagrangian
from viceversa.problem import MisspecifiedVI


@dataclass(frozen=True)
class RuntimeCertificate:
    """Whether 1/γ ≥ ρC₁ + C₂ max_k‖λ_k‖ + 2L_{F,x} held along a run of Algorithm 1, and what follows for its average.

    1ᵀ[f(x̄_K, θ*)]₊ ≤ C_feas/K,   sup_{y ∈ X_ε} F(y, θ*)ᵀ(x̄_K − y) ≤ Λε + (ρ/2)ε² + (C_gap + ρεℓS₁)/K,   Λ = max‖λ_k‖
    """

    holds: bool
    K: int
    step_size: float
    penalty: float
    inverse_step_needed: float
    largest_multiplier: float
    how: str
    C_feas: float
    C_gap: float
    drift: float
    given: Ingredients
    constants: Constants

    @property
    def infeasibility(self) -> float:
        """The bound on 1ᵀ[f(x̄_K, θ*)]₊; ∞ where the condition did not hold."""
        return self.C_feas / self.K if self.holds else float("inf")

    def relaxed_gap(self, eps: float = 0.0) -> float:
        """The bound on the relaxed gap of x̄_K for a given ε ≥ 0; ∞ where the condition did not hold."""
        if not self.holds:
            return float("inf")
        return (
            self.largest_multiplier * eps
            + 0.5 * self.penalty * eps**2
            + (self.C_gap + self.drift * eps) / self.K
        )

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS: nothing is proved about this run"
        rows = [
            f"1/γ = {1 / self.step_size:.6g} ≥ ρC₁ + C₂ max‖λ_k‖ + 2L_F,x = {self.inverse_step_needed:.6g}: {verdict}",
            f"max‖λ_k‖ ≤ {self.largest_multiplier:.4g} ({self.how})",
        ]
        if self.holds:
            rows.append(
                f"average of {self.K} iterations: infeasibility ≤ {self.infeasibility:.4g}, gap ≤ {self.relaxed_gap():.4g}"
            )
            rows += [f"  {name}: {words}" for name, words in self.given.words.items()]
        return "\n".join(rows)


def runtime_certificate(
    problem: MisspecifiedVI,
    solution: Solution,
    method: AugmentedLagrangian,
    *,
    x_true: Any = None,
    theta_true: Any = None,
    multiplier_norm: float | None = None,
    declared: Mapping[str, float] | None = None,
    constants: Constants | None = None,
) -> RuntimeCertificate:
    """The theorem for one run of Algorithm 1 with constant steps, which needs no bound on D_Λ.

    The run must have been recorded with its points, `record=vv.Record(points=True)`. Between recorded iterations ‖λ_k‖
    grows by at most ρD_f a step, so a dense grid (`at=range(K + 1)`) gives the smallest bound.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [4.0]), learning=vv.Known(2.0),
        ...                             constraints=lambda x, t: x - 1.0)
        >>> method = vv.AugmentedLagrangian(step_size=0.3, penalty=0.4)
        >>> run = vv.solve(problem, method, tol=0.0, max_iter=50, record=vv.Record(at=range(51), points=True))
        >>> vv.runtime_certificate(problem, run, method).holds
        True
    """
    if not isinstance(method, AugmentedLagrangian):
        raise InputError(
            f"method is {type(method).__name__}; the run-time certificate is about AugmentedLagrangian."
        )
    trace = solution.trace
    if trace.points is None:
        raise InputError("solution: its points were not recorded. Solve with record=vv.Record(points=True).")
    c = compute_constants(problem, declared) if constants is None else constants
    c.require_bounds(
        "the run-time certificate", "L_F_x", "L_F_theta", "ell", "C1", "C2", "D_X", "L_H", "mu_H"
    )
    gamma, rho, K = float(trace.step_size[-1]), float(trace.penalty[-1]), int(trace.k[-1])
    if K < 1 or (trace.step_size[trace.k > 0] != gamma).any() or (trace.penalty[trace.k > 0] != rho).any():
        raise InputError(
            "solution: the run-time certificate needs at least one iteration, and constant γ and ρ."
        )
    sizes = np.linalg.norm(trace.points.lam, axis=1)
    gaps = np.diff(trace.k)
    how = "recorded at every iteration"
    largest = float(sizes[:-1].max())
    if gaps.max(initial=1) > 1:
        c.require_bounds("the run-time certificate between recorded iterations", "D_f")
        largest = float(np.max(sizes[:-1] + rho * float(c.D_f) * (gaps - 1)))
        how = "recorded, plus at most ρD_f a step between records"
    given = ingredients(
        problem,
        c,
        x0=trace.points.x[0],
        theta0=jax.tree.map(lambda leaf: leaf[0], trace.points.theta),
        learning_rate=learning_rate_of(problem, method),
        multiplier_norm=multiplier_norm,
        x_true=x_true,
        theta_true=theta_true,
    )
    needed = rho * float(c.C1) + float(c.C2) * largest + 2.0 * float(c.L_F_x)
    lam0 = float(sizes[0])
    return RuntimeCertificate(
        holds=bool(1.0 / gamma >= needed * (1.0 - 1e-12)),
        K=K,
        step_size=gamma,
        penalty=rho,
        inverse_step_needed=needed,
        largest_multiplier=largest,
        how=how,
        C_feas=feasibility_constant(c, given, problem.n_constraints, gamma, rho, largest, lam0),
        C_gap=gap_constant(c, given, gamma, rho, largest, lam0),
        drift=rho * float(c.ell) * given.sums.S1,
        given=given,
        constants=c,
    )
