"""The concave functions whose maximum over X_ε is a gap, or bounds one."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


class Minty(eqx.Module):
    """g(y) = F(y)ᵀ(x − y): concave when F is affine and monotone. Its maximum is the gap itself."""

    operator: Any
    theta: PyTree
    x: Float[Array, "..."]

    def __call__(self, y: Float[Array, "..."]) -> Float[Array, ""]:
        return jnp.sum(self.operator(y, self.theta) * (self.x - y))


class Regularised(eqx.Module):
    """g(y) = F(x)ᵀ(x − y) − m‖x − y‖²: at least F(y)ᵀ(x − y) when F is monotone with modulus m ≥ 0.

    Its maximum is Auslender's gap for m = 0 and Fukushima's regularised gap with parameter 2m otherwise; with m = ½
    the maximiser is the projection of x − F(x).
    """

    F_x: Float[Array, "..."]
    x: Float[Array, "..."]
    modulus: Float[Array, ""]

    def __call__(self, y: Float[Array, "..."]) -> Float[Array, ""]:
        move = self.x - y
        return jnp.sum(self.F_x * move) - self.modulus * jnp.sum(move * move)


class Linearised(eqx.Module):
    """g(y) = (F(c) + F'(c)(y − c))ᵀ(x − y): concave for monotone F, and tangent to F(y)ᵀ(x − y) at y = c."""

    operator: Any
    theta: PyTree
    x: Float[Array, "..."]
    center: Float[Array, "..."]

    def __call__(self, y: Float[Array, "..."]) -> Float[Array, ""]:
        F_c, along = jax.jvp(lambda at: self.operator(at, self.theta), (self.center,), (y - self.center,))
        return jnp.sum((F_c + along) * (self.x - y))
