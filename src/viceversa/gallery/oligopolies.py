"""Published oligopolies: a polluted river, five firms with nonlinear demand, and electricity at three nodes."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa.gallery.instance import Instance
from viceversa.gallery.learned import build
from viceversa.sets import Box, NonNegative


class RiverBasin(eqx.Module):
    """F_i = c₁ᵢ − d₁ + 2c₂ᵢ x_i + d₂ (S + x_i): three firms at a river sell at the price d₁ − d₂ S."""

    c1: np.ndarray
    c2: np.ndarray

    def __call__(self, x: Float[Array, "3"], theta: dict[str, Array]) -> Array:
        return jnp.asarray(self.c1) - theta["d1"] + 2 * self.c2 * x + theta["d2"] * (jnp.sum(x) + x)


class Pollution(eqx.Module):
    """f_l = Σ_i u_li e_i x_i − 100 ≤ 0 at two stations: e_i is what firm i emits per unit, u what reaches a station."""

    u: np.ndarray

    def __call__(self, x: Float[Array, "3"], theta: dict[str, Array]) -> Array:
        return jnp.asarray(self.u) @ (theta["e"] * x) - 100.0


def river_basin(misspecified: bool = False) -> Instance:
    """Three firms on a river with limits on pollution at two stations; the first is active.

    θ = (d₁, d₂, e): demand, learned by regressing prices on quantities, and emissions per unit, learned by metering
    each firm. x and λ solve the linear KKT system with the first limit active and all firms producing.
    """
    c1, c2 = np.array([0.10, 0.12, 0.15]), np.array([0.01, 0.05, 0.01])
    d1, d2, e = 3.0, 0.01, np.array([0.5, 0.25, 0.75])
    u = np.array([[6.5, 5.0, 5.5], [4.583, 6.25, 3.75]])
    row = u[0] * e
    kkt = np.block([[np.diag(2 * c2 + d2) + d2, row[:, None]], [row[None, :], np.zeros((1, 1))]])
    answer = np.linalg.solve(kkt, np.append(d1 - c1, 100.0))
    quantity = np.linspace(1.0, 60.0, 12)
    regression = np.column_stack([np.ones(12), -quantity, np.zeros((12, 3))])  # p_t = d₁ − d₂ S_t
    # z_t = 2 e_i at a test run of 2 units
    meters = np.hstack([np.zeros((12, 2)), np.tile(2.0 * np.eye(3), (4, 1))])
    return build(
        "river_basin",
        operator=RiverBasin(c1, c2),
        set=NonNegative(3),
        constraints=Pollution(u),
        constraint_names=("station[0]", "station[1]"),
        theta={"d1": d1, "d2": d2, "e": e},
        design=np.vstack([regression, meters]),
        x=answer[:3],
        multiplier=[answer[3], 0.0],
        misspecified=misspecified,
        symmetric=True,
        source="krawczyk2000relaxation; facchinei2009penalty, A.13",
        units="x: production; multiplier: money per unit of pollution at the station",
        published={"x": [21.144796, 16.027853, 2.725963], "multiplier": [0.574360, 0.0]},
    )


class MurphyOperator(eqx.Module):
    """F_i = c_i + (q_i/5)^(1/β_i) − p(Q) − q_i p'(Q), p(Q) = (A/Q)^(1/γ), θ = (log A, γ)."""

    c: np.ndarray
    beta: np.ndarray

    def __call__(self, q: Float[Array, "5"], theta: Float[Array, "2"]) -> Array:
        Q = jnp.sum(q)
        p = constant_elasticity_price(Q, theta)
        return jnp.asarray(self.c) + (q / 5.0) ** (1.0 / self.beta) - p + q * p / (theta[1] * Q)


class NonlinearPriceCap(eqx.Module):
    """f = p(Q) − p_cap ≤ 0, convex in q and nonlinear in q and θ."""

    price_cap: np.ndarray

    def __call__(self, q: Float[Array, "5"], theta: Float[Array, "2"]) -> Array:
        return constant_elasticity_price(jnp.sum(q), theta) - self.price_cap


def constant_elasticity_price(Q: Array, theta: Float[Array, "2"]) -> Array:
    """p(Q) = (A/Q)^(1/γ) with θ = (log A, γ)."""
    return jnp.exp((theta[0] - jnp.log(Q)) / theta[1])


def murphy(misspecified: bool = False) -> Instance:
    """Five firms with nonlinear costs and demand of constant elasticity (Murphy, Sherali and Soyster).

    θ = (log A, γ) is learned by the regression log Q = log A − γ log p. F is not affine and slightly non-symmetric;
    monotone on X = [1, 150]⁵ (sampled). The stored digits are Newton's, to rounding.
    """
    return _murphy(
        "murphy",
        None,
        [36.93251081573577, 41.81814166043763, 43.706578522274214, 42.659239743305115, 39.178952516625024],
        [],
        misspecified,
        {"x": [36.912, 41.842, 43.705, 42.665, 39.182], "x_recomputed": _MURPHY, "price": 18.300581},
    )


def murphy_price_cap(misspecified: bool = False) -> Instance:
    """The same five firms under the price cap p(Q) ≤ 16: the paper's model with a genuinely nonlinear constraint."""
    return _murphy(
        "murphy_price_cap",
        16.0,
        [46.03452023523609, 50.022582355129295, 50.44383321630234, 47.70058556641062, 42.629192144171355],
        [51.889141604171016],
        misspecified,
        {"x_recomputed": [46.034520, 50.022582, 50.443833, 47.700586, 42.629192], "multiplier": [51.889142]},
    )


