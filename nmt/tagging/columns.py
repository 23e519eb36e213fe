"""Text in columns, one word a line, as shared tasks of CoNLL have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from nmt.data.text import read_lines
from nmt.errors import DataError, counted, shown
from nmt.tagging.schemes import is_label

DOCUMENT: Final = "-DOCSTART-"
"""Beginning of a line that only marks the start of a document."""


class Columns(NamedTuple):
    """The columns of words and labels: counted from 1, or from the end with -1."""

    word: int = 1
    label: int = -1


class Sentence(NamedTuple):
    """Words with their labels as the file has them."""

    words: list[str]
    labels: list[str]
    first: int
    """Number of its first line; its others follow."""


class _Row(NamedTuple):
    """A line of a file."""

    number: int
    line: str
    fields: list[str]
    """None of them where it holds no word: an empty line, or the beginning of a document."""
    separator: str


def _rows(file: Path, columns: Columns) -> Iterator[_Row]:
    """All lines; DataError, with file and line, if a line has another number of columns than the first."""
    expected: tuple[int, int] | None = None
    for number, line in enumerate(read_lines(file), start=1):
        separator = "\t" if "\t" in line else " "
        fields = [field for field in line.split(separator) if field or separator == "\t"]
        if not line.strip(" \t") or fields[0] == DOCUMENT:
            yield _Row(number, line, [], separator)
            continue
        if expected is None:
            expected = number, len(fields)
        if len(fields) != expected[1]:
            has = counted(len(fields), "column")
            raise DataError(f"{file}, line {number}: {has}, but line {expected[0]} has {expected[1]}")
        for name, column in columns._asdict().items():
            if not -len(fields) <= column <= len(fields):
                has = counted(len(fields), "column")
                raise DataError(f"{file}, line {number}: {has}, but {name}s must be in column {column}")
        yield _Row(number, line, fields, separator)


def read_columns(file: Path, columns: Columns) -> Iterator[Sentence]:
    """The sentences of a file, separated by empty lines; -DOCSTART- lines are skipped.

    Columns are separated by tabs if a line has any, else by spaces. Raises DataError naming file and line if malformed.
    """
    held: Sentence | None = None
    for row in _rows(file, columns):
        if not row.fields:
            if held is not None:
                yield held
            held = None
            continue
        word, label = (row.fields[_index(column)] for column in columns)
        if not word or " " in word:
            raise DataError(f"{file}, line {row.number}: {shown(word)} is not a word: it is empty or has a space")
        if not is_label(label):
            raise DataError(
                f"{file}, line {row.number}: {shown(label)} is not a label. Allowed: O, or B-, I-, E- or S- and a kind."
            )
        if held is None:
            held = Sentence([], [], row.number)
        held.words.append(word)
        held.labels.append(label)
    if held is not None:
        yield held


def with_labels(file: Path, columns: Columns, labels: Iterator[Sequence[str]]) -> Iterator[str]:
    """The lines of a file with other labels in their column: those of each sentence, in order."""
    own: Iterator[str] = iter(())
    inside = False
    for row in _rows(file, columns):
        if not row.fields:
            inside = False
            yield row.line
            continue
        if not inside:
            own, inside = iter(next(labels)), True
        row.fields[_index(columns.label)] = next(own)
        yield row.separator.join(row.fields)


def _index(column: int) -> int:
    return column - 1 if column > 0 else column
