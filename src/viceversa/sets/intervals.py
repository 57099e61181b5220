"""Products of intervals: the sets that are projected on coordinate by coordinate, in whatever units each one has."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from viceversa.once import once_for_each
from viceversa.sets.base import ConvexSet
from viceversa.sets.box import Box, Free, NonNegative
from viceversa.sets.product import Product


def is_box(S: ConvexSet) -> bool:
    """Whether S is a product of intervals in one array, so that each coordinate may have a scale of its own."""
    return isinstance(S, (Box, NonNegative, Free))


def is_separable(S: ConvexSet) -> bool:
    """Whether S is a product of intervals, in one array or in several."""
    return all(is_separable(block) for block in _blocks(S)) if isinstance(S, Product) else is_box(S)


def ends(S: ConvexSet) -> tuple[Any, Any]:
    """The bounds of a box, a number each where all are the same."""
    if isinstance(S, Box):
        return S.low, S.high
    return (0.0 if isinstance(S, NonNegative) else -np.inf), np.inf


@once_for_each  # of a set that many problems share
def interval_bounds(S: ConvexSet) -> tuple[np.ndarray, np.ndarray] | None:
    """The ends of the intervals, raveled; None where S is no product of them. Outside compiled code only."""
    if isinstance(S, Product):
        bounds = [interval_bounds(block) for block in _blocks(S)]
        known = [pair for pair in bounds if pair is not None]
        if len(known) < len(bounds):
            return None
        return np.concatenate([low for low, _ in known]), np.concatenate([high for _, high in known])
    if not is_box(S):
        return None
    low, high = (np.broadcast_to(end, S.shape).ravel() for end in ends(S))
    return low, high


def _blocks(S: Product) -> list[ConvexSet]:
    return jax.tree.leaves(S.blocks, is_leaf=lambda block: isinstance(block, ConvexSet))
