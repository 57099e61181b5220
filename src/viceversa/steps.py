"""Step rules: numbers that may depend on the iteration k, such as γ_k, ρ_k, η_k and ε_k."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa import functions, precision
from viceversa.errors import InputError
from viceversa.precision import as_float64

_TRIED = (0, 1, 10, 1000, 100_000)  # iterations at which a user's schedule is checked to be positive


class Constant(eqx.Module):
    """The same number at every k."""

    value: np.ndarray

    def __call__(self, k: Array | int) -> Float[Array, ""]:
        return jnp.asarray(self.value)


class Power(eqx.Module):
    """initial·(k + 1)^(−exponent): the diminishing steps of Tikhonov and stochastic approximation.

    Example:
        >>> import viceversa as vv
        >>> round(float(vv.steps.Power(1.0, 0.5)(3)), 6)
        0.5
    """

    initial: np.ndarray
    exponent: np.ndarray

    def __init__(self, initial: float, exponent: float):
        self.initial = _positive("Power: initial", initial)
        self.exponent = as_float64("Power: exponent", exponent)

    def __call__(self, k: Array | int) -> Float[Array, ""]:
        return jnp.asarray(self.initial) * jnp.power(k + 1.0, -self.exponent)


class Schedule(eqx.Module):
    """A user's own function of k."""

    function: Callable

    def __call__(self, k: Array | int) -> Float[Array, ""]:
        return jnp.asarray(self.function(jnp.asarray(k, dtype=float)), dtype=float)


def as_steps(name: str, value: Any) -> Any:
    """`value` as a step rule: a positive number, a rule of this module, or a function of k."""
    if isinstance(value, (Constant, Power, Schedule)):
        return value
    if callable(value):
        rule = functions.trace(f"{name}: the schedule", value, np.zeros(()))
        output = functions.output_like(rule, np.zeros(()))
        if getattr(output, "shape", None) != ():
            raise InputError(f"{name}: the schedule returns {output}; one number is needed.")
        for k in _TRIED:
            with precision.double():
                found = float(rule(jnp.asarray(float(k))))
            if not (np.isfinite(found) and found > 0):
                raise InputError(
                    f"{name}: the schedule returns {found:g} at k = {k}; positive numbers are needed."
                )
        return Schedule(rule)
    return Constant(_positive(name, value))


def _positive(name: str, value: Any) -> np.ndarray:
    array = as_float64(name, value)
    if array.shape != () or not np.isfinite(array) or array <= 0:
        raise InputError(f"{name} is {value}; one positive finite number (or a function of k) is needed.")
    return array
