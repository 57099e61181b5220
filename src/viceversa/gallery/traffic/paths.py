"""Shortest paths through a network and the growing table of paths that trips may use (column generation)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from viceversa.errors import InputError, MissingExtra
from viceversa.gallery.traffic.network import Demand, Network, check_zones

_ORIGINS_AT_ONCE = 256  # so that trees of a large city fit in memory
_CHEAPER = 1e-12  # relative: a path must be cheaper by more than rounding to be a new one


def sparse():
    """SciPy's sparse matrices and graphs, or the sentence that says how to get them."""
    try:
        from scipy import sparse as found
        from scipy.sparse import csgraph
    except ImportError:
        raise MissingExtra("vv.gallery.traffic", "scipy", "certify") from None
    return found, csgraph


class Shortest(NamedTuple):
    """For every pair the least cost and the links of a path that has it (filled up with the number n_links)."""

    cost: np.ndarray
    links: np.ndarray


class Graph:
    """The network as a graph in which zones cannot be passed: trips leave them from a copy that no link enters.

    Of parallel links only the cheapest counts; which one that is depends on the costs.
    """

    def __init__(self, network: Network, demand: Demand):
        check_zones(network, demand)
        self.network, self.demand = network, demand
        n = network.n_nodes
        zone = np.arange(1, n + 1) < network.first_thru_node
        tail, head = network.init_node - 1, network.term_node - 1
        tail = np.where(zone[tail], tail + n, tail)
        self.size = 2 * n if zone.any() else n
        open_links = np.flatnonzero(~network.closed & (network.init_node != network.term_node))
        key = tail[open_links] * self.size + head[open_links]
        order = np.argsort(key, kind="stable")
        self.links = open_links[order]
        self.keys, self.starts = np.unique(key[order], return_index=True)
        self.tails, self.heads = self.keys // self.size, self.keys % self.size
        self.indptr = np.searchsorted(self.tails, np.arange(self.size + 1))
        origin = demand.origin - 1
        origin = np.where(zone[origin], origin + n, origin)
        self.sources, self.tree = np.unique(origin, return_inverse=True)
        self.targets = demand.destination - 1
        self.origins = origin

    def shortest(self, link_cost: np.ndarray) -> Shortest:
        """A cheapest path of every pair; a pair without any is named."""
        scipy_sparse, csgraph = sparse()
        cost = link_cost[self.links]
        cheapest = np.minimum.reduceat(cost, self.starts) if cost.size else cost
        group = np.repeat(np.arange(self.starts.size), np.diff(np.append(self.starts, cost.size)))
        is_best = np.flatnonzero(cost == cheapest[group])
        best = np.empty(self.starts.size, np.int64)
        best[group[is_best[::-1]]] = self.links[is_best[::-1]]
        matrix = scipy_sparse.csr_matrix(
            (cheapest, self.heads.astype(np.int32), self.indptr.astype(np.int32)),
            shape=(self.size, self.size),
        )
        costs = np.empty(self.demand.n_pairs)
        pieces: list[tuple[np.ndarray, np.ndarray]] = []
        for start in range(0, self.sources.size, _ORIGINS_AT_ONCE):
            chosen = self.sources[start : start + _ORIGINS_AT_ONCE]
            distance, before = csgraph.dijkstra(matrix, indices=chosen, return_predecessors=True)
            pairs = np.flatnonzero((self.tree >= start) & (self.tree < start + _ORIGINS_AT_ONCE))
            row = self.tree[pairs] - start
            costs[pairs] = distance[row, self.targets[pairs]]
            self._check_connected(pairs, costs[pairs])
            pieces.append((pairs, self._walk_back(pairs, row, before, best)))
        longest = max(links.shape[1] for _, links in pieces)
        table = np.full((self.demand.n_pairs, longest), self.network.n_links, np.int32)
        for pairs, links in pieces:
            table[pairs, : links.shape[1]] = links
        return Shortest(costs, table)

    def _walk_back(
        self, pairs: np.ndarray, row: np.ndarray, before: np.ndarray, best: np.ndarray
    ) -> np.ndarray:
        """Links from destination to origin, for all pairs at once."""
        here = self.targets[pairs]
        columns = []
        while True:
            going = here != self.origins[pairs]
            if not going.any():
                return np.stack(columns, axis=1)
            previous = np.where(going, before[row, here], here)
            at = np.searchsorted(self.keys, previous * self.size + here)
            link = best[np.minimum(at, best.size - 1)]
            columns.append(np.where(going, link, self.network.n_links).astype(np.int32))
            here = previous

    def _check_connected(self, pairs: np.ndarray, cost: np.ndarray) -> None:
        lost = pairs[~np.isfinite(cost)]
        if lost.size:
            first = int(lost[0])
            closed = int(self.network.closed.sum())
            reason = f" {closed} links of capacity 0 are closed;" if closed else ""
            zones = self.network.first_thru_node - 1
            reason += f" nodes 1 to {zones} cannot be passed through;" if zones > 0 else ""
            raise InputError(
                f"{self.network.name}: no path leads from {self.demand.origin[first]} to {self.demand.destination[first]} "
                f"({lost.size} of {self.demand.n_pairs} pairs with trips are disconnected;{reason} "
                f"{self.demand.volume[first]:g} trips need one). Add a link or remove the trips."
            )


