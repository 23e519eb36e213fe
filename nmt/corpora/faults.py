"""Faults of sentence pairs of a training corpus: finding them, and making a copy without them."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from nmt.corpora.repeats import Repeats
from nmt.data.corpus import SIDES, CorpusReport, shown_change
from nmt.data.matching import MARKS, canonical, folded
from nmt.data.text import FilePair, Undecodable, check_hides_no_packed, find_pair, nothing_in, read_pairs
from nmt.data.work import progress
from nmt.errors import ConfigError, DataError
from nmt.files import check_not_packed, naming, writing
from nmt.texts import PACKED, unpacked

FAULTS: Final = MappingProxyType(
    {
        "not_utf8": "a side has bytes that are not UTF-8",
        "empty": "a side has no word",
        "control": "control characters, private use, U+FFFD, BOM",
        "copied": "both sides are the same text",
        "length_ratio": "one side is far too long for the other",
        "wrong_script": "most words are of an unusual script",
        "duplicate": "the same pair occurs before",
        "held_out": "a side is a sentence of the held-out text",
    }
)
"""All faults, each with its meaning, in the order in which they are looked for and listed."""

MAX_RATIO: Final = 3.0
"""How many times longer than expected a side may be."""
_SLACK: Final = 10
"""Characters added to both sides before they are compared, so that short ones may differ more."""
_LEAST_LETTERS: Final = 3
"""With fewer letters the script is not checked: abbreviations occur in every language."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_USUAL: Final = r"\x00-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf-\u024f\u2010-\u2027\u2030-\u205e\u20a0-\u20bf"
_NOT_LATIN: Final = re.compile(f"[^{_USUAL}]")
_RUN: Final = re.compile("[!-~]+")
_ADDRESS: Final = re.compile(r"://|@|\w[./\\_]\w", re.ASCII)
"""What addresses, names of files and the like have within a run of ASCII characters."""
_INSIDE: Final = dict.fromkeys(map(ord, f"{MARKS}\u200c\u200d"))
"""Marks on letters, vowels written as such and joiners, which end no word."""
_UNSPACED: Final = {"CJK": 1.5, "THAI": 4.0, "LAO": 4.0, "KHMER": 5.0, "MYANMAR": 5.0, "TIBETAN": 4.0}
"""Letters of a word, about, of scripts without spaces between words."""
_EAST_ASIAN: Final = frozenset({"HIRAGANA", "KATAKANA", "CJK", "FULLWIDTH", "HALFWIDTH", "IDEOGRAPHIC", "BOPOMOFO"})


class Pair(NamedTuple):
    """One line of each side."""

    source: str
    target: str


@dataclass(frozen=True)
class Norms:
    """The usual properties of a corpus, by which its pairs are judged."""

    ratio: float
    """Characters of the source for one of the target."""
    scripts: tuple[str | None, str | None]
    """The usual script of each side; None where a side has no letters."""


class NormsOf:
    """Finds the usual properties, pair by pair."""

    def __init__(self) -> None:
        self._lengths = [0, 0]
        self._lines = [0, 0]
        self._with: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def add(self, pair: Pair) -> None:
        """Count one more pair."""
        for side, line in enumerate(pair):
            self._lengths[side] += len(line)
            is_plain = _is_latin(line) and not _ADDRESS.search(line)
            scripts = {"LATIN"} if is_plain and _WORD.search(line) else () if is_plain else words(line).keys()
            self._lines[side] += bool(scripts)
            self._with[side].update(scripts)

    def norms(self) -> Norms:
        """The usual properties of the pairs so far."""
        first, second = map(_usual, self._with, self._lines)
        return Norms(max(1, self._lengths[0]) / max(1, self._lengths[1]), (first, second))


def _usual(counts: Counter[str], lines: int) -> str | None:
    """The usual script of lines, of which so many have each: one beside which others may have Latin names, if any."""
    for script, count in counts.most_common():
        if script != "LATIN" and 2 * count > lines:
            return script
    return max(counts, key=counts.__getitem__, default=None)


