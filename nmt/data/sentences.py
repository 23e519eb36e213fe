"""Splitting text into sentences."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.compiling import ROOT, BuildError, Recipe, library, prebuilt
from nmt.errors import ConfigError, DataError
from nmt.light.errors import EngineError
from nmt.light.sources import FLAGS
from nmt.light.splitter import SOURCE, Splitter


class Lines(NamedTuple):
    """The languages of a model, and what is known of its training text."""

    source_language: str = ""
    target_language: str = ""
    several: float | None = None
    """The share of the training sources that have several sentences; None where it is not known."""
    longest: int = 0
    """Tokens of the longest training source; 0 where it is not known."""
    context: str = "none"
    """What a sentence has of those before it, as `data.context`."""


def lines_of_all(models: Sequence[Lines]) -> Lines:
    """That of an ensemble: lines are split if one of its models needs it."""
    known = [model.several for model in models if model.several is not None]
    splits = any(splitter_of("").splits(share) for share in known)
    several = min(known) if known and (splits or len(known) == len(models)) else None
    return models[0]._replace(several=several, longest=min(model.longest for model in models))


def split_sentences(text: str, language: str = "", *, abbreviations: Sequence[str] = ()) -> list[str]:
    """The sentences of a text, in order, without the white space around them.

    Args:
        text: any text; an empty line ends a sentence, other line ends are white space.
        language: its code, such as `de` or `pt-BR`; lists of abbreviations exist for en, de, fr, es, it, pt, nl, cs,
            pl, ru, uk, ar and hi; for any other, words of all of these count.
        abbreviations: words whose full stop ends no sentence, such as `Abb.`, in addition to the known ones.

    Raises TypeError for what is no text, DataError for half of a surrogate pair and for an abbreviation with white
    space in it, ConfigError where the code, which is C, cannot be compiled.
    """
    for value, name in ((text, "text"), (language, "language")):
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if isinstance(abbreviations, str):
        raise TypeError("abbreviations must be a list of strings, not a string")
    try:
        return splitter_of(language, tuple(abbreviations)).sentences(text)
    except UnicodeEncodeError as error:
        raise DataError(
            f"text holds half of a surrogate pair ({text[error.start]!r} at character {error.start}), which is not text"
        ) from None


@functools.lru_cache(maxsize=64)
def splitter_of(language: str, abbreviations: tuple[str, ...] = ()) -> Splitter:
    """The splitter of a language; errors are those of `split_sentences`."""
    try:
        return Splitter(_library(), language, abbreviations)
    except EngineError as error:
        raise DataError(str(error)) from None


@functools.cache
def _library() -> Path:
    """The splitter, compiled on this machine at its first use; ConfigError where it cannot be compiled."""
    source = ROOT / SOURCE
    headers = ("split.h", "nmt_engine.h")
    job = [*FLAGS, "-fPIC", "-fvisibility=hidden", "-c", str(source)]
    try:
        return prebuilt("engine") or library(Recipe([source, *(source.with_name(name) for name in headers)], [job], []))
    except BuildError as error:
        raise ConfigError(f"splitting text into sentences, which C does, cannot be compiled here: {error}") from None
