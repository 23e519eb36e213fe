"""Paths given by a program: text or path objects, one or several."""

from __future__ import annotations

import os
from typing import Any

from nmt.errors import ConfigError, shown
from nmt.system import expanded


def several(value: Any) -> list[object]:
    """One path, or a list of paths, as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def path_of(value: object, name: str) -> str:
    """A path as text, with the home directory in place of `~`; `name` is the argument's."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a path or a list of paths, not {type(value).__name__} {shown(value)}")
    try:
        return expanded(os.fsdecode(value))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
