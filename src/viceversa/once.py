"""Compute something about an immutable object once, and keep it while the object lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_Found = TypeVar("_Found")


def once_for_each(function: Callable[[Any], _Found]) -> Callable[[Any], _Found]:
    """`function` of one object, called once for each; objects are told apart by identity, since comparing them is slow."""
    known: dict[int, tuple[weakref.ref, Any]] = {}

    def remembered(value: Any) -> _Found:
        identity = id(value)
        found = known.get(identity)
        if found is None or found[0]() is not value:
            found = weakref.ref(value, lambda _: known.pop(identity, None)), function(value)
            known[identity] = found
        return found[1]

    return remembered
