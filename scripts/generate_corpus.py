#!/usr/bin/env python3
"""Write a parallel corpus of any size from a seed, for measurements: words of two invented languages.

    scripts/generate_corpus.py PREFIX --pairs 5000000 [--seed 1]

writes PREFIX.en and PREFIX.de. Words follow Zipf's law, lengths a log-normal distribution (mean 23 words, like
newspaper text). A target sentence is its source, translated word by word, with some neighbours exchanged, words left
out and words added. A smaller corpus is the beginning of a larger one with the same seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

from nmt.cli.arguments import natural, positive
from nmt.cli.common import execute, make_parser
from nmt.errors import DataError

BLOCK = 20_000
WORDS = 100_000
LONGEST = 120
SYLLABLES = {
    "en": ("b c d f g h l m n p r s t th w st tr", "a e i o u ea ou", ["", "", "n", "r", "s", "t", "ng"]),
    "de": ("b d f g h k l m n r s sch st t w z", "a e i o u ä ö ü ei au", ["", "n", "r", "t", "ch", "en", "ß"]),
}


def main() -> int:
    """Parse, write, report."""
    parser = make_parser("scripts/generate_corpus.py", "Write a parallel corpus from a seed, for measurements.")
    parser.add_argument("prefix", metavar="PREFIX", help="writes PREFIX.en and PREFIX.de")
    parser.add_argument("--pairs", type=positive, required=True, metavar="N")
    parser.add_argument("--seed", type=natural, default=1, metavar="N", help="default 1")
    return execute(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Write both files."""
    sides = [Path(f"{arguments.prefix}.{language}") for language in SYLLABLES]
    for path in sides:
        if path.exists():
            raise DataError(f"{path}: is there already")
    sides[0].parent.mkdir(parents=True, exist_ok=True)
    with sides[0].open("w", encoding="utf-8") as source, sides[1].open("w", encoding="utf-8") as target:
        for english, german in blocks(arguments.pairs, seed=arguments.seed):
            source.write("".join(english))
            target.write("".join(german))
    for path in sides:
        print(f"{path}: {arguments.pairs:,} lines, {path.stat().st_size:,} bytes")
    return 0


def blocks(pairs: int, *, seed: int) -> Iterator[tuple[list[str], list[str]]]:
    """The lines of both sides with their line ends, in blocks of some thousand."""
    english, german = (vocabulary(language, seed=seed) for language in SYLLABLES)
    cumulative = np.cumsum(1 / (np.arange(WORDS) + 2.7))
    for start in range(0, pairs, BLOCK):
        generator = np.random.default_rng([seed, start])
        lengths = np.clip(generator.lognormal(3.0, 0.55, BLOCK), 1, LONGEST).astype(np.int64)
        words = np.searchsorted(cumulative, generator.random(lengths.sum()) * cumulative[-1])
        other, other_lengths = translated(words, lengths, generator)
        count = min(BLOCK, pairs - start)
        yield sentences(english, words, lengths[:count]), sentences(german, other, other_lengths[:count])


def translated(
    words: NDArray[np.int64], lengths: NDArray[np.int64], generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The words [sum of lengths] of the other side, and how many belong to each sentence [sentences]."""
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    first = np.flatnonzero(generator.random(len(words) - 1) < 0.2)
    first = first[sentence[first] == sentence[first + 1]]
    words = words.copy()
    words[first], words[first + 1] = words[first + 1], words[first]
    copies = generator.choice(3, size=len(words), p=(0.05, 0.9, 0.05))
    starts = np.cumsum(lengths) - lengths
    copies[starts] = np.maximum(1, copies[starts])  # so that no sentence loses all its words
    return np.repeat(words, copies), np.add.reduceat(copies, starts)


def vocabulary(language: str, *, seed: int) -> list[str]:
    """Different words, short ones first, because frequent words are short."""
    onsets, vowels, codas = SYLLABLES[language]
    parts = [onsets.split(), vowels.split(), codas]
    generator = np.random.default_rng([seed, *language.encode()])
    words: dict[str, None] = {}
    while len(words) < WORDS:
        syllables = 1 + min(3, len(words) * 8 // WORDS) if len(words) > 100 else 1
        word = "".join(
            part[generator.integers(len(part))] for _ in range(syllables + int(generator.integers(2))) for part in parts
        )
        words.setdefault(word)
    return list(words)


def sentences(vocabulary: list[str], words: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[str]:
    """Lines of words, each with a full stop and a line end."""
    stream = map(vocabulary.__getitem__, words.tolist())
    return [" ".join(islice(stream, length)) + " .\n" for length in lengths.tolist()]


if __name__ == "__main__":
    sys.exit(main())
