"""User equilibria at their stated sizes, on networks that anyone can generate again; `benchmarks.apps` makes the table.

Every answer is judged by arithmetic of its own: Bellman-Ford distances (not the solver's Dijkstra trees) give SPTT, and
plain NumPy gives TSTT.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

from viceversa.gallery import traffic

GAP = 1e-6
JUDGED_GAP = 1.001e-6  # other distances round otherwise
B_TRUE = (0.15, 0.3)  # of arterials and local streets, in the cases that learn


class Case(NamedTuple):
    """What is special about it, its equilibrium, and the seconds and processor seconds it took."""

    name: str
    answer: traffic.Equilibrium
    seconds: float
    cpu: float


def cases(quick: bool = False) -> Iterator[Case]:
    """The equilibria, one after the other."""
    small, large = traffic.grid(), traffic.grid(8, 8, 500) if quick else traffic.grid(20, 20, 10_000)
    network = small[0]
    caps = 1.15 * network.capacity
    learned = {"link_times": _observed_times(network), "b_classes": "link_type"}
    for name, (net, demand), options in [
        ("", small, {}),
        ("twice the trips", _doubled(small), {}),
        ("B learned", small, learned),
        ("capacities", small, {"link_capacities": caps}),
        ("B learned, capacities", small, {**learned, "link_capacities": caps}),
        ("", large, {}),
        ("twice the trips", _doubled(large), {}),
    ]:
        wall, cpu = perf_counter(), process_time()
        answer = traffic.user_equilibrium(net, demand, relative_gap=GAP, **options)
        yield Case(name, answer, perf_counter() - wall, process_time() - cpu)


def judged_gap(answer: traffic.Equilibrium) -> float:
    """(TSTT − SPTT)/TSTT from link flows alone, with all distances by Bellman-Ford sweeps."""
    network, demand, v = answer.network, answer.demand, answer.link_flow
    cost = network.free_flow_time * (1.0 + answer.b * (v / network.capacity) ** network.power)
    cost = cost + (0.0 if answer.multiplier is None else answer.multiplier)
    distance = np.full((network.n_nodes + 1, network.n_nodes + 1), np.inf)  # [node, origin]
    np.fill_diagonal(distance, 0.0)
    while True:
        before = distance.copy()
        np.minimum.at(distance, network.term_node, distance[network.init_node] + cost[:, None])
        if (distance == before).all():
            break
    total = float(v @ cost)
    return (total - float(demand.volume @ distance[demand.destination, demand.origin])) / total


def _doubled(case: tuple[traffic.Network, traffic.Demand]) -> tuple[traffic.Network, traffic.Demand]:
    network, demand = case
    return network, traffic.Demand(demand.origin, demand.destination, 2.0 * demand.volume)


def _observed_times(network: traffic.Network) -> np.ndarray:
    """Rows (link, flow, time) without noise, at the B_TRUE of the link's type."""
    rng = np.random.default_rng(0)
    link = rng.integers(0, network.n_links, 500)
    flow = rng.uniform(0.3, 1.5, 500) * network.capacity[link]
    b = np.array(B_TRUE)[network.link_type[link] - 1]
    rise = b * (flow / network.capacity[link]) ** network.power[link]
    return np.column_stack([link, flow, network.free_flow_time[link] * (1.0 + rise)])
