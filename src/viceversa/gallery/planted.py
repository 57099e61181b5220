"""Planted problems: the answer is chosen first and the data are made so that it solves the problem, at any size."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa.errors import InputError
from viceversa.gallery.instance import Instance, Real
from viceversa.gallery.learned import build
from viceversa.learning import LeastSquares, SecondaryVI
from viceversa.problem import MisspecifiedVI
from viceversa.sets import Box


class PlantedOperator(eqx.Module):
    """F(x, θ) = (P + K₀ + Σ_i θ_i K_i) x + q₀ + q₁ θ: P symmetric PSD, every K skew, so F is monotone for every θ."""

    M0: np.ndarray  # P + K₀
    K: np.ndarray  # (m, n, n)
    q0: np.ndarray
    q1: np.ndarray

    def __call__(self, x: Float[Array, " n"], theta: Float[Array, " m"]) -> Array:
        turned = jnp.einsum("ijk,k->ij", jnp.asarray(self.K), x)
        return jnp.asarray(self.M0) @ x + theta @ turned + self.q0 + jnp.asarray(self.q1) @ theta


class PlantedConstraints(eqx.Module):
    """f_j(x, θ) = ½‖G_j x‖² + (c_j + C_j θ)ᵀx − d_j: convex quadratics of low rank, coupled to θ."""

    G: np.ndarray  # (J, rank, n)
    c: np.ndarray  # (J, n)
    C: np.ndarray  # (J, n, m)
    d: np.ndarray

    def __call__(self, x: Float[Array, " n"], theta: Float[Array, " m"]) -> Array:
        Gx = jnp.einsum("jrn,n->jr", jnp.asarray(self.G), x)
        slopes = jnp.asarray(self.c) + jnp.einsum("jnm,m->jn", jnp.asarray(self.C), theta)
        return 0.5 * jnp.sum(Gx**2, axis=1) + slopes @ x - self.d


class MatrixLearning(eqx.Module):
    """H(θ) = W (θ − θ*), W not symmetric: a secondary VI that is no fit."""

    W: np.ndarray
    theta: np.ndarray

    def __call__(self, theta: Float[Array, " m"]) -> Array:
        return jnp.asarray(self.W) @ (theta - self.theta)


def planted(
    n: int = 20,
    n_constraints: int = 4,
    n_theta: int = 3,
    seed: int = 0,
    *,
    mu: Real = 0.5,
    skew: Real = 1.0,
    degenerate: bool = False,
    condition: Real = 5.0,
    learning: str = "vi",
    n_active: int | None = None,
    rank: int = 2,
) -> Instance:
    """A random monotone problem with quadratic constraints whose answer is known because it was chosen first.

    x* lies in [−1, 1]ⁿ, two fifths of it at bounds; half of the constraints are active (`n_active`) with λ* in
    [½, 2]; the data then follow from the KKT conditions. A Slater point is built in and stored in `details`.

    mu: μI in P. With 0, P has rank n/2: F is merely monotone.
    skew: the size of the rotation in F, of the order of P's norm at 1.
    degenerate: one active constraint has λ* = 0, and one coordinate at its bound is not pressed against it.
    condition: L_H/μ_H of H's symmetric part.
    learning: "vi" (H = W(θ − θ*) with W not symmetric) or "least_squares" (noiseless rows).

    Example:
        >>> import viceversa as vv
        >>> vv.gallery.planted(n=30, n_constraints=6, n_theta=2, seed=1).certify(1e-12).holds
        True
    """
    _check(n, n_constraints, n_theta, mu, skew, condition, learning, n_active, rank)
    rng = np.random.default_rng(seed)
    J, m = n_constraints, n_theta
    theta = rng.uniform(0.5, 1.5, m)
    x, pressure = _point_at_bounds(rng, n, degenerate)
    active = np.arange(J) < (min(max(1, J // 2), max(n // 4, 1)) if n_active is None else n_active)
    multiplier = np.where(active, rng.uniform(0.5, 2.0, J), 0.0)
    if degenerate and active.any():
        multiplier[0] = 0.0

    B = rng.standard_normal((n, n if mu > 0 else max(n // 2, 1)))
    P = B @ B.T / n + mu * np.eye(n)
    K0, *K = (skew * _skew_matrix(rng, n) for _ in range(m + 1))
    q1 = rng.standard_normal((n, m))
    G = rng.standard_normal((J, rank, n)) / np.sqrt(n)
    c, C = rng.standard_normal((J, n)), 0.3 * rng.standard_normal((J, n, m))
    inward = -x / np.linalg.norm(x)  # towards the centre of the box
    c, gradients = _tilt_downhill(G, c, C, x, theta, inward)
    values = 0.5 * np.sum((G @ x) ** 2, axis=1) + (c + C @ theta) @ x
    d = values + np.where(active, 0.0, rng.uniform(0.5, 1.5, J))
    M_true = P + K0 + np.tensordot(theta, np.array(K), axes=1)
    q0 = -(M_true @ x + q1 @ theta + gradients.T @ multiplier + pressure)

    constraints = PlantedConstraints(G, c, C, d) if J else None
    slater = _slater_point(G, c, C, d, x, theta, inward)
    theta_set = Box(theta - 1.0, theta + 1.0)
    learner = (
        SecondaryVI(MatrixLearning(_learning_matrix(rng, m, condition), theta), set=theta_set)
        if learning == "vi"
        else _least_squares(rng, theta, theta_set, condition)
    )
    problem = MisspecifiedVI(
        PlantedOperator(P + K0, np.array(K), q0, q1),
        set=Box(-1.0, 1.0, shape=n),
        constraints=constraints,
        learning=learner,
        symmetric=False if skew > 0 and n > 1 else None,
    )
    unique = _is_isolated(M_true, G, gradients, x, multiplier, active) and not degenerate
    return Instance(
        name=f"planted({n},{J},{m},seed={seed})",
        problem=problem,
        theta_true=theta,
        x_true=x,
        multiplier_true=multiplier,
        theta0=theta + np.where(np.arange(m) % 2 == 0, 1.0, -1.0),
        source="planted: the data follow from the answer",
        x_unique=bool(mu > 0 or unique),
        multiplier_unique=bool(unique),
        details={"slater_point": slater, "active": active, "mu_F": float(mu)},
    )


def harker_pang(n: int = 50, seed: int = 0, misspecified: bool = False) -> Instance:
    """Harker and Pang's random matrices M = AAᵀ + B + D with a planted answer, x ≥ 0, and a budget Σx ≤ s that binds.

    A and the skew B are uniform on (−5, 5), D diagonal on (0, 0.3), as published; q is set by the answer instead of
    drawn from (−500, 0), because the drawn problem has no printed solution. F = Mx + θ₁q, f = Σx − θ₂.
    """
    if int(n) != n or n < 2:
        raise InputError(f"gallery.harker_pang: n is {n}; a whole number >= 2 is needed.")
    rng = np.random.default_rng(seed)
    A, B = rng.uniform(-5, 5, (n, n)), np.triu(rng.uniform(-5, 5, (n, n)), 1)
    M = A @ A.T + (B - B.T) + np.diag(rng.uniform(0.0, 0.3, n))
    producing = np.arange(n) < n // 2
    x = np.where(producing, rng.uniform(1.0, 10.0, n), 0.0)
    pressure = np.where(producing, 0.0, rng.uniform(0.5, 50.0, n))
    multiplier = rng.uniform(1.0, 100.0)
    q = pressure - M @ x - multiplier
    return build(
        f"harker_pang({n},seed={seed})",
        operator=HarkerPang(M, q),
        set=Box(0.0, np.inf, shape=n),
        constraints=Budget(),
        constraint_names=("budget",),
        theta=[1.0, x.sum()],
        x=x,
        multiplier=[multiplier],
        misspecified=misspecified,
        symmetric=False,
        source="harker1990damped (matrices); planted answer",
    )


class HarkerPang(eqx.Module):
    """F(x, θ) = M x + θ₁ q."""

    M: np.ndarray
    q: np.ndarray

    def __call__(self, x: Float[Array, " n"], theta: Float[Array, "2"]) -> Array:
        return jnp.asarray(self.M) @ x + theta[0] * self.q


class Budget(eqx.Module):
    """f = Σ x − θ₂ ≤ 0."""

    def __call__(self, x: Float[Array, " n"], theta: Float[Array, "2"]) -> Array:
        return jnp.sum(x) - theta[1]


def _point_at_bounds(rng, n: int, degenerate: bool) -> tuple[np.ndarray, np.ndarray]:
    """x* in [−1, 1]ⁿ and ν in its normal cone: a fifth of the coordinates at each bound, pressed against it."""
    x, pressure = rng.uniform(-0.7, 0.7, n), np.zeros(n)
    n_each = n // 5
    where = rng.permutation(n)
    low, high = where[:n_each], where[n_each : 2 * n_each]
    x[low], x[high] = -1.0, 1.0
    pressure[low], pressure[high] = -rng.uniform(0.5, 2.0, n_each), rng.uniform(0.5, 2.0, n_each)
    if degenerate and n_each:
        pressure[low[0]] = 0.0
    return x, pressure


def _skew_matrix(rng, n: int) -> np.ndarray:
    S = rng.standard_normal((n, n)) / np.sqrt(n)
    return (S - S.T) / 2


def _tilt_downhill(G, c, C, x, theta, inward) -> tuple[np.ndarray, np.ndarray]:
    """c changed so that every gradient at x* has slope at most −½ along `inward`: then Slater's condition holds."""
    gradients = np.einsum("jrn,jr->jn", G, G @ x) + c + C @ theta
    excess = np.maximum(gradients @ inward + 0.5, 0.0)
    change = -excess[:, None] * inward[None, :]
    return c + change, gradients + change


