"""Tatoeba English-German, the selection of ManyThings.org, split into train, dev and test without a common sentence.

The original pairs sentences many to many, and is updated from time to time. The held-out sentences depend only on the
sentences themselves, not on the order of the file or on random numbers.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from nmt.corpora.faults import Pair
from nmt.corpora.fetch import LANGUAGES, digest, download, is_complete, settle
from nmt.data.text import read_lines
from nmt.errors import DataError, counted

HOME = "https://www.manythings.org/anki"
ARCHIVE = "deu-eng.zip"
TEXT = "deu.txt"
"""In the archive. A line is an English sentence, a tab, a German one and, in newer versions, a tab and their origin."""
LICENCE = """Tatoeba English-German in the selection of ManyThings.org, https://www.manythings.org/anki
Sentences and translations by the contributors of https://tatoeba.org, under CC BY 2.0 FR."""
HELD_OUT = {"dev": 2000, "test": 2500}
"""English sentences of each."""
FEWEST_WORDS = 4
"""Fewest words of a held-out English sentence, separated by white space. Shorter ones have too many correct
translations."""
LARGEST = 1 << 30
"""Bytes of the text."""
LARGEST_FETCHED = 256 << 20
"""Bytes of the archive, or the text, that a server may send."""


def get(to: Path, *, copies: Path | None, mirror: str) -> None:
    """Make train, dev and test in `to` from the archive in the folder `copies` or from `mirror`; each step is printed.

    `mirror` is the directory of the archive or the archive itself. Raises DataError if the archive cannot be fetched or
    used.
    """
    print(LICENCE)
    complete = {part: is_complete(to, part) for part in (*HELD_OUT, "train")}
    if all(complete.values()):
        for part in complete:
            print(f"{to / part}.en, .de: already here")
    else:
        path = _archive(to, copies=copies, mirror=mirror)
        print(f"{path}: SHA-256 {digest(path)}")
        found = split(read(path))
        to.mkdir(parents=True, exist_ok=True)
        write(to, found)
        print("\n".join(found.lines()))
    print(f"Tatoeba is complete in {to}")


def _archive(to: Path, *, copies: Path | None, mirror: str) -> Path:
    """The archive, or its text alone: in `copies`, in `to`, or fetched into `to`."""
    folder = copies or to
    for name in (ARCHIVE, TEXT):
        if (folder / name).is_file():
            return folder / name
    if copies:
        raise DataError(f"{copies} holds neither {ARCHIVE} nor {TEXT}")
    url = mirror if mirror.endswith((".zip", ".txt")) else f"{mirror}/{ARCHIVE}"
    print(f"fetching {url}")
    return download(url, to / (TEXT if url.endswith(".txt") else ARCHIVE), expected=None, largest=LARGEST_FETCHED)


