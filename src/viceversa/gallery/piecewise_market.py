"""The exact Cournot equilibrium by one-dimensional root finding: NumPy alone, independent of every solver here.

Costs are ½ r x² + g x with capacities, demand is a − b X. Write w for what one more unit brings before a firm's
own effect on the price: w = p in a market without a binding cap, w = p_cap + b λ with one. Then

    separable: x_id = clip((w_d − g_id)/(r_id + b), 0, Cap_id)                                          (1)
    pooled:    x_id = clip((v_i − g_id)/r_id, 0, Cap_id),   v_i + b Σ_d x_id = w                        (2)

so the total supply S(w) is increasing and piecewise linear, and

    no binding cap:  S(w) = (a − w)/b,          p = w ≤ p_cap, λ = 0                                    (3)
    binding cap:     S(w) = (a − p_cap)/b,      λ = (w − p_cap)/b                                       (4)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from viceversa.errors import InputError

_MAX_STEPS = 400  # far more than halving a bracket to the last digit of a double takes


class Equilibrium(NamedTuple):
    """x*, the multiplier and the price of every market, and the prices there would be without a cap."""

    x: np.ndarray
    multiplier: np.ndarray
    price: np.ndarray
    price_unconstrained: np.ndarray


def equilibrium(
    r: np.ndarray,
    g: np.ndarray,
    capacity: np.ndarray,
    intercept: float,
    slope: float,
    price_cap: float | None,
    pooled: bool,
) -> Equilibrium:
    """(x*, λ*) of the market, all of its products at once; arrays have the shape (n_firms, n_products)."""
    a, b = float(intercept), float(slope)
    capacity = np.broadcast_to(np.asarray(capacity, dtype=np.float64), r.shape)
    supply = _pooled_supply(r, g, capacity, b) if pooled else _separable_supply(r, g, capacity, b)
    most = np.atleast_1d(capacity.sum() if pooled else capacity.sum(axis=0))

    def excess(w):  # (3), increasing in w
        total, rise = supply(w)[1:]
        return total - (a - w) / b, rise + 1.0 / b

    p_free = increasing_root(excess, a - b * most, np.full_like(most, a))
    x_free = supply(p_free)[0]
    if price_cap is None:
        return Equilibrium(x_free, np.zeros(0), p_free, p_free)
    needed = (a - price_cap) / b
    if (most < needed).any():
        d = int(np.argmax(most < needed))
        raise InputError(
            f"price_cap: {price_cap:g} needs a total output of {needed:.6g}, but the capacities of product {d} sum to "
            f"{most[d]:.6g}. Raise the cap."
        )
    binds = p_free > price_cap
    # The cap of a market in which it does not bind is replaced by the free price, whose root is known.
    target = np.where(binds, needed, (a - p_free) / b)
    highest = np.maximum(_highest(r, g, capacity, b, pooled), p_free)

    def shortage(w):  # (4)
        total, rise = supply(w)[1:]
        return total - target, rise

    w = np.where(binds, increasing_root(shortage, np.minimum(p_free, price_cap), highest), p_free)
    multiplier = np.where(binds, (w - price_cap) / b, 0.0)
    return Equilibrium(supply(w)[0], multiplier, np.where(binds, price_cap, p_free), p_free)


def increasing_root(function: Callable, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The roots of increasing functions, all at once: Newton's method inside a shrinking bracket.

    `function(w)` gives values and slopes. On a piecewise linear function Newton's step is exact once w lies on the
    piece of the root. A bisection replaces it where it would leave the bracket, and where steps do not halve, because
    two pieces may send it back and forth. It ends at the last digits, or where rounding stops steps from shrinking.
    """
    low, high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    w, last = 0.5 * (low + high), np.full(np.shape(low), np.inf)
    for _ in range(_MAX_STEPS):
        value, rise = function(w)
        low, high = np.where(value <= 0, w, low), np.where(value >= 0, w, high)
        middle = 0.5 * (low + high)
        newton = w - value / np.where(rise > 0, rise, np.inf)
        inside = (newton >= low) & (newton <= high) & (rise > 0)
        proposed = np.where(inside, newton, middle)
        moved = np.abs(proposed - w)
        size = np.maximum(np.abs(w), np.finfo(float).tiny)
        settled = (moved <= 1e-14 * size) | (inside & (moved <= 1e-9 * size) & (moved >= 0.5 * last))
        if settled.all() or ((middle <= low) | (middle >= high)).all():
            return proposed
        w = np.where(settled | (moved < 0.5 * last), proposed, middle)
        last = np.where(inside, moved, np.inf)
    return w


def _separable_supply(r, g, capacity, b) -> Callable:
    def supply(w):  # (1)
        wanted = (w - g) / (r + b)
        x = np.clip(wanted, 0.0, capacity)
        inside = (wanted > 0) & (wanted < capacity)
        return x, x.sum(axis=0), np.where(inside, 1.0 / (r + b), 0.0).sum(axis=0)

    return supply


def _pooled_supply(r, g, capacity, b) -> Callable:
    def outputs(v):
        wanted = (v[:, None] - g) / r
        x = np.clip(wanted, 0.0, capacity)
        inside = (wanted > 0) & (wanted < capacity)
        return x, np.where(inside, 1.0 / r, 0.0).sum(axis=1)

    def supply(w):  # (2)
        def balance(v):
            x, rise = outputs(v)
            return v + b * x.sum(axis=1) - w, 1.0 + b * rise

        v = increasing_root(balance, w - b * capacity.sum(axis=1), np.broadcast_to(w, r.shape[:1]))
        x, rise = outputs(v)
        return x, np.atleast_1d(x.sum()), np.atleast_1d((rise / (1.0 + b * rise)).sum())

    return supply


def _highest(r, g, capacity, b, pooled: bool) -> np.ndarray:
    """A w at which every firm produces at capacity."""
    if pooled:
        return np.atleast_1d(((g + r * capacity).max(axis=1) + b * capacity.sum(axis=1)).max())
    return (g + (r + b) * capacity).max(axis=0)
