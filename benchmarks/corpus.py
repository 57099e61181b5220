"""The robustness corpus: generated misspecified VIs with a planted answer, across families and difficulties.

Every problem plants (x*, λ*, θ*): a point x* of X, a normal ν of X there, multipliers λ* ≥ 0 on the active constraints,
and the constant part of F is then set so that the KKT conditions hold exactly:

    F(x, θ) = M x + (Σ_i θ_i K_i) x + (increasing functions of each x_i) + q₁ θ + q₀,
    q₀ := −(the rest of F at (x*, θ*) + Jf(x*, θ*)ᵀ λ* + ν).

M = P + S with P positive semidefinite (rank-deficient in the merely monotone families) and S skew; K_i skew.
Constraints are quadratic, norm or log-sum-exp, shifted to be active or slack at x*. Units are put on at the end
(`InUnits`), so that every difficulty combines with every other.
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
from benchmarks.corpus_functions import (
    InUnits,
    LinearLearning,
    LogSumExpConstraints,
    NormConstraints,
    PlantedOperator,
    QuadraticConstraints,
)

N_SEEDS = 8
_ABOVE_FLOOR = 0.02  # how far inside its domain a logarithm's argument is at the edge of X


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
    mu: float = 0.5  # added to the symmetric part where its condition is 1
    skew: float = 1.0
    condition: float = 1.0  # largest over smallest nonzero eigenvalue of the symmetric part
    graded: bool = False  # skew parts as small as the symmetric one where that is small: no direction is easy
    nonlinear: float = 0.0
    steepness: float = 1.0  # κ in exp(κx)
    logarithm: float = 0.0
    pressure: float = (
        1.0  # times the multipliers: how hard constraints hold back forces far larger than those at x*
    )
    degenerate: bool = False
    redundant: bool = False
    parallel: float | None = None  # how far apart the gradients of the constraints, and their slacks, are
    bad_scale: float = 0.0  # decades, up and down, of one unit for F, one for θ and one for every f_j
    x_scale: float = (
        0.0  # decades, up and down, of a unit for every coordinate of x (one for a simplex or a ball)
    )
    learning: str = "vi"


def _merely(name: str, rank: int = 8, **options: Any) -> Family:
    return Family(name, rank=rank, mu=0.0, **options)


FAMILIES = (
    # -- moderate: shapes, sets and constraints one at a time
    Family("strong-affine-box"),
    Family("strong-affine-box-large", n=100, n_constraints=20, n_theta=10),
    _merely("mere-affine-box"),
    _merely("mere-affine-box-large", n=100, n_constraints=20, n_theta=10, rank=40),
    _merely("skew-box", rank=0),
    _merely("skew-simplex", set="simplex", rank=0, n_constraints=2),
    Family("strong-simplex", set="simplex"),
    _merely("mere-simplex", set="simplex"),
    Family("strong-ball", set="ball"),
    _merely("mere-ball", set="ball"),
    Family("strong-product", set="product"),
    _merely("mere-product", set="product"),
    Family("free", set="free", n_constraints=6),
    Family("unconstrained", n_constraints=0),
    Family("nonlinear-box", nonlinear=1.0, logarithm=1.0),
    _merely("nonlinear-mere-box", nonlinear=0.3, rank=5),
    Family("nonlinear-norm", nonlinear=1.0, constraints="norm"),
    Family("nonlinear-logsumexp", nonlinear=1.0, constraints="logsumexp"),
    _merely("norm-mere", constraints="norm"),
    _merely("logsumexp-mere", constraints="logsumexp"),
    Family("degenerate", degenerate=True),
    _merely("degenerate-mere", degenerate=True),
    Family("redundant", redundant=True, n_constraints=10),
    _merely("redundant-mere", redundant=True, n_constraints=10),
    Family("many-constraints", n_constraints=60),
    Family("two-hundred-constraints", n=60, n_constraints=200),
    Family("many-parameters", n_theta=100, learning="least_squares"),
    Family("one-parameter", n_theta=1, learning="least_squares"),
    # -- ill-conditioned, strongly monotone
    Family("ill-1e4-box", condition=1e4),
    Family("ill-1e8-box", condition=1e8),
    Family("ill-1e8-unconstrained", condition=1e8, n_constraints=0),
    Family("ill-1e8-graded-unconstrained", condition=1e8, graded=True, n_constraints=0),
    Family("ill-1e5-graded-box-norm", condition=1e5, graded=True, constraints="norm"),
    Family("ill-1e8-graded-box-logsumexp", condition=1e8, graded=True, constraints="logsumexp"),
    Family("ill-1e6-graded-large", condition=1e6, graded=True, n=100, n_constraints=20, n_theta=10),
    Family("ill-1e5-simplex", set="simplex", condition=1e5),
    Family("ill-1e8-graded-simplex-norm", set="simplex", condition=1e8, graded=True, constraints="norm"),
    Family("ill-1e6-graded-ball", set="ball", condition=1e6, graded=True),
    Family("ill-1e8-ball-logsumexp", set="ball", condition=1e8, constraints="logsumexp"),
    Family("ill-1e7-graded-product", set="product", condition=1e7, graded=True),
    Family("ill-1e8-product-norm", set="product", condition=1e8, constraints="norm"),
    # -- ill-conditioned and merely monotone
    _merely("ill-1e6-mere-box", rank=12, condition=1e6, graded=True),
    _merely("ill-1e8-mere-box-norm", rank=12, condition=1e8, constraints="norm"),
    _merely("ill-1e5-mere-simplex", set="simplex", rank=12, condition=1e5, graded=True),
    _merely("ill-1e6-mere-ball", set="ball", rank=12, condition=1e6, graded=True),
    _merely("ill-1e7-mere-product-logsumexp", set="product", rank=12, condition=1e7, constraints="logsumexp"),
    _merely("skew-graded-1e4-box", rank=0, condition=1e4, graded=True),
    _merely("skew-graded-1e6-box", rank=0, condition=1e6, graded=True),
    _merely("skew-graded-1e4-simplex", set="simplex", rank=0, condition=1e4, graded=True, n_constraints=2),
    _merely("skew-graded-1e4-ball", set="ball", rank=0, condition=1e4, graded=True),
    # -- nonlinear and ill-conditioned
    Family("nonlinear-ill-1e6-box", nonlinear=1.0, steepness=4.0, condition=1e6, graded=True),
    Family("nonlinear-ill-1e6-simplex", set="simplex", nonlinear=1.0, logarithm=1.0, condition=1e6, graded=True),
    _merely("nonlinear-ill-1e5-mere-product", set="product", nonlinear=0.01, rank=12, condition=1e5, graded=True),
    Family("steep-logarithm-logsumexp", nonlinear=1.0, steepness=8.0, logarithm=3.0, constraints="logsumexp"),
    # -- no upper bounds: nothing but constraints keeps exponentials from overflowing
    Family("orthant", set="orthant"),
    Family("orthant-pressed", set="orthant", pressure=100.0, skew=10.0),
    Family("orthant-exponential", set="orthant", nonlinear=1.0, steepness=4.0),
    Family("orthant-exponential-pressed", set="orthant", nonlinear=1.0, steepness=4.0, pressure=100.0),
    Family("orthant-exponential-pressed-units", set="orthant", nonlinear=1.0, pressure=300.0, skew=0.0, x_scale=1.0),
    # -- nearly dependent constraints
    Family("parallel-1e-3", parallel=1e-3, n_constraints=60),
    Family("parallel-1e-5-two-hundred", parallel=1e-5, n=60, n_constraints=200),
    _merely("parallel-1e-4-mere-norm", parallel=1e-4, n_constraints=60, constraints="norm"),
    Family("degenerate-ill-1e6", degenerate=True, condition=1e6, graded=True),
    Family("redundant-ill-1e6-simplex", set="simplex", redundant=True, n_constraints=10, condition=1e6, graded=True),
    Family("degenerate-ball", set="ball", degenerate=True),
    # -- badly scaled
    Family("bad-units", bad_scale=3.0),
    _merely("bad-units-mere-norm", bad_scale=3.0, constraints="norm"),
    Family("bad-units-ill-1e6-product", set="product", bad_scale=3.0, condition=1e6, graded=True),
    Family("bad-coordinates", x_scale=2.0),
    _merely("bad-coordinates-mere", x_scale=2.0),
    Family("bad-coordinates-product-logsumexp", set="product", x_scale=2.0, constraints="logsumexp"),
    Family("bad-coordinates-nonlinear", x_scale=2.0, nonlinear=1.0, logarithm=1.0, bad_scale=2.0),
    Family("bad-coordinates-free", set="free", x_scale=2.0, n_constraints=6),
)  # fmt: skip


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


def problems(n_seeds: int = N_SEEDS, families: tuple[Family, ...] = FAMILIES) -> Iterator[Planted]:
    """The corpus: every family with `n_seeds` seeds."""
    for family in families:
        for seed in range(n_seeds):
            yield plant(family, seed)


def plant(family: Family, seed: int) -> Planted:
    """One problem of a family."""
    rng = np.random.default_rng([seed, *family.name.encode()])
    n, m, J = family.n, family.n_theta, family.n_constraints
    theta = rng.uniform(0.5, 1.5, m)
    units = _units(family, rng)
    X, x, normal = _plant_set(family, rng, units.x)
    M, K = _matrices(family, rng)
    operator = PlantedOperator(
        M=M,
        K=K,
        exponential=family.nonlinear * rng.uniform(0, 1, n) / np.exp(family.steepness * np.abs(x).max()),
        steepness=np.asarray(family.steepness),
        softplus=family.nonlinear * rng.uniform(0, 1, n),
        logarithm=family.logarithm * rng.uniform(0, 1, n),
        floor=_lowest(X) / units.x - _ABOVE_FLOOR,
        q1=rng.normal(size=(n, m)) / np.sqrt(m),
        q0=np.zeros(n),
    )
    constraints, multiplier = _plant_constraints(family, rng, x, theta)
    with jax.enable_x64(True):
        rest = np.asarray(operator(jnp.asarray(x), jnp.asarray(theta))) + normal
        if constraints is not None:
            _, pullback = jax.vjp(lambda at: constraints(at, jnp.asarray(theta)), jnp.asarray(x))
            rest = rest + np.asarray(pullback(jnp.asarray(multiplier))[0])
    operator = eqx.tree_at(lambda op: op.q0, operator, -rest)
    theta0 = theta + rng.uniform(-0.4, 0.4, m)
    problem = vv.MisspecifiedVI(
        InUnits(operator, units.F / units.x, units.x, units.theta),
        X,
        InUnits(constraints, units.f, units.x, units.theta) if J else None,
        _learning(family, rng, theta, units.theta),
    )
    return Planted(
        family,
        seed,
        problem,
        x_true=units.x * x,
        multiplier_true=units.F * multiplier / units.f,
        theta_true=units.theta * theta,
        theta0=units.theta * theta0,
    )


@dataclass(frozen=True)
class _Units:
    """What one natural unit of x, θ, f and of F·x is in the units of the problem."""

    x: np.ndarray
    theta: np.ndarray
    f: np.ndarray
    F: float


def _units(family: Family, rng) -> _Units:
    def decades(bound: float, size: int | None = None) -> Any:
        return 10.0 ** rng.uniform(-bound, bound, size)

    n, bad = family.n, family.bad_scale
    each = decades(family.x_scale, n)
    # Coordinates with one unit in common.
    alone = {"simplex": n, "ball": n, "product": n // 2}.get(family.set, 0)
    each[:alone] = each[0]
    # H must stay well enough conditioned for its own certificate: θ gets one unit, and each coordinate half a decade.
    theta = decades(bad) * decades(min(bad, 0.5), family.n_theta)
    return _Units(x=each, theta=theta, f=decades(bad, family.n_constraints), F=decades(bad))


def _plant_set(family: Family, rng, unit: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """X in its units; and in natural ones a point x* of it with some coordinates at the boundary and a normal ν there."""
    n = family.n
    strict = 0.0 if family.degenerate else 1.0
    if family.set == "free":
        return vv.Free((n,)), rng.normal(size=n), np.zeros(n)
    if family.set == "orthant":
        at_zero = rng.uniform(size=n) < 0.4
        push = strict * rng.uniform(0.1, 2.0, n)
        x = np.where(at_zero, 0.0, rng.uniform(0.2, 1.5, n))
        return vv.NonNegative((n,)), x, np.where(at_zero, -push, 0.0)
    if family.set == "box":
        return _plant_box(unit, rng, strict)
    if family.set == "simplex":
        return _plant_simplex(unit, rng, strict)
    if family.set == "ball":
        center, direction = rng.normal(size=n), rng.normal(size=n)
        direction /= np.linalg.norm(direction)
        X = vv.Ball(unit * center, 2.0 * unit[0])
        return X, center + 2.0 * direction, strict * rng.uniform(0.5, 2.0) * direction
    half = n // 2
    first, x_first, nu_first = _plant_simplex(unit[:half], rng, strict)
    second, x_second, nu_second = _plant_box(unit[half:], rng, strict)
    return (
        vv.Product([first, second]),
        np.concatenate([x_first, x_second]),
        np.concatenate([nu_first, nu_second]),
    )


def _plant_box(unit: np.ndarray, rng, strict: float) -> tuple[Any, np.ndarray, np.ndarray]:
    n = unit.size
    lower, upper = rng.uniform(-2, -1, n), rng.uniform(1, 2, n)
    where = rng.choice(3, size=n, p=[0.2, 0.2, 0.6])
    x = np.where(where == 0, lower, np.where(where == 1, upper, rng.uniform(-0.8, 0.8, n)))
    push = strict * rng.uniform(0.1, 2.0, n)
    X = vv.Box(unit * lower, unit * upper)
    return X, x, np.where(where == 0, -push, np.where(where == 1, push, 0.0))


def _plant_simplex(unit: np.ndarray, rng, strict: float) -> tuple[Any, np.ndarray, np.ndarray]:
    n = unit.size
    on = rng.uniform(size=n) < 0.6
    on[0] = True
    x = np.where(on, rng.uniform(0.2, 1.0, n), 0.0)
    x *= 2.0 / x.sum()
    nu = rng.normal() - np.where(on, 0.0, strict * rng.uniform(0.1, 2.0, n))
    return vv.Simplex((n,), total=2.0 * unit[0]), x, nu


def _lowest(X: Any) -> np.ndarray:
    """The least value of every coordinate over X, where F's logarithms must exist; 0 for a set without one."""
    if isinstance(X, vv.Product):
        return np.concatenate([_lowest(block) for block in X.blocks])
    if isinstance(X, vv.Ball):
        return np.asarray(X.center) - float(X.radius)
    return np.asarray(X.lower) if isinstance(X, vv.Box) else np.zeros(X.shape)


