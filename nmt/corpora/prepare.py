"""From text as people have it to what nmt-train reads: train, dev and test without leaks, and a configuration."""

from __future__ import annotations

import heapq
import json
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from nmt.corpora.faults import (
    FAULTS,
    MAX_RATIO,
    HeldOut,
    Inspector,
    Norms,
    NormsOf,
    Pair,
    Report,
    check_new,
    digest_of,
    inspect,
    key_of,
    pair_files,
)
from nmt.corpora.repeats import Repeats
from nmt.corpora.sizes import configuration
from nmt.data.matching import folded
from nmt.data.text import FilePair, Undecodable, find_pair, is_prefix, read_pairs, stored
from nmt.data.work import progress
from nmt.errors import DataError, counted, missing
from nmt.files import naming, replace_text
from nmt.light.counts import Noted
from nmt.registry import FORMS
from nmt.texts import TextName, read_name

PARTS: Final = ("train", "dev", "test")
CONFIG: Final = "train.yaml"
REPORT: Final = "report.json"
DROPPED: Final = "dropped.jsonl"
ALWAYS: Final = frozenset({"empty", "duplicate", "held_out"})
"""Faults that are left out without being asked for."""
FEWEST_WORDS: Final = 4
"""Of a held-out source; shorter ones have too many correct translations. Without spaces, letters count for words."""
MOST_LETTERS: Final = 1000
"""Of a held-out source."""
_SPARE: Final = 2
"""How many times more sentences are kept in mind than are held out, because some have the same translation."""
_NOT_LETTERS: Final = re.compile(r"[\W\d_]+")
_MARK: Final = "\ufeff"


def outline(text: str) -> str:
    """A text without case, digits and punctuation, in which near duplicates are equal; all of it without a letter."""
    plain = folded(text)
    return " ".join(_NOT_LETTERS.sub(" ", plain).split()) or plain


@dataclass
class Read:
    """What was in the files."""

    pairs: int = 0
    unpaired: dict[tuple[str, str], Noted] = field(default_factory=dict)
    """By file and reason, the numbers of rows that have no pair."""
    not_utf8: Counter[str] = field(default_factory=Counter)
    """Lines of each file that are not UTF-8; such bytes are replaced by U+FFFD."""
    marks: int = 0
    """Byte order marks at the beginning of lines after the first, which are taken away."""
    breaks: int = 0
    """Pairs with line breaks within a side, which are read as spaces."""


class Prepared(NamedTuple):
    """What was written."""

    read: Read
    report: Report
    written: dict[str, int]
    """Pairs of each part."""
    dropped: int
    """Pairs in none."""
    folder: Path

    def said(self) -> list[str]:
        """Lines for people about what was read and its faults."""
        read, files = self.read, self.report
        lines = [f"{counted(read.pairs, 'pair')} read, {files.faulty:,} with a fault"]
        lines += [f"{path}: {noted.said(f'without a pair ({why})')}" for (path, why), noted in read.unpaired.items()]
        lines += [
            f"{file}: {counted(n, 'line')} not UTF-8, such bytes replaced by U+FFFD"
            for file, n in read.not_utf8.items()
            if n
        ]
        if read.marks:
            lines.append(f"{counted(read.marks, 'byte order mark')} at the beginning of lines taken away")
        if read.breaks:
            lines.append(f"line breaks within {counted(read.breaks, 'pair')} are read as spaces")
        lines += [f"{name:<13}{files.counts[name]:>10,}  {FAULTS[name]}" for name in FAULTS if files.counts[name]]
        return lines


