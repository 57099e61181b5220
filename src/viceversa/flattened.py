"""Immutable objects as their leaves, found once while they live: of a problem that is built again, most parts are the very same."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from viceversa.once import once_for_each

ARRAYS = (np.ndarray, np.generic, jax.Array)  # in this order: asking for the last takes longest
_MOST_FORMS = 1024
_forms: dict[Any, Form] = {}


class Form:
    """What trees of one form share: how leaves make a tree, and shapes and types of arrays and all other leaves themselves.

    The same object for all of them, so that forms are compared at once; of two that are not the same it is only not known.
    `outputs` has what modules of this form return, by the shapes they are called with.
    """

    __slots__ = ("kinds", "outputs", "tree")

    def __init__(self, tree: Any, kinds: tuple):
        self.tree, self.kinds = tree, kinds
        self.outputs: dict[Any, Any] = {}

    @classmethod
    def of(cls, leaves: list, tree: Any) -> Form:
        """The form of a flattened tree."""
        # 1, 1.0 and True are equal, but not the same.
        kinds = tuple(
            [(leaf.shape, leaf.dtype) if isinstance(leaf, ARRAYS) else (type(leaf), leaf) for leaf in leaves]
        )
        try:
            known = _forms.get((tree, kinds))
        except TypeError:  # something in it cannot be compared
            return cls(tree, kinds)
        if known is None:
            while len(_forms) >= _MOST_FORMS:
                _forms.pop(next(iter(_forms)))
            known = _forms[tree, kinds] = cls(tree, kinds)
        return known


class Flat(NamedTuple):
    """The leaves of a tree, and its form."""

    leaves: list
    form: Form

    @classmethod
    def of(cls, value: Any) -> Flat:
        """Found anew, for what is used once or may change."""
        leaves, tree = jax.tree.flatten(value)
        return cls(leaves, Form.of(leaves, tree))


flat = once_for_each(Flat.of)
NOTHING = Flat.of(None)
