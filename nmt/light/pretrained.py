"""The models that a command line names: paths, ensembles, and those that are in the package (`en-de`)."""

from __future__ import annotations

import os

from .errors import EngineError, UsageError, missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Final

    Path = str | os.PathLike[str]

SUFFIX: Final = ".nmt"
HERE: Final = os.path.dirname(os.path.abspath(__file__))
"""The folder of this package."""
_OWN: Final = os.path.join(HERE, "pretrained")
FOLDER: Final = _OWN if os.path.isdir(_OWN) else os.path.join(os.path.dirname(HERE), "pretrained")
"""Of the package nmt_light, or of nmt."""
FIRST: Final = "write it before the options, because an option with several values would take it"


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


def each_of(model: str) -> list[str]:
    """The models that MODEL stands for: `A+B` for A and B together, unless there is a file or folder of that name.

    A name with a plus sign of which the first part is not there is one that is missing.
    """
    parts = model.split("+")
    together = all(parts) and not os.path.lexists(model) and (os.path.lexists(parts[0]) or is_pretrained(parts[0]))
    return parts if together else [model]


def add_models(parser: argparse.ArgumentParser, *, help: str, together: bool = True) -> None:
    """Add MODEL... and its alias `--model`, which `named_models` reads; if they are one ensemble, `--ensemble` too."""
    aliases = ["--model", "--ensemble"] if together else ["--model"]
    parser.add_argument("models", metavar="MODEL", nargs="*", help=help)
    parser.add_argument(
        *aliases, dest="models_by_option", metavar="MODEL", nargs="+", default=[], help="alias of MODEL..."
    )


def named_models(arguments: argparse.Namespace) -> list[str]:
    """What a command line names as MODEL, in either way. UsageError for both ways: which is the first? And for none."""
    if arguments.models and arguments.models_by_option:
        listed = " ".join(arguments.models_by_option)
        raise UsageError(f"--model {listed}: MODEL {' '.join(arguments.models)} is also given; use one of the two")
    named: list[str] = arguments.models or arguments.models_by_option
    if not named:
        raise UsageError(f"MODEL is missing; {FIRST}")
    return named


def one_ensemble(arguments: argparse.Namespace) -> list[str]:
    """The models of a command that lets all of them work together."""
    return [part for name in named_models(arguments) for part in each_of(name)]


def or_named() -> str:
    """The end of an error about a path that does not exist."""
    return f"; models by name: {', '.join(names())}" if names() else ""
