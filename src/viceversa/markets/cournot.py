"""The Cournot market with a price cap, from a user's own data: costs, capacities, observed prices and quantities."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.markets.demand import Fit, LinearDemand, Observations, fit, learning_from, read_observations
from viceversa.markets.firms import cost_function, market_shape, per_entry, quadratic_costs
from viceversa.precision import as_float64
from viceversa.problem import MisspecifiedVI
from viceversa.quick_module import QuickModule
from viceversa.sets import Box


class CournotOperator(QuickModule):
    """The firms' marginal losses, x of shape (n_firms, n_products):

        separable: F_id(x, θ) = c_id'(x) + b_d (X_d + x_id) − a_d,   X_d = Σ_i x_id               (1)
        pooled:    F_id(x, θ) = c_id'(x) + b (X + s_i) − a,          X = Σ x,  s_i = Σ_d x_id     (2)

    (2) is one market in which a firm's products are the same good: more of any lowers the price of all of them.
    The Jacobian is symmetric in both (the game has a potential) and positive semidefinite for convex costs.
    """

    costs: Any
    demand: LinearDemand
    pooled: bool = eqx.field(static=True)

    def __call__(self, x: Array, theta: PyTree) -> Array:
        a, b = self.demand.coefficients(theta)
        own = jnp.sum(x, axis=1, keepdims=True) if self.pooled else x
        return self.costs.marginal(x) + (b * (market_total(x, self.pooled) + own) - a)

    def price(self, x: Array, theta: PyTree) -> Array:
        """The price of every product (one price in a pooled market) when x is sold."""
        return self.demand.price(market_total(x, self.pooled), theta)


class PriceCap(QuickModule):
    """f_d(x, θ) = p(X_d; θ) − p_cap ≤ 0: no product sells above its cap (one constraint in a pooled market)."""

    price_cap: np.ndarray
    demand: LinearDemand
    pooled: bool = eqx.field(static=True)

    def __call__(self, x: Array, theta: PyTree) -> Array:
        price = self.demand.price(market_total(x, self.pooled), theta)
        return jnp.atleast_1d(price - self.price_cap)


def market_total(x: Array, pooled: bool) -> Array:
    """X: one total per product, or one for all of them in a pooled market."""
    return jnp.sum(x) if pooled else jnp.sum(x, axis=0)


def cournot(
    costs: Any,
    capacities: Any,
    observations: Any,
    price_cap: Any = None,
    *,
    intercept: Any = None,
    learn: str | None = None,
    market: str = "separable",
    n_firms: int | None = None,
    n_products: int | None = None,
    slope_bounds: Any = None,
    intercept_bounds: Any = None,
) -> MisspecifiedVI:
    """A Cournot market whose demand p(X) = a − b X is learned from observed prices and quantities.

    The answer x has shape (n_firms, n_products); a multiplier is the shadow price of a product's cap.

    costs: (r, g) for ½ r x² + g x, each one number, (n_firms,) or (n_firms, n_products); or a function of x (NumPy
        or JAX) or a module that returns the cost of every firm (n_firms,) or firm and product (n_firms, n_products),
        convex and differentiable.
    capacities: the largest outputs: one number, (n_firms,) or (n_firms, n_products); np.inf for none.
    observations: DataFrame or dict with `price` and `quantity` (and `product`, or arrays (T, D): demand is then
        learned for each product by itself), an array (T, 2) of price and quantity, or a tuple (price, quantity).
        Quantities are totals over all firms.
    price_cap: one number, or one per product; None or np.inf for no cap.
    intercept, learn: a known intercept leaves θ = b to learn ("slope"); without one θ = {"intercept", "slope"} ("both").
    market: "separable" (every product its own market) or "pooled" (all products are one good).
    slope_bounds, intercept_bounds: Θ as (lower, upper); by default a factor of 4 either side of the fit.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> table = {"price": [90.0, 80.0, 70.0], "quantity": [10.0, 20.0, 30.0]}
        >>> problem = vv.cournot(([1.0, 2.0], [5.0, 6.0]), 40.0, table, price_cap=35.0)
        >>> print(vv.solve(problem).x.sum().round(4))
        65.0
    """
    if market not in ("separable", "pooled"):
        raise InputError(f"cournot: market is {market!r}; 'separable' or 'pooled' is needed.")
    pooled = market == "pooled"
    table = read_observations(observations)
    if pooled and table.labels:
        raise InputError(
            f"cournot: observations has {len(table.labels)} products, but a pooled market has one price. Give the "
            "price and total quantity of the one good, or market='separable'."
        )
    arrays = {"capacities": as_float64("cournot: capacities", capacities)}
    quadratic = None if callable(costs) else _coefficients(costs)
    if quadratic is not None:
        arrays |= {"costs (r)": quadratic[0], "costs (g)": quadratic[1]}
    declared = {
        "n_firms": (n_firms, None),
        "n_products": (None, n_products),
        "observations": (None, table.n_products),
    }
    shape = market_shape(arrays, declared)
    capacity = _capacities(arrays["capacities"], shape)
    known_intercept = _known_intercept(intercept, learn, table)
    fitted = fit(table, known_intercept)
    if quadratic is not None:
        firms = quadratic_costs(*quadratic, shape)
    else:
        # Beyond a/b the price is negative: no firm without a capacity produces more.
        firms = cost_function(costs, capacity, np.minimum(capacity, fitted.intercept / fitted.slope))
    cap = _price_cap(price_cap, fitted, capacity, pooled)
    demand = LinearDemand(known_intercept)
    labels = table.labels or tuple(str(d) for d in range(1 if pooled else shape[1]))
    return MisspecifiedVI(
        operator=CournotOperator(firms, demand, pooled),
        set=_box(capacity),
        constraints=None if cap is None else PriceCap(cap, demand, pooled),
        learning=learning_from(table, known_intercept, fitted, intercept_bounds, slope_bounds),
        constraint_names=None if cap is None else [f"price_cap[{label}]" for label in labels],
        symmetric=True,
    )


def _coefficients(costs: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(costs, (tuple, list)) or len(costs) != 2:
        raise InputError(
            f"cournot: costs is {type(costs).__name__}; a pair (r, g) for ½ r x² + g x, or a function of x that "
            "returns the cost of every firm, is needed."
        )
    return as_float64("cournot: costs (r)", costs[0]), as_float64("cournot: costs (g)", costs[1])


def _capacities(capacities: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    array = per_entry(capacities, shape)
    if (array < 0).any():
        firm, product = np.argwhere(array < 0)[0].tolist()
        raise InputError(
            f"cournot: capacities is negative at {int((array < 0).sum())} of {array.size} entries (first: firm {firm}, "
            f"product {product}: {array[firm, product]:g}). Capacities are >= 0."
        )
    return array


def _box(capacity: np.ndarray) -> Box:
    # One number where all are equal, so that the bounds of a huge market cost no memory traffic.
    uniform = (capacity == capacity.flat[0]).all()
    return Box(0.0, capacity.flat[0] if uniform else capacity, shape=capacity.shape)


def _known_intercept(intercept: Any, learn: str | None, table: Observations) -> np.ndarray | None:
    if learn not in (None, "slope", "both"):
        raise InputError(f"cournot: learn is {learn!r}; 'slope' or 'both' is needed.")
    if intercept is None:
        if learn == "slope":
            raise InputError(
                "cournot: learn='slope' needs the known intercept of demand. Pass intercept=, or learn='both'."
            )
        return None
    if learn == "both":
        raise InputError(
            "cournot: learn='both' learns the intercept, but intercept= was given too. Drop one of them."
        )
    array = as_float64("cournot: intercept", intercept)
    wanted = (len(table.labels),) if table.labels else ()
    if array.shape not in ((), wanted):
        raise InputError(
            f"cournot: intercept has shape {array.shape}; one number"
            + (f" or {len(table.labels)}, one per product of observations," if table.labels else "")
            + " is needed."
        )
    if not (np.isfinite(array) & (array > 0)).all():
        raise InputError(f"cournot: intercept is {array}; prices at zero output are finite and > 0.")
    return array


def _price_cap(price_cap: Any, fitted: Fit, capacity: np.ndarray, pooled: bool) -> np.ndarray | None:
    if price_cap is None:
        return None
    cap = as_float64("cournot: price_cap", price_cap)
    if np.isposinf(cap).all():
        return None
    n_caps = 1 if pooled else capacity.shape[1]
    if cap.shape not in ((), (n_caps,)):
        raise InputError(
            f"cournot: price_cap has shape {cap.shape}; one number or {n_caps}, one per product, is needed."
        )
    if not (cap > 0).all():
        raise InputError(f"cournot: price_cap is {cap}; a cap > 0 is needed (None for no cap).")
    caps, a, b = (np.broadcast_to(v, (n_caps,)) for v in (cap, fitted.intercept, fitted.slope))
    if (caps >= a).any():
        d = int(np.argmax(caps >= a))
        raise InputError(
            f"cournot: price_cap is {caps[d]:g} for product {d}, but demand starts at the intercept {a[d]:.6g}, so the cap "
            "never binds. Lower it, or pass price_cap=None."
        )
    lowest = a - b * (capacity.sum() if pooled else capacity.sum(axis=0))
    if (lowest > caps).any():
        d = int(np.argmax(lowest > caps))
        raise InputError(
            f"cournot: price_cap is {caps[d]:g} for product {d}, but even with every firm at capacity it sells at "
            f"{lowest[d]:.6g}, so no output meets the cap. Raise the cap or the capacities."
        )
    return cap if cap.shape == () else caps.copy()
