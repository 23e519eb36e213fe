"""One or two texts and a label a line, in columns that tabs separate or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nmt.data.text import read_lines
from nmt.data.tokenizer import on_one_line
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
