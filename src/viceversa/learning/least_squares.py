"""Learning by least squares: H(θ) = Aᵀ diag(w)(Aθ − b) + ridge·θ, a sum over observations."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from viceversa.errors import InputError
from viceversa.learning.base import Learning, Provenance
from viceversa.precision import as_finite_float64
from viceversa.sets.base import ConvexSet, is_shape
from viceversa.sets.intervals import interval_bounds, is_separable

# Rows reduced to a triangle at a time, so that 10⁶ observations need little memory.
_ROWS_PER_FACTOR = 1 << 16
_QR_ROUNDING = 10  # roundings allowed for the factor R, in units of eps and of its columns' lengths
_SLACK = 1e-12  # by which D is enlarged, more than the rounding of the eigenvalue in it
_MARGIN = 1e-9  # of the way from a point inside Θ: closer to its boundary rounding would decide
_SHARE_OF_DEPENDENT = 1e-3  # entries of a null vector of unit columns that count as taking part


class LeastSquares(Learning):
    """θ* = argmin_{θ ∈ Θ} ½ Σ_t w_t (A_t θ − b_t)² + ½ ridge ‖θ‖², from observations (A_t, b_t).

        H(θ) = Aᵀ diag(w)(Aθ − b) + ridge·θ                                                       (1)
             = Rᵀ(Rθ − z) + ridge·θ,   diag(√w) A = QR,  z = Qᵀ diag(√w) b                        (2)

    (1) is the definition, a sum over rows. (2) is what is computed: the triangular factor is found once,
    so one evaluation costs m² products however many observations there are, and no digits are lost to AᵀA.
    A θ with several parts is raveled in the order of `set`'s tree. A parameter that is a scalar takes A of
    shape (T,). Columns may have any units: whether they determine θ is judged with every column scaled to length 1.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> quantity, price = np.array([2.0, 4.0]), np.array([96.0, 92.0])
        >>> learning = vv.LeastSquares(quantity, 100.0 - price, set=vv.Box(0.1, 5.0, shape=()))
        >>> float(learning.operator(2.0))
        0.0
    """

    sets_fields_at_once: ClassVar[bool] = True

    A: np.ndarray
    b: np.ndarray
    weights: np.ndarray
    ridge: np.ndarray
    factor: np.ndarray
    target: np.ndarray
    minimum: np.ndarray
    minimum_is_inside: bool = eqx.field(static=True)
    scale: np.ndarray
    scaled_mu: np.ndarray
    length: np.ndarray
    set: ConvexSet
    mu: np.ndarray
    lipschitz: np.ndarray
    provenance: Provenance = eqx.field(static=True)
    is_gradient: bool = eqx.field(static=True)

    def __init__(self, A, b, set: ConvexSet | None = None, weights=None, ridge: float = 0.0):
        if set is None:
            raise InputError(
                "LeastSquares: set is missing; it says which θ are possible. Pass set=vv.Free(n) for n numbers without bounds "
                "(one for each column of A), or vv.Box(lower, upper)."
            )
        if not isinstance(set, ConvexSet):
            raise InputError(
                f"LeastSquares: set is {type(set).__name__}; a viceversa set (the Θ of θ) is needed."
            )
        n_theta = sum(map(math.prod, jax.tree.leaves(set.shape, is_leaf=is_shape)))
        A = _as_design(A, n_theta)
        b = as_finite_float64("LeastSquares: b", b)
        n_rows = A.shape[0]
        if b.shape != (n_rows,):
            raise InputError(
                f"LeastSquares: b has shape {b.shape}; A has {n_rows} rows, so ({n_rows},) is needed."
            )
        given = weights is not None
        weights = as_finite_float64("LeastSquares: weights", weights) if given else np.ones(n_rows)
        if given and (weights.shape != (n_rows,) or (weights < 0).any()):
            raise InputError(
                f"LeastSquares: weights has shape {weights.shape} and smallest entry "
                f"{weights.min(initial=np.inf):g}; {n_rows} nonnegative numbers are needed."
            )
        penalty = as_finite_float64("LeastSquares: ridge", ridge)
        if penalty.shape != () or penalty < 0:
            raise InputError(f"LeastSquares: ridge is {ridge}; one number >= 0 is needed.")
        factor, target = _triangular_factor(A, b, weights)
        # With ridge the same least squares has √ridge·I as further rows; its own R̃ and z̃ stand for both.
        R, z = factor, target
        if penalty > 0:
            rows = np.sqrt(penalty) * np.eye(n_theta)
            both = np.vstack([np.column_stack([R, z]), np.column_stack([rows, np.zeros(n_theta)])])
            R, z = _parts(_triangle(both))
        columns = np.linalg.norm(R, axis=0)
        unit = R / np.where(columns > 0, columns, 1.0)
        singular = _singular_values(unit)
        _check_determined(unit, singular, n_rows)
        minimum = (unit[0] * z if n_theta == 1 else np.linalg.solve(unit, z)) / columns
        # Less what rounding may have added to the smallest singular value.
        blurred = (n_theta + _QR_ROUNDING) * np.finfo(float).eps * singular[0]
        mu, lipschitz = _extreme_eigenvalues(R, unit, columns)
        self.set_fields(
            A=A,
            b=b,
            weights=weights,
            ridge=penalty,
            set=set,
            factor=factor,
            target=target,
            minimum=minimum,
            minimum_is_inside=_contains(set, minimum),
            scale=(singular[0] * columns) ** 2 * (1.0 + _SLACK),
            scaled_mu=np.asarray(((singular[-1] - blurred) / singular[0]) ** 2 * (1.0 - _SLACK)),
            length=np.asarray(np.linalg.norm(np.sqrt(weights) * b)),
            mu=mu,
            lipschitz=lipschitz,
            provenance="exact",
            is_gradient=True,
        )

    def operator(self, theta: PyTree, x: Array | None = None) -> PyTree:
        vector, unravel = jax.flatten_util.ravel_pytree(theta)
        residual = jnp.asarray(self.factor) @ vector - self.target
        return unravel(jnp.asarray(self.factor).T @ residual + self.ridge * vector)

    def unconstrained_minimum(self) -> PyTree:
        """The minimiser without Θ, as NumPy arrays of θ's structure."""
        return _unravel_like(self.set.zeros(), self.minimum)

    def newton_point(self) -> Array | np.ndarray | None:
        return self.minimum if self.minimum_is_inside else None

    def metric(self) -> Array | np.ndarray:
        """The diagonal of H's matrix times the largest eigenvalue that matrix has once its diagonal is 1."""
        return self.scale

    def rounding(self, theta: PyTree, x: Array | None = None) -> Float[Array, ""]:
        """c eps ‖R_j‖ (Σ_i ‖R_i‖ |θ_i| + ‖diag(√w) b‖) over the columns j, and c eps ridge |θ_j|, in the norm of H.

        c = n + 10 covers the products of (2) as computed (Higham 2002, §3.1) and, as far as trials show, the factor R.

        Example:
            >>> import numpy as np, viceversa as vv
            >>> learning = vv.LeastSquares(np.array([2.0, 4.0]), np.array([4.0, 8.0]), set=vv.Free(()))
            >>> with vv.precision.double():
            ...     print(0.0 < learning.rounding(2.0) < 1e-12)
            True
        """
        return jnp.linalg.norm(self._rounding_parts(jax.flatten_util.ravel_pytree(theta)[0]))

    def _rounding_parts(self, vector: Float[Array, " n"]) -> Float[Array, " n"]:
        """The estimate of `rounding` for every component of H."""
        columns, sizes = jnp.linalg.norm(jnp.asarray(self.factor), axis=0), jnp.abs(vector)
        parts = columns * (columns @ sizes + self.length) + self.ridge * sizes
        return (vector.size + _QR_ROUNDING) * jnp.finfo(vector.dtype).eps * parts

    def scaled_error_bound(self, theta: PyTree) -> Float[Array, ""]:
        """In the units D^½θ, in which H is μ_D-strongly monotone and 1-Lipschitz, Θ still a product of intervals:

            ‖θ − θ*‖ ≤ (min(2‖r‖_D, ‖H‖_{D⁻¹}) + 2ρ) / (μ_D √min D),  r = θ − P_Θ(θ − D⁻¹H)        (3)

        with ρ the rounding of H in ‖·‖_{D⁻¹}, which also covers that of r. On any other Θ r is left out, and the
        bound is ∞ unless the minimum without Θ, where H is 0, lies inside.

        Example:
            >>> import numpy as np, viceversa as vv
            >>> learning = vv.LeastSquares(np.array([2.0, 4.0]), np.array([4.0, 8.0]), set=vv.Free(()))
            >>> with vv.precision.double():
            ...     print(0.0 < learning.scaled_error_bound(2.0) < 1e-12)
            True
        """
        separable = is_separable(self.set)
        if not (separable or self.minimum_is_inside):
            return jnp.asarray(jnp.inf)
        vector, unravel = jax.flatten_util.ravel_pytree(theta)
        H = jax.flatten_util.ravel_pytree(self.operator(theta))[0]
        units = jnp.sqrt(jnp.asarray(self.scale))
        error = jnp.linalg.norm(H / units)
        if separable:
            projected = jax.flatten_util.ravel_pytree(self.set.project(unravel(vector - H / units**2)))[0]
            error = jnp.minimum(2.0 * jnp.linalg.norm(units * (vector - projected)), error)
        rounding = jnp.linalg.norm(self._rounding_parts(vector) / units)
        return (error + 2.0 * rounding) / (self.scaled_mu * jnp.min(units, initial=jnp.inf))


