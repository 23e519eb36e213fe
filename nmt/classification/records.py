"""Texts with labels: lines of files, and their ids in memory."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config.schema import FilePath
from nmt.data.corpus import FlatSentences, Part, Rows, flat
from nmt.data.text import read_lines
from nmt.data.tokenizer import Tokenizer, on_one_line
from nmt.data.vocabulary import EOS, UNK
from nmt.errors import DataError, counted, shown

Place = str | int
"""The name of a column or key, or the number of a column, from 1 or from the end with -1."""
Form = Literal["tsv", "csv", "json"]


class Record(NamedTuple):
    """A text, or two, with its label."""

    texts: tuple[str, ...]
    """None of them where the line is blank, or has the names of the columns."""
    label: str
    """As the line has it; empty where none was asked for."""
    line: int
    """The number of its line, of several the first: a text between quotes may have more."""
    lines: int = 1
    """How many lines it has."""
    is_header: bool = False


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where lines have their texts and their labels."""

    form: Form
    texts: Sequence[Sequence[Place]]
    """For each text the places that it is joined from, with spaces between them."""
    label: Place
    header: bool = False
    """Whether the first line names columns."""
    lowercase: bool = False
    parses: bool = False
    """Whether texts are parses with brackets, of which the words are taken."""
    escaped: bool = False
    """Whether a backslash with an n is the end of a line in a text."""

    def text(self, value: str) -> str:
        """A text as it is read: on one line."""
        value = on_one_line(value.replace(r"\n", " ") if self.escaped else value)
        if self.parses:
            value = " ".join(word for word in value.split() if word not in ("(", ")"))
        return value.lower() if self.lowercase else value

    def records(self, file: Path) -> Iterator[Record]:
        """Those of a file without the header; DataError naming file and line for a malformed line."""
        reader = RecordReader(self, str(file), labelled=True)
        yield from (record for record in reader.records(read_lines(file)) if not record.is_header)
        reader.end()


class RecordReader:
    """Reads the lines of a file, or what a pipe has brought so far."""

    def __init__(self, layout: Layout, name: str, *, labelled: bool) -> None:
        """`name`: of the file, for errors. Only if its lines are `labelled` they must have a label."""
        self._layout, self._name = layout, name
        self._places = [*itertools.chain.from_iterable(layout.texts), *([layout.label] if labelled else [])]
        self._columns: list[Callable[[list[str]], str | None]] = []
        self._widest = 0, 0
        self._next = 1
        self._open: list[str] = []

    def records(self, lines: Iterable[str]) -> Iterator[Record]:
        """The records of further lines; one between quotes whose end is missing waits for it.

        Raises DataError naming file and line for a malformed one.
        """
        rows = self._between_quotes(lines) if self._layout.form == "csv" else map(_one, lines)
        for row, count in rows:
            first, self._next = self._next, self._next + count
            where = f"{self._name}, line {first}"
            if self._layout.form == "json":
                values = _json_values(str(row), self._places, where=where) if row else []
            else:
                columns = row.split("\t") if isinstance(row, str) and row else list(row)
                if columns and not self._widest[0]:
                    self._begin(first, columns)
                    if self._layout.header:
                        yield Record((), "", first, count, is_header=True)
                        continue
                values = self._values(columns, where=where) if columns else []
            yield self._record(values, first, count)

    def end(self) -> None:
        """Raise DataError if the last record has no end."""
        if self._open:
            raise DataError(f"{self._name}, line {self._next}: a quotation mark is opened here and never closed")

    def _between_quotes(self, lines: Iterable[str]) -> Iterator[tuple[list[str], int]]:
        """The columns of each record, and how many lines it has."""
        is_over = False

        def fed() -> Iterator[str]:
            nonlocal is_over
            for line in itertools.chain(waiting, lines):
                self._open.append(line)
                yield f"{line}\n"
            is_over = True

        waiting, self._open = self._open, []
        reader = csv.reader(fed(), strict=True)
        while True:
            try:
                columns = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if is_over:
                    return
                raise DataError(f"{self._name}, line {self._next}: not CSV ({error})") from error
            count, self._open = len(self._open), []
            yield [] if len(columns) == 1 and not columns[0].strip() else columns, count

    def _begin(self, number: int, columns: list[str]) -> None:
        names = columns if self._layout.header else None
        self._widest = number, len(columns)
        self._columns = [_column(place, names, where=f"{self._name}, line {number}") for place in self._places]

    def _values(self, columns: list[str], *, where: str) -> list[str]:
        has = counted(len(columns), "column")
        if len(columns) > self._widest[1]:
            raise DataError(f"{where}: {has}, but line {self._widest[0]} has {self._widest[1]}")
        values = []
        for place, column in zip(self._places, self._columns, strict=True):
            value = column(columns)
            if value is None:
                raise DataError(f"{where}: {has}, and no column {shown(place)}")
            values.append(value)
        return values

    def _record(self, found: list[str], line: int, lines: int) -> Record:
        values, texts = iter(found), self._layout.texts if found else ()
        joined = [" ".join(itertools.islice(values, len(places))) for places in texts]
        return Record(tuple(map(self._layout.text, joined)), "".join(values).strip(), line, lines)


