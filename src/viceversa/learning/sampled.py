"""Learning from samples: a learning problem whose H is seen one mini-batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from viceversa.errors import InputError
from viceversa.learning.base import Learning, Provenance
from viceversa.learning.least_squares import LeastSquares
from viceversa.sets.base import ConvexSet


class SampledLearning(Learning):
    """`learning`, of which samples can be drawn: rows of a least-squares table, or `draw(theta, key)` with mean H(θ).

        LeastSquares:  Ĥ(θ) = (T/n) Σ_{t in a batch of n} w_t A_tᵀ(A_tθ − b_t) + ridge·θ           (1)

    Rows are drawn with replacement, so Ĥ is unbiased. H itself, its moduli and Θ are those of `learning`; certificates and
    deterministic learners see no difference.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> table = vv.LeastSquares(np.array([2.0, 4.0]), np.array([4.0, 8.0]), set=vv.Box(0.1, 5.0, shape=()))
        >>> float(vv.SampledLearning(table).operator(2.0))
        0.0
    """

    learning: Learning
    draw: Any
    set: ConvexSet
    mu: np.ndarray
    lipschitz: np.ndarray
    provenance: Provenance = eqx.field(static=True)
    is_gradient: bool = eqx.field(static=True)

    def __init__(self, learning: Learning, draw: Callable | None = None):
        if draw is None and not isinstance(learning, LeastSquares):
            raise InputError(
                f"SampledLearning: {type(learning).__name__} has no rows to draw. Pass draw(theta, key), whose mean is H(θ)."
            )
        self.learning, self.draw = learning, draw
        self.set, self.mu, self.lipschitz = learning.set, learning.mu, learning.lipschitz
        self.provenance, self.is_gradient = learning.provenance, learning.is_gradient

    def operator(self, theta: PyTree, x: Array | None = None) -> PyTree:
        return self.learning.operator(theta, x)

    def rounding(self, theta: PyTree, x: Array | None = None) -> Float[Array, ""]:
        return self.learning.rounding(theta, x)

    def scaled_error_bound(self, theta: PyTree) -> Float[Array, ""]:
        return self.learning.scaled_error_bound(theta)

    def metric(self) -> Array | np.ndarray | None:
        return self.learning.metric()

    def newton_point(self) -> Array | np.ndarray | None:
        return self.learning.newton_point()

    def sample_operator(self, theta: PyTree, key: Array, n: int) -> PyTree:
        """The mean of n independent samples of H(θ)."""
        if self.draw is not None:
            samples = jax.vmap(lambda k: self.draw(theta, k))(jax.random.split(key, n))
            return jax.tree.map(lambda leaf: leaf.mean(axis=0), samples)
        table = self.learning
        assert isinstance(table, LeastSquares)
        n_rows = table.A.shape[0]
        index = jax.random.randint(key, (n,), 0, n_rows)
        A, b, w = (jnp.asarray(column)[index] for column in (table.A, table.b, table.weights))
        vector, unravel = jax.flatten_util.ravel_pytree(theta)
        return unravel(n_rows / n * (A.T @ (w * (A @ vector - b))) + table.ridge * vector)  # (1)
