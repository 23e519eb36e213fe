"""Labels in text: spans and their schemes, files of columns, and words of text without spaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from nmt.data.text import read_lines
from nmt.errors import DataError, counted, shown

Scheme = Literal["iob1", "iob2", "bioes"]
SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme)
OUTSIDE: Final = "O"


class Span(NamedTuple):
    """Words first..end-1 of a sentence, and what they are."""

    kind: str
    first: int
    end: int


def parts(label: str) -> tuple[str, str]:
    """Prefix and kind of a label: `I-LOC` is ("I", "LOC"), `O` is ("O", "")."""
    prefix, _, kind = label.partition("-")
    return prefix, kind


def is_label(label: str) -> bool:
    """Whether it is `O`, or one of B, I, E and S, a hyphen and a kind."""
    return label == OUTSIDE or (len(label) > 2 and label[0] in "BIES" and label[1] == "-" and " " not in label)


def spans(labels: Iterable[str]) -> list[Span]:
    """The spans of the labels of a sentence by the rules of conlleval, which understand every scheme and sequence.

    A span ends before O, before another kind, before B and S, and after E and S; any label but O that follows such an
    end begins one.
    """
    found: list[Span] = []
    first, before, kind_before = 0, OUTSIDE, ""
    for place, label in enumerate((*labels, OUTSIDE)):
        prefix, kind = parts(label)
        cut = OUTSIDE in (before, prefix) or before in "ES" or prefix in "BS" or kind != kind_before
        if cut and before != OUTSIDE:
            found.append(Span(kind_before, first, place))
        if cut:
            first = place
        before, kind_before = prefix, kind
    return found


def labelled(found: Iterable[Span], *, length: int, scheme: Scheme) -> list[str]:
    """The labels of a sentence of so many words with these spans, in their order."""
    labels = [OUTSIDE] * length
    end_before, kind_before = -1, ""
    for kind, first, end in found:
        labels[first:end] = [f"I-{kind}"] * (end - first)
        if scheme == "bioes" and end - first == 1:
            labels[first] = f"S-{kind}"
        elif scheme == "bioes":
            labels[first], labels[end - 1] = f"B-{kind}", f"E-{kind}"
        elif scheme == "iob2" or (end_before, kind_before) == (first, kind):
            labels[first] = f"B-{kind}"
        end_before, kind_before = end, kind
    return labels


def misplaced(labels: Sequence[str], scheme: Scheme) -> int | None:
    """The place of the first label that `scheme` would not have there; None where there is none.

    Each sequence of spans has exactly one sequence of labels in a scheme.
    """
    right = labelled(spans(labels), length=len(labels), scheme=scheme)
    return next((place for place, pair in enumerate(zip(labels, right, strict=True)) if pair[0] != pair[1]), None)


def found_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme that the labels of a text look like; where all of them would do, IOB2.

    BIOES where there is any E or S, IOB1 where any span begins with I.
    """
    found: Scheme = "iob2"
    for labels in sentences:
        if any(label[0] in "ES" for label in labels):
            return "bioes"
        if found == "iob2" and any(labels[span.first][0] == "I" for span in spans(labels)):
            found = "iob1"
    return found


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


LABELS: Final = ("B", "M", "E", "S")
_SPACES = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""What has the property White_Space in Unicode, so `\\s` in Perl, by which the SIGHAN scorer splits lines."""


def words_of(line: str) -> list[str]:
    """The words of a line; spaces of any kind and number separate them."""
    return [word for word in _SPACES.split(line) if word]


def labels_of(words: Iterable[str]) -> list[str]:
    """The labels of all characters of some words."""
    return [label for word in words for label in _labels(len(word))]


def _labels(length: int) -> str:
    return "S" if length == 1 else f"B{'M' * (length - 2)}E"


def word_spans(labels: Sequence[str], *, begin: Iterable[int] = ()) -> list[Span]:
    """The words that labels of characters say, whatever their sequence: each character is in one.

    A word begins with B and S, after E and S, and at the places `begin` in any case.
    """
    if not labels:
        return []
    firsts = {0, *begin}
    for place, label in enumerate(labels):
        if label in "BS":
            firsts.add(place)
        if label in "ES" and place + 1 < len(labels):
            firsts.add(place + 1)
    places = sorted(firsts)
    return [Span("", first, end) for first, end in zip(places, [*places[1:], len(labels)], strict=True)]


def begins(words: Sequence[str]) -> list[int]:
    """Where among all characters each word begins."""
    places, place = [], 0
    for word in words:
        places.append(place)
        place += len(word)
    return places


def joined(characters: Sequence[str], words: Sequence[Span]) -> str:
    """The words at these places, with a space between them."""
    return " ".join("".join(characters[word.first : word.end]) for word in words)
