"""A parameter that is known: the misspecified VI becomes a plain VI."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.learning.base import Learning, Provenance
from viceversa.precision import as_finite_float64
from viceversa.sets import Box, Product
from viceversa.sets.base import ConvexSet


class Known(Learning):
    """θ* given: Θ = {θ*} and H = 0.

    Example:
        >>> import viceversa as vv
        >>> vv.Known(2.5).set.shape
        ()
    """

    theta: PyTree
    set: ConvexSet
    mu: np.ndarray
    lipschitz: np.ndarray
    provenance: Provenance = eqx.field(static=True)
    is_gradient: bool = eqx.field(static=True)

    def __init__(self, theta: PyTree = 0.0):
        # A list is an array written out, here as everywhere; a dict or a tuple keeps its parts apart.
        self.theta = jax.tree.map(
            lambda leaf: as_finite_float64("Known: theta", leaf), theta, is_leaf=lambda n: isinstance(n, list)
        )
        if not jax.tree.leaves(self.theta):
            raise InputError(f"Known: theta is {theta}; a number, an array or a tree of arrays is needed.")
        points = jax.tree.map(lambda leaf: Box(leaf, leaf, shape=leaf.shape), self.theta)
        self.set = points if isinstance(points, Box) else Product(points)
        self.mu, self.lipschitz = np.asarray(1.0), np.asarray(1.0)
        self.provenance, self.is_gradient = "exact", True

    def operator(self, theta: PyTree, x: Array | None = None) -> PyTree:
        return jax.tree.map(jnp.zeros_like, theta)

    @property
    def is_known(self) -> bool:
        return True