def _contains(Theta: ConvexSet, vector: np.ndarray) -> bool:
    """Whether the raveled point lies in Θ, beyond rounding where Θ is no product of intervals."""
    bounds = interval_bounds(Theta)
    if bounds is not None:
        low, high = bounds
        return bool(((low <= vector) & (vector <= high)).all())
    inside = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(Theta.interior_point())])
    beyond = vector + _MARGIN * (vector - inside)
    return bool(Theta.violation(_unravel_like(Theta.zeros(), beyond)) == 0.0)


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
    root = np.sqrt(weights)
    joined = np.zeros((0, A.shape[1] + 1))
    for start in range(0, A.shape[0], _ROWS_PER_FACTOR):
        rows = slice(start, start + _ROWS_PER_FACTOR)
        block = root[rows, None] * np.column_stack([A[rows], b[rows]])
        joined = _triangle(np.vstack([joined, block]) if start else block)
    return _parts(joined)


def _triangle(matrix: np.ndarray) -> np.ndarray:
    """R of a QR factorization; cut out here, since `mode="r"` takes as long to clear what is below it as to find it."""
    columns, _ = np.linalg.qr(matrix, mode="raw")  # one in each row
    n = min(matrix.shape)
    return np.where(_upper(n, matrix.shape[1]), columns[:, :n].T, 0.0)


