"""Names of a package that are imported from their modules when they are first asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def names_later(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package with these modules, each with the names that live in it."""
    home = homes(modules)

    def getattribute(name: str) -> Any:
        if name in home:
            value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattribute, lambda: sorted({*vars(sys.modules[package]), *modules, *home})


def homes(modules: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The module of every name."""
    return {name: module for module, names in modules.items() for name in names}