def prepare(
    names: Sequence[str],
    folder: Path,
    languages: tuple[str, str],
    *,
    hold_out: int | None = None,
    dev: int | None = None,
    clean: bool = False,
    max_ratio: float = MAX_RATIO,
    examples: int = 3,
    run_dir: str | None = None,
    overwrite: bool = False,
) -> Prepared:
    """Read parallel text in any form and write FOLDER/train, dev and test with the languages as endings, what was left
    out, a report and FOLDER/train.yaml.

    Held-out sentences depend on the sentences alone, not on their order or on chance: those whose hash is smallest,
    of sources of FEWEST_WORDS words or more without a fault. What has an equal side, apart from case, digits and
    punctuation, is in no other part. Empty and repeated pairs are left out; with `clean` every pair with a fault.

    Args:
        names: texts, as `data.train` names them.
        hold_out, dev: pairs of the test and the validation text; by default 1,000, or 200 of less than 20,000 pairs.
        run_dir: of the configuration; by default `runs/` and the name of `folder`.

    Raises:
        ConfigError, DataError: as `nmt.corpora.faults.check_new`; a text cannot be read or has no pair; too few can be
            held out.
    """
    read, usual, keys = Read(), NormsOf(), Repeats()
    sides = {part: [folder / f"{part}.{language}" for language in languages] for part in PARTS}
    texts = [path for paths in sides.values() for path in paths]
    made = [*texts, folder / DROPPED, folder / REPORT, folder / CONFIG]
    own = [file for name in names for file in _files(name, languages)]
    check_new(made, texts=texts, read=own, overwrite=overwrite, other="folder")
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nmt-prepare-", dir=folder) as temporary:
        spooled = FilePair(*(Path(temporary) / f"all.{language}" for language in languages))
        with spooled.source.open("w", encoding="utf-8") as source, spooled.target.open("w", encoding="utf-8") as target:
            for pair in _read(names, languages, read):
                usual.add(pair)
                keys.add(key_of(pair))
                source.write(f"{pair.source}\n")
                target.write(f"{pair.target}\n")
        if not read.pairs:
            raise DataError(f"{', '.join(names)}: no pair of {' and '.join(languages)}")
        norms, few = usual.norms(), 1000 if read.pairs >= 20_000 else 200
        wanted = {"dev": few if dev is None else dev, "test": few if hold_out is None else hold_out}
        held = choose(read_pairs(spooled), norms, sum(wanted.values()), max_ratio=max_ratio)
        parts = {"dev": held[: wanted["dev"]], "test": held[wanted["dev"] :]}
        written = {"train": 0, **{part: len(pairs) for part, pairs in parts.items()}}
        known = _Outlines(held)

        def write(number: int, pair: Pair, faults: list[str]) -> None:
            left_out = faults if clean else [fault for fault in faults if fault in ALWAYS]
            if known.is_itself and "empty" not in faults:
                return
            if left_out:
                files.drop(pair, pair=number, faults=faults)
            else:
                written["train"] += 1
                files.keep(pair)

        with pair_files([*sides["train"], folder / DROPPED], output=folder) as files:
            report = inspect(
                spooled,
                held_out=known,
                max_ratio=max_ratio,
                examples=examples,
                each=write,
                known=(norms, keys.found()),
            )
            if not written["train"]:
                raise DataError(f"{', '.join(names)}: no pair is left for training")
            held_out = [part for part, pairs in parts.items() if pairs]
            for part in held_out:
                for path, lines in zip(sides[part], zip(*parts[part], strict=True), strict=True):
                    replace_text(path, "".join(f"{line}\n" for line in lines))
            with naming(folder):
                for path in (path for part in parts if part not in held_out for path in sides[part]):
                    path.unlink(missing_ok=True)  # of an earlier call, whose configuration is replaced
        run = run_dir or f"runs/{folder.resolve().name}"
        with naming(folder):
            made_for = configuration(folder.as_posix(), run, languages, written["train"], held_out=held_out)
            replace_text(folder / CONFIG, made_for)
            record = _record(names, read, report, written)
            replace_text(folder / REPORT, json.dumps(record, ensure_ascii=False, indent=1))
    return Prepared(read, report, written, read.pairs - sum(written.values()), folder)


def _read(names: Sequence[str], languages: tuple[str, str], read: Read) -> Iterator[Pair]:
    """All pairs of some texts, without white space at their ends."""
    with progress("reading", total=0, unit=" pairs") as advance:
        for name in names:
            for source, target in _sides(name, languages, read):
                read.marks += source.startswith(_MARK) or target.startswith(_MARK)
                read.pairs += 1
                advance(1)
                yield Pair(source.lstrip(_MARK).strip(), target.lstrip(_MARK).strip())


def _form_of(name: str, languages: tuple[str, str]) -> TextName | None:
    """What a name says of one file with both sides; None for two files."""
    found = read_name(name)
    return None if not found.form or is_prefix(name, languages) else found


