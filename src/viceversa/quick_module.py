"""Equinox modules and dataclasses that are quick to make, and whose attributes are as quick to read as those of any object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import equinox as eqx

_Made = TypeVar("_Made")


def made(kind: type[_Made], **fields: Any) -> _Made:
    """An object of a frozen dataclass with all its fields at once; its own `__init__` gets each past its guard against that."""
    new = object.__new__(kind)
    new.__dict__.update(fields)
    return new


if TYPE_CHECKING:
    _Base = eqx.Module  # whose fields and objects type checkers know
else:

    class _QuickMeta(type(eqx.Module)):
        """Makes an object that sets its own fields at once without Equinox's look at each of them."""

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if not cls.sets_fields_at_once:
                return super().__call__(*args, **kwargs)
            made = object.__new__(cls)
            made.__init__(*args, **kwargs)
            return made

    class _Base(eqx.Module, metaclass=_QuickMeta):
        """A module made by the above."""


class QuickModule(_Base):
    """For what every solve reads dozens of times: problems, sets, learning, schemes.

    Equinox looks at every attribute on its way out, to make a pytree of it should it be a bound method. A method of these
    classes is called where it is read, so nothing needs that.
    """

    # Whether `__init__` ends with `set_fields` for all of them, as the classes do of which a re-solve makes new objects.
    sets_fields_at_once: ClassVar[bool] = False

    if not TYPE_CHECKING:
        __getattribute__ = object.__getattribute__

    def set_fields(self, **fields: Any) -> None:
        """All fields at once, to be called by `__init__` only; Equinox looks into what is assigned one at a time."""
        vars(self).update(fields)
