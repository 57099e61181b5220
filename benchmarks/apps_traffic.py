"""User equilibria at their stated sizes: seconds to a relative gap of 1e-6, on networks that anyone can generate again.

`python -m benchmarks.apps_traffic` writes `results/apps_traffic.csv` and `.md`. Every answer is judged by arithmetic
of its own: Bellman-Ford distances (not the solver's Dijkstra trees) give SPTT, and plain NumPy gives TSTT.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import viceversa as vv
from benchmarks import machine
from viceversa.gallery import traffic

GAP = 1e-6
B_TRUE = (0.15, 0.3)  # of arterials and local streets, in the cases that learn
HEADER = [
    "case",
    "nodes",
    "links",
    "pairs",
    "paths",
    "rounds",
    "gap",
    "judged gap",
    "seconds",
    "CPU seconds",
    "limit",
]


def run(output: Path, quick: bool = False) -> None:
    """Solve, judge, write and print."""
    small, large = traffic.grid(), traffic.grid(8, 8, 500) if quick else traffic.grid(20, 20, 10_000)
    network = small[0]
    caps = 1.15 * network.capacity
    observed = _observed_times(network)
    cases = [
        ("24 nodes", small, {}, 30),
        ("24 nodes, twice the trips", _doubled(small), {}, 30),
        ("24 nodes, B learned", small, {"link_times": observed, "b_classes": "link_type"}, 30),
        ("24 nodes, capacities", small, {"link_capacities": caps}, 30),
        ("24 nodes, B learned, capacities", small, {"link_times": observed, "link_capacities": caps, "b_classes": "link_type"}, 30),
        ("large grid", large, {}, 600),
        ("large grid, twice the trips", _doubled(large), {}, 600),
    ]  # fmt: skip
    rows = [_row(*case) for case in cases]
    notes = (
        "Seconds include everything from the arrays to the answer, compilation too where `vv.solve` is used; the load of the "
        "machine is in them and not in the CPU seconds. `limit` is the time the case may take on 2 cores."
    )
    machine.write(output, "apps_traffic", "Traffic user equilibrium", HEADER, rows, notes)


def _row(name: str, case: tuple[traffic.Network, traffic.Demand], arguments: dict, limit: int) -> list:
    network, demand = case
    wall, cpu = time.perf_counter(), time.process_time()
    answer = traffic.user_equilibrium(network, demand, relative_gap=GAP, **arguments)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert answer.success, answer.message
    judged = judged_gap(answer)
    assert judged <= GAP * 1.001, f"{name}: judged gap {judged:.2e}"
    if answer.theta is not None:
        np.testing.assert_allclose(answer.theta, B_TRUE, rtol=1e-6)
    sizes = [network.n_nodes, network.n_links, demand.n_pairs, answer.path_flow.size, answer.iterations]
    return [name, *sizes, f"{answer.relative_gap:.1e}", f"{judged:.1e}", wall, cpu, limit]


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


if __name__ == "__main__":
    print(f"viceversa {vv.__version__}", flush=True)
    run(Path(__file__).parent / "results")
