"""Networks that need no file: Braess's, and street grids of any size with realistic BPR parameters."""

from __future__ import annotations

import numpy as np

from viceversa.errors import InputError
from viceversa.gallery.traffic.network import Demand, Network
from viceversa.gallery.traffic.paths import Graph

_TINY = 2.0**-40  # the free-flow time of a link whose time is proportional to its flow


def braess(bridge: bool = True) -> tuple[Network, Demand]:
    """Braess's network (braess1968paradoxon), 6 trips from 1 to 2: everyone takes 92 with the bridge, 83 without it.

    Times 10v on 1→3 and 4→2, 50 + v on 1→4 and 3→2, 10 + v on the bridge 3→4. At equilibrium each of the three paths
    carries 2. BPR cannot be proportional to v; 2⁻⁴⁰ minutes of free-flow time take its place.

    Example:
        >>> import viceversa as vv
        >>> answer = vv.gallery.traffic.user_equilibrium(*vv.gallery.traffic.braess(), relative_gap=1e-12)
        >>> print(answer.link_flow.round(6), round(answer.total_travel_time / 6, 6))
        [4. 2. 2. 2. 4.] 92.0
    """
    links = [
        (1, 3, _TINY, 10.0),
        (1, 4, 50.0, 1.0),
        (3, 2, 50.0, 1.0),
        (3, 4, 10.0, 1.0),
        (4, 2, _TINY, 10.0),
    ]
    init, term, free, slope = np.array(links if bridge else [*links[:3], links[4]]).T
    name = "Braess" if bridge else "Braess without bridge"
    network = Network(init, term, free, b=slope / free, name=name, n_nodes=4, first_thru_node=3)
    return network, Demand(np.array([1]), np.array([2]), np.array([6.0]))


def grid(
    n_rows: int = 4, n_columns: int = 6, n_pairs: int = 528, congestion: float = 1.0, seed: int = 0
) -> tuple[Network, Demand]:
    """A street grid with two-way links, and trips between random pairs of its nodes.

    Every third street is an arterial (60 km/h, 1800 veh/h a lane, two lanes), the others are local (40 km/h, 900 veh/h);
    blocks are 0.4 to 1.2 km; B = 0.15 and p = 4, the Bureau of Public Roads' own numbers. Trips are log-normal, scaled so
    that if all took the path that is shortest without traffic, the average trip would meet links filled to
    `congestion` times their capacity. With the defaults: 24 nodes, 76 links, 528 pairs.

    Example:
        >>> import viceversa as vv
        >>> vv.gallery.traffic.grid()[0]
        Network(grid 4×6: 24 nodes, 76 links)
    """
    n = n_rows * n_columns
    if min(n_rows, n_columns) < 2 or not 1 <= n_pairs <= n * (n - 1):
        raise InputError(
            f"grid: {n_rows}×{n_columns} with {n_pairs} pairs; at least 2×2 and 1 to {max(n * (n - 1), 1)} pairs are needed."
        )
    rng = np.random.default_rng(seed)
    node = np.arange(n).reshape(n_rows, n_columns)
    along = np.stack([node[:, :-1].ravel(), node[:, 1:].ravel(), np.repeat(np.arange(n_rows), n_columns - 1)])
    across = np.stack([node[:-1].ravel(), node[1:].ravel(), np.tile(np.arange(n_columns), n_rows - 1)])
    first, second, street = np.concatenate([along, across], axis=1)
    length = rng.uniform(0.4, 1.2, first.size)  # km
    arterial = street % 3 == 0
    speed = np.where(arterial, 60.0, 40.0)
    both = lambda there, back: np.concatenate([there, back])
    twice = lambda values: np.concatenate([values, values])
    network = Network(
        both(first, second) + 1,
        both(second, first) + 1,
        free_flow_time=twice(60.0 * length / speed),  # minutes
        capacity=twice(np.where(arterial, 3600.0, 900.0)),
        b=0.15,
        power=4.0,
        length=twice(length),
        speed=twice(speed),
        link_type=twice(np.where(arterial, 1, 2)),
        n_nodes=n,
        name=f"grid {n_rows}×{n_columns}",
    )
    chosen = rng.choice(n * (n - 1), size=n_pairs, replace=False)
    origin, other = np.divmod(np.sort(chosen), n - 1)
    destination = other + (other >= origin)
    volume = rng.lognormal(sigma=0.7, size=n_pairs)
    demand = Demand(origin + 1, destination + 1, volume)
    return network, Demand(origin + 1, destination + 1, volume * congestion / _filled(network, demand))


def _filled(network: Network, demand: Demand) -> float:
    """Σ v²/c ÷ Σ v of all trips on their free-flow paths: how full a link the average trip meets."""
    found = Graph(network, demand).shortest(network.free_flow_time)
    used = found.links < network.n_links
    weights = np.broadcast_to(demand.volume[:, None], used.shape)[used]
    flow = np.bincount(found.links[used], weights=weights, minlength=network.n_links)
    return float((flow**2 / network.capacity).sum() / flow.sum())
