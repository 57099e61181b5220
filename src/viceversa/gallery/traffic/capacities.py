"""Tolls that keep flows within capacities: the multipliers of v ≤ cap, by the augmented Lagrangian; or a proof of too little.

v_k    = user equilibrium at the link costs t(v) + fixed + [λ_k + ρ(v − cap)]₊                  (1)
λ_k+1  = [λ_k + ρ(v_k − cap)]₊                                                                 (2)
"""

from __future__ import annotations

import numpy as np

from viceversa.gallery.traffic.costs import LinkCosts
from viceversa.gallery.traffic.path_newton import Gap, Round, equilibrate
from viceversa.gallery.traffic.paths import Columns, Graph

_MAX_PRICINGS = 40
_ENOUGH = 0.25  # the share of the violation that a good penalty leaves
_GROWTH = 10.0
_SHRINK, _LEAST_GAP = 0.1, 1e-12
_PROVED = 1e-9  # relative margin of the proof


def first_penalty(cost: LinkCosts) -> np.ndarray:
    """ρ: what makes a link that is over its cap by half of it cost its own time once more; 0 without a cap."""
    capped = np.isfinite(cost.cap)
    cap = np.where(capped & (cost.cap > 0), cost.cap, 1.0)
    at_cap = cost.bpr.time(cap, cost.b) + cost.fixed
    return np.where(capped, 2.0 * np.maximum(at_cap, np.mean(at_cap)) / cap, 0.0)


def price_capacities(
    columns: Columns, cost: LinkCosts, tol: float, relative_gap: float, max_rounds: int
) -> tuple[LinkCosts, Round | None]:
    """(1)-(2) until no link is over its cap by more than `tol` of it; costs with the tolls found.

    The second result is None where the tolls prove that the capacities cannot carry the trips.
    """
    done = Round(Gap(0.0, 0.0), 0, 0)
    n_rounds = n_newton = 0
    worst = np.inf
    for _ in range(_MAX_PRICINGS):
        # A toll moves by ρ times the error in v, so the gap shrinks before the penalty grows.
        relative_gap = max(_SHRINK * relative_gap, _LEAST_GAP)
        done = equilibrate(columns, cost, relative_gap, max_rounds)
        n_rounds, n_newton = n_rounds + done.n_rounds, n_newton + done.n_newton
        flow = columns.link_flow()
        over = violation(cost, flow)
        toll = cost.capacity_cost(flow)
        settled = np.abs(toll - cost.toll).max() <= tol * max(float(toll.max()), 1e-300)
        cost = cost._replace(toll=toll)
        if over <= tol and settled:
            break
        if prove_too_little(columns.graph, cost.cap, toll):
            return cost, None
        if over > max(_ENOUGH * worst, tol):
            cost = cost._replace(penalty=_GROWTH * cost.penalty)
        worst = min(worst, over)
    return cost, Round(done.gap, n_rounds, n_newton)


def violation(cost: LinkCosts, flow: np.ndarray) -> float:
    """The largest share by which a link is over its cap (of the average cap, where a cap is 0)."""
    capped = np.isfinite(cost.cap)
    if not capped.any():
        return 0.0
    cap = cost.cap[capped]
    unit = np.where(cap > 0, cap, np.mean(cap) or 1.0)
    return float(max(((flow[capped] - cap) / unit).max(), 0.0))


def prove_too_little(graph: Graph, cap: np.ndarray, toll: np.ndarray) -> bool:
    """Whether Σ cap·λ < Σ trips · least λ-cost of a path: then no flow of these trips is within the capacities.

    For any flow within them Σ cap·λ ≥ Σ v·λ ≥ Σ trips · least λ-cost.
    """
    if not (toll > 0).any():
        return False
    toll = toll / toll.max()
    paid = float(graph.demand.volume @ graph.shortest(toll).cost)
    available = float(toll @ np.where(toll > 0, cap, 0.0))
    return paid > available * (1.0 + _PROVED)