class HeldOut:
    """Sentences that must not be in training text: those of validation and test sets, without regard to case."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._sides: tuple[set[bytes], set[bytes]] = (set(), set())
        for pair in pairs:
            for known, line in zip(self._sides, pair, strict=True):
                if line.strip():
                    known.add(digest_of(folded(line)))

    def has_side_of(self, pair: Pair) -> bool:
        """Whether the source is one of the sources, or the target one of the targets."""
        return any(digest_of(folded(line)) in known for known, line in zip(self._sides, pair, strict=True) if known)


class Inspector:
    """Finds the faults of the pairs of a corpus, each by itself: whether it is a duplicate is known elsewhere."""

    def __init__(self, norms: Norms, *, held_out: HeldOut | None = None, max_ratio: float = MAX_RATIO) -> None:
        self._norms = norms
        self._held_out = HeldOut() if held_out is None else held_out
        self._max_ratio = max_ratio

    def faults(self, pair: Pair, *, is_utf8: bool = True, is_duplicate: bool = False) -> list[str]:
        """Names of the faults of a pair, in the order of FAULTS. For an empty pair, only that it is empty."""
        if any(not line.strip() for line in pair):
            return ["empty"] if is_utf8 else ["not_utf8", "empty"]
        found = {
            "not_utf8": not is_utf8,
            "control": is_utf8 and any(has_control(line) for line in pair),
            "copied": _is_copied(pair),
            "length_ratio": self._is_out_of_proportion(pair),
            "wrong_script": any(
                not is_in_script(line, script) for line, script in zip(pair, self._norms.scripts, strict=True)
            ),
            "duplicate": is_duplicate,
            "held_out": self._held_out.has_side_of(pair),
        }
        return [name for name, is_so in found.items() if is_so]

    def _is_out_of_proportion(self, pair: Pair) -> bool:
        source, target = len(pair.source) + _SLACK, len(pair.target) * self._norms.ratio + _SLACK
        return max(source, target) > self._max_ratio * min(source, target)


@cache
def script_of(character: str) -> str | None:
    """The script of a letter, the first word of its Unicode name; None if it is not a letter."""
    if not character.isalpha():
        return None
    first = unicodedata.name(character, "UNKNOWN").split(" ")[0].split("-")[0]
    return "CJK" if first in _EAST_ASIAN else first


def words(line: str, *, usual: str | None = None) -> dict[str, float]:
    """How many words of each script a line has, about. Scripts that Chinese and Japanese mix count as one.

    Without spaces, some letters are a word. Addresses are none. Where another script is `usual`, a Latin word with a
    capital counts half: it may be a name.
    """
    if _ADDRESS.search(line):
        line = _RUN.sub(lambda run: " " if _ADDRESS.search(run[0]) else run[0], line)
    if line.isascii() and usual in ("LATIN", None):
        return {"LATIN": float(latin)} if (latin := len(_WORD.findall(line))) else {}
    found: dict[str, float] = {}
    for run in _WORD.findall(line.translate(_INSIDE)):
        for script, own in groupby(run, key=script_of):
            word = "".join(own)
            if script is not None:
                is_name = script == "LATIN" and usual not in ("LATIN", None) and not word[0].islower()
                count = max(1.0, len(word) / _UNSPACED[script]) if script in _UNSPACED else 0.5 if is_name else 1.0
                found[script] = found.get(script, 0.0) + count
    return found


def is_in_script(line: str, script: str | None) -> bool:
    """Whether at least a third of the words of a line are of a script; true if there are hardly any letters.

    Of words, because a name in Latin letters has as many of these as a Chinese sentence has characters.
    """
    if script is None or (script == "LATIN" and _is_latin(line)) or sum(map(str.isalpha, line)) < _LEAST_LETTERS:
        return True
    found = words(line, usual=script)
    return 3 * found.get(script, 0.0) >= sum(found.values())


def _is_latin(line: str) -> bool:
    """Whether a line has Latin letters alone, digits, and usual signs; not all such lines are found."""
    return line.isascii() or not _NOT_LATIN.search(line)


def has_control(line: str) -> bool:
    """Whether a line has a character that is not text: control characters (tabs too), private use, U+FFFD, U+FEFF."""
    if line.isprintable() and "\ufffd" not in line:
        return False
    return any(character in "\ufffd\ufeff" or unicodedata.category(character) in ("Cc", "Co") for character in line)


def _is_copied(pair: Pair) -> bool:
    source, target = map(folded, pair)
    return source == target and any(character.isalpha() for character in source)


def key_of(pair: Pair) -> bytes | None:
    """What is the same for equal pairs, whatever their white space; None where a side is empty."""
    return digest_of("\n".join(map(canonical, pair))) if all(map(str.strip, pair)) else None


def digest_of(text: str) -> bytes:
    """64 bits of a hash."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


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
            name = unpacked(file.name)
            if file.is_file() and name.startswith(f"{path.name}.") and "." not in name[len(path.name) + 1 :]:
                suffixes.add(name[len(path.name) + 1 :])
    if len(suffixes) != 2:
        there = ", ".join(sorted(f"{prefix}.{suffix}" for suffix in suffixes)) or "none"
        raise ConfigError(f"{prefix}: not two files with this prefix ({there}); name the languages: --languages en de")
    first, second = sorted(suffixes)
    return first, second


