"""A road network and the trips on it, as plain arrays, one entry per link and one per origin-destination pair."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from viceversa.errors import InputError
from viceversa.precision import as_finite_float64


@dataclass(frozen=True, eq=False)
class Network:
    """Directed links with BPR times, in the numbering of their file (nodes count from 1).

        t_e(v) = t0_e (1 + B_e (v / c_e)^p_e)                                                      (1)
        cost_e(v) = t_e(v) + toll_weight · toll_e + distance_weight · length_e                      (2)

    A node below `first_thru_node` is a zone: trips begin and end there, and none passes through. A link whose capacity is
    0 while its time would depend on it is closed, which is what (1) tends to.
    """

    init_node: Any
    term_node: Any
    free_flow_time: Any
    capacity: Any = 1.0
    b: Any = 0.0
    power: Any = 1.0
    length: Any = 0.0
    speed: Any = 0.0
    toll: Any = 0.0
    link_type: Any = 1
    n_nodes: int = 0  # 0: the largest number a link has
    first_thru_node: int = 1
    toll_weight: Any = 0.0
    distance_weight: Any = 0.0
    name: str = "network"

    def __post_init__(self):
        put = lambda field, value: object.__setattr__(self, field, value)
        times = as_finite_float64("Network: free_flow_time", self.free_flow_time)
        if times.ndim != 1 or times.size == 0:
            raise InputError(
                f"Network: free_flow_time has shape {times.shape}; one number per link is needed."
            )
        for field in ("init_node", "term_node", "link_type"):
            put(field, _whole_numbers(field, getattr(self, field), times.shape))
        for field in ("free_flow_time", "capacity", "b", "power", "length", "speed", "toll"):
            values = as_finite_float64(f"Network: {field}", getattr(self, field))
            if values.shape not in ((), times.shape):
                raise InputError(
                    f"Network: {field} has shape {values.shape}; one number or one per link, {times.shape}, is needed."
                )
            values = np.array(np.broadcast_to(values, times.shape))
            if field not in ("speed", "toll") and (values < 0).any():
                first = int(np.argmax(values < 0))
                raise InputError(
                    f"Network: {field} is negative at {int((values < 0).sum())} of {values.size} links "
                    f"(first: link {self.link_name(first)}, {values[first]:g}). It must be at least 0."
                )
            put(field, values)
        last = int(max(self.init_node.max(), self.term_node.max()))
        put("n_nodes", int(self.n_nodes) or last)
        for field in ("init_node", "term_node"):
            wrong = (getattr(self, field) < 1) | (getattr(self, field) > self.n_nodes)
            if wrong.any():
                first = int(np.argmax(wrong))
                raise InputError(
                    f"Network: {field} is {getattr(self, field)[first]} at link {first}; nodes are 1 to {self.n_nodes}."
                )
        if (self.fixed_cost < 0).any():
            first = int(np.argmax(self.fixed_cost < 0))
            raise InputError(
                f"Network: toll and distance together cost {self.fixed_cost[first]:g} on link {self.link_name(first)}; "
                "shortest paths need costs of at least 0. Check the toll and its weight."
            )

    @property
    def n_links(self) -> int:
        """How many links there are."""
        return self.free_flow_time.size

    @property
    def fixed_cost(self) -> np.ndarray:
        """toll_weight · toll + distance_weight · length, in units of time."""
        return self.toll_weight * self.toll + self.distance_weight * self.length

    @property
    def congestible(self) -> np.ndarray:
        """Which links' times depend on their flow."""
        return (self.free_flow_time > 0) & (self.b > 0) & (self.power > 0)

    @property
    def closed(self) -> np.ndarray:
        """Which links carry nothing: their time depends on v / c, and c is 0."""
        return (self.capacity == 0) & self.congestible

    def link_name(self, link: int) -> str:
        """`init→term` as in the file."""
        return f"{self.init_node[link]}→{self.term_node[link]}"

    def find_link(self, init: int, term: int) -> int:
        """The index of the link between two nodes, or a sentence when there is none or more than one."""
        found = np.flatnonzero((self.init_node == init) & (self.term_node == term))
        if found.size != 1:
            how_many = "is no link" if found.size == 0 else f"are {found.size} links"
            raise InputError(f"{self.name}: there {how_many} {init}→{term}. Name links by their row, from 0.")
        return int(found[0])

    def __repr__(self) -> str:
        return f"Network({self.name}: {self.n_nodes} nodes, {self.n_links} links)"


