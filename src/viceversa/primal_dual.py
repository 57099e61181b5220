"""The Lagrangian's (KKT) operator on z = (x, λ) as one monotone operator G on Z = X × R^J₊, in a weighted metric.

Without constraints (J = 0) it is F on X, so a method written with it is the plain VI method as well.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from viceversa.lagrangian import lagrangian_operator
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.sets.base import ConvexSet


class Pair(eqx.Module):
    """z = (x, λ), with the arithmetic that lets a method's code read like its equations."""

    __array_ufunc__: ClassVar[None] = None  # so that a NumPy scalar times a pair is left to the pair

    x: Float[Array, "..."]
    lam: Float[Array, " J"]

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.x + other.x, self.lam + other.lam)

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.x - other.x, self.lam - other.lam)

    def __rmul__(self, scale: Any) -> Pair:
        return Pair(scale * self.x, scale * self.lam)


class PrimalDualOperator(NamedTuple):
    """G(z) = (F(x, θ) + Jf(x, θ)ᵀλ, −ω f(x, θ)): a step τ for x is a step ωτ for λ."""

    problem: MisspecifiedVI
    theta: PyTree
    omega: Any

    def __call__(self, z: Pair) -> Pair:
        G_x, f_x = lagrangian_operator(self.problem, z.x, z.lam, self.theta)
        return Pair(G_x, -self.omega * f_x)

    def dot(self, u: Pair, v: Pair) -> Float[Array, ""]:
        """⟨u, v⟩ = ⟨u_x, v_x⟩ + ⟨u_λ, v_λ⟩/ω, the metric in which G with its factor ω is monotone."""
        return jnp.sum(u.x * v.x) + jnp.sum(u.lam * v.lam) / self.omega

    def norm_sq(self, u: Pair) -> Float[Array, ""]:
        """‖u‖² in that metric."""
        return self.dot(u, u)


class PrimalDualSet(NamedTuple):
    """Z = X × R^J₊; its projection is the same in every weighted metric of this module."""

    X: ConvexSet

    def project(self, z: Pair) -> Pair:
        """(P_X(x), [λ]₊)."""
        return Pair(self.X.project(z.x), positive_part(z.lam))


def primal_dual(
    problem: MisspecifiedVI, theta: PyTree, omega: Any
) -> tuple[PrimalDualOperator, PrimalDualSet]:
    """G(·, θ) and Z, named as in the equations."""
    return PrimalDualOperator(problem, theta, omega), PrimalDualSet(problem.set)
