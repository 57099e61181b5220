"""Equilibrium at given costs over generated paths: a projected Newton method, certified by shortest paths.

Without constraints and at a known B a user equilibrium minimises Beckmann's function Σ_e ∫₀^{v_e} cost_e
(beckmann1956studies). With the flow of each pair's largest path eliminated, r_p = cost_p − cost_basic is its gradient and
R diag(cost') Rᵀ its Hessian, where row p of R is path p minus its pair's basic path; a projected Newton method
(bertsekas1982projected) for a product of simplices is

    (R diag(cost'(v)) Rᵀ + ν) s = −r   on the free paths (h_p > 0 or r_p < 0)                      (1)
    h⁺ = h + α (clip(h + s) − h),   α = argmin over [0, 1]                                         (2)

(1) is solved by conjugate gradients, (2) on the derivative, so that no digits are lost close to the answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from viceversa.gallery.traffic.costs import LinkCosts
from viceversa.gallery.traffic.paths import Columns

_CG_STEPS = 200
_FORCING = 0.1  # the loosest relative residual of (1)
_REGULARIZATION = 1e-9  # ν relative to the diagonal: path flows are not unique, so (1) may be singular
_STEPS_A_ROUND = 6
_BISECTIONS = 40
_ACTIVE_SET_PASSES = 3


class Gap(NamedTuple):
    """TSTT = Σ v·cost, SPTT = Σ demand·least cost, and (TSTT − SPTT)/TSTT."""

    total: float
    shortest: float

    @property
    def relative(self) -> float:
        """(TSTT − SPTT)/TSTT; 0 where nothing costs anything."""
        return max(self.total - self.shortest, 0.0) / self.total if self.total > 0 else 0.0


class Round(NamedTuple):
    """How a sequence of rounds ended."""

    gap: Gap
    n_rounds: int
    n_newton: int


def gap_at(columns: Columns, cost: LinkCosts, extend: bool = True) -> tuple[Gap, int]:
    """The relative gap by an independent shortest-path pass, and how many cheaper paths were added on the way."""
    flow = columns.link_flow()
    link_cost = cost(flow)
    found = columns.graph.shortest(link_cost)
    gap = Gap(float(flow @ link_cost), float(columns.graph.demand.volume @ found.cost))
    return gap, columns.add(found, link_cost) if extend else 0


def equilibrate(columns: Columns, cost: LinkCosts, relative_gap: float, max_rounds: int) -> Round:
    """Generate columns and take Newton steps until the gap over *all* paths is small enough."""
    n_newton = 0
    for n_rounds in range(max_rounds + 1):
        gap, n_new = gap_at(columns, cost)
        if gap.relative <= relative_gap or n_rounds == max_rounds:
            return Round(gap, n_rounds, n_newton)
        target = 0.1 * gap.relative if n_new else 0.1 * min(gap.relative, relative_gap)
        for _ in range(_STEPS_A_ROUND):
            restricted = newton_step(columns, cost)
            n_newton += 1
            if restricted <= target:
                break
        if n_rounds % 5 == 4:
            _forget_unused(columns, cost)
    raise AssertionError("the loop returns in its last round")


def newton_step(columns: Columns, cost: LinkCosts) -> float:
    """(1)-(2) once; returns the relative gap over the generated paths before the step."""
    h, incidence, pair = columns.flow, columns.incidence, columns.pair
    flow = columns.link_flow()
    link_cost, slope = cost(flow), cost.slope(flow)
    path_cost = incidence @ link_cost
    excess = float(h @ (path_cost - columns.least(path_cost)[pair]))
    total = float(flow @ link_cost)
    basic = _largest(columns)
    r = path_cost - path_cost[basic][pair]
    free = (h > 0) | (r < 0)
    free[basic] = False
    chosen = np.flatnonzero(free)
    if chosen.size == 0:
        return 0.0
    R = incidence[chosen] - incidence[basic[pair[chosen]]]
    diagonal = abs(R) @ slope
    typical = float(diagonal.max()) or 1.0
    diagonal = np.maximum(diagonal, 1e-6 * typical)
    here = r[chosen]
    forcing = min(_FORCING, np.sqrt(excess / total) if total > 0 else _FORCING)
    newton = _newton_direction(R, slope, diagonal, here, h[chosen], forcing)
    for s in (newton, -here / diagonal):
        moved = _feasible_move(columns, basic, chosen, s)
        dv = columns.transpose @ moved
        if link_cost @ dv < 0:
            columns.flow = np.maximum(h + _line_search(cost, flow, dv) * moved, 0.0)
            break
    return excess / total if total > 0 else 0.0


def _largest(columns: Columns) -> np.ndarray:
    """The path of every pair that carries most."""
    order = np.lexsort((columns.flow, columns.pair))
    return order[np.append(columns.starts[1:], columns.pair.size) - 1]


def _newton_direction(
    R, slope: np.ndarray, diagonal: np.ndarray, r: np.ndarray, h: np.ndarray, rtol: float
) -> np.ndarray:
    """(1), with paths that empty on the way set to 0 and the others solved for again, a few times."""
    emptied = (r > 0) & (h <= r / diagonal)
    s = np.where(emptied, -h, 0.0)
    for _ in range(_ACTIVE_SET_PASSES):
        inside = np.flatnonzero(~emptied)
        fixed = R @ (slope * (R.T @ np.where(emptied, -h, 0.0)))
        s = np.where(emptied, -h, 0.0)
        s[inside] = _conjugate_gradients(R[inside], slope, diagonal[inside], -(r + fixed)[inside], rtol)
        below = ~emptied & (h + s < 0.0)
        if not below.any():
            break
        emptied |= below
    return s


def _conjugate_gradients(
    R, slope: np.ndarray, diagonal: np.ndarray, rhs: np.ndarray, rtol: float
) -> np.ndarray:
    back = R.T.tocsr()
    s, residual = np.zeros_like(rhs), rhs.copy()
    z = residual / diagonal
    direction, rz = z.copy(), float(residual @ z)
    target = rtol**2 * rz
    for _ in range(_CG_STEPS):
        if rz <= target or rz == 0.0:
            break
        product = R @ (slope * (back @ direction)) + _REGULARIZATION * diagonal * direction
        step = rz / float(direction @ product)
        s += step * direction
        residual -= step * product
        z = residual / diagonal
        rz, before = float(residual @ z), rz
        direction = z + (rz / before) * direction
    return s


def _feasible_move(columns: Columns, basic: np.ndarray, chosen: np.ndarray, s: np.ndarray) -> np.ndarray:
    """clip(h + s) − h on the chosen paths, shortened pair by pair where the basic path would go below 0."""
    h, n_pairs = columns.flow, basic.size
    pair = columns.pair[chosen]
    step = np.maximum(h[chosen] + s, 0.0) - h[chosen]
    taken = np.bincount(pair, weights=step, minlength=n_pairs)
    share = np.where(taken > h[basic], h[basic] / np.maximum(taken, 1e-300), 1.0)
    moved = np.zeros_like(h)
    moved[chosen] = share[pair] * step
    moved[basic] = -share * taken
    return moved


def _line_search(cost: LinkCosts, flow: np.ndarray, dv: np.ndarray) -> float:
    """The minimiser over [0, 1] of Beckmann's function along dv, as the root of its derivative."""
    slope_at = lambda alpha: float(cost(np.maximum(flow + alpha * dv, 0.0)) @ dv)
    if slope_at(1.0) <= 0.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope_at(middle) <= 0.0 else (low, middle)
        if high - low <= 1e-3 * high:
            break
    return low if low > 0.0 else high


def _forget_unused(columns: Columns, cost: LinkCosts) -> None:
    """Drop paths without flow that are not the cheapest of their pair."""
    path_cost = columns.incidence @ cost(columns.link_flow())
    unused = (columns.flow == 0.0) & (path_cost > columns.least(path_cost)[columns.pair])
    if 2 * unused.sum() > unused.size:
        columns.drop(unused)
