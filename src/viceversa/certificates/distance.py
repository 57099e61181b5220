"""How far a point is from the solution when F is strongly monotone, from the point alone (D.3)."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import precision
from viceversa.certificates.statements import Statement, refused
from viceversa.constants.table import Constant, Constants, derived
from viceversa.problem import MisspecifiedVI

_NAME = "‖x − x*‖"
_ROUNDING = 1e-14  # of the terms: what floating point can hide in (2)


def distance_statement(
    problem: MisspecifiedVI,
    x: np.ndarray,
    multiplier: np.ndarray,
    theta: PyTree,
    error: float,
    constants: Constants,
    multiplier_size: Constant | None = None,
) -> Statement:
    """‖x − x*‖ from (x, λ, θ) when F(·, θ*) is μ-strongly monotone on X and the f_j are convex.

    With G = F(x, θ) + Jf(x, θ)ᵀλ, â ≥ ‖θ − θ*‖, and any λ ≥ 0, monotonicity and Lemma 1 on X give for d = ‖x − x*‖, x ∈ X,

        (μ/2) d² − L_{F,θ} â d ≤ R                                                                    (1)
        R = max_{y ∈ X} {Gᵀ(x − y) − (μ/2)‖x − y‖²} − λᵀf(x, θ) + ‖λ‖₁ L_{f,θ} â + ‖λ*‖₁ max_j [f_j(x, θ) + L_{f,θ} â]₊   (2)

    The maximum is at y = P_X(x − G/μ). ‖λ*‖₁ is `multiplier_size`, needed only where the last bracket is positive.
    """
    c = constants
    needed = {"mu_F": c.mu_F} | ({"L_F_theta": c.L_F_theta, "L_f_theta": c.L_f_theta} if error > 0 else {})
    sampled = [name for name, constant in needed.items() if not constant.is_bound]
    if error > 0 and problem.learning.provenance == "estimated":
        sampled.append("μ_H and L_H")
    if sampled:
        return refused(_NAME, *sampled)
    mu = c.mu_F.value
    if not mu > 0.0:
        return Statement(_NAME, None, f"F is not proved strongly monotone (μ_F ≥ {mu:.3g}).")
    drift = float(c.L_F_theta) * error if error > 0 else 0.0
    slack = float(c.L_f_theta) * error if error > 0 else 0.0
    with precision.double():
        run = _terms if problem.runs_on_host else _terms_compiled
        terms = run(problem, x, multiplier, theta, np.float64(mu))
        best, complementarity, rounding, outside, worst = map(float, terms)
    excess = max(worst + slack, 0.0) if problem.n_constraints else 0.0
    if excess > 0.0 and multiplier_size is None:
        how = f"x may violate a constraint by {excess:.2g}, and no bound on λ* is known (Slater's condition)."
        return Statement(_NAME, None, how)
    size = multiplier_size.value if multiplier_size is not None and excess > 0.0 else 0.0
    R = best + complementarity + rounding + float(np.sum(multiplier)) * slack + size * excess
    distance = (drift + np.sqrt(drift**2 + 2.0 * mu * max(R, 0.0))) / mu + outside
    used = [*needed.values(), *([multiplier_size] if size > 0.0 and multiplier_size is not None else [])]
    found = derived(distance, "the regularised gap at (x, λ, θ) with the modulus μ_F", *used)
    assumptions = [f"F is strongly monotone with μ_F ≥ {mu:.3g} ({c.mu_F.provenance})"]
    if problem.n_constraints:
        assumptions.append("every f_j convex")
    if size > 0.0:
        assumptions.append(f"Slater's condition, ‖λ*‖₁ ≤ {size:.3g}")
    if not np.isfinite(distance):
        return Statement(_NAME, None, "a constant it needs is not finite.")
    return Statement(_NAME, found.value, found.how, tuple(assumptions), found.provenance)


def _terms(problem: MisspecifiedVI, x: Any, lam: Any, theta: PyTree, mu: Any) -> tuple[Array, ...]:
    """(the maximum in (2), −λᵀf, rounding, ‖x − P_X(x)‖, max_j f_j), at P_X(x)."""
    F, f, X = problem.at(jax.tree.map(jnp.asarray, theta))
    given, lam = jnp.asarray(x), jnp.asarray(lam)
    x = X.project(given)
    F_x = F(x)
    f_x, pullback = f.vjp(x)
    pulled = pullback(lam)
    step = x - X.project(x - (F_x + pulled) / mu)
    length_sq = jnp.sum(step**2)
    best = jnp.sum((F_x + pulled) * step) - 0.5 * mu * length_sq
    sizes = (
        jnp.sum(jnp.abs(lam * f_x))
        + jnp.sum((jnp.abs(F_x) + jnp.abs(pulled)) * jnp.abs(step))
        + mu * length_sq
    )
    outside = jnp.sqrt(jnp.sum((given - x) ** 2))
    worst = jnp.max(f_x, initial=-jnp.inf)
    return best, -jnp.sum(lam * f_x), _ROUNDING * sizes, outside, worst


_terms_compiled = eqx.filter_jit(_terms)
