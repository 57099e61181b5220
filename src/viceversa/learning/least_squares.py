"""Learning by least squares: H(θ) = Aᵀ diag(w)(Aθ − b) + ridge·θ, a sum over observations."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.learning.base import Learning, Provenance
from viceversa.precision import as_finite_float64
from viceversa.sets.base import ConvexSet

# Rows reduced to a triangle at a time, so that 10⁶ observations need little memory.
_ROWS_PER_FACTOR = 1 << 16


class LeastSquares(Learning):
    """θ* = argmin_{θ ∈ Θ} ½ Σ_t w_t (A_t θ − b_t)² + ½ ridge ‖θ‖², from observations (A_t, b_t).

        H(θ) = Aᵀ diag(w)(Aθ − b) + ridge·θ                                                       (1)
             = Rᵀ(Rθ − z) + ridge·θ,   diag(√w) A = QR,  z = Qᵀ diag(√w) b                        (2)

    (1) is the definition, a sum over rows. (2) is what is computed: the triangular factor is found once,
    so one evaluation costs m² products however many observations there are, and no digits are lost to AᵀA.
    A θ with several parts is raveled in the order of `set`'s tree. A parameter that is a scalar takes A of
    shape (T,).

    Example:
        >>> import numpy as np, viceversa as vv
        >>> quantity, price = np.array([2.0, 4.0]), np.array([96.0, 92.0])
        >>> learning = vv.LeastSquares(quantity, 100.0 - price, set=vv.Box(0.1, 5.0, shape=()))
        >>> float(learning.operator(2.0))
        0.0
    """

    A: np.ndarray
    b: np.ndarray
    weights: np.ndarray
    ridge: np.ndarray
    factor: np.ndarray
    target: np.ndarray
    set: ConvexSet
    mu: np.ndarray
    lipschitz: np.ndarray
    provenance: Provenance = eqx.field(static=True)
    is_gradient: bool = eqx.field(static=True)

    def __init__(self, A, b, set: ConvexSet, weights=None, ridge: float = 0.0):
        if not isinstance(set, ConvexSet):
            raise InputError(
                f"LeastSquares: set is {type(set).__name__}; a viceversa set (the Θ of θ) is needed."
            )
        n_theta = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(set.zeros()))
        self.A = _as_design(A, n_theta)
        self.b = as_finite_float64("LeastSquares: b", b)
        n_rows = self.A.shape[0]
        if self.b.shape != (n_rows,):
            raise InputError(
                f"LeastSquares: b has shape {self.b.shape}; A has {n_rows} rows, so ({n_rows},) is needed."
            )
        self.weights = as_finite_float64(
            "LeastSquares: weights", np.ones(n_rows) if weights is None else weights
        )
        if self.weights.shape != (n_rows,) or (self.weights < 0).any():
            raise InputError(
                f"LeastSquares: weights has shape {self.weights.shape} and smallest entry "
                f"{self.weights.min(initial=np.inf):g}; {n_rows} nonnegative numbers are needed."
            )
        self.ridge = as_finite_float64("LeastSquares: ridge", ridge)
        if self.ridge.shape != () or self.ridge < 0:
            raise InputError(f"LeastSquares: ridge is {ridge}; one number >= 0 is needed.")
        self.set = set
        self.factor, self.target = _triangular_factor(self.A, self.b, self.weights)
        singular = np.linalg.svd(self.factor, compute_uv=False) if n_theta else np.zeros(0)
        smallest, largest = (singular[-1] ** 2, singular[0] ** 2) if n_theta else (1.0, 1.0)
        if smallest + self.ridge <= largest * n_theta * np.finfo(float).eps:
            rank = int((singular > singular[0] * n_theta * np.finfo(float).eps).sum()) if largest else 0
            raise InputError(
                f"LeastSquares: A has rank {rank} but θ has {n_theta} components, so the observations do not "
                "determine θ. Add observations, drop components, or pass ridge > 0."
            )
        self.mu, self.lipschitz = np.asarray(smallest + self.ridge), np.asarray(largest + self.ridge)
        self.provenance, self.is_gradient = "exact", True

    def operator(self, theta: PyTree, x: Array | None = None) -> PyTree:
        vector, unravel = jax.flatten_util.ravel_pytree(theta)
        residual = jnp.asarray(self.factor) @ vector - self.target
        return unravel(jnp.asarray(self.factor).T @ residual + self.ridge * vector)

    def unconstrained_minimum(self) -> PyTree:
        """The minimiser without Θ, as NumPy arrays of θ's structure."""
        normal = self.factor.T @ self.factor + self.ridge * np.eye(self.factor.shape[1])
        vector = (
            np.linalg.solve(normal, self.factor.T @ self.target)
            if self.ridge
            else np.linalg.lstsq(self.factor, self.target, rcond=None)[0]
        )
        return _unravel_like(self.set.zeros(), vector)


def _as_design(A, n_theta: int) -> np.ndarray:
    design = as_finite_float64("LeastSquares: A", A)
    if design.ndim == 1:
        design = design[:, None]
    if design.ndim != 2 or design.shape[1] != n_theta or design.shape[0] == 0:
        raise InputError(
            f"LeastSquares: A has shape {np.shape(A)}; one row per observation and {n_theta} columns "
            f"(one per component of θ, as `set` declares) are needed."
        )
    return design


def _triangular_factor(A: np.ndarray, b: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R and z of (2), by reducing blocks of rows of [√w A, √w b] to triangles and stacking them."""
    n_theta = A.shape[1]
    root = np.sqrt(weights)
    joined = np.zeros((0, n_theta + 1))
    for start in range(0, A.shape[0], _ROWS_PER_FACTOR):
        rows = slice(start, start + _ROWS_PER_FACTOR)
        block = np.column_stack([root[rows, None] * A[rows], root[rows] * b[rows]])
        joined = np.asarray(np.linalg.qr(np.vstack([joined, block]), mode="r"))
    joined = np.vstack([joined, np.zeros((max(n_theta - joined.shape[0], 0), n_theta + 1))])
    return joined[:n_theta, :n_theta], joined[:n_theta, n_theta]


def _unravel_like(like: PyTree, vector: np.ndarray) -> PyTree:
    leaves, tree = jax.tree.flatten(like)
    parts = np.split(vector, np.cumsum([leaf.size for leaf in leaves])[:-1])
    return jax.tree.unflatten(
        tree, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    )


__all__ = ["LeastSquares"]
