"""Double precision for the length of a computation, never as a global setting."""

from __future__ import annotations

import math

import jax
import numpy as np

from viceversa.errors import InputError

_ALIGNMENT = 64  # bytes; XLA's minimum for arrays it does not own
_SMALL = 1024  # numbers; fewer are copied in no time wherever they are


def double():
    """A context in which JAX computes in float64; outside it nothing has changed."""
    return jax.enable_x64(True)


def float64_copy(value) -> np.ndarray:
    """A float64 copy that starts where JAX can read it in place; a large array elsewhere is copied at every solve."""
    array = np.asarray(value)
    if array.size <= _SMALL:
        return np.array(array, dtype=np.float64, order="C", subok=False)
    copy = _in_place(np.empty(8 * array.size + _ALIGNMENT, dtype=np.uint8), array.shape)
    copy[...] = array
    return copy


def zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros that JAX can read in place."""
    return _in_place(np.zeros(8 * math.prod(shape) + _ALIGNMENT, dtype=np.uint8), shape)


def _in_place(memory: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT  # `.ctypes` would take ten times as long
    return memory[start : start + 8 * math.prod(shape)].view(np.float64).reshape(shape)


def as_float64(name: str, value) -> np.ndarray:
    """`value` as a float64 NumPy array of its own, refused in a sentence where it is not numeric or has NaN."""
    array = _numbers(name, value)
    if not _is_surely_finite(array) and np.isnan(array).any():
        raise _has_nan(name, array)
    return array


def as_finite_float64(name: str, value) -> np.ndarray:
    """`value` as a float64 array of its own without NaN and without infinities, or a sentence."""
    if type(value) is float and math.isfinite(value):  # the usual θ₀, in no time
        return np.array(value)
    array = _numbers(name, value)
    if not _is_surely_finite(array) and not np.isfinite(array).all():
        if np.isnan(array).any():
            raise _has_nan(name, array)
        n_infinite = int(np.isinf(array).sum())
        raise InputError(
            f"{name} is infinite at {n_infinite} of {array.size} entries. Finite numbers are needed."
        )
    return array


def _is_surely_finite(array: np.ndarray) -> bool:
    """By its sum of squares, one pass in which nothing is written; False may also mean large."""
    flat = array.reshape(-1)
    with np.errstate(over="ignore"):
        return math.isfinite(np.dot(flat, flat))


def _numbers(name: str, value) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        raise _no_numbers(name, value) from None
    if array.dtype.kind == "c":
        raise InputError(f"{name} is complex; real numbers are needed.")
    if array.dtype.kind not in "biuf":
        raise _no_numbers(name, value)
    return float64_copy(array)


def _no_numbers(name: str, value) -> InputError:
    return InputError(
        f"{name} is {type(value).__name__}, which does not convert to an array of numbers. Pass numbers."
    )


def _has_nan(name: str, array: np.ndarray) -> InputError:
    if array.ndim == 0:
        return InputError(f"{name} is NaN; a number is needed.")
    n_nan, first = int(np.isnan(array).sum()), np.argwhere(np.isnan(array))[0].tolist()
    return InputError(
        f"{name} has NaN at {n_nan} of {array.size} entries (first: {first}). Remove or fill them."
    )
