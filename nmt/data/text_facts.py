"""Digests of text and numbers of lines: of files, remembered between runs, and of validation text."""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nmt.data.text import FilePair, ParallelText, nothing_in, read_lines, unequal, unpacked_stream
from nmt.data.work import Advance, no_progress
from nmt.errors import DataError
from nmt.files import digest_of, file_identity, reason, remembered, replace_text
from nmt.light.lines import LONGEST_LINE, is_wide

_BLOCK = 1 << 20


@dataclass(frozen=True)
class FileFacts:
    """Facts about a file from reading it completely."""

    digest: str
    """SHA-256 of its bytes, packed if they are."""
    lines: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class KnownFiles:
    """Facts about files, each read once: a file with the same size, times and inode counts as unchanged.

    So the start of a run does not depend on the amount of text. The times of change that a file
    system keeps (ctime) cannot be set back, so that text cannot be exchanged unnoticed.
    """

    def __init__(self, file: Path) -> None:
        """`file`: where the facts are remembered, by `save`."""
        self._file = file
        self._remembered = remembered(file)
        self._facts: dict[Path, FileFacts] = {}

    def unread_bytes(self, paths: Sequence[Path]) -> int:
        """Bytes of those files that would have to be read."""
        return sum((file_identity(path) or (0,))[0] for path in set(paths) if self._known(path) is None)

    def facts(self, path: Path, *, advance: Advance = no_progress) -> FileFacts:
        """The facts of a file; DataError for one that is not UTF-8 text throughout."""
        found = self._known(path) or read_facts(path, advance=advance)
        self._facts[path] = found
        return found

    def digest(self, path: Path) -> str:
        """SHA-256 of a file's bytes."""
        return self.facts(path).digest

    def count_pairs(self, pairs: Sequence[FilePair]) -> int:
        """Line pairs of all files; DataError if the two sides differ or have no lines."""
        count = 0
        for pair in pairs:
            source, target = self.facts(pair.source).lines, self.facts(pair.target).lines
            if source != target:
                raise unequal(pair, source, target)
            count += source
        if count == 0:
            raise nothing_in(pairs)
        return count

    def save(self) -> None:
        """Save the facts; the file is not written if nothing has changed."""
        known = {**self._remembered, **{str(path.absolute()): asdict(facts) for path, facts in self._facts.items()}}
        if known == self._remembered:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self._file, json.dumps(known, indent=1))
        except OSError as error:
            raise DataError(f"{self._file}: cannot be written ({reason(error)})") from error

    def _known(self, path: Path) -> FileFacts | None:
        if path in self._facts:
            return self._facts[path]
        try:
            facts = FileFacts(**self._remembered[str(path.absolute())])
        except (KeyError, TypeError):
            return None
        before = (facts.size, facts.mtime_ns, facts.ctime_ns, facts.inode)
        return facts if before == file_identity(path) else None


class _Digesting(io.FileIO):
    """A file whose bytes go through a digest as they are read, once and in order."""

    def __init__(self, path: Path, advance: Advance) -> None:
        super().__init__(path, "rb")
        self.digest = hashlib.sha256()
        self._advance = advance

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self.digest.update(memoryview(buffer)[:count])
        self._advance(count)
        return count


def read_facts(path: Path, *, advance: Advance = no_progress) -> FileFacts:
    """Read a file completely; DataError naming file and line for text that is not UTF-8."""
    before = file_identity(path)
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = unfinished = 0
    try:
        with _Digesting(path, advance) as raw:
            stream = unpacked_stream(io.BufferedReader(raw, _BLOCK), path)
            while block := stream.read(_BLOCK):
                if not (lines or unfinished) and is_wide(block.partition(b"\n")[0]):
                    raise ValueError("UTF-16")
                decoder.decode(block)
                ended = block.count(b"\n")
                longest = unfinished + (block.find(b"\n") if ended else len(block))
                if longest > LONGEST_LINE:
                    raise ValueError("too long to be a line")
                unfinished = len(block) - block.rfind(b"\n") - 1 if ended else longest
                lines += ended
            decoder.decode(b"", final=True)
    except (OSError, EOFError, zlib.error, ValueError):
        deque(read_lines(path), maxlen=0)  # which names the line
        raise DataError(f"{path}: changed while it was read") from None
    if before is None or file_identity(path) != before:
        raise DataError(f"{path}: changed while it was read")
    return FileFacts(raw.digest.hexdigest(), lines + (unfinished > 0), *before)


def file_digest(path: Path) -> str:
    """SHA-256 of the bytes of a file, whatever they are; DataError where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return digest_of(stream)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({reason(error)})") from error


class ValidationFacts(NamedTuple):
    """Number of lines of a validation text, of several the largest, and SHA-256 of each part."""

    lines: int
    source: str
    target: str
    references: str
    """Of all sets of references, in their order."""


def validation_facts(text: ParallelText, references: Sequence[Sequence[str]]) -> ValidationFacts:
    """The facts of a text and the references that its translations are scored against."""
    sets = _digest(_digest(stream) for stream in references)
    return ValidationFacts(len(text.source), _digest(text.source), _digest(text.target), sets)


def joined_facts(sets: Sequence[ValidationFacts]) -> ValidationFacts:
    """Those of several texts that are scored apart, with the lines of the longest; of one its own."""
    if len(sets) == 1:
        return sets[0]
    lines, *digests = zip(*sets, strict=True)
    return ValidationFacts(max(lines), *map(_digest, digests))


def facts_of_files(files: Sequence[Path]) -> ValidationFacts | None:
    """The facts of a text that is not parallel, with the labels in it; None without files."""
    if not files:
        return None
    lines = [line for file in files for line in read_lines(file)]
    return ValidationFacts(len(lines), source="", target=_digest(lines), references="")


def _digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")  # which no line contains
    return digest.hexdigest()
