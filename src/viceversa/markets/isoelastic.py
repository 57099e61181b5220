"""An oligopoly with demand of constant elasticity and any convex costs, from a user's own data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa import functions
from viceversa.errors import InputError, UserFunctionError
from viceversa.learning import LeastSquares
from viceversa.markets.demand import read_observations
from viceversa.precision import as_finite_float64
from viceversa.problem import MisspecifiedVI
from viceversa.quick_module import QuickModule
from viceversa.sets import Box

_SPREAD = 0.25  # Θ reaches this share either side of the fit


class IsoelasticOperator(QuickModule):
    """F_i(q, θ) = c_i'(q_i) − p(Q) + q_i p(Q)/(γQ),  p(Q) = (A/Q)^{1/γ},  θ = (log A, γ)."""

    costs: Any

    def __call__(self, q: Float[Array, " n"], theta: Float[Array, "2"]) -> Array:
        Q = jnp.sum(q)
        p = self.price(q, theta)
        return jax.grad(lambda at: jnp.sum(self.costs(at)))(q) - p + q * p / (theta[1] * Q)

    def price(self, q: Any, theta: Any) -> Any:
        """p(Q) at the total of q."""
        return jnp.exp((theta[0] - jnp.log(jnp.sum(q))) / theta[1])


class NonlinearCap(QuickModule):
    """f = p(Q) − p_cap ≤ 0: convex in q, nonlinear in q and θ."""

    price_cap: np.ndarray
    operator: IsoelasticOperator

    def __call__(self, q: Array, theta: Array) -> Array:
        return self.operator.price(q, theta) - self.price_cap


def isoelastic_cournot(
    costs: Callable, outputs: tuple[Any, Any], observations: Any, price_cap: Any = None
) -> MisspecifiedVI:
    """A Cournot oligopoly with demand Q = A p^{−γ} learned by regressing log quantity on log price.

    costs: a function of q (NumPy or JAX) that returns every firm's cost of its own output, (n_firms,), convex.
    outputs: the smallest (> 0: the price is infinite at none) and largest outputs, (n_firms,) each or numbers with one array.
    observations: prices and total quantities, in any form `vv.cournot` takes. price_cap: p(Q) ≤ price_cap.
    F is monotone where firms are not too unequal in size and γ is not far below 1: `vv.audit` looks.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> p = np.array([12.0, 16.0, 20.0])
        >>> problem = vv.isoelastic_cournot(lambda q: 4.0 * q + q**2 / 10.0, (np.ones(5), np.full(5, 150.0)),
        ...                                 {"price": p, "quantity": 5000.0 * p**-1.1}, price_cap=12.0)
        >>> print(problem.operator.price(vv.solve(problem).x, vv.solve(problem).theta).round(4))
        12.0
    """
    bounds = [
        as_finite_float64(f"isoelastic_cournot: outputs[{k}]", bound) for k, bound in enumerate(outputs)
    ]
    low, high = np.broadcast_arrays(*bounds)
    if low.ndim != 1 or not (low > 0).all() or not (low < high).all():
        raise InputError(
            f"isoelastic_cournot: outputs has bounds of shape {low.shape}, the smallest {low.min(initial=np.inf):g}; one lower > 0 and "
            "one larger upper bound per firm are needed."
        )
    table = read_observations(observations)
    if table.labels:
        raise InputError("isoelastic_cournot: observations has several products; one good is sold here.")
    if not ((table.price > 0) & (table.quantity > 0)).all():
        raise InputError(
            "isoelastic_cournot: observations has prices or quantities <= 0; logarithms of both are needed."
        )
    traced = functions.trace("costs", costs, low)
    given = tuple(getattr(functions.output_like(traced, low), "shape", ()))
    if given != low.shape:
        raise UserFunctionError(f"costs: returns shape {given}; one cost per firm, {low.shape}, is needed.")
    design = np.column_stack([np.ones(table.price.size), -np.log(table.price)])  # log Q_t = log A − γ log p_t
    target = np.log(table.quantity)
    fitted = np.linalg.lstsq(design, target, rcond=None)[0]
    if not fitted[1] > 0:
        raise InputError(
            f"isoelastic_cournot: the fitted elasticity is {fitted[1]:.6g}, so demand does not fall with the price. Check that the "
            "columns are price, quantity in this order, with at least two different prices."
        )
    cap = None if price_cap is None else as_finite_float64("isoelastic_cournot: price_cap", price_cap)
    if cap is not None and (cap.shape != () or cap <= 0):
        raise InputError(f"isoelastic_cournot: price_cap is {price_cap}; one number > 0 is needed.")
    operator = IsoelasticOperator(traced)
    reach = _SPREAD * np.abs(fitted)
    return MisspecifiedVI(
        operator,
        set=Box(low, high),
        constraints=None if cap is None else NonlinearCap(cap, operator),
        learning=LeastSquares(design, target, set=Box(fitted - reach, fitted + reach)),
        constraint_names=None if cap is None else ("price_cap",),
    )
