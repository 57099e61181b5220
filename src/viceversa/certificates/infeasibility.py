"""Proving that no point of X satisfies the constraints, without trusting a solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from viceversa.certificates.residuals import learning_error_bound
from viceversa.numerics import positive_part, safe_divide
from viceversa.problem import MisspecifiedVI

_N_STEPS = 3000  # accelerated projected-gradient steps towards the point of least violation
_ROUNDING = 1e-12  # a margin below this share of the terms it is made of proves nothing


@dataclass(frozen=True)
class InfeasibilityProof:
    """Weights w ≥ 0, 1ᵀw = 1, and a point x̂ of X with wᵀf(x̂, θ) + min_{y ∈ X} ∇(wᵀf)(x̂)ᵀ(y − x̂) = margin > error.

    wᵀf(·, θ) is convex, so it exceeds `margin` on all of X; `error` bounds what the learning error can take back. Then
    some constraint is violated at every point of X.
    """

    weights: dict[str, float]
    point: np.ndarray
    margin: float
    error: float
    proved: bool

    def __str__(self) -> str:
        names = ", ".join(f"{name} ({weight:.3g})" for name, weight in list(self.weights.items())[:5])
        verdict = "proved" if self.proved else "not proved"
        return (
            f"Infeasibility {verdict}: the weighted sum of constraints {names} is at least {self.margin:.3g} on the whole "
            f"set, and the learning error can change it by at most {self.error:.3g}."
        )


def prove_infeasible(
    problem: MisspecifiedVI, x: Any, multiplier: Any, theta: PyTree
) -> InfeasibilityProof | None:
    """A proof that X(θ*) is empty (or the evidence for it), or None where nothing points to it.

    The weights are tried from the multipliers, which grow along them, and from the point of least violation.
    """
    if problem.n_constraints == 0 or problem.runs_on_host:
        return None
    candidates = [(np.asarray(x), np.asarray(multiplier))]
    least = jax.tree.map(np.asarray, _least_violation(problem, x, theta))
    candidates.append(least)
    found = [
        (*map(float, _margin(problem, at, weights, theta)), at, weights)
        for at, weights in candidates
        if weights.sum() > 0
    ]
    if not found:
        return None
    margin, size, at, weights = max(found, key=lambda item: item[0])
    if not margin > _ROUNDING * size:
        return None
    error = float(learning_error_bound(problem.learning, theta))
    certain = True
    if error > 0:
        from viceversa.constants import constants  # late: few solves come this far

        slope = constants(problem).L_f_theta
        certain = "estimated" not in (slope.provenance, problem.learning.provenance)
        error *= float(slope.value)
    weights = weights / weights.sum()
    order = np.argsort(-weights)
    named = {problem.constraint_names[j]: float(weights[j]) for j in order if weights[j] > 1e-6}
    proved = certain and margin > error + _ROUNDING * size
    return InfeasibilityProof(named, at, margin, error, proved)


@eqx.filter_jit
def _margin(
    problem: MisspecifiedVI, x: Any, weights: Any, theta: PyTree
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """wᵀf(x̂) + min_{y ∈ X} ∇(wᵀf)(x̂)ᵀ(y − x̂), and the size of the terms behind it."""
    _, f, X = problem.at(theta)
    x = X.project(jnp.asarray(x))
    w = jnp.asarray(weights) / jnp.sum(jnp.asarray(weights))
    f_x, pullback = f.vjp(x)
    gradient = pullback(w)
    largest, _ = X.support(-gradient)
    at_x = jnp.sum(gradient * x)
    size = jnp.sum(w * jnp.abs(f_x)) + jnp.abs(largest) + jnp.sum(jnp.abs(gradient * x))
    return jnp.sum(w * f_x) - largest - at_x, size


@eqx.filter_jit
def _least_violation(problem: MisspecifiedVI, x: Any, theta: PyTree) -> tuple[Array, Array]:
    """(x̂, w) with x̂ near a minimiser of ½ Σ_j ([f_j]₊/f̂_j)² over X and w_j = [f_j(x̂)]₊/f̂_j², its multipliers."""
    _, f, X = problem.at(theta)
    x = X.project(jnp.asarray(x))
    f_0, (largest,) = f.of_gradients(x, (jnp.abs, jnp.max))
    unit = jnp.maximum(jnp.abs(f_0), largest)
    unit = jnp.where(unit > 0, unit, 1.0)

    def loss(at: Array) -> tuple[Array, Array]:
        f_x, back = f.vjp(at)
        excess = positive_part(f_x) / unit
        return 0.5 * jnp.sum(excess**2), back(excess / unit)

    def step(_, carry):
        now, ahead, momentum, length = carry
        value, gradient = loss(ahead)

        def too_long(trial) -> Array:
            t, at, n = trial
            model = (
                value
                + jnp.sum(gradient * (at - ahead))
                + safe_divide(jnp.sum((at - ahead) ** 2), 2.0 * t, 0.0)
            )
            return (loss(at)[0] > model * (1.0 + 1e-12)) & (n < 60)

        def shorter(trial):
            t, _, n = trial
            return 0.5 * t, X.project(ahead - 0.5 * t * gradient), n + 1

        length, at, _ = jax.lax.while_loop(
            too_long, shorter, (2.0 * length, X.project(ahead - 2.0 * length * gradient), 0)
        )
        uphill = jnp.sum(gradient * (at - now)) > 0  # restart the momentum when it points the wrong way
        grown = jnp.where(uphill, 1.0, 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * momentum**2)))
        push = jnp.where(uphill, 0.0, (momentum - 1.0) / grown)
        return at, X.project(at + push * (at - now)), grown, length

    x, _, _, _ = jax.lax.fori_loop(0, _N_STEPS, step, (x, x, jnp.ones(()), jnp.ones(())))
    return x, positive_part(f(x)) / unit**2
