"""Where Newton's method stands."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from viceversa.schemes.newton_system import Probed
from viceversa.schemes.simultaneous import SimultaneousState
from viceversa.schemes.smoothed_newton import Smoothing


class NewtonPoint(NamedTuple):
    """Where Newton's method goes on from, with how much smoothing and in what metric; only for boxes and simplices.

    Its x may lie outside X; the first-order state holds the projection of it.
    """

    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    smoothing: Smoothing
    probed: Probed


class NewtonState(eqx.Module):
    """The first-order state, how many of its iterations are left before Newton is tried, and Newton's record."""

    first: SimultaneousState
    n_left: Int[Array, ""]
    batch: Int[Array, ""]
    merit_start: Float[Array, ""]
    newton: NewtonPoint | None
    converging: Bool[Array, ""]
    settled: Bool[Array, ""]
    pause: Bool[Array, ""]
    n_newton: Int[Array, ""]
    n_failed: Int[Array, ""]
    patience: Int[Array, ""]
    inside: Int[Array, ""]  # the interior-point method of simplices: NOT_YET, NEXT or DONE
    n_products: Int[Array, ""]
    n_tried: Int[Array, ""]
    n_first: Int[Array, ""]
    phase: Int[Array, ""]