def files_of(prefix: str, languages: tuple[str, str]) -> FilePair:
    """The files of a text; DataError where one is missing."""
    return find_pair(prefix, *languages)


def inspect(
    files: FilePair,
    *,
    held_out: Sequence[FilePair] | HeldOut = (),
    max_ratio: float = MAX_RATIO,
    examples: int = 3,
    each: Callable[[int, Pair, list[str]], None] | None = None,
    known: tuple[Norms, np.ndarray] | None = None,
) -> Report:
    """Read a corpus twice, for its usual properties and then for its faults, and report the faults.

    Args:
        files: source and target.
        held_out: files whose sentences must not occur in it, or these sentences.
        max_ratio: how many times longer than expected a side may be.
        examples: number of pairs to keep for each fault.
        each: called for each pair with the number of its line, from 1, and its faults.
        known: its usual properties, and whether each pair occurs before, [pairs], if known: it is read once.

    Raises:
        DataError: files are missing, of unequal length or without a line, or `held_out` is not UTF-8. In the corpus
            lines that are not UTF-8 are a fault.
    """
    if not isinstance(held_out, HeldOut):
        held_out = HeldOut(Pair(*lines) for text in held_out for lines in read_pairs(text))
    if known is None:
        counted, keys = NormsOf(), Repeats()
        for _, pair, _ in _pairs(files):
            counted.add(pair)
            keys.add(key_of(pair))
        known = counted.norms(), keys.found()
    norms, repeated = known
    if not len(repeated):
        raise nothing_in([files])
    report = Report(files, norms)
    inspector = Inspector(norms, held_out=held_out, max_ratio=max_ratio)
    with progress(f"checking {files.source}", total=len(repeated), unit=" pairs") as advance:
        for number, pair, is_utf8 in _pairs(files, say=report.not_utf8):
            faults = inspector.faults(pair, is_utf8=is_utf8, is_duplicate=bool(repeated[number - 1]))
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


def new_files(output: str, languages: tuple[str, str], *, read: Iterable[FilePair], overwrite: bool) -> list[Path]:
    """OUTPUT.source, OUTPUT.target and OUTPUT.dropped.jsonl, which may be written; else an error of `check_new`."""
    paths = [Path(f"{output}.{suffix}") for suffix in (*languages, "dropped.jsonl")]
    own = [file for text in read for file in text]
    check_new(paths, texts=paths[: len(languages)], read=own, overwrite=overwrite, other="prefix")
    return paths


def check_new(
    paths: Sequence[Path], *, texts: Sequence[Path], read: Iterable[Path], overwrite: bool, other: str
) -> None:
    """Check that files may be written; `texts` are those of them that are read by their prefix.

    Raises:
        ConfigError: one of them is a file to read, or would be without its .gz; or its name ends in .gz.
        DataError: one exists and `overwrite` is false; or it would hide another .gz.
    """
    own = {file.resolve() for file in read}
    for path in paths:
        check_not_packed(path)
        for name in (path, *(Path(f"{path}{ending}") for ending in PACKED)):
            if name.resolve() in own:
                raise ConfigError(f"{name}: is the text to read; give another {other}")
        if path.exists() and not overwrite:
            raise DataError(f"{path}: exists already; give another {other} or --overwrite")
    for path in texts:
        check_hides_no_packed(path)


class PairFiles(NamedTuple):
    """Files of pairs that are kept, and one of those that are left out."""

    source: BinaryIO
    target: BinaryIO
    dropped: BinaryIO

    def keep(self, pair: Pair) -> None:
        """Write a pair to the first two."""
        self.source.write(f"{pair.source}\n".encode())
        self.target.write(f"{pair.target}\n".encode())

    def drop(self, pair: Pair, /, **why: Any) -> None:
        """Write a pair to the third, a JSON object with `why`."""
        self.dropped.write(f"{json.dumps(why | pair._asdict(), ensure_ascii=False)}\n".encode())


@contextmanager
def pair_files(paths: Sequence[Path], *, output: str | Path) -> Iterator[PairFiles]:
    """Three files, which appear when they are complete; errors name `output`."""
    with ExitStack() as stack:
        stack.enter_context(naming(output))
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        yield PairFiles(*(stack.enter_context(writing(path)) for path in paths))


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

    Raises ConfigError and DataError as `inspect` and `new_files`.
    """
    paths = new_files(output, languages, read=(files, *held_out), overwrite=overwrite)
    kept = 0
    with pair_files(paths, output=output) as written:

        def write(number: int, pair: Pair, faults: list[str]) -> None:
            nonlocal kept
            if set(faults) <= set(keep):
                kept += 1
                written.keep(pair)
            else:
                written.drop(pair, line=number, faults=faults)

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
