"""Inspecting a corpus for faults, and making a copy without them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.corpora.faults import FAULTS, MAX_RATIO, HeldOut, Inspector, Norms, NormsOf, Pair
from nmt.data.corpus import SIDES, CorpusReport
from nmt.data.encoding import shown_change
from nmt.data.text import FilePair, Undecodable, check_hides_no_packed, find_file, nothing_in, read_pairs
from nmt.data.work import progress
from nmt.errors import ConfigError, DataError
from nmt.files import check_not_packed, naming, writing

Numbered = tuple[int, Pair, list[str]]
"""Number of a line, from 1, the pair, and its faults."""


@dataclass
class Report:
    """What was found in a corpus."""

    files: FilePair
    norms: Norms
    pairs: int = 0
    faulty: int = 0
    """Pairs with at least one fault."""
    counts: Counter[str] = field(default_factory=Counter)
    """Pairs that have each fault; a pair can have several."""
    examples: dict[str, list[tuple[int, Pair]]] = field(default_factory=lambda: {name: [] for name in FAULTS})
    """The first pairs with each fault, with their line numbers, from 1."""
    not_utf8: list[str] = field(default_factory=list)
    """The message about the first line of each file that is not UTF-8, which says what it looks like."""

    def add(self, number: int, pair: Pair, faults: Sequence[str], *, examples: int) -> None:
        """Count one more pair, and keep it as an example if one of its faults needs more examples."""
        self.pairs += 1
        self.faulty += bool(faults)
        self.counts.update(faults)
        for name in faults:
            if len(self.examples[name]) < examples:
                self.examples[name].append((number, pair))

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "source": str(self.files.source),
            "target": str(self.files.target),
            "pairs": self.pairs,
            "faulty": self.faulty,
            "not_utf8": self.not_utf8,
            "faults": {name: self.counts[name] for name in FAULTS},
            "examples": {
                name: [{"line": number, "source": pair.source, "target": pair.target} for number, pair in found]
                for name, found in self.examples.items()
                if found
            },
        }


def languages_of(prefix: str) -> tuple[str, str]:
    """The suffixes of the two files that a prefix has, in alphabetical order; ConfigError if there are not exactly
    two."""
    path = Path(prefix)
    suffixes = set()
    if path.parent.is_dir():
        for file in path.parent.iterdir():
            name = file.name.removesuffix(".gz")
            if file.is_file() and name.startswith(f"{path.name}.") and "." not in name[len(path.name) + 1 :]:
                suffixes.add(name[len(path.name) + 1 :])
    if len(suffixes) != 2:
        there = ", ".join(sorted(f"{prefix}.{suffix}" for suffix in suffixes)) or "none"
        raise ConfigError(f"{prefix}: not two files with this prefix ({there}); name the languages: --languages en de")
    first, second = sorted(suffixes)
    return first, second


def files_of(prefix: str, languages: tuple[str, str]) -> FilePair:
    """The files of a prefix; DataError where one is missing."""
    return FilePair(*(find_file(prefix, language) for language in languages))


def inspect(
    files: FilePair,
    *,
    held_out: Sequence[FilePair] = (),
    max_ratio: float = MAX_RATIO,
    examples: int = 3,
    each: Callable[[int, Pair, list[str]], None] | None = None,
) -> Report:
    """Read a corpus twice, for its usual properties and then for its faults, and report the faults.

    Args:
        files: source and target.
        held_out: files whose sentences must not occur in it.
        max_ratio: how many times longer than expected a side may be.
        examples: number of pairs to keep for each fault.
        each: called for each pair with the number of its line, from 1, and its faults.

    Raises:
        DataError: files are missing, of unequal length or without a line. Lines that are not UTF-8 are a fault.
    """
    known = HeldOut(pair for text in held_out for _, pair, _ in _pairs(text))
    counted, lines = NormsOf(), 0
    for _, pair, _ in _pairs(files):
        counted.add(pair)
        lines += 1
    if not lines:
        raise nothing_in([files])
    report = Report(files, counted.norms())
    inspector = Inspector(report.norms, held_out=known, max_ratio=max_ratio)
    with progress(f"checking {files.source}", total=lines, unit=" pairs") as advance:
        for number, pair, is_utf8 in _pairs(files, say=report.not_utf8):
            faults = inspector.faults(pair, is_utf8=is_utf8)
            report.add(number, pair, faults, examples=examples)
            if each is not None:
                each(number, pair, faults)
            advance(1)
    return report


def unspelled(files: FilePair, name: str, find: Callable[[str, Sequence[str]], Iterable[tuple[int, str]]]) -> list[str]:
    """A line about each side that has lines which a vocabulary cannot spell, with the first few.

    `find` is `Tokenizer.unspelled`, and `name` begins the lines.
    """
    report = CorpusReport()
    for number, pair, _ in _pairs(files):
        block: dict[str, Any] = {}
        for side, path, line in zip(SIDES, files, pair, strict=True):
            found = [shown_change(line, text) for _, text in find(side, [line]) if line.strip()]
            block[f"{side}_unspelled"] = len(found)
            block[f"{side}_unspelled_examples"] = tuple(f"{path}, line {number}: {change}" for change in found)
        report = report + CorpusReport(**block)
    return report.doubts(name)


def clean(
    files: FilePair,
    output: str,
    languages: tuple[str, str],
    *,
    keep: Collection[str] = (),
    overwrite: bool = False,
    held_out: Sequence[FilePair] = (),
    max_ratio: float = MAX_RATIO,
    examples: int = 3,
) -> tuple[Report, int]:
    """Write the pairs without faults to OUTPUT.source and OUTPUT.target, the others to OUTPUT.dropped.jsonl.

    Pairs whose only faults are in `keep` stay. Lines are written as they were read; bytes that are not UTF-8 are
    replaced by U+FFFD. The files appear when they are complete.

    Returns:
        The report, and how many pairs were written.

    Raises:
        ConfigError: a file to write is one to read, or would be without its .gz; or its name ends in .gz.
        DataError: as `inspect`; a file to write exists and `overwrite` is false; or it would hide another .gz.
    """
    paths = [Path(f"{output}.{suffix}") for suffix in (*languages, "dropped.jsonl")]
    read = {file.resolve() for text in (files, *held_out) for file in text}
    for path in paths:
        check_not_packed(path)
        for name in (path, Path(f"{path}.gz")):
            if name.resolve() in read:
                raise ConfigError(f"{name}: is the text to read; give another prefix")
        if path.exists() and not overwrite:
            raise DataError(f"{path}: exists already; give another prefix or --overwrite")
    for path in paths[: len(languages)]:
        check_hides_no_packed(path)
    kept = 0
    with ExitStack() as stack:
        stack.enter_context(naming(output))
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        source, target, dropped = (stack.enter_context(writing(path)) for path in paths)

        def write(number: int, pair: Pair, faults: list[str]) -> None:
            nonlocal kept
            if set(faults) <= set(keep):
                kept += 1
                source.write(f"{pair.source}\n".encode())
                target.write(f"{pair.target}\n".encode())
            else:
                record = {"line": number, "faults": faults, "source": pair.source, "target": pair.target}
                dropped.write(f"{json.dumps(record, ensure_ascii=False)}\n".encode())

        report = inspect(files, held_out=held_out, max_ratio=max_ratio, examples=examples, each=write)
    return report, kept


def _pairs(files: FilePair, *, say: list[str] | None = None) -> Iterator[tuple[int, Pair, bool]]:
    """Each pair with the number of its line, from 1, and whether both lines are UTF-8.

    `say` gets the message about the first line of each file that is not.
    """
    rules = Undecodable("replace"), Undecodable("replace")
    for number, lines in enumerate(read_pairs(files, undecodable=rules), start=1):
        undecodable = [rule.had(number) for rule in rules]
        yield number, Pair(*lines), not any(undecodable)
    if say is not None:
        say += [rule.first for rule in rules if rule.first]
