"""Markowitz portfolios: mean and covariance are learned from returns while the portfolio is being found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.learning.base import Learning, Provenance
from viceversa.portfolio.covariances import Covariances
from viceversa.portfolio.rebalancing import Rebalancing
from viceversa.portfolio.returns import Returns, read_returns
from viceversa.precision import as_finite_float64, float64_copy
from viceversa.problem import MisspecifiedVI
from viceversa.quick_module import QuickModule
from viceversa.sets import Box, Product, Simplex
from viceversa.sets.base import ConvexSet

# Θ reaches this factor either side of the sample's moments: compact, and never a θ at which return or risk is flat.
_THETA_FACTOR = 4.0


class Moments(Learning):
    """θ* = (m̂, Ŝ), the sample mean and covariance, as the minimiser of ½(1/T) Σ_t ‖r_t − m‖² + ½‖S − Ŝ‖²_F.

        H(θ) = θ − (m̂, Ŝ)                                                                          (1)

    with μ_H = L_H = 1 exactly: a step of rate 1 learns θ at once, smaller rates keep S between what it was and Ŝ. Θ holds
    means between a quarter and four times the sample's, and covariances above a quarter of the sample's.
    """

    moments: dict[str, np.ndarray]
    set: ConvexSet
    mu: np.ndarray
    lipschitz: np.ndarray
    provenance: Provenance = eqx.field(static=True)
    is_gradient: bool = eqx.field(static=True)

    def __init__(self, mean: np.ndarray, covariance: np.ndarray):
        self.moments = {"mean": float64_copy(mean), "covariance": float64_copy(covariance)}
        ends = np.sort([mean / _THETA_FACTOR, mean * _THETA_FACTOR], axis=0)
        matrices = Covariances(
            mean.size, _THETA_FACTOR * np.linalg.norm(covariance), lower=covariance / _THETA_FACTOR
        )
        self.set = Product({"mean": Box(ends[0], ends[1]), "covariance": matrices})
        self.mu, self.lipschitz = np.asarray(1.0), np.asarray(1.0)
        self.provenance, self.is_gradient = "exact", True

    def operator(self, theta: PyTree, x: Array | None = None) -> PyTree:
        return jax.tree.map(jnp.subtract, theta, self.moments)  # (1)


class ReturnAndRisk(QuickModule):
    """F(x, θ) = risk_aversion·S x − m: the gradient of ½ risk_aversion xᵀSx − mᵀx."""

    risk_aversion: np.ndarray

    def __call__(self, x: Array, theta: PyTree) -> Array:
        return self.risk_aversion * (theta["covariance"] @ x) - theta["mean"]


class PortfolioLimits(QuickModule):
    """f = (xᵀSx/risk_limit² − 1, Σ_{i ∈ group} x_i − cap): the risk limit, if there is one, then the groups."""

    risk_limit: np.ndarray | None
    members: np.ndarray
    caps: np.ndarray

    def __call__(self, x: Array, theta: PyTree) -> Array:
        groups = jnp.asarray(self.members) @ x - self.caps
        if self.risk_limit is None:
            return groups
        risk = x @ (theta["covariance"] @ x) / self.risk_limit**2 - 1.0
        return jnp.concatenate([risk[None], groups])


def markowitz(
    returns: Any,
    risk_limit: Any = None,
    *,
    risk_aversion: Any = 0.0,
    groups: Mapping | None = None,
    turnover: Any = None,
    current: Any = None,
    periods: Any = 1.0,
) -> MisspecifiedVI:
    """The long-only portfolio with the largest expected return within a risk limit, m and S learned from `returns`:

        min ½ risk_aversion xᵀSx − mᵀx  over  x ≥ 0, Σx = 1,  √(xᵀSx) ≤ risk_limit,  Σ_group x ≤ cap,  ‖x − current‖₁ ≤ turnover

    θ = {"mean": (n,), "covariance": (n, n)}; the set of covariances holds only semidefinite matrices, so the problem is
    convex at every θ on the way. The answer x is in the order of the table's columns.

    returns: a path (CSV or Parquet), a DataFrame or dict with one column per asset, or an array (T, n).
    risk_limit: the largest standard deviation; risk_aversion: the price of variance. At least one of the two is needed.
    groups: {name: (assets, cap)}, assets by column name or number.
    turnover, current: how much may be bought and sold together, counted from the weights held now (they sum to 1).
    periods: how many periods of the table make one of the limits' (252 for daily returns and annual limits).

    Example:
        >>> import numpy as np, viceversa as vv
        >>> table = {"bonds": [0.01, 0.00, 0.01, 0.00], "shares": [0.05, -0.03, -0.03, 0.05]}
        >>> problem = vv.markowitz(table, risk_limit=0.02)
        >>> print(vv.solve(problem).x.round(4))
        [0.573 0.427]
    """
    table = read_returns(returns)
    scale = _positive("periods", periods)
    covariance = scale * np.atleast_2d(np.cov(table.values.T))
    if not covariance.any():
        raise InputError(
            "markowitz: no return in the table ever changes, so there is no risk. Check the columns."
        )
    learning = Moments(scale * table.values.mean(axis=0), covariance)
    aversion = as_finite_float64("markowitz: risk_aversion", risk_aversion)
    if aversion.shape != () or aversion < 0:
        raise InputError(f"markowitz: risk_aversion is {risk_aversion}; one number >= 0 is needed.")
    if risk_limit is None and aversion == 0:
        raise InputError(
            "markowitz: neither risk_limit nor risk_aversion is given, so all would go into one asset. Give one of them."
        )
    limit = None if risk_limit is None else _checked_limit(risk_limit, learning, table)
    members, caps, names = _groups(groups or {}, table)
    has_limits = limit is not None or len(names) > 0
    return MisspecifiedVI(
        operator=ReturnAndRisk(aversion),
        set=_portfolios(turnover, current, table),
        constraints=PortfolioLimits(limit, members, caps) if has_limits else None,
        learning=learning,
        constraint_names=((("risk",) if limit is not None else ()) + names) if has_limits else None,
        symmetric=True,
    )


def _positive(name: str, value: Any) -> np.ndarray:
    array = as_finite_float64(f"markowitz: {name}", value)
    if array.shape != () or array <= 0:
        raise InputError(f"markowitz: {name} is {value}; one number > 0 is needed.")
    return array


def _checked_limit(risk_limit: Any, learning: Moments, table: Returns) -> np.ndarray:
    limit, S = _positive("risk_limit", risk_limit), learning.moments["covariance"]
    # Lower bound without a solver: S ⪰ e_min I and ‖x‖² ≥ 1/n on the simplex.
    least = np.sqrt(max(np.linalg.eigvalsh(S)[0], 0.0) / S.shape[0])
    if limit < least:
        raise InputError(
            f"markowitz: risk_limit is {float(limit):g}, but no portfolio of these {len(table.assets)} assets has a standard deviation "
            f"below {least:g}. Raise it, or check its unit: limits are for `periods` rows of the table."
        )
    return limit


def _portfolios(turnover: Any, current: Any, table: Returns) -> ConvexSet:
    n = len(table.assets)
    if turnover is None:
        if current is not None:
            raise InputError(
                "markowitz: current was given without turnover. Give the largest turnover, or drop current."
            )
        return Simplex(n)
    if current is None:
        raise InputError("markowitz: turnover was given without current. Give the weights held now.")
    held = as_finite_float64("markowitz: current", current)
    if held.shape != (n,) or (held < 0).any() or abs(held.sum() - 1.0) > 1e-9:
        raise InputError(
            f"markowitz: current has shape {held.shape}, smallest entry {held.min(initial=np.inf):g} and sum {held.sum():g}; {n} weights "
            ">= 0 that sum to 1, one per asset, are needed."
        )
    held = held / held.sum()
    allowed = _positive("turnover", turnover)
    return Simplex(n) if allowed >= 2.0 else Rebalancing(held, allowed)


def _groups(groups: Mapping, table: Returns) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    members, caps = np.zeros((len(groups), len(table.assets))), np.zeros(len(groups))
    position = {name: i for i, name in enumerate(table.assets)} | {i: i for i in range(len(table.assets))}
    for row, (name, group) in enumerate(groups.items()):
        try:
            assets, cap = group
        except (TypeError, ValueError):
            raise InputError(
                f"markowitz: groups[{name!r}] is {group!r}; a pair (assets, cap) is needed."
            ) from None
        unknown = [asset for asset in assets if asset not in position]
        if unknown:
            raise InputError(
                f"markowitz: groups[{name!r}] names {unknown[0]!r}, which is no column of returns. There are "
                f"{', '.join(table.assets[:6])}{' ...' if len(table.assets) > 6 else ''}."
            )
        members[row, [position[asset] for asset in assets]] = 1.0
        caps[row] = _positive(f"groups[{name!r}] cap", cap)
        if members[row].all() and caps[row] < 1:
            raise InputError(
                f"markowitz: groups[{name!r}] holds every asset and its cap {caps[row]:g} is below 1, so no portfolio is allowed."
            )
    return members, caps, tuple(f"group[{name}]" for name in groups)
