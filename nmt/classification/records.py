"""Texts with labels: lines of files, and their ids in memory."""

from __future__ import annotations

import hashlib
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


class Record(NamedTuple):
    """A line."""

    texts: tuple[str, ...]
    """None of them where the line is blank."""
    label: str
    """As the line has it; empty where none was asked for."""
    line: int
    """Its number."""


class Raw(NamedTuple):
    """What stands at the places of a line that were asked for."""

    line: int
    values: list[str]
    """None of them where it is blank."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where lines have their texts and their labels."""

    form: Literal["tsv", "json"]
    texts: Sequence[Place]
    label: Place
    header: bool = False
    """Whether the first line names columns."""
    lowercase: bool = False
    parses: bool = False
    """Whether texts are parses with brackets, of which the words are taken."""

    def text(self, value: str) -> str:
        """A text as it is read: on one line."""
        value = on_one_line(value)
        if self.parses:
            value = " ".join(word for word in value.split() if word not in ("(", ")"))
        return value.lower() if self.lowercase else value

    def records(self, file: Path) -> Iterator[Record]:
        """The lines of a file without the header; DataError naming file and line for a malformed line."""
        lines, places = enumerate(read_lines(file), start=1), [*self.texts, self.label]
        if self.form == "json":
            found = _json_values(lines, str(file), places)
        else:
            found = _columns(lines, str(file), places, header=self.header)
        yield from map(self._record, found)

    def objects(self, lines: Iterable[tuple[int, str]], name: str, *, labelled: bool) -> Iterator[Record]:
        """The same of numbered lines of JSON from the source `name`, with their labels only if they are `labelled`."""
        places = [*self.texts, *([self.label] if labelled else [])]
        return map(self._record, _json_values(lines, name, places))

    def _record(self, raw: Raw) -> Record:
        count = len(self.texts)
        return Record(tuple(map(self.text, raw.values[:count])), "".join(raw.values[count:]).strip(), raw.line)


def _json_values(lines: Iterable[tuple[int, str]], name: str, keys: Sequence[Place]) -> Iterator[Raw]:
    for number, line in lines:
        if not line.strip():
            yield Raw(number, [])
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            said = getattr(error, "msg", "too deep, or a number of thousands of digits")
            raise DataError(f"{name}, line {number}: not JSON ({said})") from error
        if not isinstance(found, dict):
            raise DataError(f"{name}, line {number}: not a JSON object, {{...}}")
        yield Raw(number, [_value(found, str(key), where=f"{name}, line {number}") for key in keys])


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


def _columns(lines: Iterator[tuple[int, str]], name: str, places: Sequence[Place], *, header: bool) -> Iterator[Raw]:
    names: list[str] | None = None
    most: tuple[int, int] | None = None
    find: list[Callable[[list[str]], str | None]] = []
    for number, line in lines:
        if not line.strip():
            yield Raw(number, [])
            continue
        fields = line.split("\t")
        if most is None:
            most = number, len(fields)
            names = fields if header else None
            find = [_column(place, names, where=f"{name}, line {number}") for place in places]
            if header:
                continue
        if len(fields) > most[1]:
            has = counted(len(fields), "column")
            raise DataError(f"{name}, line {number}: {has}, but line {most[0]} has {most[1]}")
        values = [column(fields) for column in find]
        for place, value in zip(places, values, strict=True):
            if value is None:
                has = counted(len(fields), "column")
                raise DataError(f"{name}, line {number}: {has}, and no column {shown(place)}")
        yield Raw(number, [value for value in values if value is not None])


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

    format: Literal["tsv", "json"] = "tsv"
    """`tsv`: columns that tabs separate, without quotes; `json`: a JSON object a line."""
    texts: list[str | int] = field(default_factory=lambda: ["sentence1", "sentence2"])
    """Columns of one or two texts, by name or number (from 1; -1 is the last); or JSON keys."""
    label: str | int = "gold_label"
    """Column or key of the label."""
    header: bool | None = None
    """Of `tsv`: whether the first line names columns; `null`: if one is given by name."""
    no_label: str | None = "-"
    """Label of lines that have none; these are left out, and counted."""
    parses: bool = False
    """The texts are parses with brackets, as SNLI's `sentence1_binary_parse`."""
    lowercase: bool = False
    """All text is read in lower case."""
    vectors: FilePath | None = None
    """File in GloVe's text format from which the embeddings of words start."""
    fixed_vectors: bool = False
    """The embeddings that start from a vector stay as they are."""

    def __post_init__(self) -> None:
        places = [*self.texts, self.label]
        if len(self.texts) not in (1, 2):
            raise ValueError(f"texts: one or two, not {len(self.texts)}")
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
    def layout(self) -> Layout:
        """Where lines have their texts and labels."""
        header = self.header
        if header is None:
            header = any(isinstance(place, str) for place in [*self.texts, self.label])
        return Layout(
            form=self.format,
            texts=self.texts,
            label=self.label,
            header=header,
            lowercase=self.lowercase,
            parses=self.parses,
        )
