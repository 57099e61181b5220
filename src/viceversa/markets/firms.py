"""What firms bring to a market: convex costs and capacities, checked before anything is solved."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from viceversa import functions, precision
from viceversa.errors import InputError, UserFunctionError
from viceversa.quick_module import QuickModule

_LEVELS = np.linspace(0.0, 1.0, 18)[:-1]  # fractions of capacity at which costs are sampled
_N_RANDOM = 8  # random output plans, and random directions, sampled besides


class QuadraticCosts(QuickModule):
    """c(x) = ½ r x² + g x for every firm and product."""

    r: np.ndarray
    g: np.ndarray

    def __call__(self, x: Array) -> Any:
        return 0.5 * self.r * x**2 + self.g * x

    def marginal(self, x: Array) -> Any:
        """c'(x) = r x + g."""
        return self.r * x + self.g


class CostFunction(QuickModule):
    """Any convex differentiable costs: `function(x)` gives one number per firm, or per firm and product."""

    function: Any

    def __call__(self, x: Array) -> Array:
        return self.function(x)

    def marginal(self, x: Array) -> Array:
        """∂c_i/∂x_id: the gradient of the sum, because firm i's cost depends on its own output alone."""
        return jax.grad(lambda y: jnp.sum(self.function(y)))(x)


def market_shape(
    arrays: dict[str, np.ndarray], declared: dict[str, tuple[int | None, int | None]]
) -> tuple[int, int]:
    """(n_firms, n_products) on which all the arrays given agree; sizes of 1 are spread.

    An array is one number, (n_firms,) or (n_firms, n_products); `declared` adds sizes said in other ways.
    """
    firms: dict[str, int] = {name: n for name, (n, _) in declared.items() if n is not None}
    products: dict[str, int] = {name: d for name, (_, d) in declared.items() if d is not None}
    for name, array in arrays.items():
        if array.ndim > 2:
            raise InputError(
                f"cournot: {name} has shape {array.shape}; one number, (n_firms,) or (n_firms, n_products) is needed."
            )
        if array.ndim >= 1:
            firms[name] = array.shape[0]
        if array.ndim == 2:
            products[name] = array.shape[1]
    n_firms, n_products = _agreed("firms", firms), _agreed("products", products)
    if n_firms is None:
        raise InputError(
            "cournot: the number of firms is unknown, because costs and capacities are the same for all. Pass n_firms=."
        )
    return n_firms, n_products or 1


