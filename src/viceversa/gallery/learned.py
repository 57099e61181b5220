"""One published problem, two versions: its coefficients known, or learned from generated observations of them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from viceversa.gallery.instance import Instance
from viceversa.learning import Known, LeastSquares
from viceversa.problem import MisspecifiedVI
from viceversa.sets import Box, Product
from viceversa.sets.base import ConvexSet

# Observations beyond the number of coefficients, times 2: enough for a small condition number.
N_EXTRA_ROWS = 8


def build(
    name: str,
    *,
    operator: Any,
    set: ConvexSet,
    theta: PyTree,
    x: Any,
    source: str,
    misspecified: bool,
    constraints: Any = None,
    constraint_names: tuple[str, ...] | None = None,
    multiplier: Any = (),
    spread: float = 0.25,
    design: np.ndarray | None = None,
    symmetric: bool | None = None,
    **facts: Any,
) -> Instance:
    """The instance with θ = `theta` known or, `misspecified`, learned by least squares without noise.

    Rows are y_t = Φ_t θ* with Φ = `design` (the coefficients' natural regression where there is one, random rows
    otherwise), so μ_H and L_H are exact; Θ is the box θ* ± spread·|θ*| and θ₀ the corner that alternates up and down.
    """
    theta = jax.tree.map(
        lambda leaf: np.asarray(leaf, dtype=np.float64), theta, is_leaf=lambda node: isinstance(node, list)
    )
    theta0: PyTree = theta
    learning: Known | LeastSquares = Known(theta)
    if misspecified:
        vector = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(theta)])
        rows = random_rows(vector.size) if design is None else design
        learning = LeastSquares(rows, rows @ vector, set=around(theta, spread))
        theta0 = _alternating_corner(theta, spread)
    problem = MisspecifiedVI(
        operator=operator,
        set=set,
        constraints=constraints,
        learning=learning,
        constraint_names=constraint_names,
        symmetric=symmetric,
    )
    return Instance(
        name=name,
        problem=problem,
        theta_true=theta,
        x_true=np.asarray(x, dtype=np.float64),
        multiplier_true=np.asarray(multiplier, dtype=np.float64).reshape(-1),
        theta0=theta0,
        source=source,
        **facts,
    )


def _alternating_corner(theta: PyTree, spread: float) -> PyTree:
    # Up everywhere would only rescale some problems, and leave their answer where it is.
    leaves, tree = jax.tree.flatten(theta)
    starts = np.cumsum([0] + [leaf.size for leaf in leaves[:-1]])
    signs = [
        (-1.0) ** (start + np.arange(leaf.size)).reshape(leaf.shape)
        for start, leaf in zip(starts, leaves, strict=True)
    ]
    return jax.tree.unflatten(
        tree, [leaf + spread * sign * np.abs(leaf) for leaf, sign in zip(leaves, signs, strict=True)]
    )


def around(theta: PyTree, spread: float) -> ConvexSet:
    """Θ: the box θ* ± spread·|θ*|, of θ*'s structure."""
    boxes = jax.tree.map(
        lambda leaf: Box(leaf - spread * np.abs(leaf), leaf + spread * np.abs(leaf), shape=leaf.shape), theta
    )
    return boxes if isinstance(boxes, Box) else Product(boxes)


def random_rows(n_theta: int) -> np.ndarray:
    """Φ: seeded normal rows, well conditioned; the same on every call."""
    return np.random.default_rng(n_theta).standard_normal((2 * (n_theta + N_EXTRA_ROWS), n_theta))
