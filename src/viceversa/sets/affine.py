"""Halfspaces and affine subspaces."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import numerics, precision
from viceversa.errors import InputError
from viceversa.sets.base import ConvexSet, as_finite, as_shape, point_method, sample_method, where_first

# A direction counts as lying in a subspace when what is left of it is this small, relative to its length.
PARALLEL = 1e-12
# A right-hand side counts as consistent when the least-squares residual is this small, relative to the numbers in it.
CONSISTENT = 1e-10


class Halfspace(ConvexSet):
    """The points on one side of a hyperplane.

        S = { y : ⟨normal, y⟩ ≤ offset },   P_S(x) = x − [⟨normal, x⟩ − offset]₊ normal/‖normal‖²      (1)

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import Halfspace
        >>> Halfspace([1.0, 1.0], offset=2.0).project(np.array([3.0, 1.0]))
        array([2., 0.])
    """

    normal: Any
    offset: Any

    def __init__(self, normal: Any, offset: Any):
        self.normal, self.offset = (
            as_finite("Halfspace: normal", normal),
            as_finite("Halfspace: offset", offset),
        )
        if self.offset.shape != ():
            raise InputError(
                f"Halfspace: offset has shape {self.offset.shape}; one number is needed. "
                "Use Polyhedron(A, b) for several rows."
            )
        if not np.any(self.normal):
            raise InputError(
                "Halfspace: normal is zero, which bounds nothing. Give a nonzero normal, or use Free."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.normal.shape

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """(1); the derivative is the identity strictly inside and I − aaᵀ/‖a‖², a = normal, elsewhere."""
        return _project_halfspace(x, self.normal, self.offset)

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """t·offset when c = t·normal with t ≥ 0 (to 1e-12 of ‖c‖), +∞ otherwise; at the foot of the origin."""
        normal_sq = jnp.sum(self.normal * self.normal)
        t = jnp.sum(c * self.normal) / normal_sq
        beside = numerics.tree_norm(c - t * self.normal)
        along = (beside <= PARALLEL * numerics.tree_norm(c)) & (t >= 0.0)
        return jnp.where(along, t * self.offset, jnp.inf), self.normal * (self.offset / normal_sq)

    def diameter(self) -> float:
        """∞."""
        return math.inf

    def width(self) -> np.ndarray:
        """∞ for every coordinate."""
        return np.full(self.shape, np.inf)

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """The projection of a uniform point within one unit of the hyperplane's point nearest to the origin."""
        foot = self.normal * (self.offset / jnp.sum(self.normal * self.normal))
        return self.project(foot + jax.random.uniform(key, self.shape, minval=-1.0, maxval=1.0))

    def interior_point(self) -> np.ndarray:
        """One unit inside the hyperplane's point nearest to the origin."""
        length = np.linalg.norm(self.normal)
        return self.normal / length * (self.offset / length - 1.0)


