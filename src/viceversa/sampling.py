"""Operators and constraints that can be asked for a sample: sums over data, noisy oracles, many constraints by index."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa import functions
from viceversa.errors import InputError
from viceversa.precision import as_float64


class SampledOperator(eqx.Module):
    """F(x, θ) as an expectation: called, it is the expectation; `sample` is an unbiased estimate. Subclasses are final."""

    @abstractmethod
    def __call__(self, x: Array, theta: PyTree) -> Array:
        """F(x, θ), exactly."""

    @abstractmethod
    def sample(self, x: Array, theta: PyTree, key: Array, n: int) -> Array:
        """The mean of n independent samples of F(x, θ)."""


class FiniteSum(SampledOperator):
    """F(x, θ) = (1/T) Σ_t function(x, θ, data_t), rows t drawn with replacement when sampled.

    `data` is an array (or a tree of arrays) with T rows.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> F = vv.FiniteSum(lambda x, theta, row: x - theta * row, data=np.array([[1.0], [3.0]]))
        >>> F.n_rows
        2
    """

    function: Any
    data: PyTree
    n_rows: int = eqx.field(static=True)

    def __init__(self, function: Callable, data: PyTree):
        self.function = function
        self.data, self.n_rows = _rows("FiniteSum", data)

    def __call__(self, x: Array, theta: PyTree) -> Array:
        return _over_rows("FiniteSum: function", self.function, x, theta, self.data).mean(axis=0)

    def sample(self, x: Array, theta: PyTree, key: Array, n: int) -> Array:
        index = jax.random.randint(key, (n,), 0, self.n_rows)
        rows = jax.tree.map(lambda column: jnp.asarray(column)[index], self.data)
        return _over_rows("FiniteSum: function", self.function, x, theta, rows).mean(axis=0)


class NoisyOperator(SampledOperator):
    """F(x, θ) = `operator`, of which only samples `draw(x, theta, key)` with that mean are seen.

    Example:
        >>> import jax, viceversa as vv
        >>> draw = lambda x, theta, key: x - theta + jax.random.normal(key, x.shape)
        >>> F = vv.NoisyOperator(lambda x, theta: x - theta, draw)
    """

    operator: Any
    draw: Any

    def __call__(self, x: Array, theta: PyTree) -> Array:
        return functions.trace("NoisyOperator: operator", self.operator, x, theta)(x, theta)

    def sample(self, x: Array, theta: PyTree, key: Array, n: int) -> Array:
        return jax.vmap(lambda k: self.draw(x, theta, k))(jax.random.split(key, n)).mean(axis=0)


class IndexedConstraints(eqx.Module):
    """Many constraints of one form, f_j(x, θ) = function(x, θ, data_j) ≤ 0 for j = 1..J, of which a block can be asked for.

    Called, it gives all J; `block` gives those of a list of indices, at the cost of that many.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> f = vv.IndexedConstraints(lambda x, theta, row: row @ x - theta, data=rows)
        >>> f.n_constraints
        3
    """

    function: Any
    data: PyTree
    n_constraints: int = eqx.field(static=True)

    def __init__(self, function: Callable, data: PyTree):
        self.function = function
        self.data, self.n_constraints = _rows("IndexedConstraints", data)

    def __call__(self, x: Array, theta: PyTree) -> Float[Array, " J"]:
        return _over_rows("IndexedConstraints: function", self.function, x, theta, self.data)

    def block(self, index: Int[Array, " m"], x: Array, theta: PyTree) -> Float[Array, " m"]:
        """f_j(x, θ) for the j in `index`."""
        rows = jax.tree.map(lambda column: jnp.asarray(column)[index], self.data)
        return _over_rows("IndexedConstraints: function", self.function, x, theta, rows)


def _rows(name: str, data: PyTree) -> tuple[PyTree, int]:
    leaves = [as_float64(f"{name}: data", leaf) for leaf in jax.tree.leaves(data)]
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if len(lengths) != 1 or 0 in lengths:
        given = ", ".join(str(leaf.shape) for leaf in leaves) or "no array"
        raise InputError(f"{name}: data has {given}; arrays with the same number (>= 1) of rows are needed.")
    return jax.tree.unflatten(jax.tree.structure(data), leaves), lengths.pop()


def _over_rows(name: str, function: Callable, x: Array, theta: PyTree, rows: PyTree) -> Array:
    """function(x, θ, row) for every row, the function traced where it is used (JAX or NumPy style)."""
    x, theta, rows = jax.tree.map(jnp.asarray, (x, theta, rows))
    first = jax.tree.map(lambda column: np.zeros(column.shape[1:]), rows)
    program = functions.trace(name, function, x, theta, first)
    return jax.vmap(lambda row: program(x, theta, row))(rows)
