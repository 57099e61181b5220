"""Minimax problems with expectation constraints over a table of rows, and the fair classifier as one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import functions
from viceversa.errors import InputError, UserFunctionError
from viceversa.learning import Known, SecondaryVI
from viceversa.learning.base import Learning
from viceversa.precision import as_finite_float64
from viceversa.problem import MisspecifiedVI
from viceversa.saddle import SaddleOperator
from viceversa.sets import Ball, Box, Product, Simplex
from viceversa.sets.base import ConvexSet


class Expected(eqx.Module):
    """Σ_t w_t function(…, rows, θ)_t: the expectation of a function of rows under the weights w."""

    function: Any
    rows: PyTree
    weights: np.ndarray

    def __call__(self, *args: PyTree) -> Array:
        *points, theta = args
        return jnp.tensordot(self.weights, self.function(*points, self.rows, theta), axes=1)


class ExpectedConstraints(eqx.Module):
    """f(z, θ) = (E g(x, ξ), E h(y, ξ)) ≤ 0 on z = (x, y)."""

    of_x: Any
    of_y: Any
    saddle: SaddleOperator

    def __call__(self, z: Array, theta: PyTree) -> Array:
        x, y = self.saddle.split(z)
        parts = [part(at, theta) for part, at in ((self.of_x, x), (self.of_y, y)) if part is not None]
        return jnp.concatenate([jnp.ravel(part) for part in parts])


def constrained_minimax(
    payoff: Callable,
    rows: PyTree,
    set_x: ConvexSet,
    set_y: ConvexSet,
    *,
    constraints_x: Callable | None = None,
    constraints_y: Callable | None = None,
    learning: Learning | None = None,
    weights: Any = None,
    constraint_names: Sequence[str] | None = None,
) -> MisspecifiedVI:
    """Data-driven minimax with expectation constraints, as a misspecified VI in the flat z = (x, y):

        min_{x ∈ X} max_{y ∈ Y} E payoff(x, y, ξ, θ)   subject to   E g(x, ξ, θ) ≤ 0,  E h(y, ξ, θ) ≤ 0      (1)

    payoff(x, y, rows, theta): one number per row (T,), convex in x and concave in y.
    rows: the data, an array or a tree of arrays whose first axis is the row; numbers only.
    constraints_x(x, rows, theta), constraints_y(y, rows, theta): g and h, (T,) or (T, J), convex.
    weights: of the rows in the expectation; equal by default, scaled to sum 1.
    `problem.operator.split(solution.x)` gives (x, y).

    Example:
        >>> import numpy as np, viceversa as vv
        >>> rows = np.array([1.0, 2.0, 6.0])
        >>> problem = vv.constrained_minimax(lambda x, y, r, t: (x - r) ** 2 + y * x - y**2, rows,
        ...     vv.Box(-9.0, 9.0, shape=()), vv.Box(-9.0, 9.0, shape=()), constraints_x=lambda x, r, t: x - r + 1.0)
        >>> print(vv.solve(problem).x.round(6))
        [2. 1.]
    """
    for name, part in (("set_x", set_x), ("set_y", set_y)):
        if not isinstance(part, ConvexSet) or not isinstance(part.shape, tuple):
            raise InputError(
                f"constrained_minimax: {name} is {type(part).__name__}; a set of arrays is needed."
            )
    learning = Known(0.0) if learning is None else learning
    rows = jax.tree.map(
        lambda leaf: as_finite_float64("constrained_minimax: rows", leaf),
        rows,
        is_leaf=lambda n: isinstance(n, list),
    )
    n_rows = _agreed_rows(rows)
    share = _shares("constrained_minimax: weights", weights, n_rows)
    x, y, theta = set_x.interior_point(), set_y.interior_point(), learning.set.interior_point()
    expected = Expected(functions.trace("payoff", payoff, x, y, rows, theta), rows, share)
    _check_rows("payoff", functions.output_like(expected.function, x, y, rows, theta), n_rows, flat=True)
    operator = SaddleOperator(expected, set_x.shape, set_y.shape)
    parts = []
    for name, function, at in (("constraints_x", constraints_x, x), ("constraints_y", constraints_y, y)):
        if function is None:
            parts.append(None)
            continue
        traced = functions.trace(name, function, at, rows, theta)
        _check_rows(name, functions.output_like(traced, at, rows, theta), n_rows, flat=False)
        parts.append(Expected(traced, rows, share))
    has_any = any(part is not None for part in parts)
    return MisspecifiedVI(
        operator,
        set=Product([set_x, set_y]),
        constraints=ExpectedConstraints(parts[0], parts[1], operator) if has_any else None,
        learning=learning,
        constraint_names=constraint_names,
        symmetric=False,  # a saddle point's operator has a skew part
    )


class WorstGroupLoss(eqx.Module):
    """φ(w, p, θ) = Σ_g p_g L_g(w) + ½ ridge ‖w‖²,  L_g(w) = Σ_t G_tg log(1 + exp(−s_t aₜᵀw)), G's columns sum to 1."""

    signed_features: np.ndarray
    group_weights: np.ndarray
    ridge: np.ndarray

    def __call__(self, w: Array, p: Array, theta: PyTree) -> Array:
        loss = jnp.logaddexp(0.0, -(jnp.asarray(self.signed_features) @ w))
        return p @ (loss @ jnp.asarray(self.group_weights)) + 0.5 * self.ridge * jnp.sum(w * w)