@dataclass
class Split:
    """The result of splitting the original pairs."""

    dev: list[Pair] = field(default_factory=list)
    test: list[Pair] = field(default_factory=list)
    train: list[Pair] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Counts of lines and pairs by their use."""

    def lines(self) -> list[str]:
        """The counts for people."""
        of = self.counts
        return [
            f"{counted(of['lines'], 'line')}: {of['unusable']:,} without two sentences, {of['twice']:,} repeated",
            f"dev: {counted(len(self.dev), 'pair')}, test: {counted(len(self.test), 'pair')}, "
            f"train: {counted(len(self.train), 'pair')}",
            f"left out of train: {of['english']:,} other translations of English sentences of dev and test, "
            f"{of['german']:,} other originals of their German sentences",
            f"not held out: {counted(of['taken'], 'sentence')} whose translation was held out already",
        ]


def read(path: Path) -> Iterator[str]:
    """The lines of the text, in the archive or as a plain file; DataError for anything else."""
    if path.suffix != ".zip":
        yield from read_lines(path)
        return
    try:
        with zipfile.ZipFile(path) as archive, _member(archive, path) as stream:
            yield from read_lines(stream, name=f"{path}: {TEXT}")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise DataError(f"{path}: damaged archive ({error}); delete it and run this again") from error


@contextmanager
def _member(archive: zipfile.ZipFile, path: Path) -> Iterator[IO[bytes]]:
    if TEXT not in archive.namelist():
        raise DataError(f"{path}: {TEXT} is not in it")
    if archive.getinfo(TEXT).file_size > LARGEST:
        raise DataError(f"{path}: {TEXT} is larger than {LARGEST >> 30} GiB; is it text?")
    with archive.open(TEXT) as stream:
        yield stream


def split(lines: Iterable[str]) -> Split:
    """Hold out sentences, and keep for training the pairs that share no sentence with them.

    English sentences of FEWEST_WORDS words or more are sorted by their SHA-256; the first are `dev`, the next `test`.
    If a sentence has several German ones, the reference is the one whose pair has the smallest SHA-256. A sentence
    whose reference is already used is skipped. All three texts are sorted by these sums, so the beginning of each is a
    sample of it. Sentences are the same if they differ in case and spacing alone.

    Raises DataError if there are too few sentences to hold out.
    """
    found = Split()
    pairs = _pairs(lines, found.counts)
    german: dict[str, list[Pair]] = {}
    for pair in pairs:
        if len(pair.source.split()) >= FEWEST_WORDS:
            german.setdefault(_folded(pair.source), []).append(pair)
    references: set[str] = set()
    held_out: list[Pair] = []
    wanted = sum(HELD_OUT.values())
    for key in sorted(german, key=_sum):
        pair = min(german[key], key=_sum_of_pair)
        if len(held_out) == wanted:
            break
        if _folded(pair.target) in references:
            found.counts["taken"] += 1
            continue
        references.add(_folded(pair.target))
        held_out.append(pair)
    if len(held_out) < wanted:
        raise DataError(
            f"{counted(len(held_out), 'English sentence')} of {FEWEST_WORDS} words or more with a translation of its "
            f"own, but dev and test need {wanted:,}: is this the English-German text?"
        )
    found.dev, found.test = held_out[: HELD_OUT["dev"]], held_out[HELD_OUT["dev"] :]
    _rest(found, pairs, held_out, references)
    return found


def _rest(found: Split, pairs: Sequence[Pair], held_out: Sequence[Pair], references: set[str]) -> None:
    """Put into `train` what has no sentence that is held out."""
    known, own = {_folded(pair.source) for pair in held_out}, set(held_out)
    for pair in sorted(pairs, key=_sum_of_pair):
        if pair in own:
            continue
        if _folded(pair.source) in known:
            found.counts["english"] += 1
        elif _folded(pair.target) in references:
            found.counts["german"] += 1
        else:
            found.train.append(pair)


def _pairs(lines: Iterable[str], counts: Counter[str]) -> list[Pair]:
    """The different pairs of the text."""
    pairs: dict[Pair, None] = {}
    for line in lines:
        counts["lines"] += 1
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) < 2 or not columns[0].strip() or not columns[1].strip():
            counts["unusable"] += 1
            continue
        pair = Pair(columns[0], columns[1])
        counts["twice"] += pair in pairs
        pairs[pair] = None
    return list(pairs)


def _folded(sentence: str) -> str:
    return " ".join(sentence.split()).casefold()


def _sum(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _sum_of_pair(pair: Pair) -> bytes:
    return _sum("\t".join(pair))


def write(to: Path, found: Split) -> None:
    """Write PART.en and PART.de of each part, and their sums."""
    temporary = []
    for part, pairs in (("dev", found.dev), ("test", found.test), ("train", found.train)):
        for side, language in enumerate(LANGUAGES):
            temporary.append(to / f"{part}.{language}.part")
            with temporary[-1].open("w", encoding="utf-8", newline="\n") as stream:
                stream.writelines(f"{pair[side]}\n" for pair in pairs)
    settle(to, temporary)
