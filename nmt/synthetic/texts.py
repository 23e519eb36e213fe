"""The text that is translated: files of lines, some with a reference for each line, read as one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nmt.config.schema import Config
from nmt.data.prepare import trained_on
from nmt.data.text import FilePair, Policy, Undecodable, find_pairs, read_lines, read_pairs, unequal
from nmt.data.text_facts import read_facts
from nmt.errors import DataError, missing
from nmt.files import reason

_BLOCK = 1 << 20


class Line(NamedTuple):
    """A line to translate."""

    text: str
    reference: str | None
    """Its translation by people, where its file has one."""
    place: str
    """`FILE, line N`."""
    not_utf8: str = ""
    """The place of the text or, where that is UTF-8, of the reference, that was not and has been read by the rule for
    such lines; empty if both were."""


@dataclass(frozen=True)
class Text:
    """A file of lines, and the file of their references if there is one."""

    source: Path
    reference: Path | None
    lines: int
    digest: str
    """Of the bytes of both."""


class Texts:
    """All text of one work, in order."""

    def __init__(self, found: Sequence[tuple[Path, Path | None]], *, policy: Policy = "strict") -> None:
        """Reads the files once, for their digests and numbers of lines.

        Raises DataError, naming the file, if it is missing or cannot be read, for bytes that are not UTF-8 (unless
        `policy` allows them), for two sides of unequal length, and if there are no lines.
        """
        self._policy = policy
        self.parts = [self._text(source, reference) for source, reference in found]
        if not self.lines:
            raise DataError(f"no line to translate in {', '.join(str(part.source) for part in self.parts)}")

    @property
    def lines(self) -> int:
        """Lines of all files."""
        return sum(part.lines for part in self.parts)

    def read(self, start: int = 0) -> Iterator[Line]:
        """The lines from number `start`, from 0, on."""
        for part in self.parts:
            if start >= part.lines:
                start -= part.lines
                continue
            rules = Undecodable(self._policy), Undecodable(self._policy)
            for number, (text, reference) in enumerate(_lines(part, rules), start=1):
                odd = [rule.had(number) for rule in rules]  # ask both: each forgets its answer
                if number > start:
                    places = [f"{path}, line {number}" for path in (part.source, part.reference)]
                    not_utf8 = next((place for place, is_odd in zip(places, odd, strict=True) if is_odd), "")
                    yield Line(text, reference, places[0], not_utf8)
            start = 0

    def _text(self, source: Path, reference: Path | None) -> Text:
        files = [source] if reference is None else [source, reference]
        facts = [self._facts(path) for path in files]
        if reference is not None and facts[0][1] != facts[1][1]:
            raise unequal(FilePair(source, reference), facts[0][1], facts[1][1])
        return Text(source, reference, facts[0][1], "".join(digest for digest, _ in facts))

    def _facts(self, path: Path) -> tuple[str, int]:
        if self._policy == "strict":
            found = read_facts(path)
            return found.digest, found.lines
        digest = hashlib.sha256()
        lines = sum(1 for _ in read_lines(path, undecodable=Undecodable(self._policy)))
        try:
            with path.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({reason(error)})") from error
        return digest.hexdigest(), lines


def files_to_translate(
    config: Config, *, train: Sequence[str], source: Sequence[str]
) -> list[tuple[Path, Path | None]]:
    """The files of parallel text (prefixes), then the files without references (names).

    With neither, the parallel training text of the model with this configuration. Raises DataError for a missing file,
    ConfigError if the configuration has no text.
    """
    key = "--train" if train else "data.train"
    prefixes = train or ([] if source else trained_on(config))
    pairs = find_pairs(prefixes, config.data.source_language, config.data.target_language, key=key)
    return [*((pair.source, pair.target) for pair in pairs), *((_file(name), None) for name in source)]


def _file(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise DataError(f"{name}: is not a regular file" if path.exists() else missing(name))
    return path


def _lines(part: Text, rules: tuple[Undecodable, Undecodable]) -> Iterator[tuple[str, str | None]]:
    if part.reference is None:
        yield from ((line, None) for line in read_lines(part.source, undecodable=rules[0]))
    else:
        yield from read_pairs(FilePair(part.source, part.reference), undecodable=rules)
