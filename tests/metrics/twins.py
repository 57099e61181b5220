"""Small problems for the metrics, and slow obvious NumPy answers to compare with.

The operators and constraints are modules with arrays of one shape, so that what compiles for one problem serves all.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import viceversa as vv


class AffineOperator(eqx.Module):
    """F(y, θ) = M y + θ q."""

    M: np.ndarray
    q: np.ndarray

    def __call__(self, y, theta):
        return jnp.asarray(self.M) @ y + theta * self.q


class CubicOperator(eqx.Module):
    """F(y, θ) = M y + θ q + k y³, coordinate by coordinate: not affine as a program, even for k = 0."""

    M: np.ndarray
    q: np.ndarray
    k: np.ndarray

    def __call__(self, y, theta):
        return jnp.asarray(self.M) @ y + theta * self.q + self.k * y**3


class QuadraticConstraints(eqx.Module):
    """f_j(y) = ½ Σ_i Q_ji y_i² + c_jᵀy − d_j."""

    Q: np.ndarray
    c: np.ndarray
    d: np.ndarray

    def __call__(self, y, theta):
        return 0.5 * jnp.asarray(self.Q) @ y**2 + jnp.asarray(self.c) @ y - self.d


class CournotOperator(eqx.Module):
    """F_id = r_id y_id + g_id + b(Y_d + y_id) − a, θ = b."""

    r: np.ndarray
    g: np.ndarray
    a: np.ndarray

    def __call__(self, y, theta):
        return self.r * y + self.g + theta * (jnp.sum(y, axis=0) + y) - self.a


class PriceCap(eqx.Module):
    """f_d = (a − p_cap) − b Y_d."""

    room: np.ndarray

    def __call__(self, y, theta):
        return self.room - theta * jnp.sum(y, axis=0)


# A constraint that never binds, to fill the second row.
INERT = ([0.0, 0.0], [0.0, 0.0], 1.0)


def array(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def plane(
    M, q, rows=(INERT, INERT), lower=(0.0, 0.0), upper=(4.0, 4.0), theta=1.0, k=None
) -> vv.MisspecifiedVI:
    """A problem in the plane with two constraints ½Qy² + cᵀy ≤ d, each row (Q, c, d); k makes F cubic."""
    Q, c, d = (array([row[i] for row in rows]) for i in range(3))
    operator = (
        AffineOperator(array(M), array(q)) if k is None else CubicOperator(array(M), array(q), array(k))
    )
    constraints = QuadraticConstraints(Q, c, d)
    return vv.MisspecifiedVI(operator, vv.Box(array(lower), array(upper)), constraints, vv.Known(theta))


def values(problem: vv.MisspecifiedVI, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(F, f) of a problem made by `plane`, at rows of points, in NumPy and at θ of `Known`."""
    F, f = problem.operator, problem.constraints
    out = points @ F.M.T + problem.learning.theta * F.q
    if isinstance(F, CubicOperator):
        out = out + F.k * points**3
    return out, 0.5 * points**2 @ f.Q.T + points @ f.c.T - f.d


def grid_gap(
    problem: vv.MisspecifiedVI, x: np.ndarray, epsilon: float, n: int = 61, n_zooms: int = 30
) -> float:
    """max F(y)ᵀ(x − y) over the y of a grid with 1ᵀ[f(y)]₊ ≤ ε, zooming in on the best: from below, never above."""
    low, high = problem.set.lower, problem.set.upper
    center, half, best = 0.5 * (low + high), 0.5 * (high - low), -np.inf
    for _ in range(n_zooms):
        axes = [
            np.clip(np.linspace(c - h, c + h, n), a, b)
            for c, h, a, b in zip(center, half, low, high, strict=True)
        ]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        F, f = values(problem, points)
        gaps = np.where(np.maximum(f, 0.0).sum(1) <= epsilon, (F * (x - points)).sum(1), -np.inf)
        if gaps.max() > best:
            best, center = gaps.max(), points[gaps.argmax()]
        half = 0.6 * half
    return best


def random_plane(seed: int, k=None, rank: int = 2) -> vv.MisspecifiedVI:
    """A monotone problem in the plane, non-symmetric, with two convex quadratic constraints that a point satisfies.

    `rank` is that of the symmetric part: 1 or 0 leave directions without curvature.
    """
    rng = np.random.default_rng(seed)
    B, s = rng.normal(size=(2, 2))[:, :rank], rng.normal()
    M = B @ B.T + [[0.0, s], [-s, 0.0]]
    Q, c = rng.uniform(0.0, 1.0, (2, 2)), rng.normal(size=(2, 2))
    inside = rng.uniform(0.5, 3.5, 2)
    d = 0.5 * Q @ inside**2 + c @ inside + rng.uniform(0.05, 0.5, 2)
    return plane(M, rng.normal(size=2) * 3.0, tuple(zip(Q, c, d, strict=True)), k=k)


def cournot(
    n_firms: int = 5, n_products: int = 2, seed: int = 0, price_cap: float = 55.0
) -> vv.MisspecifiedVI:
    """The paper's market, small: capacities 5, slope θ = 2, and a cap that binds."""
    rng = np.random.default_rng(seed)
    shape = (n_firms, n_products)
    operator = CournotOperator(rng.uniform(1.0, 10.0, shape), rng.uniform(5.0, 20.0, shape), array(100.0))
    box = vv.Box(array(0.0), array(5.0), shape=shape)
    return vv.MisspecifiedVI(operator, box, PriceCap(array(100.0 - price_cap)), vv.Known(2.0))


def bisect(increasing, low: np.ndarray, high: np.ndarray, n: int = 64) -> np.ndarray:
    """Where an increasing function crosses zero, coordinate by coordinate."""
    for _ in range(n):
        middle = 0.5 * (low + high)
        above = increasing(middle) > 0.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)


def cournot_gap(problem: vv.MisspecifiedVI, x: np.ndarray, epsilon: float) -> tuple[float, np.ndarray]:
    """(Gap_ε(x), μ) of the market by nested bisection: Y for given μ, μ_d = min(π, the one with f_d = 0), π for ε."""
    r, g, a = problem.operator.r, problem.operator.g, float(problem.operator.a)
    b, room, cap = float(problem.learning.theta), float(problem.constraints.room), float(problem.set.high)
    n_firms, n_products = r.shape
    c = a - g + (r + b) * x + b * x.sum(0)
    zero, most = np.zeros(n_products), np.full(n_products, 1e4)

    def outputs(mu: np.ndarray) -> np.ndarray:
        # 0 = ∂_i [F(y)ᵀ(x − y) + μ b Y] = c_i + μb − 2(r_i + b)y_i − 2bY, clipped to the box.
        y = lambda Y: np.clip((c + mu * b - 2.0 * b * Y) / (2.0 * (r + b)), 0.0, cap)
        return y(bisect(lambda Y: Y - y(Y).sum(0), zero, np.full(n_products, cap * n_firms)))

    violation = lambda mu: room - b * outputs(mu).sum(0)
    feasible = np.where(violation(zero) <= 0.0, 0.0, bisect(lambda mu: -violation(mu), zero, most))
    total = lambda pi: np.maximum(violation(np.minimum(pi, feasible)), 0.0).sum()
    pi = 0.0 if total(0.0) <= epsilon else bisect(lambda p: epsilon - total(p), 0.0, feasible.max())
    mu = np.minimum(pi, feasible)
    y = outputs(mu)
    F = r * y + g + b * (y.sum(0) + y) - a
    return float((F * (x - y)).sum()), mu
