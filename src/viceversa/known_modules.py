"""Modules of a structure that was traced before: what they return is known, so that new data are not traced again."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from viceversa import precision
from viceversa.flattened import Flat, flat
from viceversa.once import once_for_each


class Traced(NamedTuple):
    """A user's function in the form the solver calls, and the shapes and types of what it returns."""

    function: Any
    output: Any


def known(module: Any, avals: tuple) -> Traced | None:
    """A module with its own data, if one of its structure was kept; of a problem built again, most parts are the very same."""
    if not isinstance(module, eqx.Module):
        return None
    last = _last_taken(module)
    if last and last[0] == avals:
        return last[1]
    its = Flat.of(module)
    output = its.form.outputs.get(_shapes(avals))
    if output is None:
        return None
    found = Traced(_with_own_data(module, its), output)
    if found.function is module:
        last[:] = avals, found
    return found


def kept(module: Any, avals: tuple, output: Any) -> Traced:
    """A module with its own data; that those of its structure return `output` will be known."""
    its = Flat.of(module)
    its.form.outputs[_shapes(avals)] = output
    return Traced(_with_own_data(module, its), output)


def own(array: Any) -> np.ndarray:
    """An array that nobody else can change."""
    if isinstance(array, jax.Array):
        return np.asarray(array)
    return precision.float64_copy(array) if array.dtype == np.float64 else np.array(array, subok=False)


@once_for_each
def _last_taken(_module: Any) -> list:
    """The shapes that a module was last taken with as it is, and what came of it; empty where it never was."""
    return []


def _shapes(avals: tuple) -> Any:
    """Of the arrays a module is called with, and the trees they make."""
    leaves, tree = jax.tree.flatten(avals)
    return tree, tuple([each.shape for each in leaves])


def _with_own_data(module: Any, its: Flat) -> Any:
    owned = own_leaves(module, its.leaves)
    if owned is its.leaves:
        return module
    other = jax.tree.unflatten(its.form.tree, owned)
    flat.remember(other, Flat(owned, its.form))
    return other


def own_leaves(module: Any, leaves: list) -> list:
    """The leaves of a user's module with its NumPy arrays copied; those of this package hold copies already."""
    if type(module).__module__.startswith("viceversa."):
        return leaves
    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        return leaves
    return [own(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