def _matrices(family: Family, rng) -> tuple[np.ndarray, np.ndarray]:
    n = family.n
    rank = n if family.rank is None else family.rank
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    spectrum = np.zeros(n)
    spectrum[:rank] = np.geomspace(1.0, family.condition, rank) / np.sqrt(family.condition) if rank else 0.0
    P = (Q * spectrum) @ Q.T + family.mu * np.eye(n) * (family.condition == 1.0)
    S = rng.normal(size=(n, n)) / np.sqrt(n)
    K = rng.normal(size=(min(family.n_theta, 3), n, n)) / np.sqrt(n)
    S, K = family.skew * (S - S.T), 0.3 * (K - K.transpose(0, 2, 1))
    if family.graded:
        # Largest where the symmetric part is: the singular values of R S R are spread over as many decades.
        R = (Q * np.sqrt(np.geomspace(1.0, family.condition, n) / np.sqrt(family.condition))) @ Q.T
        S, K = R @ S @ R, R @ K @ R
    return P + S, K


def _plant_constraints(family: Family, rng, x: np.ndarray, theta: np.ndarray) -> tuple[Any, np.ndarray]:
    """Constraints whose values at x* are 0 (active, λ* > 0 unless degenerate) or negative, and λ*."""
    J, n, m = family.n_constraints, family.n, family.n_theta
    if J == 0:
        return None, np.zeros(0)

    def drawn(*shape: int) -> np.ndarray:
        each = rng.normal(size=(J, *shape))
        return each if family.parallel is None else each[:1] + family.parallel * each

    B = drawn(3, n) / np.sqrt(n)
    if family.constraints == "quadratic":
        c, C = drawn(n) / np.sqrt(n), 0.3 * drawn(n, m) / np.sqrt(n * m)
        made: Any = QuadraticConstraints(B=B, c=c, C=C, d=np.zeros(J))
    else:
        kind = NormConstraints if family.constraints == "norm" else LogSumExpConstraints
        made = kind(B=2.0 * B, C=0.3 * drawn(3, m) / np.sqrt(m), d=np.zeros(J))
    n_active = min(max(1, J // 2), max(1, n // 5))
    active = np.arange(J) < n_active
    if family.redundant:  # every active constraint appears twice
        half = J // 2
        made = jax.tree.map(lambda leaf: np.concatenate([leaf[:half], leaf[:half]]), made)
        n_active = max(1, min(half // 2, n // 5))
        active = (np.arange(J) % half) < n_active
    with jax.enable_x64(True):
        values = np.asarray(made(jnp.asarray(x), jnp.asarray(theta)))
    slack = rng.uniform(0.2, 1.0, J) * (1.0 if family.parallel is None else family.parallel)
    d = values + np.where(active, 0.0, slack)
    multiplier = np.where(active, family.pressure * rng.uniform(0.2, 2.0, J), 0.0)
    if family.degenerate:
        multiplier = np.where(np.arange(J) % 2 == 0, multiplier, 0.0)
    return eqx.tree_at(lambda f: f.d, made, d), multiplier


def _learning(family: Family, rng, theta: np.ndarray, unit: np.ndarray) -> Any:
    m = theta.size
    bounds = vv.Box(unit * (theta - 0.5), unit * (theta + 0.5))
    if family.learning == "least_squares":
        A = rng.normal(size=(3 * m + 5, m))
        return vv.LeastSquares(A / unit, A @ theta, set=bounds)
    S = rng.normal(size=(m, m)) / np.sqrt(m)
    W = np.diag(rng.uniform(1.0, 3.0, m)) + 0.5 * (S - S.T)
    return vv.SecondaryVI(LinearLearning(W, W @ theta, unit), set=bounds)