def _files(name: str, languages: tuple[str, str]) -> Sequence[Path]:
    """The files of a text; DataError for one that is missing."""
    found = _form_of(name, languages)
    if found is None:
        return find_pair(name, *languages)
    path = stored(found.files[0])
    if path is None:
        raise DataError(missing(found.files[0]))
    return [path]


def _sides(name: str, languages: tuple[str, str], read: Read) -> Iterator[tuple[str, str]]:
    found, files = _form_of(name, languages), _files(name, languages)
    rules = [Undecodable("replace") for _ in files]
    if found is not None and len(found.columns) > 2:
        raise DataError(
            f"{name}: documents are not kept by nmt-data prepare; name the columns of source and target alone"
        )
    if found is None:
        yield from read_pairs(FilePair(*files), undecodable=(rules[0], rules[1]))
    else:
        for row in FORMS.get(found.form)().rows(files[0], found.columns, languages, rules[0]):
            if row.problem:
                read.unpaired.setdefault((str(files[0]), row.problem), Noted()).add(row.number)
            else:
                read.breaks += row.has_breaks
                yield row.sides
    for file, rule in zip(files, rules, strict=True):
        read.not_utf8[str(file)] += rule.noted.count


class _Outlines(HeldOut):
    """Held-out sentences by their outlines. The pairs that are held out themselves are met once, which is no fault."""

    def __init__(self, pairs: Collection[Pair]) -> None:
        super().__init__([Pair(*map(outline, pair)) for pair in pairs])
        self._waiting = set(pairs)
        self.is_itself = False
        """Whether the last pair was one of those that are held out."""

    def has_side_of(self, pair: Pair) -> bool:
        self.is_itself = pair in self._waiting
        self._waiting.discard(pair)
        return not self.is_itself and super().has_side_of(Pair(*map(outline, pair)))


def choose(pairs: Iterator[tuple[str, str]], norms: Norms, count: int, *, max_ratio: float = MAX_RATIO) -> list[Pair]:
    """So many pairs to hold out, no two of them with an equal side; DataError where there are too few."""
    if not count:
        return []
    inspector = Inspector(norms, max_ratio=max_ratio)
    most = _SPARE * count + 100
    best: dict[bytes, tuple[bytes, Pair]] = {}
    largest: list[tuple[int, bytes]] = []  # a heap of the negative keys
    for lines in pairs:
        pair = Pair(*lines)
        words = pair.source.split()
        if len(words) < FEWEST_WORDS and (pair.source.isascii() or len(pair.source) < FEWEST_WORDS):
            continue
        if len(pair.source) > MOST_LETTERS:
            continue
        key = digest_of(outline(pair.source))
        if len(best) == most and key not in best and -int.from_bytes(key, "big") < largest[0][0]:
            continue
        if inspector.faults(pair):
            continue
        own = digest_of("\n".join(pair)), pair
        if key in best:
            best[key] = min(best[key], own)
            continue
        best[key] = own
        heapq.heappush(largest, (-int.from_bytes(key, "big"), key))
        if len(best) > most:
            del best[heapq.heappop(largest)[1]]
    chosen: list[Pair] = []
    targets: set[bytes] = set()
    for key in sorted(best):
        target = digest_of(outline(best[key][1].target))
        if len(chosen) < count and target not in targets:
            targets.add(target)
            chosen.append(best[key][1])
    if len(chosen) < count:
        raise DataError(
            f"{counted(len(chosen), 'pair')} can be held out, but --dev and --hold-out need {count:,}: give less"
        )
    return chosen


def _record(names: Sequence[str], read: Read, report: Report, written: dict[str, int]) -> dict[str, Any]:
    """The report as plain values."""
    own = report.to_json()
    return {
        "texts": list(names),
        "pairs": read.pairs,
        "rows_without_a_pair": {": ".join(what): noted.count for what, noted in read.unpaired.items()},
        "lines_not_utf8": {file: count for file, count in read.not_utf8.items() if count},
        "byte_order_marks": read.marks,
        "line_breaks": read.breaks,
        "faults": own["faults"],
        "examples": own["examples"],
        "written": written,
    }