def per_entry(array: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """An array of one number, (n_firms,) or (n_firms, n_products) in the shape of x."""
    return precision.float64_copy(np.broadcast_to(array[:, None] if array.ndim == 1 else array, shape))


def quadratic_costs(r: np.ndarray, g: np.ndarray, shape: tuple[int, int]) -> QuadraticCosts:
    """The costs ½ r x² + g x, refused where r < 0."""
    r, g = per_entry(r, shape), per_entry(g, shape)
    for name, values in (("r", r), ("g", g)):
        if np.isinf(values).any():
            raise InputError(f"cournot: costs: {name} is infinite. Give finite coefficients.")
    if (r < 0).any():
        firm, product = np.argwhere(r < 0)[0].tolist()
        raise InputError(
            f"cournot: costs: r is {r[firm, product]:g} for firm {firm}, product {product}, so ½ r x² + g x is not "
            "convex. Costs need r >= 0."
        )
    return QuadraticCosts(r, g)


def cost_function(function: Any, capacities: np.ndarray, reach: np.ndarray) -> CostFunction:
    """The user's costs, traced and checked: one cost per firm, of its own output, finite and convex up to `reach`.

    `reach` is the output up to which firm and product are sampled (their capacity, where that is finite).
    """
    shape = capacities.shape
    traced = functions.trace("costs", function, np.zeros(shape))
    output = functions.output_like(traced, np.zeros(shape))
    given = tuple(getattr(output, "shape", ()))
    if not hasattr(output, "shape") or given not in (shape, shape[:1]):
        raise UserFunctionError(
            f"costs: returns {f'shape {given}' if hasattr(output, 'shape') else type(output).__name__} for x of shape "
            f"{shape}; one cost per firm and product, {shape}, or per firm, {shape[:1]}, is needed."
        )
    costs = CostFunction(traced)
    rng = np.random.default_rng(0)
    levels = np.broadcast_to(_LEVELS[:, None, None], (_LEVELS.size, *shape))
    plans = np.concatenate([levels, rng.uniform(0.01, 0.99, (_N_RANDOM, *shape))]) * reach
    with precision.double():
        seen = eqx.filter_jit(_look_at_all)(costs, plans, _directions(rng, shape))
        marginals, weighted, weights, curvatures = jax.tree.map(np.asarray, seen)
    for n, x in enumerate(plans):
        _check_finite(x, marginals[n])
        _check_own_output_only(marginals[n], weighted[n], weights[n])
        if n > 0:  # at zero output a second derivative may be infinite, as that of x^1.5
            _check_convex(x, curvatures[n])
    return costs


def _look_at_all(costs: CostFunction, plans: Any, directions: Any):
    return jax.lax.map(lambda x: _look(costs, x, directions), jnp.asarray(plans))


def _look(costs: CostFunction, x: Array, directions: Any):
    """Marginal costs, the pullback of distinct weights per firm, and second derivatives along directions, per firm."""
    marginal = costs.marginal(x)
    total, pullback = jax.vjp(costs.function, x)
    weights = jnp.cos(1.0 + jnp.arange(x.shape[0]))[:, None]  # all different, and the same on every run
    weighted = pullback(jnp.broadcast_to(weights.reshape((-1,) + (1,) * (total.ndim - 1)), total.shape))[0]

    def curvature(direction):
        return jnp.sum(direction * jax.jvp(costs.marginal, (x,), (direction,))[1], axis=1)

    return marginal, weighted, weights, jax.lax.map(curvature, jnp.asarray(directions))


def _directions(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    each_product = np.zeros((min(shape[1], 32), *shape))
    for d in range(len(each_product)):
        each_product[d, :, d] = 1.0
    if shape[1] == 1:
        return each_product
    return np.concatenate([each_product, rng.standard_normal((_N_RANDOM, *shape))])


def _check_finite(x: np.ndarray, marginal: np.ndarray) -> None:
    bad = ~np.isfinite(marginal)
    if bad.any():
        firm, product = np.argwhere(bad)[0].tolist()
        raise InputError(
            f"cournot: costs: the marginal cost of firm {firm}, product {product} at output {x[firm, product]:.6g} is "
            f"{marginal[firm, product]}. Costs must be differentiable on [0, capacity]."
        )


def _check_own_output_only(marginal: np.ndarray, weighted: np.ndarray, weights: np.ndarray) -> None:
    foreign = np.abs(weighted - weights * marginal)
    if (foreign > 1e-9 * (np.abs(marginal).max() + 1e-300)).any():
        firm = int(np.argwhere(foreign > 1e-9 * np.abs(marginal).max())[0][0])
        raise InputError(
            f"cournot: costs: another firm's cost changes with the output of firm {firm}. A firm's cost may depend on "
            "its own row of x only (no sums over firms inside costs)."
        )


def _check_convex(x: np.ndarray, curvatures: np.ndarray) -> None:
    smallest = curvatures.min(axis=0)
    if not (smallest >= -1e-9 * np.abs(curvatures).max(initial=0.0)).all():
        firm = int(np.argmin(np.nan_to_num(smallest, nan=-np.inf)))
        raise InputError(
            f"cournot: costs: firm {firm} has a cost that is not convex: at outputs {np.round(x[firm], 6).tolist()} a second "
            f"derivative is {smallest[firm]:.6g}. The equilibrium theory here needs convex costs."
        )


def _agreed(what: str, sizes: dict[str, int]) -> int | None:
    distinct = sorted(set(sizes.values()) - {1})
    if len(distinct) > 1:
        said = ", ".join(f"{name} says {size}" for name, size in sizes.items() if size != 1)
        raise InputError(f"cournot: the number of {what} is not clear: {said}. Make them agree.")
    return distinct[0] if distinct else (1 if sizes else None)
