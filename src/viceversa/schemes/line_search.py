"""How far to go along a Newton step: the longest of a few lengths that lessens the merit."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

_MAX_HALVINGS = 5
_ARMIJO = 0.1  # a step t must reduce the merit by the factor 1 − 0.1·t
_FAST = 1e-2  # of the merit: what a full step leaves when Newton converges superlinearly


def line_search(point: Callable, merit_here: Array, start: tuple) -> tuple[Array, tuple, Array, Array]:
    """The first of t = 1, ½, ¼, … whose point (the last of its parts is the merit) has a merit low enough.

    Also whether it has, and whether the full step was so good that the next one will be better still.
    """

    def enough(t: Array, merit: Array) -> Array:
        # A merit of 0 is not lessened: if that is no solution, γ is so small that x − γG rounds to x.
        return merit < (1.0 - _ARMIJO * t) * merit_here

    def attempt(trial):
        t, n, _ = trial
        t = jnp.where(n == 0, 1.0, 0.5 * t)
        return t, n + 1, point(t)

    def refused(trial) -> Array:
        t, n, found = trial
        return (n == 0) | ((n <= _MAX_HALVINGS) & ~enough(t, found[-1]))

    t, _, found = jax.lax.while_loop(refused, attempt, (jnp.ones(()), jnp.asarray(0), start))
    return t, found, enough(t, found[-1]), (t == 1.0) & (found[-1] <= _FAST * merit_here)
