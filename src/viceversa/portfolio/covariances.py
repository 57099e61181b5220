"""Covariance matrices as a set Θ on which every portfolio problem is convex."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import numerics
from viceversa.errors import InputError
from viceversa.sets import Ball
from viceversa.sets.base import ConvexSet, as_finite, point_method, sample_method

_ROUNDING = 1e-13  # an eigenvalue this small beside the largest entry is zero


class Covariances(ConvexSet):
    """Symmetric matrices above a semidefinite one, of bounded size: every one is a covariance.

        S = { L + D : D = Dᵀ, D ⪰ 0, ‖D‖_F ≤ radius },   P_S(C) = L + min(1, radius/‖D₊‖_F)·D₊            (1)

    with L = `lower` (0 by default) and D₊ the positive part of the symmetric D = (C + Cᵀ)/2 − L: a cone first, then a
    ball around its tip, which together are exact. A D that has a Cholesky factor is left as it is, so that projecting
    a covariance costs no eigenvalues.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> vv.Covariances(2, radius=10.0).project(np.array([[1.0, 0.0], [0.0, -2.0]])).round(12) + 0.0
        array([[1., 0.],
               [0., 0.]])
    """

    ball: Ball
    lower: np.ndarray
    n: int = eqx.field(static=True)

    def __init__(self, n: int, radius: Any, lower: Any = None):
        if int(n) != n or n < 1:
            raise InputError(f"Covariances: n is {n}; a whole number >= 1 is needed.")
        self.n = int(n)
        self.ball = Ball(0.0, radius, shape=(self.n, self.n))
        self.lower = as_finite("Covariances: lower", np.zeros(self.shape) if lower is None else lower)
        size = np.abs(self.lower).max(initial=0.0)
        if (
            self.lower.shape != self.shape
            or np.abs(self.lower - self.lower.T).max(initial=0.0) > _ROUNDING * size
        ):
            raise InputError(
                f"Covariances: lower has shape {self.lower.shape}; a symmetric matrix of shape {self.shape} is needed."
            )
        least = np.linalg.eigvalsh(self.lower)[0]
        if least < -self.n * _ROUNDING * size:
            raise InputError(
                f"Covariances: lower has the eigenvalue {least:.3g}; a positive semidefinite matrix is needed."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, self.n)

    @property
    def radius(self) -> float:
        """The largest Frobenius norm of S − lower."""
        return float(self.ball.radius)

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """(1); the derivative has the divided differences of [·]₊ in the eigenbasis, zero eigenvalues counted as active."""
        return self.lower + self.ball.project(_semidefinite_part((x + x.T) / 2 - self.lower))

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """⟨c, lower⟩ + radius·‖c₊‖_F, at lower and c₊ stretched to the radius."""
        part = _semidefinite_part((c + c.T) / 2)
        y = self.lower + self.ball.radius * numerics.safe_divide(part, jnp.sqrt(jnp.sum(part * part)), 0.0)
        return jnp.sum(c * y), y

    def diameter(self) -> float:
        """√2·radius (radius for n = 1), exactly: ⟨D, E⟩ ≥ 0 between two of the cone."""
        return self.radius * (math.sqrt(2.0) if self.n > 1 else 1.0)

    def width(self) -> np.ndarray:
        """radius for every entry, exactly: D has variances in [0, radius] and covariances in [−radius/2, radius/2]."""
        return np.full(self.shape, self.radius)

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """lower + AAᵀ with A normal, at a uniform share of the radius."""
        key_factor, key_size = jax.random.split(key)
        factor = jax.random.normal(key_factor, self.shape)
        matrix = factor @ factor.T
        return self.lower + matrix * (
            self.ball.radius * jax.random.uniform(key_size) / jnp.sqrt(jnp.sum(matrix**2))
        )

    def interior_point(self) -> np.ndarray:
        """lower plus the multiple of the identity at half the radius."""
        return self.lower + np.eye(self.n) * (0.5 * self.radius / math.sqrt(self.n))


@jax.custom_jvp
def _semidefinite_part(C):
    return jax.lax.cond(_above(C, -_ROUNDING) | ~jnp.all(jnp.isfinite(C)), lambda S: S, _without_negative, C)


def _above(C, share):
    """Whether every eigenvalue exceeds this share of the largest entry: whether a Cholesky factor exists."""
    shifted = C - share * jnp.max(jnp.abs(C), initial=0.0) * jnp.eye(C.shape[0])
    return jnp.all(jnp.isfinite(jnp.linalg.cholesky(shifted)))


def _without_negative(C):
    values, vectors = jnp.linalg.eigh(C)
    return (vectors * jnp.maximum(values, 0.0)) @ vectors.T


@_semidefinite_part.defjvp
def _semidefinite_part_jvp(primals, tangents):
    (C,), (dC,) = primals, tangents
    # Where no eigenvalue is zero or negative the derivative is the identity, and eigenvectors are not needed.
    return _semidefinite_part(C), jax.lax.cond(
        _above(C, _ROUNDING), lambda S, dS: dS, _divided_differences, C, dC
    )


def _divided_differences(C, dC):
    values, vectors = jnp.linalg.eigh(C)
    positive = values > _ROUNDING * jnp.max(jnp.abs(values), initial=0.0)
    kept, size = jnp.where(positive, values, 0.0), jnp.abs(values)
    share = numerics.safe_divide(kept[:, None] + kept[None, :], size[:, None] + size[None, :], 0.0)
    return vectors @ (share * (vectors.T @ dC @ vectors)) @ vectors.T
