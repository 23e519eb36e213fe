"""Packages that import a member's module when it is first asked for, so that light modules in them stay light."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def members(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of `package`, whose `modules`, or modules elsewhere by their whole names, define its members.

    A member may not be called like a module of the package, which takes the name when it is imported, unless it is that
    module itself, which has no names.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def found(name: str) -> Any:
        if name in modules and not modules[name]:
            return importlib.import_module(f"{package}.{name}")
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        place = places[name] if places[name].startswith("nmt.") else f"{package}.{places[name]}"
        value = getattr(importlib.import_module(place), name)
        setattr(sys.modules[package], name, value)
        return value

    return found
