"""Firms that disagree about demand: a Cournot market without a potential, so a VI that is no optimisation problem."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa.errors import InputError
from viceversa.gallery.instance import Instance
from viceversa.gallery.learned import build
from viceversa.gallery.piecewise_market import increasing_root
from viceversa.sets import Box


class PerceivedSlopes(eqx.Module):
    """F_i = r_i x_i + g_i + b_i (X + x_i) − a: firm i believes in its own slope b_i = θ_perceived,i."""

    r: np.ndarray
    g: np.ndarray
    a: np.ndarray

    def __call__(self, x: Float[Array, " n"], theta: dict[str, Array]) -> Array:
        return jnp.asarray(self.r) * x + self.g + theta["perceived"] * (jnp.sum(x) + x) - self.a


class MarketPriceCap(eqx.Module):
    """f = a − b X − p_cap ≤ 0 at the market's own slope b = θ_slope."""

    a: np.ndarray
    price_cap: np.ndarray

    def __call__(self, x: Float[Array, " n"], theta: dict[str, Array]) -> Array:
        return jnp.asarray(self.a) - theta["slope"] * jnp.sum(x) - self.price_cap


def asymmetric_cournot(n_firms: int = 40, seed: int = 0, misspecified: bool = True) -> Instance:
    """n firms, one product, firm-specific perceived slopes b_i ~ U[0.8, 1.2] and the market's slope 1, with a price cap.

    The Jacobian diag(r + b) + b1ᵀ is not symmetric; F is monotone because r_min + b_min ≥ (√N ‖b‖ − Σb)/2, on Θ too.
    The cap is 0.6 × the price without it. x_i = clip((a + bλ − b_i X − g_i)/(r_i + b_i)) leaves one unknown: X
    without the cap, λ with it; both by one-dimensional root finding.
    """
    if int(n_firms) != n_firms or n_firms < 30:
        raise InputError(
            f"gallery.asymmetric_cournot: n_firms is {n_firms}; a whole number >= 30 is needed, so that output can meet the cap."
        )
    rng = np.random.default_rng(seed)
    r, g, b = rng.uniform(1, 10, n_firms), rng.uniform(5, 20, n_firms), rng.uniform(0.8, 1.2, n_firms)
    a, slope, capacity = 100.0, 1.0, 5.0

    def outputs(total, lam):
        wanted = (a + slope * lam - b * total - g) / (r + b)
        inside = (wanted > 0) & (wanted < capacity)
        return np.clip(wanted, 0.0, capacity), inside

    def surplus(total):
        x, inside = outputs(total, 0.0)
        return total - x.sum(), 1.0 + np.sum(np.where(inside, b / (r + b), 0.0))

    free = float(increasing_root(surplus, np.array(0.0), np.array(n_firms * capacity)))
    price_cap = 0.6 * (a - slope * free)
    total = (a - price_cap) / slope

    def shortage(lam):
        x, inside = outputs(total, lam)
        return x.sum() - total, np.sum(np.where(inside, slope / (r + b), 0.0))

    lam = float(increasing_root(shortage, np.array(0.0), np.array(20.0 * a)))
    return build(
        f"asymmetric_cournot({n_firms},seed={seed})",
        operator=PerceivedSlopes(r, g, np.asarray(a)),
        set=Box(0.0, capacity, shape=n_firms),
        constraints=MarketPriceCap(np.asarray(a), np.asarray(price_cap)),
        constraint_names=("price_cap",),
        theta={"perceived": b, "slope": slope},
        spread=0.2,
        x=outputs(total, lam)[0],
        multiplier=[lam],
        misspecified=misspecified,
        symmetric=False,
        source="dey2026misspecified, Section 5 (costs); firm-specific slopes",
        units="x: quantity; theta: money per unit of quantity",
    )
