"""Compute something about an immutable object once, and keep it while the object lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Found = TypeVar("_Found")


class once_for_each(Generic[_Found]):
    """A function of one object, called once for each; objects are told apart by identity, since comparing them is slow."""

    def __init__(self, function: Callable[[Any], _Found]):
        self.function = function
        self.__doc__ = function.__doc__
        self._known: dict[int, tuple[weakref.ref, _Found]] = {}

    def __call__(self, value: Any) -> _Found:
        found = self._known.get(id(value))
        if found is None or found[0]() is not value:
            return self.remember(value, self.function(value))
        return found[1]

    def remember(self, value: Any, found: _Found) -> _Found:
        """What the function would find for an object, from one who knows it already."""
        known, identity = self._known, id(value)
        known[identity] = weakref.ref(value, lambda _: known.pop(identity, None)), found
        return found