def _slater_point(G, c, C, d, x, theta, inward) -> np.ndarray:
    """A point x* + t·inward of the open box with f(·, θ*) < 0, found by halving t and checked."""
    t = 0.5 * np.linalg.norm(x)
    for _ in range(60):
        y = x + t * inward
        f = 0.5 * np.sum((G @ y) ** 2, axis=1) + (c + C @ theta) @ y - d
        if (f < 0).all() and (np.abs(y) < 1).all():
            return y
        t /= 2
    raise InputError("gallery.planted: no Slater point was found for this seed. Draw another one.")


def _learning_matrix(rng, m: int, condition: Real) -> np.ndarray:
    return np.diag(np.geomspace(1.0, condition, m)) + _skew_matrix(rng, m)


def _least_squares(rng, theta: np.ndarray, theta_set: Box, condition: Real) -> LeastSquares:
    m = theta.size
    left = np.linalg.qr(rng.standard_normal((2 * m + 8, m)))[0]
    right = np.linalg.qr(rng.standard_normal((m, m)))[0]
    A = left @ np.diag(np.sqrt(np.geomspace(1.0, condition, m))) @ right.T
    return LeastSquares(A, A @ theta, set=theta_set)


def _is_isolated(M, G, gradients, x, multiplier, active) -> bool:
    """Whether the KKT matrix on the free coordinates is regular: the answer is then isolated, hence the only one."""
    free = np.abs(x) < 1
    H = M + np.einsum("j,jrn,jrk->nk", multiplier, G, G)
    rows = gradients[active][:, free]
    kkt = np.block([[H[np.ix_(free, free)], rows.T], [rows, np.zeros((rows.shape[0],) * 2)]])
    return bool(np.linalg.svd(kkt, compute_uv=False).min(initial=np.inf) > 1e-8)


def _check(n, n_constraints, n_theta, mu, skew, condition, learning, n_active, rank) -> None:
    for name, value, least in (
        ("n", n, 1),
        ("n_constraints", n_constraints, 0),
        ("n_theta", n_theta, 1),
        ("rank", rank, 1),
    ):
        if int(value) != value or value < least:
            raise InputError(f"gallery.planted: {name} is {value}; a whole number >= {least} is needed.")
    for name, value, least in (("mu", mu, 0.0), ("skew", skew, 0.0), ("condition", condition, 1.0)):
        if not (np.isfinite(value) and value >= least):
            raise InputError(f"gallery.planted: {name} is {value}; a finite number >= {least:g} is needed.")
    if learning not in ("vi", "least_squares"):
        raise InputError(f"gallery.planted: learning is {learning!r}; 'vi' or 'least_squares' is needed.")
    if n_active is not None and not (int(n_active) == n_active and 0 <= n_active <= n_constraints):
        raise InputError(
            f"gallery.planted: n_active is {n_active}; a whole number from 0 to n_constraints = {n_constraints} is needed."
        )
