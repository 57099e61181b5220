"""Demand that is only observed: a table of prices and quantities, the line through it, and what is learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.learning import LeastSquares
from viceversa.precision import as_float64
from viceversa.quick_module import QuickModule
from viceversa.sets import Box, Product

# Θ reaches this factor either side of the fit unless bounds are given: far wider than any usable data's error,
# and compact, which the theory asks for (the paper's Θ = {b ≥ 0} is not).
THETA_FACTOR = 4.0


class LinearDemand(QuickModule):
    """The price at which a total quantity sells, p(X; θ) = a − b X.

    With `intercept` given, a is known and θ = b; without it θ = {"intercept": a, "slope": b}. Both are one
    number shared by all products, or one per product.
    """

    intercept: np.ndarray | None

    def coefficients(self, theta: PyTree) -> tuple[Any, Any]:
        """(a, b)."""
        if self.intercept is None:
            return theta["intercept"], theta["slope"]
        return self.intercept, theta

    def price(self, total: Array, theta: PyTree) -> Array:
        """a − b X."""
        a, b = self.coefficients(theta)
        return a - b * total


class Observations(NamedTuple):
    """Rows (price, quantity) and the product each belongs to; `labels` is empty when all share one demand."""

    price: np.ndarray
    quantity: np.ndarray
    product: np.ndarray
    labels: tuple[str, ...]

    @property
    def n_products(self) -> int | None:
        """How many products have demand of their own; None when one demand is shared."""
        return len(self.labels) or None


class Fit(NamedTuple):
    """The least-squares demand of every product (or the one shared by all): a and b."""

    intercept: np.ndarray
    slope: np.ndarray


def read_observations(table: Any) -> Observations:
    """The user's table, in any of its forms, as rows; refused in a sentence when something is missing.

    A pandas DataFrame or a dict has `price`, `quantity` and optionally `product`; their values may also be
    arrays (T, D), one column per product. An array (T, 2) has the columns price, quantity; a tuple is
    (price, quantity).
    """
    price, quantity, product = _columns(table)
    price, quantity = as_float64("observations: price", price), as_float64("observations: quantity", quantity)
    if price.shape != quantity.shape:
        raise InputError(
            f"observations: price has shape {price.shape} and quantity {quantity.shape}; they must agree, row by row."
        )
    if price.ndim not in (1, 2) or price.size == 0:
        raise InputError(
            f"observations: price has shape {price.shape}; at least one row is needed, as (T,) or, with one column "
            "per product, as (T, D)."
        )
    for name, values in (("price", price), ("quantity", quantity)):
        if np.isinf(values).any():
            raise InputError(
                f"observations: {name} is infinite in {int(np.isinf(values).sum())} rows. Remove them."
            )
    if (quantity < 0).any():
        first = np.argwhere(quantity < 0)[0].tolist()
        raise InputError(
            f"observations: quantity is negative at {int((quantity < 0).sum())} of {quantity.size} entries "
            f"(first: {first}). Quantities sold are >= 0."
        )
    if price.ndim == 2:
        if product is not None:
            raise InputError(
                "observations: price has one column per product and there is a `product` column as well. Give one of them."
            )
        n_rows, n_products = price.shape
        labels = tuple(str(d) for d in range(n_products))
        return Observations(price.ravel(), quantity.ravel(), np.tile(np.arange(n_products), n_rows), labels)
    if product is None:
        return Observations(price, quantity, np.zeros(price.size, dtype=np.int64), ())
    product = np.asarray(product)
    if product.shape != price.shape:
        raise InputError(
            f"observations: product has shape {product.shape} and price {price.shape}; one product per row is needed."
        )
    names, index = np.unique(product, return_inverse=True)
    return Observations(price, quantity, index, tuple(str(name) for name in names))


def fit(observations: Observations, intercept: np.ndarray | None) -> Fit:
    """Ordinary least squares per product: with a known, b = Σ X_t (a − p_t) / Σ X_t²; else both by regression."""
    n_groups = observations.n_products or 1
    a, b = np.zeros(n_groups), np.zeros(n_groups)
    for d in range(n_groups):
        rows = observations.product == d
        p, q = observations.price[rows], observations.quantity[rows]
        which = f" of product {observations.labels[d]}" if observations.labels else ""
        if intercept is not None:
            if not q.any():
                raise InputError(
                    f"observations{which}: every quantity is 0, which says nothing about the slope. Add rows with sales."
                )
            a[d] = np.broadcast_to(intercept, (n_groups,))[d]
            b[d] = q @ (a[d] - p) / (q @ q)
        else:
            if q.size < 2 or np.ptp(q) <= 1e-12 * np.abs(q).max(initial=0.0):
                raise InputError(
                    f"observations{which}: {q.size} row(s) with quantities all equal; intercept and slope need at least "
                    "two different quantities. Add observations, or pass intercept= to learn the slope alone."
                )
            centred = q - q.mean()
            b[d] = -(centred @ (p - p.mean())) / (centred @ centred)
            a[d] = p.mean() + b[d] * q.mean()
        if not b[d] > 0:
            raise InputError(
                f"observations{which}: the fitted slope b of p = a − b X is {b[d]:.6g}, so price does not fall with "
                "quantity. Check that the columns are price, quantity in this order"
                + (f", and that intercept = {a[d]:g} is above the prices." if intercept is not None else ".")
            )
        if not a[d] > 0:
            raise InputError(
                f"observations{which}: the fitted intercept is {a[d]:.6g}; demand needs one > 0."
            )
    return Fit(a, b)


def learning_from(
    observations: Observations,
    intercept: np.ndarray | None,
    fitted: Fit,
    intercept_bounds: Any,
    slope_bounds: Any,
) -> LeastSquares:
    """The secondary VI: least squares on the rows, over a box Θ around the fit or the bounds given."""
    n_groups = observations.n_products or 1
    shape = (n_groups,) if observations.labels else ()
    slope_set = _theta_box("slope_bounds", slope_bounds, fitted.slope, shape)
    rows = np.arange(observations.quantity.size)
    by_slope = np.zeros((rows.size, n_groups))
    by_slope[rows, observations.product] = observations.quantity
    if intercept is not None:
        a = np.broadcast_to(intercept, (n_groups,))[observations.product]
        return LeastSquares(by_slope, a - observations.price, set=slope_set)
    by_intercept = np.zeros((rows.size, n_groups))
    by_intercept[rows, observations.product] = 1.0
    intercept_set = _theta_box("intercept_bounds", intercept_bounds, fitted.intercept, shape)
    theta_set = Product({"intercept": intercept_set, "slope": slope_set})
    return LeastSquares(np.hstack([by_intercept, -by_slope]), observations.price, set=theta_set)


def _theta_box(name: str, bounds: Any, fitted: np.ndarray, shape: tuple[int, ...]) -> Box:
    if bounds is None:
        return Box(
            (fitted / THETA_FACTOR).reshape(shape), (fitted * THETA_FACTOR).reshape(shape), shape=shape
        )
    try:
        low, high = bounds
        low, high = (np.broadcast_to(as_float64(name, bound), shape) for bound in (low, high))
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{name} is {bounds!r}; a pair (lower, upper) of numbers, or of one number per product, is needed."
        ) from None
    if not (low > 0).all() or not np.isfinite(high).all():
        raise InputError(
            f"{name} is {bounds!r}; 0 < lower and a finite upper are needed, so that Θ is compact."
        )
    return Box(low, high, shape=shape)


def _columns(table: Any) -> tuple[Any, Any, Any]:
    if table is None:
        raise InputError(
            "observations is missing. Pass the observed prices and quantities as a DataFrame, a dict with `price` and "
            "`quantity`, or an array (T, 2)."
        )
    if isinstance(table, Mapping) or hasattr(table, "columns"):
        names = list(table.keys() if isinstance(table, Mapping) else table.columns)
        missing = [name for name in ("price", "quantity") if name not in names]
        if missing:
            raise InputError(
                f"observations has the columns {', '.join(map(str, names)) or 'none'}; "
                f"{' and '.join(missing)} is missing. Rename or add it."
            )
        return table["price"], table["quantity"], (table["product"] if "product" in names else None)
    if isinstance(table, tuple):
        if len(table) != 2:
            raise InputError(f"observations is a tuple of {len(table)}; (price, quantity) is needed.")
        return *table, None
    array = as_float64("observations", table)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(
            f"observations has shape {array.shape}; an array needs two columns, price and quantity, so (T, 2)."
        )
    return array[:, 0], array[:, 1], None
