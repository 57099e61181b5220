"""What a link costs at its flow: BPR times, their primitives and slopes, and the capacity's share of the cost."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa.gallery.traffic.network import Network

_NEVER_BELOW = 1e-9  # of capacity: where the slope of a power below 1 is taken instead of at 0


class BPR(eqx.Module):
    """Link times t(v) = t0 (1 + B (v/c)^p) of all links at once; NumPy in, NumPy out, and JAX likewise.

    Where the time does not depend on v, c is 1: a capacity that is not used may be 0 in the data.
    """

    free_flow_time: np.ndarray
    capacity: np.ndarray
    power: np.ndarray

    def __init__(self, network: Network):
        self.free_flow_time = network.free_flow_time
        self.capacity = np.where(network.capacity > 0, network.capacity, 1.0)
        self.power = network.power

    def time(self, flow: Any, b: Any) -> Any:
        """t0 (1 + B (v/c)^p)."""
        return self.free_flow_time * (1.0 + b * (flow / self.capacity) ** self.power)

    def primitive(self, flow: Any, b: Any) -> Any:
        """∫₀^v t = t0 v (1 + B/(p + 1) (v/c)^p)."""
        return (
            self.free_flow_time * flow * (1.0 + b / (self.power + 1.0) * (flow / self.capacity) ** self.power)
        )

    def slope(self, flow: np.ndarray, b: np.ndarray) -> np.ndarray:
        """t'(v) = t0 B p/c (v/c)^(p − 1)."""
        ratio = np.where(
            self.power < 1.0, np.maximum(flow / self.capacity, _NEVER_BELOW), flow / self.capacity
        )
        grows = self.free_flow_time * b * self.power / self.capacity
        return np.where(
            self.power > 0, grows * ratio ** (np.where(self.power > 0, self.power, 1.0) - 1.0), 0.0
        )


class LinkCosts(NamedTuple):
    """Costs at a given B: time, tolls and distance, and [λ + ρ(v − cap)]₊ for links with a capacity that must hold.

    The last part is the derivative of the augmented Lagrangian of v ≤ cap, so a toll that is right makes it λ.
    """

    bpr: BPR
    b: np.ndarray
    fixed: np.ndarray
    cap: np.ndarray  # infinite where there is none
    toll: np.ndarray  # λ
    penalty: np.ndarray  # ρ, in units of time per flow

    def __call__(self, flow: np.ndarray) -> np.ndarray:
        return self.bpr.time(flow, self.b) + self.fixed + self.capacity_cost(flow)

    def capacity_cost(self, flow: np.ndarray) -> np.ndarray:
        """[λ + ρ(v − cap)]₊."""
        capped = np.isfinite(self.cap)
        over = np.where(capped, flow - np.where(capped, self.cap, 0.0), 0.0)
        return np.maximum(self.toll + self.penalty * over, 0.0)

    def slope(self, flow: np.ndarray) -> np.ndarray:
        """The derivative of the cost."""
        return self.bpr.slope(flow, self.b) + np.where(self.capacity_cost(flow) > 0, self.penalty, 0.0)


def link_flows(h: Float[Array, "pairs width"], links: Any, n_links: int) -> Float[Array, " links"]:
    """v_e = Σ h over the paths through e; a path shorter than the table is filled with the number n_links."""
    spread = jnp.broadcast_to(h[..., None], links.shape)
    return jnp.zeros(n_links + 1, h.dtype).at[links].add(spread)[:n_links]


class PathCosts(eqx.Module):
    """F(h, θ): the cost of every path, Σ over its links of t0 (1 + B (v/c)^p) + fixed, where B = θ[class of the link].

    `links[w, k]` lists the links of path k of pair w; `classes` maps a link to its component of θ (the number after the
    last one: B = 0).
    """

    bpr: BPR
    fixed: np.ndarray
    links: np.ndarray
    classes: np.ndarray

    def __call__(self, h: Float[Array, "pairs width"], theta: Float[Array, " classes"]) -> Array:
        flow = link_flows(h, self.links, self.fixed.size)
        b = jnp.append(theta, 0.0)[self.classes]
        cost = jnp.append(self.bpr.time(flow, b) + self.fixed, 0.0)
        return jnp.sum(cost[self.links], axis=-1)


class OverCapacity(eqx.Module):
    """f(h, θ) = v − capacity on the links that have one; its multipliers are tolls in units of time."""

    links: np.ndarray
    capped: np.ndarray
    capacity: np.ndarray
    n_links: int = eqx.field(static=True)

    def __call__(self, h: Float[Array, "pairs width"], theta: Float[Array, " classes"]) -> Array:
        return link_flows(h, self.links, self.n_links)[self.capped] - self.capacity
