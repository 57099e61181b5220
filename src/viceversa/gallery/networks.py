"""Flows on small networks: Braess's paradox by paths, and the transport problem of every linear programming course."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa.gallery.instance import Instance
from viceversa.gallery.learned import build
from viceversa.sets import Box, Simplex


class PathTimes(eqx.Module):
    """F(h, θ) = Δᵀ (fixed + slope · Δ h): the time of each path, summed over its links (Δ: link × path).

    θ has the slopes of the three kinds of links; `kind` says which a link is.
    """

    incidence: np.ndarray
    fixed: np.ndarray
    kind: np.ndarray

    def __call__(self, h: Float[Array, " paths"], theta: Float[Array, "3"]) -> Array:
        slope = jnp.asarray(self.kind) @ theta
        flow = jnp.asarray(self.incidence) @ h
        return jnp.asarray(self.incidence).T @ (self.fixed + slope * flow)


def braess(bridge: bool = True, misspecified: bool = False) -> Instance:
    """Braess's network, demand 6, as a VI over path flows: with the bridge everyone takes 92, without it 83.

    Links: two narrow ones with time 10v, two long ones with 50 + v, the bridge with 10 + v. θ = (10, 1, 1), the
    slopes, learned from observed times at observed flows. h* = (2, 2, 2) with the bridge, (3, 3) without.
    """
    incidence = np.array([[1.0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]])
    fixed = np.array([0.0, 50.0, 50.0, 0.0, 10.0])
    kind = np.array([[1.0, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]])
    n_paths = 3 if bridge else 2
    flows = np.linspace(1.0, 6.0, 10)
    return build(
        "braess" if bridge else "braess(bridge=False)",
        operator=PathTimes(incidence[:, :n_paths], fixed, kind),
        set=Simplex(n_paths, 6.0),
        theta=[10.0, 1.0, 1.0],
        design=np.kron(np.eye(3), flows[:, None]),  # time − fixed time = slope · flow, for every kind of link
        x=np.full(n_paths, 6.0 / n_paths),
        misspecified=misspecified,
        symmetric=True,
        aggregates=lambda h: {"time": np.max(_path_times(incidence[:, :n_paths], fixed, h))},
        source="braess1968paradoxon",
        units="x: vehicles; time: minutes",
        published={"x": [6.0 / n_paths] * n_paths, "time": 92.0 if bridge else 83.0},
    )


def _path_times(incidence: np.ndarray, fixed: np.ndarray, h: np.ndarray) -> np.ndarray:
    return incidence.T @ (fixed + np.array([10.0, 1.0, 1.0, 10.0, 1.0]) * (incidence @ h))


class Freight(eqx.Module):
    """F(x, θ) = θ · distance/1000: the cost of a case per route, constant in x."""

    distance: np.ndarray

    def __call__(self, x: Float[Array, "2 3"], theta: Array) -> Array:
        return theta * self.distance / 1000.0 + 0.0 * x


class SupplyAndDemand(eqx.Module):
    """Σ_j x_ij ≤ supply_i and Σ_i x_ij ≥ demand_j."""

    supply: np.ndarray
    demand: np.ndarray

    def __call__(self, x: Float[Array, "2 3"], theta: Array) -> Array:
        return jnp.concatenate([jnp.sum(x, axis=1) - self.supply, self.demand - jnp.sum(x, axis=0)])


def transport(misspecified: bool = False) -> Instance:
    """Two canneries, three markets: a linear program as a VI. F is constant, hence merely monotone; cost 153.675.

    x is not unique (0 to 50 cases from Seattle to New York); the cost and the multipliers are. θ = 90, the freight
    per case and thousand miles.
    """
    distance = np.array([[2.5, 1.7, 1.8], [2.5, 1.8, 1.4]])  # thousand miles
    cost = 0.09 * distance
    return build(
        "transport",
        operator=Freight(distance),
        set=Box(0.0, 600.0, shape=(2, 3)),
        constraints=SupplyAndDemand(np.array([350.0, 600.0]), np.array([325.0, 300.0, 275.0])),
        constraint_names=(
            "supply[Seattle]",
            "supply[San Diego]",
            "demand[New York]",
            "demand[Chicago]",
            "demand[Topeka]",
        ),
        theta=90.0,
        x=[[25.0, 300.0, 0.0], [300.0, 0.0, 275.0]],
        multiplier=[0.0, 0.0, 0.225, 0.153, 0.126],
        misspecified=misspecified,
        symmetric=True,
        x_unique=False,
        aggregates=lambda x: {"cost": np.sum(cost * x)},
        source="dantzig1963linear",
        units="x: cases; cost: thousand dollars",
        published={"cost": 153.675, "multiplier": [0.0, 0.0, 0.225, 0.153, 0.126]},
    )
