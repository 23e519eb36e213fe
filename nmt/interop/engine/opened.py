"""Opening and checking model files with the engine, which is compiled on this machine at its first use.

This imports no torch, so that what translates with such files starts at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nmt.errors import CheckpointError, ConfigError
from nmt.interop.run_layout import LongestSource
from nmt.light.errors import EngineError
from nmt.light.pretrained import SUFFIX, is_pretrained

if TYPE_CHECKING:
    from nmt.light.translator import Translator

MAGIC: Final = b"\x89NMT\r\n\x1a\n"
"""The first bytes of every model file."""
TAKEN_BY: Final = "nmt-translate, nmt-eval, nmt-report, nmt-score, nmt-serve, nmt-check and nmt.load"
"""What accepts model files."""


def is_engine_file(path: str | os.PathLike[str]) -> bool:
    """Whether `path` means a model file of the engine: by its name, unless that is a folder's, or by its content."""
    place = Path(path)
    if place.is_dir():
        return False
    if place.suffix == SUFFIX or is_pretrained(path):
        return True
    try:
        if not place.is_file():
            return False
        with place.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:  # the caller that opens it reports the reason
        return False


def are_engine_files(paths: Sequence[str]) -> bool:
    """Whether all of some models are such files; raises ConfigError where only some of them are."""
    kinds = [is_engine_file(path) for path in paths]
    if any(kinds) and not all(kinds):
        other = paths[kinds.index(False)]
        raise ConfigError(
            f"{paths[kinds.index(True)]}: is one file for the engine, but {other} is not; an ensemble needs all "
            f"models, or none, exported with nmt-export --format engine"
        )
    return all(kinds)


def open_engine(paths: Sequence[str | os.PathLike[str]]) -> Translator:
    """A file, or several as an ensemble.

    Raises:
        CheckpointError: a file that is missing, damaged, of a later version, or that does not fit the first.
        ConfigError: the engine cannot be compiled on this machine.
    """
    from nmt.light.translator import Translator  # late, as most who ask whether something is such a file have none

    try:
        return Translator([os.fspath(path) for path in paths], library=compiled_engine())
    except EngineError as error:
        raise CheckpointError(str(error)) from None


@functools.cache
def compiled_engine() -> Path:
    """The shared library; ConfigError where it cannot be compiled."""
    from nmt.light.translator import shared_library

    with contextlib.suppress(EngineError):  # nmt-light brings one
        return Path(shared_library())
    from nmt.compiling import BuildError, engine_recipe, library, prebuilt

    try:
        return prebuilt("engine") or library(engine_recipe())
    except BuildError as error:
        raise ConfigError(f"the engine, which is written in C, cannot be compiled here: {error}") from None


def longest_of(cards: Sequence[dict[str, Any]]) -> LongestSource | None:
    """The longest source in the training of all of them; None if no file states it."""
    from nmt.light.translator import longest_source

    found = longest_source(cards)
    return None if found is None else LongestSource(*found)


def text_of(card: dict[str, Any], key: str, otherwise: str = "?") -> str:
    """A text entry of a card, if it is text."""
    found = card.get(key)
    return found if isinstance(found, str) and found else otherwise