class Columns:
    """The paths generated so far, sorted by pair, and the flow on each."""

    def __init__(self, graph: Graph, first: Shortest):
        self.graph = graph
        self.links, self.pair = first.links, np.arange(graph.demand.n_pairs)
        self.flow = graph.demand.volume.copy()
        self._index()

    def _index(self) -> None:
        scipy_sparse, _ = sparse()
        n_pairs, n_links = self.graph.demand.n_pairs, self.graph.network.n_links
        self.starts = np.searchsorted(self.pair, np.arange(n_pairs))
        real = self.links < n_links
        indptr = np.concatenate([[0], np.cumsum(real.sum(1))])
        self.incidence = scipy_sparse.csr_matrix(
            (np.ones(int(indptr[-1])), self.links[real], indptr), shape=(self.pair.size, n_links)
        )
        self.transpose = self.incidence.T.tocsr()

    @property
    def widest(self) -> int:
        """The largest number of paths of one pair."""
        return int(np.bincount(self.pair).max())

    def link_flow(self) -> np.ndarray:
        """Flow on every link."""
        return self.transpose @ self.flow

    def least(self, path_cost: np.ndarray) -> np.ndarray:
        """The cheapest generated path of every pair."""
        return np.minimum.reduceat(path_cost, self.starts)

    def add(self, found: Shortest, link_cost: np.ndarray) -> int:
        """Paths that are cheaper than all their pair has; how many were added.

        Being cheaper at these costs makes a path a new one, so nothing is compared link by link.
        """
        least = self.least(self.incidence @ link_cost)
        new = np.flatnonzero(found.cost < least * (1.0 - _CHEAPER))
        if not new.size:
            return 0
        width = max(self.links.shape[1], found.links.shape[1])
        fill = lambda table: np.pad(
            table, ((0, 0), (0, width - table.shape[1])), constant_values=self.graph.network.n_links
        )
        pair = np.concatenate([self.pair, new])
        order = np.argsort(pair, kind="stable")
        self.links = np.vstack([fill(self.links), fill(found.links[new])])[order]
        self.flow = np.concatenate([self.flow, np.zeros(new.size)])[order]
        self.pair = pair[order]
        self._index()
        return new.size

    def take_over(self, other: Columns) -> None:
        """The paths of an earlier answer for the same pairs, with its shares of the trips."""
        share = other.flow / other.graph.demand.volume[other.pair]
        self.links, self.pair = other.links, other.pair
        self.flow = share * self.graph.demand.volume[other.pair]
        self._index()

    def drop(self, unused: np.ndarray) -> None:
        """Forget paths (a mask); at least one of every pair must stay."""
        self.links, self.flow, self.pair = self.links[~unused], self.flow[~unused], self.pair[~unused]
        self._index()

    # -- one batched simplex: a row for every pair, as wide as the next power of two ------------------
    def slot(self) -> np.ndarray:
        """The place of every path in its pair's row."""
        return np.arange(self.pair.size) - self.starts[self.pair]

    def padded(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Links (pairs, width, longest), mask and flows (pairs, width); sizes are powers of two, so that a compiled
        program serves until one of them doubles."""
        n_pairs, n_links = self.graph.demand.n_pairs, self.graph.network.n_links
        width, longest = _power_of_two(max(self.widest, 2)), _power_of_two(self.links.shape[1])
        table = np.full((n_pairs, width, longest), n_links, np.int32)
        mask, flow = np.zeros((n_pairs, width), bool), np.zeros((n_pairs, width))
        at = (self.pair, self.slot())
        table[(*at, slice(self.links.shape[1]))] = self.links
        mask[at], flow[at] = True, self.flow
        return table, mask, flow


def _power_of_two(n: int) -> int:
    return 1 << (int(n) - 1).bit_length()
