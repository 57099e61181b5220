"""The contract of the learning side: an operator H on a set Θ, and what is known about it."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from viceversa.quick_module import QuickModule
from viceversa.sets.base import ConvexSet

Provenance = Literal["exact", "certified", "declared", "estimated"]


class Modulus(NamedTuple):
    """μ_H and L_H, where they come from, and whether H is the gradient of a function."""

    mu: float
    lipschitz: float
    provenance: Provenance
    is_gradient: bool


class Learning(QuickModule):
    """The secondary VI: θ* in Θ with H(θ*)ᵀ(ϑ − θ*) ≥ 0 for all ϑ in Θ. Subclasses are final."""

    depends_on_x: ClassVar[bool] = False  # whether H is H(θ, x): then (x, λ, θ) must move together

    set: eqx.AbstractVar[ConvexSet]
    mu: eqx.AbstractVar[np.ndarray]
    lipschitz: eqx.AbstractVar[np.ndarray]
    provenance: eqx.AbstractVar[Provenance]
    is_gradient: eqx.AbstractVar[bool]

    @abstractmethod
    def operator(self, theta: PyTree, x: Array | None = None) -> PyTree:
        """H(θ), of θ's structure."""

    @property
    def has_moduli(self) -> bool:
        """Whether μ and L say something about H at all, however sure."""
        return True

    @property
    def is_known(self) -> bool:
        """Whether θ is given, so that there is nothing to learn."""
        return False

    def rounding(self, theta: PyTree, x: Array | None = None) -> Float[Array, ""]:
        """An upper estimate of ‖H(θ) computed − H(θ)‖, the error that rounding makes; 0 where it is not known."""
        return jnp.zeros(())

    def scaled_error_bound(self, theta: PyTree) -> Float[Array, ""]:
        """A bound on ‖θ − θ*‖ for θ in Θ, rounding included, that bad units do not spoil; ∞ where none is known."""
        return jnp.asarray(jnp.inf)

    def metric(self) -> Array | np.ndarray | None:
        """D > 0, one number for each component of the raveled θ, with D − ∂H ⪰ 0 everywhere; None where unknown.

        On a product of intervals θ ↦ P_Θ(θ − D⁻¹H(θ)) then contracts in ‖·‖_D, whatever units the components have.
        """
        return None

    def newton_point(self) -> Array | np.ndarray | None:
        """The zero of an affine H, raveled: where every Newton step on H leads. None where unknown or outside Θ."""
        return None

    def modulus(self) -> Modulus:
        """μ_H and L_H with their provenance."""
        return Modulus(float(self.mu), float(self.lipschitz), self.provenance, self.is_gradient)

    def default_rate(self):
        """The η with the best proved contraction: 2/(μ + L) for gradients, μ/L² otherwise (THEORY.md §1)."""
        if self.is_gradient:
            return 2.0 / (self.mu + self.lipschitz)
        return self.mu / self.lipschitz**2

    def contraction(self, rate: float) -> float:
        """The factor q with ‖θ_{k+1} − θ*‖ ≤ q ‖θ_k − θ*‖ for the projected step of size `rate`."""
        mu, lipschitz = float(self.mu), float(self.lipschitz)
        if self.is_gradient:
            return max(abs(1.0 - rate * mu), abs(1.0 - rate * lipschitz))
        return float(np.sqrt(max(1.0 - 2.0 * rate * mu + (rate * lipschitz) ** 2, 0.0)))

    def rate_for(self, contraction: float) -> float:
        """The smallest η whose proved factor is `contraction` (slower learning than the default, on purpose)."""
        from viceversa.errors import InputError

        best = self.contraction(float(self.default_rate()))
        if not best <= contraction < 1.0:
            raise InputError(
                f"contraction: {contraction} was asked for; one projected step on this H can be given any factor "
                f"in [{best:.6g}, 1). Choose one there."
            )
        mu, lipschitz = float(self.mu), float(self.lipschitz)
        if self.is_gradient:
            return (1.0 - contraction) / mu
        return (mu - np.sqrt(max(mu**2 - lipschitz**2 * (1.0 - contraction**2), 0.0))) / lipschitz**2
