"""The functions the corpus is made of: operators, constraints and a learning operator, with their data as arrays.

Problems of one shape then share one compiled program. Each function is written in its natural units; `InUnits` turns
it into the same function of rescaled x and θ.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class PlantedOperator(eqx.Module):
    """F(x, θ) = Mx + (Σ θ_i K_i)x + a ⊙ exp(κx) + s ⊙ log(1 + exp(x)) + l ⊙ log(x − floor) + q₁θ + q₀."""

    M: np.ndarray
    K: np.ndarray
    exponential: np.ndarray
    steepness: np.ndarray
    softplus: np.ndarray
    logarithm: np.ndarray
    floor: np.ndarray
    q1: np.ndarray
    q0: np.ndarray

    def __call__(self, x, theta):
        skew = theta[: self.K.shape[0]] @ jnp.einsum("ijk,k->ij", self.K, x)
        diagonal = self.exponential * jnp.exp(self.steepness * x) + self.softplus * jnp.logaddexp(0.0, x)
        # A weight of zero may stand beside a point where the logarithm does not exist.
        inside = jnp.where(self.logarithm > 0, x - self.floor, 1.0)
        diagonal = diagonal + self.logarithm * jnp.log(inside)
        return self.M @ x + skew + diagonal + self.q1 @ theta + self.q0


class QuadraticConstraints(eqx.Module):
    """f_j = ½‖B_j x‖² + (c_j + C_j θ)ᵀ x − d_j."""

    B: np.ndarray
    c: np.ndarray
    C: np.ndarray
    d: np.ndarray

    def __call__(self, x, theta):
        curved = 0.5 * jnp.sum(jnp.square(self.B @ x), axis=1)
        return curved + (self.c + jnp.tensordot(self.C, theta, axes=1)) @ x - self.d


class NormConstraints(eqx.Module):
    """f_j = √(1 + ‖B_j x + (C_j θ)‖²) − d_j, a smoothed norm."""

    B: np.ndarray
    C: np.ndarray
    d: np.ndarray

    def __call__(self, x, theta):
        inner = self.B @ x + jnp.tensordot(self.C, theta, axes=1)
        return jnp.sqrt(1.0 + jnp.sum(jnp.square(inner), axis=1)) - self.d


class LogSumExpConstraints(eqx.Module):
    """f_j = log Σ_r exp((B_j x + C_j θ)_r) − d_j."""

    B: np.ndarray
    C: np.ndarray
    d: np.ndarray

    def __call__(self, x, theta):
        inner = self.B @ x + jnp.tensordot(self.C, theta, axes=1)
        return jax.nn.logsumexp(inner, axis=1) - self.d


class InUnits(eqx.Module):
    """value ⊙ function(x ⊘ x_unit, θ ⊘ θ_unit): the same problem, written in other units."""

    function: Any
    value: np.ndarray
    x_unit: np.ndarray
    theta_unit: np.ndarray

    def __call__(self, x, theta):
        return self.value * self.function(x / self.x_unit, theta / self.theta_unit)


class LinearLearning(eqx.Module):
    """H(θ) = (W(θ ⊘ unit) − w) ⊘ unit with a non-symmetric W."""

    W: np.ndarray
    w: np.ndarray
    unit: np.ndarray

    def __call__(self, theta):
        return (self.W @ (theta / self.unit) - self.w) / self.unit