@dataclass(frozen=True, eq=False)
class Demand:
    """Trips between zones: `volume[w]` from `origin[w]` to `destination[w]`, in the network's numbering.

    Pairs without trips are left out, and so are trips that stay in their zone; `intrazonal` is what the latter add up to.
    """

    origin: Any
    destination: Any
    volume: Any
    intrazonal: float = 0.0

    def __post_init__(self):
        put = lambda field, value: object.__setattr__(self, field, value)
        volume = np.atleast_1d(as_finite_float64("Demand: volume", self.volume))
        origin = _whole_numbers("origin", np.atleast_1d(self.origin), volume.shape, "Demand")
        destination = _whole_numbers("destination", np.atleast_1d(self.destination), volume.shape, "Demand")
        if (volume < 0).any():
            first = int(np.argmax(volume < 0))
            raise InputError(
                f"Demand: volume is {volume[first]:g} for the pair {origin[first]}→{destination[first]}; trips are >= 0."
            )
        stays = origin == destination
        kept = ~stays & (volume > 0)
        if not kept.any():
            raise InputError("Demand: no pair of different zones has trips. Check the trip table.")
        put("origin", origin[kept])
        put("destination", destination[kept])
        put("volume", volume[kept])
        put("intrazonal", float(self.intrazonal + volume[stays].sum()))
        pairs = np.stack([self.origin, self.destination])
        unique, counts = np.unique(pairs, axis=1, return_counts=True)
        if (counts > 1).any():
            first = unique[:, np.argmax(counts > 1)]
            raise InputError(f"Demand: the pair {first[0]}→{first[1]} is given more than once. Add them up.")

    @property
    def n_pairs(self) -> int:
        """How many origin-destination pairs have trips."""
        return self.volume.size

    def pair_name(self, pair: int) -> str:
        """`origin→destination` as in the file."""
        return f"{self.origin[pair]}→{self.destination[pair]}"

    def __repr__(self) -> str:
        return f"Demand({self.n_pairs} pairs, {self.volume.sum():g} trips)"


def _whole_numbers(field: str, value: Any, shape: tuple[int, ...], owner: str = "Network") -> np.ndarray:
    given = as_finite_float64(f"{owner}: {field}", value)
    if given.shape not in ((), shape):
        raise InputError(f"{owner}: {field} has shape {given.shape}; {shape} is needed, as for the others.")
    if (given != np.round(given)).any():
        first = float(given.ravel()[np.argmax((given != np.round(given)).ravel())])
        raise InputError(f"{owner}: {field} holds {first:g}; whole numbers are needed.")
    return np.array(np.broadcast_to(given, shape)).astype(np.int64)


def replace(network: Network, **changes: Any) -> Network:
    """The same network with some fields changed."""
    unknown = set(changes) - {field.name for field in fields(Network)}
    if unknown:
        raise InputError(f"Network has no field {sorted(unknown)[0]!r}.")
    kept = {field.name: getattr(network, field.name) for field in fields(Network)}
    return Network(**{**kept, **changes})


def check_zones(network: Network, demand: Demand) -> None:
    """Every origin and destination is a node of the network."""
    for what, nodes in (("origin", demand.origin), ("destination", demand.destination)):
        wrong = np.flatnonzero((nodes < 1) | (nodes > network.n_nodes))
        if wrong.size:
            raise InputError(
                f"trips: {what} {nodes[wrong[0]]} of the pair {demand.pair_name(int(wrong[0]))} is not a node of "
                f"{network.name}, whose nodes are 1 to {network.n_nodes}."
            )
