"""The weighted average of iterates that a method's theorem is about."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from viceversa.numerics import safe_divide


class Average(eqx.Module):
    """x̄ = Σ_i w_i x_i / W with W = Σ_i w_i, kept as a mean, so that nothing grows with the number of iterations:

        W ← W + w,   x̄ ← x̄ + (w/W)(x − x̄)                                                        (1)

    Before the first weight it is the start itself.
    """

    value: Float[Array, "..."]
    weight: Float[Array, ""]

    @classmethod
    def start(cls, x0: Array) -> Average:
        """The average of nothing yet, shown as x_0."""
        return cls(value=x0, weight=jnp.zeros(()))

    def add(self, x: Array, weight: Array) -> Average:
        """(1) for one more point."""
        total = self.weight + weight
        return Average(self.value + safe_divide(weight, total, 0.0) * (x - self.value), total)
