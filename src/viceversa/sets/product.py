"""Products of sets: blocks of one vector, or the parts of a parameter kept apart."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.sets.base import ConvexSet, is_shape, point_method, sample_method


class Product(ConvexSet):
    """S = S₁ × … × S_m: every block is projected on its own set.

    A list joins the blocks into **one flat vector**, the concatenation of the ravelled blocks (X = ∏ X_i with x
    one array); `split(x)` gives the blocks back in their shapes. A dict or tuple, nested or not, keeps them
    apart as the leaves of a tree (a parameter θ with several parts); `shape` is then a tree of tuples.

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import Box, Product, Simplex
        >>> Product([Box(0.0, 1.0, shape=(2,)), Simplex(2)]).project(np.array([-1.0, 5.0, 2.0, 2.0]))
        array([0. , 1. , 0.5, 0.5])
        >>> Product({"slope": Box(0.1, 5.0, shape=()), "level": Box([0.0], [9.0])}).shape
        {'level': (1,), 'slope': ()}
    """

    blocks: Any
    joined: bool = eqx.field(static=True)

    def __init__(self, blocks: Any):
        self.joined = isinstance(blocks, list)
        self.blocks = _checked_list(blocks) if self.joined else _checked_tree(blocks, "blocks")

    def _sets(self) -> list[ConvexSet]:
        return jax.tree.leaves(self.blocks, is_leaf=_is_set)

    def _parts(self, x: PyTree) -> list[PyTree]:
        return (
            self.split(x)
            if self.joined
            else jax.tree.structure(self.blocks, is_leaf=_is_set).flatten_up_to(x)
        )

    def _whole(self, parts: list[PyTree]) -> PyTree:
        if not self.joined:
            return jax.tree.structure(self.blocks, is_leaf=_is_set).unflatten(parts)
        xp: Any = jnp if any(isinstance(part, jax.Array) for part in parts) else np
        return xp.concatenate([xp.ravel(part) for part in parts])

    @property
    def shape(self) -> Any:
        if self.joined:
            return (sum(math.prod(block.shape) for block in self.blocks),)
        return jax.tree.map(lambda block: block.shape, self.blocks, is_leaf=_is_set)

    def split(self, x: Any) -> list[Any]:
        """The blocks of the flat vector x, each in the shape of its set (list form only)."""
        if not self.joined:
            raise InputError(
                "Product.split: this product keeps its blocks apart already; take the parts of the tree."
            )
        if np.shape(x) != self.shape:
            raise InputError(
                f"Product.split: x has shape {np.shape(x)}; this product has points of shape {self.shape}."
            )
        ends = np.cumsum([math.prod(block.shape) for block in self.blocks])
        starts = [0, *ends[:-1].tolist()]
        return [
            x[start:end].reshape(b.shape)
            for b, start, end in zip(self.blocks, starts, ends.tolist(), strict=True)
        ]

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """Every block on its own set."""
        return self._whole(
            [block.project(part) for block, part in zip(self._sets(), self._parts(x), strict=True)]
        )

    @point_method
    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """The sum of the blocks' values, at their maximisers side by side."""
        values, points = zip(
            *[block.support(part) for block, part in zip(self._sets(), self._parts(c), strict=True)],
            strict=True,
        )
        return sum(values[1:], start=values[0]), self._whole(list(points))

    def diameter(self) -> float:
        """(Σ diameters²)^½: exact where the blocks' own are, an upper bound otherwise."""
        return math.hypot(*[block.diameter() for block in self._sets()])

    def width(self) -> PyTree:
        """The widths of the blocks."""
        return self._whole([block.width() for block in self._sets()])

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """Independent points of the blocks."""
        blocks = self._sets()
        return self._whole(
            [b.sample(k) for b, k in zip(blocks, jax.random.split(key, len(blocks)), strict=True)]
        )

    def interior_point(self) -> PyTree:
        """Relative interior points of the blocks."""
        return self._whole([block.interior_point() for block in self._sets()])


def _is_set(node: Any) -> bool:
    return isinstance(node, ConvexSet)


def _checked_list(blocks: list) -> list:
    if not blocks:
        raise InputError("Product: the list of blocks is empty. Give at least one set.")
    for i, block in enumerate(blocks):
        if not _is_set(block):
            raise InputError(
                f"Product: blocks[{i}] is a {type(block).__name__}; a set such as Box is needed."
            )
        if not is_shape(block.shape):
            raise InputError(
                f"Product: blocks[{i}] has points that are trees {block.shape}; a list joins arrays into one vector. "
                "Use a dict or tuple to keep the blocks apart."
            )
    return list(blocks)


def _checked_tree(blocks: Any, path: str) -> Any:
    if _is_set(blocks):
        return blocks
    if isinstance(blocks, list):
        return Product(blocks)
    if isinstance(blocks, (dict, tuple)):
        if not blocks:
            raise InputError(f"Product: {path} is empty. Give at least one set.")
        if isinstance(blocks, dict):
            return {name: _checked_tree(block, f"{path}[{name!r}]") for name, block in blocks.items()}
        parts = [_checked_tree(block, f"{path}[{i}]") for i, block in enumerate(blocks)]
        return type(blocks)(*parts) if hasattr(blocks, "_fields") else tuple(parts)
    raise InputError(
        f"Product: {path} is a {type(blocks).__name__}; a set, a list of sets (one flat vector) or a dict or tuple of "
        "them (kept apart) is needed."
    )
