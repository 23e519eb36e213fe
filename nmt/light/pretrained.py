"""Models that are in the package, by their names: `en-de` for `nmt/pretrained/en-de.nmt`."""

from __future__ import annotations

import os

from .errors import EngineError, missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    Path = str | os.PathLike[str]

SUFFIX: Final = ".nmt"
HERE: Final = os.path.dirname(os.path.abspath(__file__))
"""The folder of this package."""
_OWN: Final = os.path.join(HERE, "pretrained")
FOLDER: Final = _OWN if os.path.isdir(_OWN) else os.path.join(os.path.dirname(HERE), "pretrained")
"""Of the package nmt_light, or of nmt."""


def names() -> tuple[str, ...]:
    """All of them, in alphabetical order."""
    files = os.listdir(FOLDER) if os.path.isdir(FOLDER) else []
    return tuple(sorted(file.removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX)))


def is_pretrained(path: Path) -> bool:
    """Whether `path` is the name of a model of the package; a file or folder of that name comes first."""
    return os.fspath(path) in names() and not os.path.exists(path)


def located(path: Path) -> Path:
    """`path`, or the file of the model of the package that it names; EngineError for what looks like another name."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not isinstance(name, str) or not name or not name.isprintable():
        return path  # not to be found, for reasons of its own
    if is_pretrained(name):
        return os.path.join(FOLDER, name + SUFFIX)
    if "." not in name and os.path.basename(name) == name and not os.path.lexists(name):
        raise EngineError(missing(name) + or_named())
    return path


def or_named() -> str:
    """The end of an error about a path that does not exist."""
    return f"; models by name: {', '.join(names())}" if names() else ""