@lru_cache(maxsize=16)
def _upper(n: int, n_columns: int) -> np.ndarray:
    return np.triu(np.ones((n, n_columns), dtype=bool))


def _singular_values(unit: np.ndarray) -> np.ndarray:
    """Of R with columns of length 1, largest first."""
    if unit.size <= 1:
        return np.abs(unit[0]) if unit.size else np.ones(1)
    return np.linalg.svd(unit, compute_uv=False)


def _parts(triangle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R and z from the triangle of [√w A, √w b]."""
    n_theta = triangle.shape[1] - 1
    if triangle.shape[0] < n_theta:
        triangle = np.vstack([triangle, np.zeros((n_theta - triangle.shape[0], n_theta + 1))])
    return triangle[:n_theta, :n_theta], triangle[:n_theta, n_theta]


def _check_determined(unit: np.ndarray, singular: np.ndarray, n_rows: int) -> None:
    """Refuse columns that do not determine θ; `unit` is R with columns of length 1 and `singular` its singular values."""
    n_theta, eps = unit.shape[1], np.finfo(float).eps
    if singular[-1] ** 2 > singular[0] ** 2 * n_theta * eps:
        return
    remedy = "Add observations, drop components, or pass ridge > 0."
    zero = np.flatnonzero(~unit.any(axis=0))
    dependent = np.flatnonzero(np.abs(np.linalg.svd(unit)[2][-1]) > _SHARE_OF_DEPENDENT)
    rank = int((singular > singular[0] * max(n_rows, n_theta) * eps).sum()) if singular[0] else 0
    if rank == n_theta:
        raise InputError(
            f"LeastSquares: columns {_listed(dependent)} of A (from 0) depend on each other almost linearly (condition number "
            f"{singular[0] / singular[-1]:.1e} with every column scaled to length 1), so the observations do not "
            f"determine θ in double precision. {remedy}"
        )
    if zero.size:
        cause = f"column{'s' * (zero.size > 1)} {_listed(zero)} of A {'are' if zero.size > 1 else 'is'} 0 in every row"
    elif n_rows < n_theta:
        cause = f"there are only {n_rows} observations"
    else:
        cause = f"columns {_listed(dependent)} of A (from 0) depend on each other linearly"
    raise InputError(
        f"LeastSquares: A has rank {rank} but θ has {n_theta} components ({cause}), so the observations do not "
        f"determine θ. {remedy}"
    )


def _listed(columns: np.ndarray) -> str:
    shown = ", ".join(str(j) for j in columns[:5])
    return f"{shown}, …" if columns.size > 5 else shown


def _extreme_eigenvalues(
    R: np.ndarray, unit: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest eigenvalue of RᵀR, each to full relative precision whatever the units of the columns.

    The smallest singular value of R itself would be known to eps·L only, so it is found as 1/‖R⁻¹‖.
    """
    if not columns.size:
        return np.asarray(1.0), np.asarray(1.0)
    if columns.size == 1:
        return np.asarray(columns[0] ** 2), np.asarray(columns[0] ** 2)
    inverse = np.linalg.inv(unit) / columns[:, None]
    return np.asarray(np.linalg.norm(inverse, 2) ** -2.0), np.asarray(np.linalg.norm(R, 2) ** 2)


def _unravel_like(like: PyTree, vector: np.ndarray) -> PyTree:
    leaves, tree = jax.tree.flatten(like)
    parts = np.split(vector, np.cumsum([leaf.size for leaf in leaves])[:-1])
    return jax.tree.unflatten(
        tree, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    )


__all__ = ["LeastSquares"]
