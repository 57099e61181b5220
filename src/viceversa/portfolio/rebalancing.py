"""Long-only portfolios that can be reached from today's with a limited turnover."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.sets import Polyhedron, Simplex
from viceversa.sets.base import ConvexSet, as_finite, point_method, sample_method
from viceversa.sets.linear_program import Description


class PurchasesAndSales(eqx.Module):
    """(b, s) ↦ c + b − s: the portfolio after buying b and selling s."""

    current: np.ndarray

    def __call__(self, trades: Array) -> Array:
        bought, sold = jnp.split(trades, 2)
        return bought - sold + self.current


class Rebalancing(ConvexSet):
    """Portfolios of the same value as the current one, c, with at most `turnover` bought and sold.

        S = { y ≥ 0 : Σ y = Σ c,  ‖y − c‖₁ ≤ turnover }                                              (1)
        P_S(x) = P_simplex(x) if that is in S, else c + b − s,                                       (2)
        b = P{b ≥ 0, Σb = turnover/2}(x − c),   s = P{0 ≤ s ≤ c, Σs = turnover/2}(c − x)

    (2) is exact: with μ ≥ 0 the multiplier of the turnover and τ that of the budget, purchases are [x − c − (τ + μ)]₊ and
    sales [c − x + (τ − μ)]₊ up to what is held, and each sum fixes one of the two numbers.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> vv.Rebalancing([0.5, 0.5, 0.0], turnover=0.4).project(np.array([0.0, 0.0, 1.0])).round(12)
        array([0.4, 0.4, 0.2])
    """

    current: np.ndarray
    turnover: np.ndarray
    whole: Simplex
    purchases: Simplex
    sales: Polyhedron

    def __init__(self, current: Any, turnover: Any):
        self.current = as_finite("Rebalancing: current", current)
        self.turnover = as_finite("Rebalancing: turnover", turnover)
        if self.current.ndim != 1 or (self.current < 0).any() or not self.current.sum() > 0:
            raise InputError(
                f"Rebalancing: current has shape {self.current.shape} and smallest entry {self.current.min(initial=np.inf):g}; one "
                "nonnegative holding per asset, not all zero, is needed."
            )
        total = self.current.sum()
        if self.turnover.shape != () or not 0 < self.turnover < 2 * total:
            raise InputError(
                f"Rebalancing: turnover is {turnover}; a number in (0, {2 * total:g}) is needed (purchases and sales "
                "together; at twice the value of the portfolio everything may change: use vv.Simplex)."
            )
        n, half = self.current.size, self.turnover / 2
        self.whole, self.purchases = Simplex(n, total=total), Simplex(n, total=half)
        self.sales = Polyhedron(C=np.ones((1, n)), d=[half], lower=np.zeros(n), upper=self.current)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.current.shape

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """(2); the derivative removes the mean over the assets that are bought, and over those that are partly sold."""
        free = self.whole.project(x)
        bought, sold = self.purchases.project(x - self.current), self.sales.project(self.current - x)
        return jnp.where(
            jnp.sum(jnp.abs(free - self.current)) < self.turnover, free, self.current + bought - sold
        )

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """Sell the worst until the turnover is used, buy the best."""
        order = jnp.argsort(c)
        held = jnp.asarray(self.current)[order]
        sold = jnp.clip(self.turnover / 2 - (jnp.cumsum(held) - held), 0.0, held)
        y = jnp.asarray(self.current).at[order].add(-sold).at[jnp.argmax(c)].add(jnp.sum(sold))
        return jnp.sum(c * y), y

    def affine_image(self) -> tuple[Description, Any]:
        """y = c + b − s over purchases b ≥ 0 and sales 0 ≤ s ≤ c, Σb = Σs ≤ turnover/2."""
        n, half = self.current.size, float(self.turnover) / 2
        ones, zeros = np.ones(n), np.zeros(n)
        description = Description(
            A=np.concatenate([ones, zeros])[None],
            b=np.array([half]),
            C=np.concatenate([ones, -ones])[None],
            d=np.zeros(1),
            lower=np.zeros(2 * n),
            upper=np.concatenate([np.full(n, half), np.minimum(self.current, half)]),
        )
        return description, PurchasesAndSales(self.current)

    def diameter(self) -> float:
        """√2·min(total, turnover), an upper bound: ‖d‖ ≤ ‖d‖₁/√2 where Σd = 0."""
        return math.sqrt(2.0) * min(float(self.current.sum()), float(self.turnover))

    def width(self) -> np.ndarray:
        """What can be sold and what can be bought of each asset, exactly (for two assets or more)."""
        half = self.turnover / 2
        return np.minimum(self.current, half) + np.minimum(self.current.sum() - self.current, half)

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """On the way from the current portfolio to a random one, as far as the turnover allows or less."""
        key_goal, key_share = jax.random.split(key)
        way = self.whole.sample(key_goal) - self.current
        longest = jnp.minimum(1.0, self.turnover / jnp.maximum(jnp.sum(jnp.abs(way)), 1e-300))
        return self.current + longest * jax.random.uniform(key_share) * way

    def interior_point(self) -> np.ndarray:
        """On the way to equal holdings, with half the turnover at most."""
        way = self.current.mean() - self.current
        return self.current + min(1.0, float(self.turnover) / 2 / max(float(np.abs(way).sum()), 1e-300)) * way