_MURPHY = [36.932511, 41.818142, 43.706579, 42.659240, 39.178953]


def _murphy(name: str, price_cap, x, multiplier, misspecified: bool, published: dict) -> Instance:
    log_price = np.log(np.linspace(12.0, 25.0, 20))
    return build(
        name,
        operator=MurphyOperator(np.array([10.0, 8.0, 6.0, 4.0, 2.0]), np.array([1.2, 1.1, 1.0, 0.9, 0.8])),
        set=Box(1.0, 150.0, shape=5),
        constraints=None if price_cap is None else NonlinearPriceCap(np.asarray(price_cap)),
        constraint_names=None if price_cap is None else ("price_cap",),
        theta=[np.log(5000.0), 1.1],
        design=np.column_stack([np.ones(20), -log_price]),  # log Q_t = log A − γ log p_t
        spread=0.05,
        x=x,
        multiplier=multiplier,
        misspecified=misspecified,
        symmetric=False,
        source="murphy1982mathematical",
        units="x: quantity; theta: log of the demand scale, elasticity",
        published=published,
    )


class NodalMarket(eqx.Module):
    """F of x[firm, plant, node]: cost − S_n + b_n (sales of the firm at n), prices S_n = a_n − b_n X_n."""

    cost: np.ndarray

    def __call__(self, x: Float[Array, "2 2 3"], theta: dict[str, Array]) -> Array:
        price = nodal_prices(x, theta)
        return jnp.broadcast_to(
            self.cost - price + theta["slope"] / 100.0 * jnp.sum(x, axis=1, keepdims=True), x.shape
        )


class PlantsAndPrices(eqx.Module):
    """Output of each plant ≤ its capacity (4 rows), and prices of two nodes differ by at most 1 (6 rows)."""

    capacity: np.ndarray

    def __call__(self, x: Float[Array, "2 2 3"], theta: dict[str, Array]) -> Array:
        S = nodal_prices(x, theta)
        first, second = np.array([0, 0, 1]), np.array([1, 2, 2])
        difference = S[first] - S[second]
        return jnp.concatenate(
            [(jnp.sum(x, axis=2) - self.capacity).ravel(), difference - 1.0, -difference - 1.0]
        )


def nodal_prices(x: Array, theta: dict[str, Array]) -> Array:
    """S_n = a_n − b_n X_n, with the slope of θ per 100 MW."""
    return theta["intercept"] - theta["slope"] / 100.0 * jnp.sum(x, axis=(0, 1))


def electricity(misspecified: bool = False) -> Instance:
    """Two firms sell power from two plants each at three nodes, whose prices may differ by at most 1.

    Plants are interchangeable: F is merely monotone and x is not unique; sales of a firm at a node, prices and
    multipliers are. All plants run at capacity and the price of node 0 exceeds that of node 2 by exactly 1: a linear
    system in (sales per node, λ of the capacities, λ of that difference). Plants share sales by capacity in the stored x.
    θ = (a, 100 b): slopes per 100 MW, so that intercepts and slopes are of one size and least squares is well conditioned.
    """
    a, b = np.array([40.0, 35.0, 32.0]), np.array([40.0 / 500.0, 35.0 / 400.0, 32.0 / 600.0])
    capacity = np.array([[100.0, 50.0], [100.0, 50.0]])
    cost = 15.0
    system = np.zeros((5, 5))  # unknowns: sales of one firm at nodes 0, 1, 2; λ of a plant; λ of S₀ − S₂ ≤ 1
    system[:3, :3], system[:3, 3], system[0, 4], system[2, 4] = np.diag(3 * b), 1.0, -b[0], b[2]
    system[3, :3] = 1.0
    system[4, 0], system[4, 2] = -2 * b[0], 2 * b[2]
    answer = np.linalg.solve(system, np.append(a - cost, [150.0, 1.0 - a[0] + a[2]]))
    sales = answer[:3]
    x = np.tile(np.array([[2.0 / 3.0], [1.0 / 3.0]]) * sales, (2, 1, 1))
    multiplier = np.concatenate([np.full(4, answer[3]), [0.0, answer[4], 0.0], np.zeros(3)])
    names = tuple(f"capacity[{f},{p}]" for f in range(2) for p in range(2))
    names += tuple(f"price[{i}]-price[{j}]" for i, j in ((0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)))
    quantity = np.linspace(0.1, 2.0, 10)  # in 100 MW
    by_node = np.kron(np.eye(3), np.ones((10, 1)))
    return build(
        "electricity",
        operator=NodalMarket(np.asarray(cost)),
        set=Box(0.0, np.broadcast_to(capacity[:, :, None], (2, 2, 3))),
        constraints=PlantsAndPrices(capacity),
        constraint_names=names,
        theta={"intercept": a, "slope": 100.0 * b},
        design=np.hstack(
            [by_node, -np.kron(np.eye(3), quantity[:, None])]
        ),  # p_t = a_n − b_n X_t at every node
        spread=0.1,
        x=x,
        multiplier=multiplier,
        misspecified=misspecified,
        symmetric=True,
        x_unique=False,
        aggregates=lambda x: {
            "sales": np.sum(x, axis=1),
            "price": a - b * np.sum(x, axis=(0, 1)),
        },
        source="facchinei2009penalty, A.18; hobbs2007nash",
        units="x: MW sold; multiplier: money per MW, and MW per unit of price difference",
        published={
            "sales": [[70.406206, 39.609484, 39.984310]] * 2,
            "price": [28.735007, 28.068340, 27.735007],
            "multiplier": [9.60251] * 4 + [0.0, 18.75, 0.0, 0.0, 0.0, 0.0],
        },
    )
