"""The robustness corpus: generated misspecified VIs with a planted answer, across families and difficulties.

Every problem plants (x*, λ*, θ*): a point x* of X, a normal ν of X there, multipliers λ* ≥ 0 on the active constraints,
and the constant part of F is then set so that the KKT conditions hold exactly:

    F(x, θ) = M x + (Σ_i θ_i K_i) x + a ⊙ exp(x) + s ⊙ log(1 + exp(x)) + q₁ θ + q₀,
    q₀ := −(the rest of F at (x*, θ*) + Jf(x*, θ*)ᵀ λ* + ν).

M = P + S with P positive semidefinite (rank-deficient in the merely monotone families) and S skew; K_i skew; the
diagonal terms are increasing. Constraints are quadratic, norm or log-sum-exp, shifted to be active or slack at x*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import viceversa as vv


class PlantedOperator(eqx.Module):
    """F of the corpus, with its data as arrays so that problems of one shape share a compiled program."""

    M: np.ndarray
    K: np.ndarray
    exponential: np.ndarray
    softplus: np.ndarray
    q1: np.ndarray
    q0: np.ndarray

    def __call__(self, x, theta):
        flat = jnp.ravel(x)
        skew = jnp.einsum("i,ijk,k->j", theta[: self.K.shape[0]], self.K, flat)
        diagonal = self.exponential * jnp.exp(flat) + self.softplus * jnp.logaddexp(0.0, flat)
        return (self.M @ flat + skew + diagonal + self.q1 @ theta + self.q0).reshape(x.shape)


class QuadraticConstraints(eqx.Module):
    """f_j = ½‖B_j x‖² + (c_j + C_j θ)ᵀ x − d_j."""

    B: np.ndarray
    c: np.ndarray
    C: np.ndarray
    d: np.ndarray

    def __call__(self, x, theta):
        flat = jnp.ravel(x)
        curved = 0.5 * jnp.sum(jnp.square(self.B @ flat), axis=1)
        return curved + (self.c + jnp.tensordot(self.C, theta, axes=1)) @ flat - self.d


class NormConstraints(eqx.Module):
    """f_j = √(1 + ‖B_j x + (C_j θ)‖²) − d_j, a smoothed norm."""

    B: np.ndarray
    C: np.ndarray
    d: np.ndarray

    def __call__(self, x, theta):
        inner = self.B @ jnp.ravel(x) + jnp.tensordot(self.C, theta, axes=1)
        return jnp.sqrt(1.0 + jnp.sum(jnp.square(inner), axis=1)) - self.d


class LogSumExpConstraints(eqx.Module):
    """f_j = log Σ_r exp((B_j x + C_j θ)_r) − d_j."""

    B: np.ndarray
    C: np.ndarray
    d: np.ndarray

    def __call__(self, x, theta):
        inner = self.B @ jnp.ravel(x) + jnp.tensordot(self.C, theta, axes=1)
        return jax.nn.logsumexp(inner, axis=1) - self.d


@dataclass(frozen=True)
class Family:
    """One kind of problem: its shape, its set, its constraints, and what makes it hard."""

    name: str
    set: str = "box"
    constraints: str = "quadratic"
    n: int = 20
    n_constraints: int = 5
    n_theta: int = 3
    rank: int | None = None  # of the symmetric part; None: full
    mu: float = 0.5
    skew: float = 1.0
    nonlinear: float = 0.0
    condition: float = 1.0
    degenerate: bool = False
    redundant: bool = False
    bad_scale: float = 0.0  # decades by which rows of f, F and θ are scaled at random
    learning: str = "vi"


FAMILIES = (
    Family("strong-affine-box"),
    Family("strong-affine-box-large", n=100, n_constraints=20, n_theta=10),
    Family("mere-affine-box", rank=8, mu=0.0),
    Family("mere-affine-box-large", n=100, n_constraints=20, n_theta=10, rank=40, mu=0.0),
    Family("skew-box", rank=0, mu=0.0),
    Family("skew-simplex", set="simplex", rank=0, mu=0.0, constraints="quadratic", n_constraints=2),
    Family("strong-simplex", set="simplex"),
    Family("mere-simplex", set="simplex", rank=8, mu=0.0),
    Family("strong-ball", set="ball"),
    Family("mere-ball", set="ball", rank=8, mu=0.0),
    Family("strong-product", set="product"),
    Family("mere-product", set="product", rank=8, mu=0.0),
    Family("free", set="free", n_constraints=6),
    Family("unconstrained", n_constraints=0),
    Family("nonlinear-box", nonlinear=1.0),
    Family("nonlinear-mere-box", nonlinear=0.3, rank=5, mu=0.0),
    Family("nonlinear-norm", nonlinear=1.0, constraints="norm"),
    Family("nonlinear-logsumexp", nonlinear=1.0, constraints="logsumexp"),
    Family("norm-mere", constraints="norm", rank=8, mu=0.0),
    Family("logsumexp-mere", constraints="logsumexp", rank=8, mu=0.0),
    Family("degenerate", degenerate=True),
    Family("degenerate-mere", degenerate=True, rank=8, mu=0.0),
    Family("redundant", redundant=True, n_constraints=10),
    Family("redundant-mere", redundant=True, n_constraints=10, rank=8, mu=0.0),
    Family("many-constraints", n_constraints=60),
    Family("two-hundred-constraints", n=60, n_constraints=200),
    Family("ill-conditioned-1e4", condition=1e4),
    Family("ill-conditioned-1e8", condition=1e8),
    Family("ill-conditioned-1e8-unconstrained", condition=1e8, n_constraints=0),
    Family("badly-scaled", bad_scale=3.0),
    Family("badly-scaled-mere", bad_scale=3.0, rank=8, mu=0.0),
    Family("many-parameters", n_theta=100, learning="least_squares"),
    Family("one-parameter", n_theta=1, learning="least_squares"),
)


@dataclass(frozen=True)
class Planted:
    """A corpus problem with its planted answer."""

    family: Family
    seed: int
    problem: Any
    x_true: np.ndarray
    multiplier_true: np.ndarray
    theta_true: np.ndarray
    theta0: np.ndarray


def problems(n_seeds: int = 16, families: tuple[Family, ...] = FAMILIES) -> Iterator[Planted]:
    """The corpus: every family with `n_seeds` seeds (33 × 16 = 528 by default)."""
    for family in families:
        for seed in range(n_seeds):
            yield plant(family, seed)


def plant(family: Family, seed: int) -> Planted:
    """One problem of a family."""
    rng = np.random.default_rng([seed, *family.name.encode()])
    n, m = family.n, family.n_theta
    theta = rng.uniform(0.5, 1.5, m)
    X, x, normal = _plant_set(family, rng)
    M, K = _matrices(family, rng)
    operator = PlantedOperator(
        M=M,
        K=K,
        exponential=family.nonlinear * rng.uniform(0, 1, n) / np.exp(np.abs(x).max()),
        softplus=family.nonlinear * rng.uniform(0, 1, n),
        q1=rng.normal(size=(n, m)) / np.sqrt(m),
        q0=np.zeros(n),
    )
    constraints, multiplier = _plant_constraints(family, rng, x, theta)
    with jax.enable_x64(True):
        rest = np.asarray(operator(jnp.asarray(x), jnp.asarray(theta))) + normal
        if constraints is not None:
            _, pullback = jax.vjp(lambda at: constraints(at, jnp.asarray(theta)), jnp.asarray(x))
            rest = rest + np.asarray(pullback(jnp.asarray(multiplier))[0])
    operator = eqx.tree_at(lambda op: op.q0, operator, -rest.ravel())
    if family.bad_scale:
        operator, constraints, multiplier = _badly_scaled(family, rng, operator, constraints, multiplier)
    theta0 = theta + rng.uniform(-0.4, 0.4, m)
    problem = vv.MisspecifiedVI(operator, X, constraints, _learning(family, rng, theta))
    return Planted(family, seed, problem, x, multiplier, theta, theta0)


def _plant_set(family: Family, rng) -> tuple[Any, np.ndarray, np.ndarray]:
    """X, a point x* of it with some coordinates on the boundary, and a normal ν at x*."""
    n = family.n
    strict = 0.0 if family.degenerate else 1.0
    if family.set == "free":
        return vv.Free((n,)), rng.normal(size=n), np.zeros(n)
    if family.set == "box":
        return _plant_box(n, rng, strict)
    if family.set == "simplex":
        return _plant_simplex(n, rng, strict)
    if family.set == "ball":
        center, direction = rng.normal(size=n), rng.normal(size=n)
        direction /= np.linalg.norm(direction)
        return vv.Ball(center, 2.0), center + 2.0 * direction, strict * rng.uniform(0.5, 2.0) * direction
    half = n // 2
    first, x_first, nu_first = _plant_simplex(half, rng, strict)
    second, x_second, nu_second = _plant_box(n - half, rng, strict)
    return (
        vv.Product([first, second]),
        np.concatenate([x_first, x_second]),
        np.concatenate([nu_first, nu_second]),
    )


def _plant_box(n: int, rng, strict: float) -> tuple[Any, np.ndarray, np.ndarray]:
    lower, upper = rng.uniform(-2, -1, n), rng.uniform(1, 2, n)
    where = rng.choice(3, size=n, p=[0.2, 0.2, 0.6])
    x = np.where(where == 0, lower, np.where(where == 1, upper, rng.uniform(-0.8, 0.8, n)))
    push = strict * rng.uniform(0.1, 2.0, n)
    return vv.Box(lower, upper), x, np.where(where == 0, -push, np.where(where == 1, push, 0.0))


def _plant_simplex(n: int, rng, strict: float) -> tuple[Any, np.ndarray, np.ndarray]:
    on = rng.uniform(size=n) < 0.6
    on[0] = True
    x = np.where(on, rng.uniform(0.2, 1.0, n), 0.0)
    x *= 2.0 / x.sum()
    return vv.Simplex((n,), total=2.0), x, rng.normal() - np.where(on, 0.0, strict * rng.uniform(0.1, 2.0, n))


def _matrices(family: Family, rng) -> tuple[np.ndarray, np.ndarray]:
    n = family.n
    rank = n if family.rank is None else family.rank
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    spectrum = np.zeros(n)
    spectrum[:rank] = np.geomspace(1.0, family.condition, rank) / np.sqrt(family.condition) if rank else 0.0
    P = (Q * spectrum) @ Q.T + family.mu * np.eye(n) * (family.condition == 1.0)
    S = rng.normal(size=(n, n)) / np.sqrt(n)
    K = rng.normal(size=(min(family.n_theta, 3), n, n)) / np.sqrt(n)
    return P + family.skew * (S - S.T), 0.3 * (K - K.transpose(0, 2, 1))


def _plant_constraints(family: Family, rng, x: np.ndarray, theta: np.ndarray) -> tuple[Any, np.ndarray]:
    """Constraints whose values at x* are 0 (active, λ* > 0 unless degenerate) or negative, and λ*."""
    J, n, m = family.n_constraints, family.n, family.n_theta
    if J == 0:
        return None, np.zeros(0)
    B = rng.normal(size=(J, 3, n)) / np.sqrt(n)
    if family.constraints == "quadratic":
        made: Any = QuadraticConstraints(
            B=B,
            c=rng.normal(size=(J, n)) / np.sqrt(n),
            C=0.3 * rng.normal(size=(J, n, m)) / np.sqrt(n * m),
            d=np.zeros(J),
        )
    else:
        kind = NormConstraints if family.constraints == "norm" else LogSumExpConstraints
        made = kind(B=2.0 * B, C=0.3 * rng.normal(size=(J, 3, m)) / np.sqrt(m), d=np.zeros(J))
    n_active = min(max(1, J // 2), max(1, n // 5))
    active = np.arange(J) < n_active
    if family.redundant:  # every active constraint appears twice
        half = J // 2
        made = jax.tree.map(lambda leaf: np.concatenate([leaf[:half], leaf[:half]]), made)
        n_active = max(1, min(half // 2, n // 5))
        active = (np.arange(J) % half) < n_active
    with jax.enable_x64(True):
        values = np.asarray(made(jnp.asarray(x), jnp.asarray(theta)))
    d = values + np.where(active, 0.0, rng.uniform(0.2, 1.0, J))
    multiplier = np.where(active, rng.uniform(0.2, 2.0, J), 0.0)
    if family.degenerate:
        multiplier = np.where(np.arange(J) % 2 == 0, multiplier, 0.0)
    return eqx.tree_at(lambda f: f.d, made, d), multiplier


def _badly_scaled(family: Family, rng, operator, constraints, multiplier) -> tuple[Any, Any, np.ndarray]:
    """F times one power of ten, every f_j times its own: the same solution, other units."""
    alpha = 10.0 ** rng.uniform(-family.bad_scale, family.bad_scale)
    rows = 10.0 ** rng.uniform(-family.bad_scale, family.bad_scale, family.n_constraints)
    operator = jax.tree.map(lambda leaf: alpha * leaf, operator)
    root = np.sqrt(rows)
    constraints = QuadraticConstraints(
        B=constraints.B * root[:, None, None],
        c=constraints.c * rows[:, None],
        C=constraints.C * rows[:, None, None],
        d=constraints.d * rows,
    )
    return operator, constraints, alpha * multiplier / rows


def _learning(family: Family, rng, theta: np.ndarray) -> Any:
    m = theta.size
    bounds = vv.Box(theta - 0.5, theta + 0.5)
    if family.learning == "least_squares":
        A = rng.normal(size=(3 * m + 5, m))
        return vv.LeastSquares(A, A @ theta, set=bounds)
    S = rng.normal(size=(m, m)) / np.sqrt(m)
    W = np.diag(rng.uniform(1.0, 3.0, m)) + 0.5 * (S - S.T)
    return vv.SecondaryVI(LinearLearning(W, W @ theta), set=bounds)


class LinearLearning(eqx.Module):
    """H(θ) = Wθ − w with a non-symmetric W."""

    W: np.ndarray
    w: np.ndarray

    def __call__(self, theta):
        return self.W @ theta - self.w
