"""A user equilibrium that was found: flows, times, tolls, what was learned, and how good it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from viceversa.certificates import Certificate, certify
from viceversa.driver import Solution
from viceversa.errors import InputError
from viceversa.gallery.traffic.costs import BPR, LinkCosts, OverCapacity, PathCosts
from viceversa.gallery.traffic.network import Demand, Network
from viceversa.gallery.traffic.observations import Classes
from viceversa.gallery.traffic.paths import Columns
from viceversa.learning.base import Learning
from viceversa.problem import MisspecifiedVI
from viceversa.sets import Simplex


class Path(NamedTuple):
    """One used path: its nodes and links from origin to destination, the trips on it and what it costs one of them."""

    nodes: tuple[int, ...]
    links: tuple[int, ...]
    flow: float
    cost: float


@dataclass(frozen=True, eq=False)
class Equilibrium:
    """Link and path flows at user equilibrium.

    `relative_gap` = (TSTT − SPTT)/TSTT is at the costs trips see: time, weighted toll and distance, and the tolls
    `multiplier` that keep flows within `link_capacities` (None without them), one per link, in units of time. `theta` has the
    learned B of every class (None if B was known). `solution` is what `vv.solve` returned last, None where it was not
    needed; `certify` judges the flows by the package's own certificate in either case.
    """

    network: Network
    demand: Demand
    theta: np.ndarray | None
    multiplier: np.ndarray | None
    relative_gap: float
    iterations: int
    solution: Solution | None = field(repr=False)
    columns: Columns = field(repr=False)
    cost: LinkCosts = field(repr=False)
    classes: Classes = field(repr=False)
    learning: Learning = field(repr=False)
    asked: float
    settled: bool

    @property
    def link_flow(self) -> np.ndarray:
        """Trips on every link."""
        return self.columns.link_flow()

    @property
    def link_time(self) -> np.ndarray:
        """t0 (1 + B (v/c)^p)."""
        return self.cost.bpr.time(self.link_flow, self.cost.b)

    @property
    def link_cost(self) -> np.ndarray:
        """What a trip pays for every link: time, weighted toll and distance, capacity toll."""
        return self.cost(self.link_flow)

    @property
    def b(self) -> np.ndarray:
        """The BPR coefficient of every link, learned or given."""
        return self.cost.b

    @property
    def objective(self) -> float:
        """Beckmann's function Σ_e ∫₀^{v_e} (t_e + fixed_e)."""
        flow = self.link_flow
        return float(np.sum(self.cost.bpr.primitive(flow, self.cost.b) + self.cost.fixed * flow))

    @property
    def total_travel_time(self) -> float:
        """Σ_e v_e t_e(v_e)."""
        return float(self.link_flow @ self.link_time)

    @property
    def path_flow(self) -> np.ndarray:
        """Trips on every generated path; `path_pair` says whose, `path_links` which links (n_links fills up)."""
        return self.columns.flow

    @property
    def path_pair(self) -> np.ndarray:
        """The pair every path belongs to, as its number in `demand`."""
        return self.columns.pair

    @property
    def path_links(self) -> np.ndarray:
        """The links of every path, from destination to origin, filled up with the number n_links."""
        return self.columns.links

    @property
    def success(self) -> bool:
        """Whether the gap asked for is reached (and, with learning or capacities, `vv.solve` certified its answer)."""
        return self.relative_gap <= self.asked and self.settled

    @property
    def message(self) -> str:
        """How it ended, as a sentence."""
        if self.success:
            return f"User equilibrium: relative gap {self.relative_gap:.1e} over all paths, at most {self.asked:.1e}."
        ended = "" if self.solution is None or self.settled else f" The last solve: {self.solution.message}"
        return (
            f"Stopped after {self.iterations} rounds at relative gap {self.relative_gap:.1e}; {self.asked:.1e} was asked "
            f"for. Raise max_rounds or relax relative_gap.{ended}"
        )

    @property
    def problem(self) -> MisspecifiedVI:
        """The misspecified VI over the generated paths, one row of a batched simplex per pair."""
        return path_problem(self.network, self.columns, self.classes, self.learning, self.cost.cap)[0]

    def certify(self, tol: float = 1e-6) -> Certificate:
        """The package's certificate of these flows, tolls and coefficients over the generated paths."""
        problem, x = path_problem(self.network, self.columns, self.classes, self.learning, self.cost.cap)
        theta = self.learning.set.interior_point() if self.theta is None else self.theta
        return certify(problem, x, self.cost.toll[np.isfinite(self.cost.cap)], theta, tol=tol)

    def paths(self, origin: int, destination: int) -> list[Path]:
        """The used paths of one pair, busiest first."""
        pair = np.flatnonzero((self.demand.origin == origin) & (self.demand.destination == destination))
        if pair.size == 0:
            raise InputError(f"paths: there are no trips from {origin} to {destination}.")
        cost = self.columns.incidence @ self.link_cost
        chosen = np.flatnonzero((self.path_pair == pair[0]) & (self.path_flow > 0))
        return [self._path(int(p), float(cost[p])) for p in chosen[np.argsort(-self.path_flow[chosen])]]

    def _path(self, p: int, cost: float) -> Path:
        links = [int(link) for link in self.path_links[p][::-1] if link < self.network.n_links]
        nodes = [
            int(self.network.init_node[links[0]]),
            *(int(self.network.term_node[link]) for link in links),
        ]
        return Path(tuple(nodes), tuple(links), float(self.path_flow[p]), cost)

    def __str__(self) -> str:
        return (
            f"{self.message}\n{self.network}, {self.demand}\nBeckmann objective {self.objective:.10g}, "
            f"total travel time {self.total_travel_time:.10g}, {self.iterations} rounds, {self.path_flow.size} paths"
        )


def path_problem(
    network: Network, columns: Columns, classes: Classes, learning: Learning, cap: np.ndarray
) -> tuple[MisspecifiedVI, np.ndarray]:
    """Path costs as F on one batched simplex, v ≤ cap as f; and the present path flows in its shape."""
    links, mask, flow = columns.padded()
    capped = np.flatnonzero(np.isfinite(cap))
    constraints, names = None, None
    if capped.size:
        constraints = OverCapacity(links, capped, cap[capped], network.n_links)
        names = tuple(f"capacity[{network.link_name(int(link))}]" for link in capped)
    problem = MisspecifiedVI(
        PathCosts(BPR(network), network.fixed_cost, links, classes.of_link),
        set=Simplex(mask.shape, columns.graph.demand.volume, mask),
        constraints=constraints,
        learning=learning,
        constraint_names=names,
        symmetric=True,
    )
    return problem, flow