class Affine(ConvexSet):
    """The solutions of linear equations, S = { y : A y = b } on the ravelled y.

        P_S(x) = x − Qᵀ(Q x − q),   Q an orthonormal basis of the rows of A, q = Q y for any y ∈ S          (1)

    Rows that follow from others are dropped; equations without a solution are refused.

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import Affine
        >>> Affine(A=[[1.0, 1.0], [2.0, 2.0]], b=[2.0, 4.0]).project(np.array([4.0, 1.0])).round(12)
        array([ 2.5, -0.5])
    """

    basis: Any
    level: Any
    _shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, A: Any, b: Any, shape: Any = None):
        A, b, self._shape = checked_rows("Affine", "A", A, "b", b, shape)
        if not np.all(np.isfinite(b)):
            raise InputError(f"Affine: b is infinite (first: {where_first(np.isinf(b))}). Make it finite.")
        self.basis, self.level = orthonormal_rows("Affine: A x = b", A, b)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """(1), which is affine: the derivative is I − QᵀQ everywhere."""
        basis, level = jax.lax.stop_gradient((self.basis, self.level))
        return x - (basis.T @ (basis @ jnp.ravel(x) - level)).reshape(self._shape)

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """⟨Q c, q⟩ when c is a combination of rows of A (to 1e-12 of ‖c‖), +∞ otherwise; at the least-norm point."""
        w = self.basis @ jnp.ravel(c)
        beside = numerics.tree_norm(jnp.ravel(c) - self.basis.T @ w)
        value = jnp.where(beside <= PARALLEL * numerics.tree_norm(c), jnp.sum(w * self.level), jnp.inf)
        return value, (self.basis.T @ self.level).reshape(self._shape)

    def diameter(self) -> float:
        """0 for a single point, ∞ otherwise."""
        return 0.0 if self.basis.shape[0] == self.basis.shape[1] else math.inf

    def width(self) -> np.ndarray:
        """0 for the coordinates the equations determine, ∞ for the others."""
        free_sq = 1.0 - np.sum(self.basis**2, axis=0)
        return np.where(free_sq <= PARALLEL, 0.0, np.inf).reshape(self._shape)

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """The projection of a uniform point within one unit of the least-norm solution."""
        least_norm = (self.basis.T @ self.level).reshape(self._shape)
        return self.project(least_norm + jax.random.uniform(key, self._shape, minval=-1.0, maxval=1.0))

    def interior_point(self) -> np.ndarray:
        """The solution of least norm."""
        return (self.basis.T @ self.level).reshape(self._shape)


@jax.custom_jvp
def _project_halfspace(x, normal, offset):
    excess = jnp.sum(normal * x) - offset
    return x - (jnp.maximum(excess, 0.0) / jnp.sum(normal * normal)) * normal


@_project_halfspace.defjvp
def _project_halfspace_jvp(primals, tangents):
    (x, normal, offset), (dx, _, _) = primals, tangents
    outside = jnp.sum(normal * x) >= offset
    flat = dx - (jnp.sum(normal * dx) / jnp.sum(normal * normal)) * normal
    return _project_halfspace(x, normal, offset), jnp.where(outside, flat, dx)


def checked_rows(owner: str, matrix: str, A: Any, vector: str, b: Any, shape: Any):
    """A matrix of rows over the ravelled point, its right-hand side and the shape of a point, or a sentence."""
    A, b = as_finite(f"{owner}: {matrix}", A), precision.as_float64(f"{owner}: {vector}", b)
    if A.ndim != 2:
        raise InputError(
            f"{owner}: {matrix} has shape {A.shape}; a matrix with one row per condition is needed."
        )
    if b.shape != A.shape[:1]:
        raise InputError(
            f"{owner}: {vector} has shape {b.shape}; {matrix} has {A.shape[0]} rows, so shape {A.shape[:1]} is needed."
        )
    sizes = A.shape[1:] if shape is None else as_shape(owner, shape)
    if math.prod(sizes) != A.shape[1]:
        raise InputError(
            f"{owner}: {matrix} has {A.shape[1]} columns, but a point of shape {sizes} has {math.prod(sizes)} entries."
        )
    return A, b, sizes


def orthonormal_rows(what: str, A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Q, q) with orthonormal rows and { y : Q y = q } = { y : A y = b }; refused when there is no solution."""
    length = np.linalg.norm(A, axis=1)
    scale = np.where(length > 0.0, length, 1.0)
    A, b = A / scale[:, None], b / scale
    if A.size == 0 or not A.any():
        basis, level = np.zeros((0, A.shape[1])), np.zeros(0)
    else:
        U, s, Vt = np.linalg.svd(A, full_matrices=False)
        rank = int(np.sum(s > 10.0 * max(A.shape) * np.finfo(float).eps * s[0]))
        basis, level = Vt[:rank], (U.T[:rank] @ b) / s[:rank]
    residual = np.abs(A @ (basis.T @ level) - b)
    broken = residual > CONSISTENT * (np.abs(b) + np.linalg.norm(level))
    if broken.any():
        raise InputError(
            f"{what} has no solution: {int(broken.sum())} of {len(b)} rows (first: {where_first(broken)}) contradict "
            "the others, so the set is empty. Remove or correct them."
        )
    return basis, level
