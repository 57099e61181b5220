"""Families of the corpus on simplices with many rows: demands over parallel links whose costs depend on the links' totals.

Planted are flows x* with rows Σ_j x_rj given, θ*, and multipliers λ* of the first links' capacities, which bind:

    F_rj(x, θ) = a_rj + o_rj x_rj + θ b_j (v_j/v̄)^p,    v = Σ_r x_r,    f_j = v_j − v*_j for the first links,

where a is such that the links a row uses cost it the same at x*, and others more. With o = 0 only v is unique, and no coordinate
has a slope of its own.
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
class Congestion:
    """One kind of problem: its shape and what its costs are like."""

    name: str
    n_rows: int
    n_links: int
    power: int = 2
    own: float = 0.0
    masked: bool = False
    n_capacities: int = 0
    learned: bool = True


FAMILIES = (
    Congestion("rows-own-costs-masked", 30, 20, power=4, own=0.5, masked=True),
    Congestion("rows-capacities", 40, 12, power=4, masked=True, n_capacities=3),
    Congestion("rows-totals-alone-large", 60, 40),
)


class LinkCosts(eqx.Module):
    """F in its natural units; `own` is None where only totals matter."""

    a: np.ndarray
    b: np.ndarray
    own: np.ndarray | None
    mean: np.ndarray
    power: int = eqx.field(static=True)

    def __call__(self, x, theta):
        cost = self.a + theta * self.b * (x.sum(0) / self.mean) ** self.power
        return cost if self.own is None else cost + self.own * x


class Capacities(eqx.Module):
    """v_j ≤ capacity_j for the first links."""

    capacity: np.ndarray

    def __call__(self, x, theta):
        return x.sum(0)[: self.capacity.size] - self.capacity


@dataclass(frozen=True)
class PlantedFlows:
    """A problem with its planted answer."""

    family: Congestion
    seed: int
    problem: Any
    x_true: np.ndarray
    multiplier_true: np.ndarray
    theta_true: np.ndarray
    theta0: np.ndarray


def problems(n_seeds: int) -> Iterator[PlantedFlows]:
    """Every family with `n_seeds` seeds."""
    yield from (plant(family, seed) for family in FAMILIES for seed in range(n_seeds))


def plant(family: Congestion, seed: int) -> PlantedFlows:
    """One problem of a family."""
    rng = np.random.default_rng([seed, *family.name.encode()])
    shape = family.n_rows, family.n_links
    allowed = rng.uniform(size=shape) < 0.6 if family.masked else np.ones(shape, bool)
    allowed[:, 0] = True
    used = allowed & (rng.uniform(size=shape) < 0.3)
    used[:, 0] = True
    x = np.where(used, rng.uniform(0.2, 1.0, shape), 0.0)
    v, theta = x.sum(0), np.asarray(rng.uniform(0.5, 1.5))
    b, own = rng.uniform(0.5, 2.0, family.n_links), family.own * rng.uniform(0.5, 1.5, shape)
    multiplier = rng.uniform(0.1, 0.5, family.n_capacities)
    price = np.pad(multiplier, (0, family.n_links - family.n_capacities))
    congested = theta * b * (v / v.mean()) ** family.power
    level = congested.max() + rng.uniform(1.0, 2.0, (family.n_rows, 1))
    excess = np.where(used, 0.0, rng.uniform(0.05, 1.0, shape))
    costs = LinkCosts(
        a=level + excess - own * x - congested - price,
        b=b,
        own=own if family.own else None,
        mean=v.mean(),
        power=family.power,
    )
    observed = rng.uniform(0.5, 2.0, 30)
    learning = vv.LeastSquares(observed, theta * observed, set=vv.Box(0.1, 5.0, shape=()))
    problem = vv.MisspecifiedVI(
        costs,
        vv.Simplex(shape, total=x.sum(1), mask=allowed if family.masked else None),
        Capacities(v[: family.n_capacities]) if family.n_capacities else None,
        learning if family.learned else vv.Known(theta),
    )
    return PlantedFlows(family, seed, problem, x, multiplier, theta, theta0=1.5 * theta)


def judge(planted: PlantedFlows, x: np.ndarray, multiplier: np.ndarray, theta: np.ndarray) -> Verdict:
    """Judged in NumPy: what rows could save, capacities, and totals beside the planted ones (x is unique only with own costs)."""
    if not all(np.isfinite(part).all() for part in (x, multiplier, theta)):
        return Verdict(np.inf, np.inf, np.inf, np.inf, np.inf, np.nan)
    residual = _residual(planted, x, multiplier, float(theta))
    at_truth = _residual(planted, x, multiplier, float(planted.theta_true))
    totals = relative_error(x.sum(0), planted.x_true.sum(0))
    far = relative_error(np.atleast_1d(theta), np.atleast_1d(planted.theta_true))
    return Verdict(residual, far, at_truth, totals, np.nan, np.nan)


def _residual(planted: PlantedFlows, x: np.ndarray, multiplier: np.ndarray, theta: float) -> float:
    """The largest of: how far x is from X, what rows could save, capacities exceeded or priced though slack; all relative."""
    costs, X, n = planted.problem.operator, planted.problem.set, planted.family.n_capacities
    v, total = x.sum(0), np.asarray(X.total)
    own = 0.0 if costs.own is None else costs.own * x
    F = costs.a + own + theta * costs.b * (v / costs.mean) ** costs.power
    G = F + np.pad(multiplier, (0, planted.family.n_links - n))
    allowed = np.ones(x.shape, bool) if X.mask is None else X.mask
    spent = float(np.sum(np.abs(F) * x))
    saved = float(np.sum(G * x) - total @ np.min(np.where(allowed, G, np.inf), axis=1))
    over = v[:n] - planted.x_true.sum(0)[:n]
    parts = [
        np.abs(x.sum(1) - total).max() / total.max(),
        max(-x.min(), np.abs(x[~allowed]).max(initial=0.0)) / total.max(),
        saved / spent,
        (over / v[:n]).max(initial=0.0),
        np.abs(multiplier @ over) / spent,
        -min(multiplier.min(initial=0.0), 0.0) / np.abs(F).max(),
    ]
    return float(max(parts))