class ScoreParity(eqx.Module):
    """f = ±(θ_g − θ_h)ᵀw − parity ≤ 0 for every pair of groups: mean scores aᵀw differ by at most `parity`."""

    parity: np.ndarray
    n_features: int = eqx.field(static=True)
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def __call__(self, z: Array, theta: Array) -> Array:
        score = theta @ z[: self.n_features]
        first, second = np.array(self.pairs).T
        difference = score[first] - score[second]
        return jnp.concatenate([difference, -difference]) - self.parity


def fair_classifier(
    features: Any,
    labels: Any,
    groups: Any,
    parity: Any,
    *,
    radius: Any = 10.0,
    ridge: Any = 0.0,
    weights: Any = None,
    population: tuple[Any, Any] | None = None,
) -> MisspecifiedVI:
    """A logistic classifier for the worst-off group, with parity of mean scores between groups:

        min_{‖w‖ ≤ radius} max_{p ∈ simplex} Σ_g p_g E[log(1 + exp(−s aᵀw)) | g] + ½ ridge ‖w‖²
        subject to   |E[aᵀw | g] − E[aᵀw | h]| ≤ parity   for all groups g, h                              (1)

    s = ±1 is the label. What is learned is θ_g = E[a | g], the groups' feature means in the population, by
    H(θ)_g = share_g (θ_g − mean_g): the gradient of ½ E‖a − θ_g‖². `w, p = problem.operator.split(solution.x)`.

    features: (T, d), with a column of ones for an intercept; labels: two values, the larger means +1; groups: any labels.
    population: (features, groups) of an unlabelled table the parity is about; the training rows by default.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> a = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
        >>> problem = vv.fair_classifier(a, [0, 1, 0, 0, 1, 1], list("uuuvvv"), parity=0.1, ridge=0.1)
        >>> problem.constraint_names
        ('score[u] - score[v]', 'score[v] - score[u]')
    """
    a, group, names = _grouped("features", features, "groups", groups)
    sign = _signs(labels, len(a))
    share = _shares("fair_classifier: weights", weights, len(a))
    membership = (group[:, None] == np.arange(len(names))) * share[:, None]
    if not (membership.sum(axis=0) > 0).all():
        empty = names[int(np.argmin(membership.sum(axis=0)))]
        raise InputError(
            f"fair_classifier: the group {empty} has no weight at all. Drop its rows, or weigh them."
        )
    if population is None:
        population_a, population_share = a, membership
    else:
        population_a, other, found = _grouped("population[0]", population[0], "population[1]", population[1])
        if found != names or population_a.shape[1] != a.shape[1]:
            raise InputError(
                f"fair_classifier: population has groups {', '.join(found)} and {population_a.shape[1]} features; groups "
                f"{', '.join(names)} and {a.shape[1]} features, as in training, are needed."
            )
        population_share = (other[:, None] == np.arange(len(names))) / len(other)
    caps = _number("parity", parity, smallest=0.0)
    pairs = tuple(combinations(range(len(names)), 2))
    sides = [(names[g], names[h]) for g, h in pairs] + [(names[h], names[g]) for g, h in pairs]
    loss = WorstGroupLoss(
        sign[:, None] * a, membership / membership.sum(axis=0), _number("ridge", ridge, smallest=0.0)
    )
    return MisspecifiedVI(
        SaddleOperator(loss, (a.shape[1],), (len(names),)),
        set=Product(
            [Ball(0.0, _number("radius", radius, smallest=1e-300), shape=a.shape[1]), Simplex(len(names))]
        ),
        constraints=ScoreParity(caps, a.shape[1], pairs),
        learning=_group_means(population_a, population_share),
        constraint_names=[f"score[{g}] - score[{h}]" for g, h in sides],
        symmetric=False,
    )