def _one(line: str) -> tuple[str, int]:
    return line if line.strip() else "", 1


def _json_values(line: str, keys: Sequence[Place], *, where: str) -> list[str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        said = getattr(error, "msg", "too deep, or a number of thousands of digits")
        raise DataError(f"{where}: not JSON ({said})") from error
    if not isinstance(found, dict):
        raise DataError(f"{where}: not a JSON object, {{...}}")
    return [_value(found, str(key), where=where) for key in keys]


def _value(found: dict[str, Any], key: str, *, where: str) -> str:
    if key not in found:
        raise DataError(f"{where}: no key {shown(key)}; the keys are {', '.join(map(shown, found)) or 'none'}")
    value = found[key]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{where}: {shown(key)} is {shown(value)}. Allowed: text, or a whole number for a label.")
    text = str(value)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise DataError(f"{where}: {shown(key)} is not text: it has half of a surrogate pair")
    return text


def _column(place: Place, names: list[str] | None, *, where: str) -> Callable[[list[str]], str | None]:
    """A function that takes a column of a line; None for a line without it."""
    if isinstance(place, str):
        if names is None or place not in names:
            there = ", ".join(map(shown, names or [])) or "none"
            raise DataError(f"{where}: no column is named {shown(place)}; the columns are {there}")
        if names.count(place) > 1:
            raise DataError(f"{where}: {names.count(place)} columns are named {shown(place)}; choose one by its number")
        place = names.index(place) + 1
    index = place - 1 if place > 0 else place
    return lambda fields: fields[index] if -len(fields) <= index < len(fields) else None


@dataclass(frozen=True)
class Read:
    """The records of some files that have a label."""

    records: list[Record]
    unlabelled: int
    """Lines marked as having no label, which are left out."""
    blank: int
    """Blank lines, which are left out."""


def read_records(files: Sequence[Path], layout: Layout, *, labels: Sequence[str], no_label: str | None) -> Read:
    """All lines that have one of the `labels`; blank ones and those with `no_label` are left out and counted.

    Raises DataError naming file and line for a malformed line or an unknown label.
    """
    known, records, unlabelled, blank = set(labels), list[Record](), 0, 0
    for file in files:
        for record in layout.records(file):
            if not record.texts:
                blank += 1
            elif record.label in known:
                records.append(record)
            elif record.label == no_label:
                unlabelled += 1
            else:
                raise DataError(f"{file}, line {record.line}: {unknown_label(record.label, labels, no_label)}")
    return Read(records, unlabelled, blank)


def unknown_label(label: str, labels: Sequence[str], no_label: str | None) -> str:
    """Word the error for an unknown label."""
    none = "" if no_label is None else f", or {no_label} for none"
    return f"{shown(label)} is not a label. Allowed: {', '.join(labels)}{none}."


@dataclass(frozen=True)
class ClassifiedCorpus:
    """N texts, or pairs of texts, each text with its end symbol (`nmt.data.batching.Pairs`)."""

    texts: Sequence[FlatSentences]
    """One, or two."""
    labels: NDArray[np.int64]
    """[N]; 0 where it is not known"""

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def key(self) -> str:
        """Digest of texts and labels."""
        digest = hashlib.sha256(self.labels.tobytes())
        for text in self.texts:
            digest.update(text.lengths.tobytes() + b"\n" + text.ids.tobytes() + b"\n")
        return digest.hexdigest()

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """[N], of the first text: pairs that are alike in both lengths come together."""
        return self.texts[0].lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """[N], of the second text; 0 where there is none."""
        return self.texts[1].lengths if len(self.texts) > 1 else np.zeros(len(self), np.int32)

    @property
    def parts(self) -> Sequence[Part]:
        """One."""
        return (Part(len(self), int(np.maximum(self.source_lengths, self.target_lengths).sum())),)

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Of rows [B] the words of all texts, and 1, as each has one label: [B] each."""
        return self.source_lengths[rows] + self.target_lengths[rows], np.ones(len(rows), np.int32)

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """Ids of the first texts of rows [B], PAD at the right: [B, S]."""
        return self.texts[0].padded(rows)

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """The labels of rows [B]: [B, 1]."""
        return self.labels[rows, None]

    @property
    def tokens(self) -> int:
        """In all texts, their ends not counted."""
        return sum(len(text.ids) - len(text.lengths) for text in self.texts)

    @property
    def unknown(self) -> int:
        """Tokens that the vocabulary lacks."""
        return sum(int((text.ids == UNK).sum()) for text in self.texts)


def encode(texts: Sequence[Sequence[str]], labels: Sequence[int], tokenizer: Tokenizer) -> ClassifiedCorpus:
    """`texts`: for each line one or two; `labels`: ids, 0 for an unknown one."""
    sides = [flat([*ids, EOS] for ids in tokenizer.encode_source(side)) for side in zip(*texts, strict=True)]
    return ClassifiedCorpus(sides, np.array(labels, np.int64))


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions:
    """Options of the task `classification`. `data.train`, `data.dev` and `data.test` are files, not prefixes."""

    format: Form = "tsv"
    """`tsv`: tabs between columns, no quotes; `csv`: commas, and texts may stand in quotes (RFC 4180) and have several
    lines; `json`: an object a line."""
    texts: list[str | int | list[str | int]] = field(default_factory=lambda: ["sentence1", "sentence2"])
    """Columns of one or two texts, by name or number (from 1; -1: the last), or JSON keys; `[[2, 3]]` is one text of
    two columns."""
    label: str | int = "gold_label"
    """Column or key of the label."""
    header: bool | None = None
    """Whether the first line of each file names columns; `null`: if a column is given by name."""
    escaped_newlines: bool = False
    """`\\n` in a text becomes a space, as in the published reviews of Yelp and Amazon."""
    no_label: str | None = "-"
    """Label of lines that have none, which are left out."""
    parses: bool = False
    """Texts are parses with brackets, as SNLI's `sentence1_binary_parse`."""
    lowercase: bool = False
    """All text is read in lower case."""
    vectors: FilePath | None = None
    """File in GloVe's text format from which the embeddings of words start."""
    fixed_vectors: bool = False
    """The embeddings that start from a vector stay as they are."""

    def __post_init__(self) -> None:
        if len(self.texts) not in (1, 2):
            raise ValueError(f"texts: one or two, not {len(self.texts)}")
        if [] in self.texts:
            raise ValueError("texts: a list of columns must not be empty")
        places = self.places
        if len({*places}) < len(places):
            raise ValueError(f"texts: the texts and the label must be in different places, not {places}")
        if 0 in places:
            raise ValueError("texts: columns are counted from 1, or from the end with -1")
        named = [isinstance(place, str) for place in places]
        if self.format == "json" and not all(named):
            raise ValueError("texts: JSON has named keys, not numbered columns")
        if self.format == "json" and self.header is not None:
            raise ValueError("header: has no effect with JSON")
        if self.header is False and any(named):
            raise ValueError("header: must be true if columns are given by their names in the first line")
        if self.fixed_vectors and self.vectors is None:
            raise ValueError("fixed_vectors: has no effect without vectors")

    @property
    def places(self) -> list[Place]:
        """Of all texts, and of the label."""
        return [*itertools.chain.from_iterable(self.layout.texts), self.label]

    @property
    def layout(self) -> Layout:
        """Where lines have their texts and labels."""
        texts = [[own] if isinstance(own, str | int) else own for own in self.texts]
        header = self.header
        if header is None:
            header = any(isinstance(place, str) for place in [*itertools.chain.from_iterable(texts), self.label])
        return Layout(
            form=self.format,
            texts=texts,
            label=self.label,
            header=header and self.format != "json",
            lowercase=self.lowercase,
            parses=self.parses,
            escaped=self.escaped_newlines,
        )
