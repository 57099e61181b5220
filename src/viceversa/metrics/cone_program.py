"""A point and multipliers from Clarabel, for the programs that are quadratic over rows and bounds."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from viceversa import functions
from viceversa.errors import InputError
from viceversa.metrics.concave_program import Guess
from viceversa.problem import Constraints, MisspecifiedVI
from viceversa.sets.base import ConvexSet
from viceversa.sets.intersection import describe
from viceversa.sets.linear_program import Description

# Beyond this many coordinates a dense Hessian does not belong here.
MAX_COORDINATES = 2000


def solve(objective: Any, problem: MisspecifiedVI, theta: PyTree, epsilon: float) -> Guess | None:
    """Where to start for max objective over X_ε(θ), or None: not installed, or not a cone program Clarabel takes.

    With slacks s ≥ 0, 1ᵀs ≤ ε: an affine f_j gives the row f_j(y) ≤ s_j; f_j = ½yᵀLLᵀy + ℓ(y) gives the second-order
    cone ‖(√2 Lᵀy, τ − 1)‖ ≤ τ + 1 with τ = s_j − ℓ(y).
    """
    rows = rows_of(problem.set)
    installed = all(importlib.util.find_spec(name) is not None for name in ("clarabel", "scipy"))
    n = int(np.prod(problem.shape))
    if rows is None or not installed or n > MAX_COORDINATES:
        return None
    f = problem.at(theta).f
    like = np.zeros(problem.shape)
    if not functions.is_affine_in(jax.grad(objective), 0, like):
        return None
    if problem.n_constraints and not functions.is_affine_in(jax.jacrev(f), 0, like):
        return None
    P, q, A, b, Q = (np.asarray(part) for part in _coefficients(objective, f, like))
    P, q, A, Q = P.reshape(n, n), q.ravel(), A.reshape(-1, n), Q.reshape(-1, n, n)
    y, mu = _clarabel(0.5 * (P + P.T), q, A, b, Q, rows, epsilon)
    if not (np.isfinite(y).all() and np.isfinite(mu).all()):
        return None
    point = jnp.asarray(y).reshape(problem.shape)
    mu = jnp.maximum(jnp.asarray(mu), 0.0)
    _, pullback = f.vjp(point)
    return Guess(y=point, mu=mu, nu=jax.grad(objective)(point) - pullback(mu))


@eqx.filter_jit
def _coefficients(objective: Any, f: Constraints, zero: Any) -> tuple:
    """(−∇²g, −∇g(0), Jf(0), f(0), ∇²f)."""
    zero = jnp.asarray(zero)
    curvature, slope = jax.jacfwd(jax.grad(objective))(zero), jax.grad(objective)(zero)
    return -curvature, -slope, jax.jacrev(f)(zero), f(zero), jax.jacfwd(jax.jacrev(f))(zero)


def rows_of(X: ConvexSet) -> Description | None:
    """X as linear inequalities, equations and bounds over the ravelled point; None if it is not such a set."""
    try:
        return describe(X)
    except InputError:
        return None


def _clarabel(P, q, A, b, Q, rows: Description, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """min ½yᵀPy + qᵀy over the rows with 1ᵀ[½yᵀQ_jy + A_jy + b_j]₊ ≤ ε: the point and the multipliers of f."""
    from scipy import sparse

    clarabel: Any = importlib.import_module("clarabel")

    n, J = q.size, b.size
    blocks, offsets, cones = [], [], []

    def add(left: np.ndarray, right: np.ndarray, cone: Any) -> None:
        blocks.append(sparse.csc_matrix(left))
        offsets.append(right)
        cones.append(cone)

    def over_y(left: np.ndarray) -> np.ndarray:
        return np.hstack([left, np.zeros((len(left), J))])

    starts = []
    for j in range(J):
        starts.append(sum(block.shape[0] for block in blocks))
        row = np.concatenate([A[j], -np.eye(J)[j]])
        if not Q[j].any():
            add(row[None], -b[j : j + 1], clarabel.NonnegativeConeT(1))
            continue
        values, vectors = np.linalg.eigh(0.5 * (Q[j] + Q[j].T))
        kept = values > 1e-14 * values.max()
        root = over_y((np.sqrt(2.0 * values[kept]) * vectors[:, kept]).T)
        right = np.concatenate([[1.0 - b[j]], np.zeros(kept.sum()), [-1.0 - b[j]]])
        add(np.vstack([row[None], -root, row[None]]), right, clarabel.SecondOrderConeT(int(kept.sum()) + 2))
    if J:
        add(np.hstack([np.zeros((J, n)), -np.eye(J)]), np.zeros(J), clarabel.NonnegativeConeT(J))
    if J and np.isfinite(epsilon):
        total = np.concatenate([np.zeros(n), np.ones(J)])[None]
        add(total, np.array([epsilon]), clarabel.NonnegativeConeT(1))
    low, high = np.isfinite(rows.lower), np.isfinite(rows.upper)
    for left, right in (
        (rows.A, rows.b),
        (np.eye(n)[high], rows.upper[high]),
        (-np.eye(n)[low], -rows.lower[low]),
    ):
        if len(right):
            add(over_y(left), right, clarabel.NonnegativeConeT(len(right)))
    if len(rows.d):
        add(over_y(rows.C), rows.d, clarabel.ZeroConeT(len(rows.d)))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    whole = sparse.block_diag([np.triu(P), sparse.csc_matrix((J, J))], format="csc")
    left = sparse.vstack(blocks, format="csc")
    solver = clarabel.DefaultSolver(
        whole, np.concatenate([q, np.zeros(J)]), left, np.concatenate(offsets), cones, settings
    )
    answer = solver.solve()
    z = np.asarray(answer.z)
    mu = np.array(
        [z[s] if not Q[j].any() else z[s] + z[s + _cone_size(cones, j) - 1] for j, s in enumerate(starts)]
    )
    return np.asarray(answer.x)[:n], mu


def _cone_size(cones: list, j: int) -> int:
    return int(cones[j].dim)
