"""Ids of the special symbols, and vocabularies that list one token per id."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from nmt.data.text import read_lines
from nmt.errors import DataError
from nmt.files import LARGEST_VOCABULARY, read_inside

PAD = 0
UNK = 1
EOS = 2
SPECIAL_TOKENS = ("<pad>", "<unk>", "<eos>")
"""Names of the ids PAD, UNK and EOS, in this order; every vocabulary starts with them."""
BYTE = re.compile("<0x[0-9A-F]{2}>")
"""A token that stands for a byte."""

_Lines = Callable[[bool], Iterator[str]]
"""The lines of a file, with their `keep_returns`."""


class Vocabulary:
    """Tokens and their ids; ids 0, 1 and 2 are always `<pad>`, `<unk>` and `<eos>`.

    `tokens` are the ordinary ones, without the three; a token called like one of the three is
    refused, so that text can never smuggle in padding or an early end.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens: tuple[str, ...] = (*SPECIAL_TOKENS, *tokens)
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self._ids) != len(self.tokens):
            raise ValueError("a vocabulary holds each token once, and the special ones only at 0, 1 and 2")
        # Text that spells a special symbol is an unknown word, not the symbol.
        for name in SPECIAL_TOKENS:
            self._ids[name] = UNK

    def __len__(self) -> int:
        return len(self.tokens)

    def id(self, token: str) -> int:
        """The id of `token`; UNK where the vocabulary lacks it."""
        return self._ids.get(token, UNK)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The ids of `tokens`, UNK for the unknown ones; no end symbol is added."""
        ids = self._ids
        return [ids.get(token, UNK) for token in tokens]

    def save(self, path: Path) -> None:
        """Write one token per line, the special ones first; by these `from_file` knows such a file."""
        path.write_bytes("".join(f"{token}\n" for token in self.tokens).encode())

    @classmethod
    def from_file(cls, path: Path, *, within: Path | None = None) -> Vocabulary:
        r"""Read one token per line; a count after a tab or a space (Sockeye, fairseq) is ignored.

        The special symbols get ids 0, 1 and 2 whether or not and wherever the file lists them, and
        blank lines are skipped. A "\r" at the end of a line is part of the line end, but in a file of
        `save` part of the token. Raises DataError naming file and line of a repeated token or of a
        line that is neither `token` nor `token count`. With `within` the file is somebody else's, and must be a
        regular one of bounded size in that directory; a byte order mark that it begins with is then a token's.
        """
        first_seen: dict[str, int] = {}
        lines = _reader(path, within)
        for number, line in enumerate(lines(_is_saved(lines)), start=1):
            columns = line.replace("\t", " ").split(" ")
            token = columns[0]
            if token == "" and line.strip(" \t") == "":
                continue
            if len(columns) > 2 or token == "" or (len(columns) == 2 and not columns[1].isdigit()):
                raise DataError(f"{path}, line {number}: {line!r} is neither a token nor a token and its count")
            if token in SPECIAL_TOKENS:
                continue
            if token in first_seen:
                raise DataError(f"{path}, line {number}: token {token!r} is already on line {first_seen[token]}")
            first_seen[token] = number
        if not first_seen:
            raise DataError(f"{path}: the vocabulary is empty; one token per line is expected")
        return cls(first_seen)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], *, max_size: int | None = None, min_count: int = 1) -> Vocabulary:
        """The most frequent tokens, ties in code point order; `max_size` includes the three special ones."""
        frequent = [token for token, n in counts.items() if n >= min_count and token not in SPECIAL_TOKENS]
        frequent.sort(key=lambda token: (-counts[token], token))
        return cls(frequent if max_size is None else frequent[: max_size - len(SPECIAL_TOKENS)])


def _reader(path: Path, within: Path | None) -> _Lines:
    """What reads the lines of a vocabulary file as often as it is called; see `Vocabulary.from_file`."""
    if within is None:
        return lambda keep_returns: read_lines(path, keep_returns=keep_returns)
    try:
        content = read_inside(path, within=within, largest=LARGEST_VOCABULARY)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    return lambda keep_returns: read_lines(
        io.BytesIO(content), name=str(path), keep_returns=keep_returns, keep_mark=True
    )


def _is_saved(lines: _Lines) -> bool:
    """Whether a file begins as `Vocabulary.save` writes it; not one that has been given other line ends since."""
    return tuple(islice(lines(True), len(SPECIAL_TOKENS))) == SPECIAL_TOKENS