def _group_means(a: np.ndarray, membership: np.ndarray) -> SecondaryVI:
    share = membership.sum(axis=0)
    mean = membership.T @ a / share[:, None]
    low, high = np.broadcast_to(a.min(axis=0), mean.shape), np.broadcast_to(a.max(axis=0), mean.shape)
    return SecondaryVI(lambda theta: share[:, None] * (theta - mean), set=Box(low, high))


def _grouped(
    name: str, features: Any, group_name: str, groups: Any
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    a = as_finite_float64(f"fair_classifier: {name}", features)
    if a.ndim != 2 or 0 in a.shape:
        raise InputError(
            f"fair_classifier: {name} has shape {a.shape}; one row per person and one column per feature is needed."
        )
    labels = np.asarray(groups)
    if labels.shape != (len(a),):
        raise InputError(
            f"fair_classifier: {group_name} has shape {labels.shape}; one group per row, ({len(a)},), is needed."
        )
    names, index = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise InputError(
            f"fair_classifier: {group_name} has the one group {names[0]}; at least two are needed."
        )
    return a, index, tuple(map(str, names))


def _signs(labels: Any, n_rows: int) -> np.ndarray:
    values = np.asarray(labels)
    kinds = np.unique(values)
    if values.shape != (n_rows,) or len(kinds) != 2:
        raise InputError(
            f"fair_classifier: labels has shape {values.shape} and {len(kinds)} different values; ({n_rows},) with exactly two, such as 0 "
            "and 1, is needed."
        )
    return np.where(values == kinds[1], 1.0, -1.0)


def _number(name: str, value: Any, smallest: float) -> np.ndarray:
    array = as_finite_float64(f"fair_classifier: {name}", value)
    if array.shape != () or array < smallest:
        raise InputError(
            f"fair_classifier: {name} is {value}; one number >= 0 is needed."
            if smallest == 0
            else f"fair_classifier: {name} is {value}; one number > 0 is needed."
        )
    return array


def _shares(name: str, weights: Any, n_rows: int) -> np.ndarray:
    share = as_finite_float64(name, np.ones(n_rows) if weights is None else weights)
    if share.shape != (n_rows,) or (share < 0).any() or not share.sum() > 0:
        raise InputError(
            f"{name} has shape {share.shape}; {n_rows} numbers >= 0, one per row and not all 0, are needed."
        )
    return share / share.sum()


def _agreed_rows(rows: PyTree) -> int:
    sizes = {leaf.shape[:1] for leaf in jax.tree.leaves(rows)}
    if len(sizes) != 1 or sizes == {()} or sizes == {(0,)}:
        raise InputError(
            f"constrained_minimax: rows has arrays of first sizes {sorted(s[0] if s else 0 for s in sizes)}; the same number of rows, at least "
            "one, is needed in each."
        )
    return sizes.pop()[0]


def _check_rows(name: str, output: Any, n_rows: int, flat: bool) -> None:
    shape = tuple(getattr(output, "shape", ()))
    if shape[:1] != (n_rows,) or len(shape) > (1 if flat else 2):
        needed = f"one number per row, ({n_rows},)" if flat else f"({n_rows},) or ({n_rows}, J)"
        raise UserFunctionError(
            f"{name}: returns shape {shape}; {needed}, is needed: the expectation is taken for you."
        )
