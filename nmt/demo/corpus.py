"""Draws the sentence pairs of the demo corpus and writes its three parts."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from nmt.demo.grammar import KINDS
from nmt.demo.sampling import Sampler
from nmt.errors import ConfigError, DataError
from nmt.files.errors import reason

TRAIN_PAIRS = 14_000
DEV_PAIRS = 500
TEST_PAIRS = 500

_SEED = 20_260_117
_LONGEST = 14
_LANGUAGES = ("en", "de")


class Pair(NamedTuple):
    """A sentence in both languages and the name of the kind it is of."""

    english: str
    german: str
    kind: str


def generate(count: int) -> list[Pair]:
    """The first `count` pairs of the demo corpus; no sentence occurs twice, in either language.

    The sequence depends on nothing but this code: Python keeps `Random.random` and `randrange`
    the same from version to version.
    """
    rng = random.Random(_SEED)
    bounds = list(accumulate(kind.weight for kind in KINDS))
    pairs: list[Pair] = []
    seen: set[str] = set()
    while len(pairs) < count:
        draw = rng.randrange(bounds[-1])
        build = next(kind.build for bound, kind in zip(bounds, KINDS, strict=True) if draw < bound)
        built = build(Sampler(rng))
        english, german = _capitalised(built.english), _capitalised(built.german)
        if max(len(english.split()), len(german.split())) > _LONGEST or english in seen or german in seen:
            continue
        seen.update((english, german))
        pairs.append(Pair(english, german, build.__name__))
    return pairs


def _capitalised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def check_languages(source_language: str, target_language: str) -> None:
    """Raise ConfigError unless these are English and German."""
    if sorted((source_language, target_language)) != sorted(_LANGUAGES):
        raise ConfigError(
            f"data.source_language: the demo corpus is English-German, not {source_language!r}-{target_language!r}. "
            "Allowed: en with data.target_language de, or de with en."
        )


def write_corpus(folder: Path, source_language: str, target_language: str) -> None:
    """Write train, dev and test of the demo corpus as FOLDER/train.en, FOLDER/train.de, ...

    The same call writes the same bytes. No sentence of one part is in another, in either language.

    Raises:
        ConfigError: the languages are not English and German.
        DataError: a file cannot be written.
    """
    check_languages(source_language, target_language)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_parts(folder)
    except OSError as error:
        raise DataError(f"{folder}: the demo corpus cannot be written: {reason(error)}") from error


def _write_parts(folder: Path) -> None:
    pairs = generate(TRAIN_PAIRS + DEV_PAIRS + TEST_PAIRS)
    parts = {
        "test": pairs[:TEST_PAIRS],
        "dev": pairs[TEST_PAIRS : TEST_PAIRS + DEV_PAIRS],
        "train": pairs[TEST_PAIRS + DEV_PAIRS :],
    }
    for name, part in parts.items():
        _write(folder / f"{name}.en", [pair.english for pair in part])
        _write(folder / f"{name}.de", [pair.german for pair in part])


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
