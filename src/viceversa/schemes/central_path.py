"""Mehrotra's predictor and corrector: Newton's method along the path on which all complementary products are the same.

A point has pairs (v, w) of a slack and its multiplier, both > 0, beside equations that it need not satisfy yet. With
d(t) the Newton direction that satisfies the equations to first order and v dw + w dv = t in every pair,

    d_a = d(−vw),    σ = (μ after d_a / μ)³,    d = d(σμ − vw − dv_a dw_a),    μ = mean vw                 (1)
    point ← point + t d,    t ≤ 1 so that nothing goes more than 0.995 of its way to 0                     (2)

Monotone F make the matrix of d nonsingular all along. Absent pairs are (1, 0) with no change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from viceversa.numerics import all_finite

_MAX_STEPS = 100
_TO_THE_BOUNDARY = 0.995
_TARGET = 1e-14  # of the error
_MOST_TRIALS = 20
_WORSE = 10.0  # times the error before a step: it is halved while it leaves more than that
_PATIENCE = 15  # steps without a better point


class Pair(NamedTuple):
    """A slack and its multiplier, or the changes of both."""

    value: Float[Array, "..."]
    multiplier: Float[Array, "..."]

    @property
    def product(self) -> Array:
        """vw."""
        return self.value * self.multiplier


class CentralPath(NamedTuple):
    """What the method has to know about points: their pairs, the pairs' changes, d(t) and how far they are from a solution."""

    pairs: Callable[[Any], Sequence[Pair]]
    changes: Callable[[Any], Sequence[Pair]]
    directions: Callable[[Any], Callable[[list[Array]], Any]]
    error: Callable[[Any], Float[Array, ""]]
    n_pairs: Any


class Followed(NamedTuple):
    """The best point, its error, and the number of steps."""

    best: Any
    error: Float[Array, ""]
    n_steps: Int[Array, ""]


class _Progress(NamedTuple):
    now: Any
    best: Any
    best_error: Float[Array, ""]
    k: Int[Array, ""]
    since_best: Int[Array, ""]


def follow(path: CentralPath, start: Any) -> Followed:
    """From a point whose pairs are positive, until nothing gets better."""

    def mean(point: Any) -> Array:
        products = [jnp.sum(pair.product) for pair in path.pairs(point)]
        return sum(products, jnp.zeros(())) / jnp.maximum(path.n_pairs, 1)

    def step(progress: _Progress) -> _Progress:
        now = progress.now
        direction, mu = path.directions(now), mean(now)

        def moved(d: Any, t) -> Any:
            return jax.tree.map(lambda a, b: a + t * b, now, d)

        def longest(d: Any) -> Array:
            parts = zip(path.pairs(now), path.changes(d), strict=True)
            return jnp.min(jnp.stack([_longest(*each) for pair in parts for each in zip(*pair, strict=True)]))

        products = [pair.product for pair in path.pairs(now)]
        affine = direction([-product for product in products])
        mu_affine = mean(moved(affine, jnp.minimum(1.0, longest(affine))))
        sigma = jnp.clip(mu_affine / jnp.maximum(mu, 1e-300), 0.0, 1.0) ** 3
        second = [pair.product for pair in path.changes(affine)]
        chosen = direction([sigma * mu - p - q for p, q in zip(products, second, strict=True)])  # (1)
        t = jnp.minimum(1.0, _TO_THE_BOUNDARY * longest(chosen))  # (2)
        # F may grow exponentially: as far as the slopes hold, roughly.
        before = path.error(now)
        _, t, found = jax.lax.while_loop(
            lambda trial: (trial[0] < _MOST_TRIALS) & ~(trial[2] <= _WORSE * before),
            lambda trial: (trial[0] + 1, 0.5 * trial[1], path.error(moved(chosen, 0.5 * trial[1]))),
            (jnp.asarray(0), t, path.error(moved(chosen, t))),
        )
        after = moved(chosen, t)
        better = found < progress.best_error
        return _Progress(
            now=after,
            best=jax.tree.map(lambda a, b: jnp.where(better, a, b), after, progress.best),
            best_error=jnp.where(better, found, progress.best_error),
            k=progress.k + 1,
            since_best=jnp.where(better, 0, progress.since_best + 1),
        )

    def unfinished(progress: _Progress) -> Array:
        alive = all_finite(progress.now) & (progress.since_best < _PATIENCE)
        return alive & (progress.best_error > _TARGET) & (progress.k < _MAX_STEPS)

    begin = _Progress(start, start, path.error(start), jnp.asarray(0), jnp.asarray(0))
    end = jax.lax.while_loop(unfinished, step, begin)
    return Followed(end.best, end.best_error, end.k)


def _longest(value: Array, change: Array) -> Array:
    """The largest t with value + t·change ≥ 0."""
    reach = jnp.where(change < 0, -value / jnp.where(change < 0, change, -1.0), jnp.inf)
    return jnp.min(reach, initial=jnp.inf)
