"""Interval arithmetic on arrays: a lower and an upper bound for every entry.

Bounds are exact up to the rounding of each operation; whoever turns them into a constant inflates the result by a
relative 1e-12 (`ROUNDING`) instead of rounding outward at every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np

ROUNDING = 1e-12


# `no_type_check`, here and in `enclosure`: called for every step of a program, where the run-time checks of the
# tests would cost more than the arithmetic.


class NotCertified(Exception):
    """Interval arithmetic has no rule for a step; the message names it."""


@no_type_check
class Interval:
    """lo ≤ value ≤ hi, entry by entry. A point (lo is hi) is a value known exactly; booleans may be undecided."""

    __slots__ = ("hi", "lo")

    def __init__(self, lo: Any, hi: Any = None):
        self.lo = np.asarray(lo)
        self.hi = self.lo if hi is None or hi is lo else np.asarray(hi)

    @property
    def is_point(self) -> bool:
        """Whether every entry is one known value."""
        return self.hi is self.lo

    @property
    def middle(self) -> np.ndarray:
        """The centre of every entry."""
        return self.lo if self.is_point else np.asarray(0.5 * self.lo + 0.5 * self.hi)

    @property
    def radius(self) -> np.ndarray:
        """Half the width of every entry."""
        return np.asarray(0.5 * (self.hi - self.lo))

    @property
    def magnitude(self) -> np.ndarray:
        """The largest absolute value of every entry."""
        return np.asarray(np.maximum(np.abs(self.lo), np.abs(self.hi)))

    def map(self, function: Callable[[np.ndarray], Any]) -> Interval:
        """`function` (non-decreasing, or only moving entries around) applied to both ends."""
        return (
            Interval(function(self.lo)) if self.is_point else Interval(function(self.lo), function(self.hi))
        )


def hull(*parts: Interval) -> Interval:
    """The smallest interval around all of them."""
    if all(part.is_point for part in parts) and all(
        np.array_equal(part.lo, parts[0].lo) for part in parts[1:]
    ):
        return parts[0]
    lo, hi = parts[0].lo, parts[0].hi
    for part in parts[1:]:
        lo, hi = np.minimum(lo, part.lo), np.maximum(hi, part.hi)
    return Interval(lo, hi)


@no_type_check
def _settled(lo: Any, hi: Any) -> Interval:
    """∞ − ∞ says nothing: the end it stands for is infinite."""
    if np.isnan(lo).any() or np.isnan(hi).any():
        lo, hi = np.where(np.isnan(lo), -np.inf, lo), np.where(np.isnan(hi), np.inf, hi)
    return Interval(lo, hi)


@no_type_check
def _product(a: Any, b: Any) -> np.ndarray:
    """a·b with 0·∞ = 0, as the product of intervals needs it."""
    c = np.asarray(np.multiply(a, b))
    return np.where(np.isnan(c), 0.0, c) if np.isnan(c).any() else c


@no_type_check
def add(a: Interval, b: Interval) -> Interval:
    """a + b."""
    if a.is_point and b.is_point:
        return Interval(a.lo + b.lo)
    return _settled(a.lo + b.lo, a.hi + b.hi)


@no_type_check
def negative(a: Interval) -> Interval:
    """−a."""
    return Interval(-a.lo) if a.is_point else Interval(-a.hi, -a.lo)


@no_type_check
def subtract(a: Interval, b: Interval) -> Interval:
    """a − b."""
    return add(a, negative(b))


@no_type_check
def multiply(a: Interval, b: Interval) -> Interval:
    """a·b."""
    if a.is_point and b.is_point:
        return Interval(a.lo * b.lo)
    ends = [_product(u, v) for u in (a.lo, a.hi) for v in (b.lo, b.hi)]
    return Interval(np.minimum.reduce(ends), np.maximum.reduce(ends))


def reciprocal(a: Interval) -> Interval:
    """1/a, unbounded where a may be 0."""
    if a.is_point:
        return Interval(1.0 / a.lo)
    through_zero = (a.lo <= 0.0) & (a.hi >= 0.0)
    lo, hi = np.where(through_zero, 1.0, a.lo), np.where(through_zero, 1.0, a.hi)
    return Interval(np.where(through_zero, -np.inf, 1.0 / hi), np.where(through_zero, np.inf, 1.0 / lo))


def divide(a: Interval, b: Interval) -> Interval:
    """a / b."""
    return Interval(a.lo / b.lo) if a.is_point and b.is_point else multiply(a, reciprocal(b))


@no_type_check
def absolute(a: Interval) -> Interval:
    """|a|."""
    if a.is_point:
        return Interval(np.abs(a.lo))
    return Interval(np.maximum(np.maximum(a.lo, -a.hi), 0.0), a.magnitude)


@no_type_check
def integer_power(a: Interval, exponent: int) -> Interval:
    """aⁿ for a whole n; an even power is never negative."""
    if a.is_point:
        return Interval(np.power(a.lo, float(exponent)))
    if exponent < 0:
        return reciprocal(integer_power(a, -exponent))
    base = absolute(a) if exponent % 2 == 0 else a
    return base.map(lambda end: end**exponent)


def power(a: Interval, b: Interval) -> Interval:
    """aᵇ for a ≥ 0: monotone in each argument, so its extremes are at the four corners."""
    if a.is_point and b.is_point:
        return Interval(np.power(a.lo, b.lo))
    if b.is_point and b.lo.size and (b.lo == b.lo.flat[0]).all() and float(b.lo.flat[0]).is_integer():
        return integer_power(a, int(b.lo.flat[0]))
    if (a.lo < 0.0).any():
        raise NotCertified("a power of a base that may be negative")
    ends = [np.power(u, v) for u in (a.lo, a.hi) for v in (b.lo, b.hi)]
    return _settled(np.minimum.reduce(ends), np.maximum.reduce(ends))


def increasing(name: str, function: Callable, domain: float = -np.inf) -> Callable[[Interval], Interval]:
    """The rule of a non-decreasing function, refused where the argument may leave its domain."""

    def rule(a: Interval) -> Interval:
        if (a.lo < domain).any():
            raise NotCertified(f"{name} of an argument that may be below {domain:g}")
        return a.map(function)

    return rule


def reciprocal_root(a: Interval) -> Interval:
    """1/√a for a > 0, decreasing."""
    if (a.lo < 0.0).any():
        raise NotCertified("rsqrt of an argument that may be negative")
    return reciprocal(a.map(np.sqrt))


def cosine(a: Interval) -> Interval:
    """cos a: ±1 where the interval holds a multiple of π of that sign, else the larger end."""
    if a.is_point:
        return Interval(np.cos(a.lo))
    at_lo, at_hi = np.cos(a.lo), np.cos(a.hi)
    peak = np.floor(a.hi / (2 * np.pi)) >= np.ceil(a.lo / (2 * np.pi))
    valley = np.floor((a.hi - np.pi) / (2 * np.pi)) >= np.ceil((a.lo - np.pi) / (2 * np.pi))
    lo, hi = np.minimum(at_lo, at_hi), np.maximum(at_lo, at_hi)
    return Interval(np.where(valley, -1.0, lo), np.where(peak, 1.0, hi))


def sine(a: Interval) -> Interval:
    """sin a = cos(a − π/2)."""
    return Interval(np.sin(a.lo)) if a.is_point else cosine(a.map(lambda end: end - 0.5 * np.pi))


@no_type_check
def contract(a: Interval, b: Interval, product: Callable[[Any, Any], np.ndarray]) -> Interval:
    """A bilinear `product(a, b)` with nonnegative coefficients (a matrix product) of intervals.

    Entries of one factor that do not change sign are multiplied exactly. Where both may, middles and radii are
    used: |ab − m_a m_b| ≤ |m_a| r_b + r_a (|m_b| + r_b), at most half as wide again as the exact range.
    """
    if a.is_point and b.is_point:
        return Interval(product(a.lo, b.lo))
    if not (np.isfinite(a.magnitude).all() and np.isfinite(b.magnitude).all()):
        raise NotCertified("a product of matrices with unbounded entries")
    if _changes_sign(a).any() and not _changes_sign(b).any():
        return _contract_by_sign(b, a, lambda u, v: product(v, u))
    return _contract_by_sign(a, b, product)


def _changes_sign(a: Interval) -> Any:
    return (a.lo < 0.0) & (a.hi > 0.0)


@no_type_check
def _contract_by_sign(a: Interval, b: Interval, product: Callable[[Any, Any], np.ndarray]) -> Interval:
    up = [np.maximum(end, 0.0) for end in (b.lo, b.hi)]
    down = [np.minimum(end, 0.0) for end in (b.lo, b.hi)]
    lo, hi = 0.0, 0.0
    for mask, sign in ((a.lo >= 0.0, 1), ((a.hi <= 0.0) & (a.lo < 0.0), -1)):
        if mask.any():
            small, large = (a.lo, a.hi) if sign > 0 else (-a.hi, -a.lo)
            small, large = np.where(mask, small, 0.0), np.where(mask, large, 0.0)
            least = product(small, up[0]) + product(large, down[0])
            most = product(large, up[1]) + product(small, down[1])
            lo, hi = (lo + least, hi + most) if sign > 0 else (lo - most, hi - least)
    mixed = _changes_sign(a)
    if mixed.any():
        middle, radius = np.where(mixed, a.middle, 0.0), np.where(mixed, a.radius, 0.0)
        centre = product(middle, b.middle)
        spread = product(np.abs(middle), b.radius) + product(radius, np.abs(b.middle) + b.radius)
        lo, hi = lo + centre - spread, hi + centre + spread
    return Interval(lo, hi)


def error_function(values: np.ndarray) -> np.ndarray:
    """erf, entry by entry."""
    return np.vectorize(math.erf, otypes=[float])(values)
