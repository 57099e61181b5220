"""Families of the corpus on boxes whose coordinates meet in totals, with data that spread over decades.

Planted are outputs x*, θ*, and multipliers λ* of the totals' limits, of which some bind:

    F_ik(x, θ) = c_ik x_ik + d_ik x_ik³ + θ w_ik s_k − g_ik,    s_k = Σ_i w_ik x_ik,    f_k = s_k − cap_k,

with slopes, weights, widths and so forces that differ by `decades` to either side. F and f have the weights as data of their own, so
that nothing but their numbers says that the totals are the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

import viceversa as vv
from benchmarks.judge import Verdict, relative_error


@dataclass(frozen=True)
class Market:
    """One kind of problem: its shape, how far its data spread, and whether costs are cubic and weights are 1."""

    name: str
    n_firms: int
    n_products: int
    decades: float
    cubic: bool = False
    weighted: bool = True


FAMILIES = (
    Market("markets-decades", 60, 8, decades=2.0, weighted=False),
    Market("markets-weighted-decades", 700, 1, decades=2.0),
    Market("markets-weighted-decades-three", 400, 3, decades=1.5),
    Market("markets-cubic-weighted", 200, 4, decades=1.0, cubic=True),
)


class Costs(eqx.Module):
    """F; `d` is None where costs are quadratic and `w` where every weight is 1."""

    c: np.ndarray
    d: np.ndarray | None
    g: np.ndarray
    w: np.ndarray | None

    def __call__(self, x, theta):
        total = x.sum(0) if self.w is None else self.w * (self.w * x).sum(0)
        own = self.c * x if self.d is None else self.c * x + self.d * x**3
        return own + theta * total - self.g


class Limits(eqx.Module):
    """f."""

    w: np.ndarray | None
    cap: np.ndarray

    def __call__(self, x, theta):
        return (x if self.w is None else self.w * x).sum(0) - self.cap


@dataclass(frozen=True)
class PlantedMarket:
    """A problem with its planted answer, and the weights of its totals."""

    family: Market
    seed: int
    problem: Any
    x_true: np.ndarray
    multiplier_true: np.ndarray
    theta_true: np.ndarray
    theta0: np.ndarray
    w: np.ndarray


def problems(n_seeds: int) -> Iterator[PlantedMarket]:
    """Every family with `n_seeds` seeds."""
    yield from (plant(family, seed) for family in FAMILIES for seed in range(n_seeds))


def plant(family: Market, seed: int) -> PlantedMarket:
    """One problem of a family."""
    rng = np.random.default_rng([seed, *family.name.encode()])
    shape = family.n_firms, family.n_products

    def spread(decades: float) -> np.ndarray:
        return 10.0 ** rng.uniform(-decades, decades, shape)

    c, high = spread(family.decades), spread(family.decades)
    w = spread(family.decades / 2.0) if family.weighted else np.ones(shape)
    d = c / high**2 * rng.uniform(0.0, 1.0, shape) if family.cubic else None
    where = rng.uniform(size=shape)
    x = np.where(where < 0.4, 0.0, np.where(where < 0.6, high, high * rng.uniform(0.1, 0.9, shape)))
    theta, s = np.asarray(rng.uniform(0.5, 1.5)), (w * x).sum(0)
    binds = rng.uniform(size=family.n_products) < 0.6
    multiplier = np.where(binds, theta * s * rng.uniform(0.05, 0.5, s.shape), 0.0)
    cap = np.where(binds, s, 1.3 * s)
    pressure = c * high * rng.uniform(0.05, 1.0, shape)
    pressed = np.where(where < 0.4, pressure, np.where(where < 0.6, -pressure, 0.0))
    own = c * x if d is None else c * x + d * x**3
    g = own + w * (theta * s + multiplier) - pressed
    weights = w if family.weighted else None
    observed = rng.uniform(0.5, 2.0, 30)
    problem = vv.MisspecifiedVI(
        Costs(c, d, g, weights),
        vv.Box(np.zeros(shape), high),
        Limits(weights, cap),
        vv.LeastSquares(observed, theta * observed, set=vv.Box(0.1, 5.0, shape=())),
    )
    return PlantedMarket(family, seed, problem, x, multiplier, theta, 1.5 * theta, w)


def judge(planted: PlantedMarket, x: np.ndarray, multiplier: np.ndarray, theta: np.ndarray) -> Verdict:
    """Judged in NumPy: the inequalities of `solved` at θ and at θ*, and work of the forces' difference between x and x*."""
    if not all(np.isfinite(part).all() for part in (x, multiplier, theta)):
        return Verdict(np.inf, np.inf, np.inf, np.inf, np.inf, np.nan)
    truth = float(planted.theta_true)
    here, there = _force(planted, x, truth), _force(planted, planted.x_true, truth)
    largest = np.maximum(x, planted.x_true)
    work = abs(float(np.sum((here - there) * (x - planted.x_true))))
    return Verdict(
        residual=_residual(planted, x, multiplier, float(theta), _force(planted, 0.0 * x, float(theta))),
        theta_error=relative_error(np.atleast_1d(theta), np.atleast_1d(planted.theta_true)),
        true_residual=_residual(planted, x, multiplier, truth, 0.0),
        disagreement=work / float(np.abs(here).max() * largest.sum()),
        x_error=np.nan,
        x_bound=np.nan,
    )


def _force(planted: PlantedMarket, x: np.ndarray, theta: float) -> np.ndarray:
    costs, w = planted.problem.operator, planted.w
    own = costs.c * x if costs.d is None else costs.c * x + costs.d * x**3
    return own + theta * w * (w * x).sum(0) - costs.g


def _residual(
    planted: PlantedMarket, x: np.ndarray, multiplier: np.ndarray, theta: float, F_start: Any
) -> float:
    """The largest relative part of stationarity, feasibility and complementarity, in the units of docs/solver.md; x_0 = 0."""
    high, w, cap = planted.problem.set.upper, planted.w, planted.problem.constraints.cap
    F, pulled = _force(planted, x, theta), w * multiplier
    F_hat = max(np.abs(F).max(), np.abs(F_start).max())
    force, reach = max(F_hat, np.abs(pulled).max()), x.max()
    f, f_hat = (w * x).sum(0) - cap, np.maximum(cap, (w * x).sum(0))
    moved = x - np.clip(x - reach / force * (F + pulled), 0.0, high)
    parts = [
        np.abs(moved).max() / reach,
        (f / f_hat).max(initial=0.0),
        (multiplier * np.abs(f)).max() / (multiplier @ f_hat + F_hat * x.sum()),
        -min(multiplier.min(), 0.0) / multiplier.max(initial=1.0),
        max(-x.min(), (x - high).max()) / reach,
    ]
    return float(max(parts))
