"""Pairs of points: what they show about a constant. They can refute a declared value and suggest one, never prove it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import precision
from viceversa.constants.derivatives import Domain
from viceversa.errors import InputError
from viceversa.numerics import safe_divide
from viceversa.problem import MisspecifiedVI

N_PAIRS = 64
_N_POWER = 40  # power iterations towards the steepest direction at a point
_STEP = 1e-4  # of a set's width: how far apart a close pair is

Map = Literal["F", "f", "Jf"]


class _Meaning(NamedTuple):
    """A constant as the largest ratio ‖g(p) − g(q)‖/‖p − q‖ over pairs that differ in one argument."""

    g: Map
    moves: Literal["x", "t"]
    by_row: bool  # the largest row of the difference, not its whole norm


MEANINGS: dict[str, _Meaning] = {
    "L_F_x": _Meaning("F", "x", False),
    "L_F_theta": _Meaning("F", "t", False),
    "L_f_x": _Meaning("f", "x", True),
    "L_f_theta": _Meaning("f", "t", True),
    "ell": _Meaning("f", "t", False),
    "M_grad_f": _Meaning("f", "x", False),
    "L_grad_f_x": _Meaning("Jf", "x", True),
    "L_grad_f_theta": _Meaning("Jf", "t", True),
}


@dataclass(frozen=True)
class Pair:
    """Two points of X × Θ and what they show: a ratio (or a value, for a constant about one point)."""

    x: np.ndarray
    theta: np.ndarray
    x_other: np.ndarray
    theta_other: np.ndarray
    ratio: float

    def __str__(self) -> str:
        def show(vector: np.ndarray) -> str:
            return np.array2string(vector, precision=6, threshold=8, edgeitems=3)

        first = f"x = {show(self.x)}, θ = {show(self.theta)}"
        if np.array_equal(self.x, self.x_other) and np.array_equal(self.theta, self.theta_other):
            return first
        return f"{first} and x = {show(self.x_other)}, θ = {show(self.theta_other)}"


def steepest_pair(problem: MisspecifiedVI, domain: Domain, name: str) -> Pair | None:
    """The pair with the largest ratio found for a Lipschitz constant (None if the argument cannot move)."""
    meaning = MEANINGS[name]
    moving = domain.x if meaning.moves == "x" else domain.t
    if moving.is_point or np.array_equal(moving.lo, moving.hi):
        return None
    g = _Evaluator(problem)
    best: Pair | None = None
    for p, q in _pairs(problem, domain, meaning, None):
        difference = g(meaning.g, *p) - g(meaning.g, *q)
        gap = np.linalg.norm(np.concatenate([p[0] - q[0], p[1] - q[1]]))
        if gap == 0.0:
            continue
        rows = difference.reshape(difference.shape[0], -1)
        size = np.linalg.norm(rows, axis=1).max(initial=0.0) if meaning.by_row else np.linalg.norm(rows)
        if best is None or size / gap > best.ratio:
            best = Pair(p[0], p[1], q[0], q[1], float(size / gap))
    return best


def least_monotone_pair(problem: MisspecifiedVI, domain: Domain) -> Pair | None:
    """The pair with the smallest ⟨F(x, θ) − F(y, θ), x − y⟩/‖x − y‖² found."""
    g, best = _Evaluator(problem), None
    for p, q in _pairs(problem, domain, MEANINGS["L_F_x"], "flattest"):
        step = p[0] - q[0]
        if not step.any():
            continue
        ratio = float((g("F", *p) - g("F", *q)) @ step / (step @ step))
        if best is None or ratio < best.ratio:
            best = Pair(p[0], p[1], q[0], q[1], ratio)
    return best


def largest_infeasibility(problem: MisspecifiedVI, domain: Domain) -> Pair | None:
    """The point with the largest ‖[f(x, θ)]₊‖ found."""
    g, best = _Evaluator(problem), None
    for x, t in [*domain.corners(), *domain.samples(N_PAIRS)]:
        value = float(np.linalg.norm(np.maximum(g("f", x, t), 0.0)))
        if best is None or value > best.ratio:
            best = Pair(x, t, x, t, value)
    return best


def refute(problem: MisspecifiedVI, domain: Domain, name: str, declared: float) -> None:
    """Raise, naming the pair of points, if one shows that a declared constant is wrong."""
    if name == "mu_F":
        found = least_monotone_pair(problem, domain)
        wrong, what = found is not None and found.ratio < declared - _slack(declared), "at most"
    elif name == "D_f":
        found = largest_infeasibility(problem, domain)
        wrong, what = found is not None and found.ratio > declared + _slack(declared), "at least"
    else:
        found = steepest_pair(problem, domain, name)
        wrong, what = found is not None and found.ratio > declared + _slack(declared), "at least"
    if wrong:
        raise InputError(
            f"declared: {name} = {declared:.6g} is refuted: the points {found} show that it is {what} "
            f"{found.ratio:.6g}. Correct or drop the declaration."  # type: ignore[union-attr]
        )


def _slack(declared: float) -> float:
    # Differences over a close pair lose about half the digits.
    return 1e-6 * max(abs(declared), 1e-6)


class _Evaluator:
    """F, f and Jf at flat points, as NumPy."""

    def __init__(self, problem: MisspecifiedVI):
        self.problem = problem

    def __call__(self, g: Map, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        run = _evaluate if self.problem.runs_on_host else _evaluate_compiled
        with precision.double():
            return np.asarray(run(self.problem, g, jnp.asarray(x), jnp.asarray(t)))


def _unravel(problem: MisspecifiedVI, t: Array) -> PyTree:
    leaves, tree = jax.tree.flatten(problem.learning.set.zeros())
    parts = jnp.split(t, np.cumsum([leaf.size for leaf in leaves])[:-1])
    return jax.tree.unflatten(tree, [p.reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)])


def _evaluate(problem: MisspecifiedVI, g: Map, x: Array, t: Array) -> Array:
    F, f, _ = problem.at(_unravel(problem, t))
    x = x.reshape(problem.shape)
    if g == "F":
        return jnp.ravel(F(x))
    if g == "f":
        return f(x)
    value, pullback = f.vjp(x)
    rows = [jnp.ravel(pullback(jnp.zeros_like(value).at[j].set(1.0))) for j in range(problem.n_constraints)]
    return jnp.stack(rows) if rows else jnp.zeros((0, x.size))


_evaluate_compiled = eqx.filter_jit(_evaluate)


def _pairs(
    problem: MisspecifiedVI, domain: Domain, meaning: _Meaning, towards: Literal["flattest"] | None
) -> Iterator[tuple[tuple, tuple]]:
    """Random pairs, and close pairs along the direction in which g changes most (or F is least monotone)."""
    points = list(domain.samples(2 * N_PAIRS))
    for (x, t), (y, s) in zip(points[::2], points[1::2], strict=True):
        yield (x, t), ((y, t) if meaning.moves == "x" else (x, s))
    if problem.runs_on_host:
        return
    box = domain.x if meaning.moves == "x" else domain.t
    width = np.where(np.isfinite(box.radius), 2.0 * box.radius, 1.0)
    step = _STEP * float(width.max(initial=0.0))
    for x, t in [*domain.corners(few=True), *points[:8]]:
        with precision.double():
            direction = np.asarray(_direction(problem, meaning.g, meaning.moves, towards, x, t))
        for sign in (1.0, -1.0):
            if meaning.moves == "x":
                yield (x, t), (Domain._into(domain.X, x + sign * step * direction), t)
            else:
                yield (x, t), (x, Domain._into(domain.Theta, t + sign * step * direction))


@eqx.filter_jit
def _direction(problem: MisspecifiedVI, g: Map, moves: str, towards: str | None, x: Any, t: Any) -> Array:
    """A unit vector along which g changes most at a point, by power iteration on JᵀJ (or on σI − S for μ_F)."""
    x, t = jnp.asarray(x), jnp.asarray(t)
    along = (
        (lambda v: _evaluate(problem, g, v, t)) if moves == "x" else (lambda v: _evaluate(problem, g, x, v))
    )
    at = x if moves == "x" else t
    _, pullback = jax.vjp(along, at)

    def push(v):
        return jax.jvp(along, (at,), (v,))[1]

    def unit(v):
        return safe_divide(v, jnp.sqrt(jnp.sum(v * v)), 0.0)

    start = unit(jnp.cos(jnp.arange(at.size) * 1.7 + 0.3))
    steepest = jax.lax.fori_loop(0, _N_POWER, lambda _, v: unit(pullback(push(v))[0]), start)
    if towards is None:
        return steepest
    sigma = jnp.sqrt(jnp.sum(push(steepest) ** 2)) * 1.05
    symmetric = lambda v: 0.5 * (push(v) + pullback(v)[0])
    return jax.lax.fori_loop(0, 10 * _N_POWER, lambda _, v: unit(sigma * v - symmetric(v)), start)
