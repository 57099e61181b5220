"""Equinox modules whose attributes are as quick to read as those of any object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx


class QuickModule(eqx.Module):
    """For what every solve reads dozens of times: problems, sets, learning, schemes.

    Equinox looks at every attribute on its way out, to make a pytree of it should it be a bound method. A method of these
    classes is called where it is read, so nothing needs that.
    """

    if not TYPE_CHECKING:
        __getattribute__ = object.__getattribute__

    def set_fields(self, **fields: Any) -> None:
        """All fields at once, to be called by `__init__` only; Equinox looks into what is assigned one at a time."""
        vars(self).update(fields)
