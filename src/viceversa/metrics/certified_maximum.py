"""Certified maxima over the ε-enlargement, for a family of concave functions on one feasible set."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.metrics.concave_program import Bounds, Guess, Program, Scales, Task, maximise, scales_at
from viceversa.problem import MisspecifiedVI
from viceversa.sets.base import ConvexSet

# How close the two sides must be, relative to 1 + |upper|.
TIGHT = 1e-8
# Up to this size the diagonal of the Hessian is computed column by column, beyond it only its mean is estimated.
MAX_DIAGONAL = 4096
# Margins tried for a Slater point, relative to |f| at an interior point of X.
SLATER_MARGINS = (1e-1, 1e-3, 1e-6)


class Enlarged(NamedTuple):
    """X_ε(θ) for all ε, with a point deep inside (`slater`) and whether it satisfies every constraint strictly."""

    problem: MisspecifiedVI
    theta: PyTree
    slater: Array
    strict: bool


class CertifiedMaximiser:
    """max of concave functions over X_ε(θ), one after the other, each started where the last one ended."""

    def __init__(
        self, problem: MisspecifiedVI, theta: PyTree, like: Any, modulus: float = 0.0, tol: float = TIGHT
    ):
        self.problem, self.theta, self.tol = problem, theta, np.asarray(tol)
        self.modulus = np.asarray(modulus) if modulus > 0.0 else None
        self.by_support = _support_is_traced(problem.set)
        self.reach = np.asarray(problem.set.diameter())
        start = problem.set.interior_point()
        self.scales: Scales = _scales(like, problem, theta, start)
        nothing = np.zeros(problem.n_constraints)
        self.guess = Guess(jnp.asarray(start), jnp.asarray(nothing), jnp.zeros_like(jnp.asarray(start)))
        self.slater, self.strict = self._slater(like)

    def __call__(self, objective: Any, epsilon: float, slater: Any = None) -> Bounds:
        """Bounds on max over X_ε of one objective."""
        bounds, self.guess = self._solve(
            objective, Task(np.asarray(epsilon), np.asarray(1.0), np.asarray(0.0))
        )
        return bounds

    def is_empty(self, objective: Any, epsilon: float) -> bool:
        """Whether X_ε is proved empty: some μ ≥ 0 has μᵀf > ε‖μ‖∞ on all of X."""
        bounds, _ = self._solve(objective, Task(np.asarray(epsilon), np.asarray(0.0), np.asarray(0.0)))
        return bool(bounds.upper < 0.0)

    def _solve(self, objective: Any, task: Task) -> tuple[Bounds, Guess]:
        return _solve(
            objective, self.problem, self.theta, task, self.guess, self.slater, self.scales, self.modulus, self.reach,
            self.tol, self.by_support,
        )  # fmt: skip

    def _slater(self, like: Any) -> tuple[Array, bool]:
        """A point of X where every f_j < 0 by a margin; failing that, an interior point of X."""
        self.slater = self.guess.y
        if self.problem.n_constraints == 0:
            return self.slater, True
        f = self.problem.at(self.theta).f
        values = np.asarray(f(self.slater))
        if values.max() < 0.0:
            return self.slater, True
        for margin in SLATER_MARGINS:
            task = Task(np.asarray(0.0), np.asarray(0.0), np.asarray(margin * np.abs(values).max()))
            bounds, guess = self._solve(like, task)
            if float(np.max(f(bounds.y_upper))) < 0.0:
                return bounds.y_upper, True
        return bounds.y_upper, False


def _support_is_traced(X: ConvexSet) -> bool:
    try:
        jax.eval_shape(X.support, jax.ShapeDtypeStruct(X.shape, np.float64))
    except InputError:
        return False
    return True


@eqx.filter_jit
def _scales(objective: Any, problem: MisspecifiedVI, theta: PyTree, y: Any) -> Scales:
    y = jnp.asarray(y)
    _, f, X = problem.at(theta)
    _, hessian = jax.linearize(jax.grad(objective), y)
    if y.size <= MAX_DIAGONAL:
        entry = lambda i: jnp.ravel(hessian(jnp.zeros(y.size).at[i].set(1.0).reshape(y.shape)))[i]
        diagonal = -jax.lax.map(entry, jnp.arange(y.size)).reshape(y.shape)
    else:
        signs = jnp.where(jnp.sin(jnp.square(jnp.arange(y.size, dtype=y.dtype))) > 0.0, 1.0, -1.0).reshape(
            y.shape
        )
        diagonal = jnp.full(y.shape, -jnp.mean(signs * hessian(signs)))
    return scales_at(objective, f, X, y, diagonal)


@eqx.filter_jit
def _solve(
    objective: Any,
    problem: MisspecifiedVI,
    theta: PyTree,
    task: Task,
    guess: Guess,
    slater: Any,
    scales: Scales,
    modulus: Any,
    reach: Any,
    tol: Any,
    by_support: bool,
) -> tuple[Bounds, Guess]:
    _, f, X = problem.at(theta)

    def excess(X: ConvexSet, c: Array, y: Array) -> Array:
        """max_{z∈X} cᵀ(z − y) − m‖z − y‖², or a bound: with p = P_X(y + tc), cᵀ(z − p) ≤ (p − y)ᵀ(z − p)/t."""
        if by_support:
            linear = X.support(c)[0] - jnp.sum(c * y)
        else:
            t = 1.0 / jnp.maximum(scales.curvature, scales.drift)
            p = X.project(y + t * c)
            linear = jnp.sum(c * (p - y)) + jnp.sqrt(jnp.sum(jnp.square(p - y))) * reach / t
        if modulus is None:
            return linear
        z = X.project(y + c / (2.0 * modulus))
        return jnp.minimum(linear, jnp.sum(c * (z - y)) - modulus * jnp.sum(jnp.square(z - y)))

    task, guess = jax.tree.map(jnp.asarray, (task, guess))
    return maximise(Program(objective, f, X, task, scales), guess, jnp.asarray(slater), tol, excess)
