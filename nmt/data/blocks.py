"""Parallel text in blocks of lines, read as bytes from any position; splitting a block is left to the caller."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from nmt.data.text import FilePair, count_lines, open_bytes, unequal
from nmt.errors import DataError
from nmt.light.encodings import MARK, not_utf8


class TextPosition(NamedTuple):
    """A place between two lines of a list of file pairs."""

    pair: int = 0
    """Pairs of files that are behind it."""
    lines: int = 0
    """Lines of the next pair that are behind it."""
    source_byte: int = 0
    """Where the next source line begins in the (unpacked) file."""
    target_byte: int = 0


@dataclass(frozen=True)
class Block:
    """Consecutive lines of one pair of files, the same number from each side."""

    files: FilePair
    part: int
    """Which pair of the list it is."""
    first_line: int
    """Number of its first line, from 1."""
    source: bytes
    target: bytes
    after: TextPosition


def read_blocks(pairs: Sequence[FilePair], *, lines: int, start: TextPosition) -> Iterator[Block]:
    """Yield all text of `pairs` from `start` on, `lines` lines at a time.

    Raises DataError naming the files when one side of a pair ends before the other, or a file
    cannot be read.
    """
    for part in range(start.pair, len(pairs)):
        try:
            yield from _blocks(pairs[part], lines, start if part == start.pair else TextPosition(part))
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{pairs[part].source} and its other side: cannot be read ({error})") from error


def _blocks(files: FilePair, lines: int, at: TextPosition) -> Iterator[Block]:
    with open_bytes(files.source) as source, open_bytes(files.target) as target:
        source.seek(at.source_byte)
        target.seek(at.target_byte)
        while True:
            (left, left_lines), (right, right_lines) = _take(source, lines), _take(target, lines)
            if left_lines != right_lines:
                raise unequal(files, count_lines(files.source), count_lines(files.target))
            if not left_lines:
                break
            after = TextPosition(
                at.pair, at.lines + left_lines, at.source_byte + len(left), at.target_byte + len(right)
            )
            yield Block(files, at.pair, at.lines + 1, left, right, after)
            at = after


def _take(stream: IO[bytes], lines: int) -> tuple[bytes, int]:
    taken = list(islice(stream, lines))
    return b"".join(taken), len(taken)


def split_lines(block: bytes, path: Path, *, first_line: int = 1) -> list[str]:
    r"""The lines of whole lines of a file, split as `read_lines` does.

    Only "\n" ends a line, and one "\r" before it belongs to the line end. Raises DataError naming
    file and line for bytes that are not UTF-8.
    """
    is_marked = first_line == 1 and block.startswith(MARK)
    block = block.removeprefix(MARK) if is_marked else block
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        begin, end = block.rfind(b"\n", 0, error.start) + 1, block.find(b"\n", error.start)
        number = first_line + block.count(b"\n", 0, error.start)
        raise DataError(f"{path}, line {number}: {not_utf8(block[begin : end if end >= 0 else None])}") from error
    lines = text.split("\n")
    last = lines.pop()  # nothing after the last line end, or a line without one
    if "\r" in text:
        lines = [line[:-1] if line.endswith("\r") else line for line in lines]
    return [*lines, last] if last or (is_marked and not lines) else lines
