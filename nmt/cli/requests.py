"""The wishes for each line: prefixes and phrases, from files next to the input or from its lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from nmt.data import read_lines
from nmt.data.text import Policy, Undecodable, wide
from nmt.data.tokenizer import on_one_line
from nmt.errors import DataError, counted, refused, shown
from nmt.search import Request

FORMATS: Final = ("text", "tsv", "jsonl")
"""Formats of input lines."""
_TEXT = "text"
_ALSO_CALLED: Final = {"target_prefix": "prefix", "constraints": "require", "avoid": "forbid"}
"""Sockeye's names of some of the keys."""
_WISHES: Final = {"prefix": "prefix", "require": "required", "forbid": "forbidden"}
"""Keys, and their names in a Request."""

Fields = dict[str, Any]
"""Some fields of a Request."""


class _Beside(NamedTuple):
    """A file that goes with the input."""

    path: str
    undecodable: Undecodable
    """The rule by which it is read."""
    lines: Iterator[str]
    read: Callable[[str, str], Fields]


class RequestReader:
    """Requests from the lines of an input, window by window, and from the files that go with it, line by line."""

    def __init__(
        self,
        name: str,
        *,
        input_format: str = "text",
        prefix: str | None = None,
        constraints: str | None = None,
        policy: Policy = "strict",
    ) -> None:
        """
        Args:
            name: the input's name in errors.
            input_format: one of FORMATS.
            prefix: file with a prefix for each line, empty for none; may be .gz.
            constraints: file with a JSON object for each line, empty for none; may be .gz.
            policy: what to do with lines of these two files that are not UTF-8.

        Raises:
            DataError: a file that goes with the input is missing, or has another number of lines than the input (if
                both are files).
        """
        self._name = name
        self._read: Callable[[str, str], Fields] = {"text": _plain, "tsv": _columns, "jsonl": _object}[input_format]
        self._beside: list[_Beside] = []
        for path, read in ((prefix, _prefix), (constraints, _constraints)):
            if path is not None:
                rule = Undecodable(policy)
                lines = read_lines(path, undecodable=rule)
                self._beside.append(_Beside(path, rule, lines, read))
        self._is_plain = input_format == "text" and not self._beside
        self._lines = 0
        for beside in self._beside:
            _check_lines(name, beside.path)

    def requests(self, lines: Sequence[str]) -> Sequence[str | Request]:
        """The requests of the next lines; the lines themselves if there are no wishes."""
        if self._is_plain:
            return lines
        return [self._request(line) for line in lines]

    def finish(self) -> None:
        """Raise DataError if a file that goes with the input has more lines than the input."""
        for path, _, lines, _ in self._beside:
            if next(lines, None) is not None:
                raise DataError(f"{path} has more than the {counted(self._lines, 'line')} of {self._name}; {_ONE_EACH}")

    def problems(self) -> list[str]:
        """For each file with lines that were not UTF-8 a message about them."""
        return [f"{path}: {rule.summary()}" for path, rule, *_ in self._beside if rule.noted]

    def _request(self, line: str) -> Request:
        self._lines += 1
        where = f"{self._name}, line {self._lines}"
        fields = self._read(line, where)
        for path, _, lines, read in self._beside:
            beside = next(lines, None)
            if beside is None:
                raise DataError(f"{path} has {counted(self._lines - 1, 'line')} but {self._name} has more; {_ONE_EACH}")
            place = f"{path}, line {self._lines}"
            for field, value in read(beside, place).items():
                if field in fields:
                    raise DataError(f"{place}: {field}: is also given in {where}; give one of the two")
                fields[field] = value
                where = place
        return Request(where=where, **fields)


_ONE_EACH = "there must be one for each line"


def _plain(line: str, where: str) -> Fields:
    return {_TEXT: line}


def _columns(line: str, where: str) -> Fields:
    """Text and required phrases, separated by tabs, as in fairseq."""
    text, *phrases = line.split("\t")
    return {_TEXT: text, "required": tuple(phrases)} if phrases else {_TEXT: text}


def _object(line: str, where: str) -> Fields:
    """A JSON object with the line's text and wishes; a blank line is an empty text."""
    if not line.strip():
        return {_TEXT: ""}
    found = _loaded(line, where)
    if _TEXT not in found:
        raise DataError(f"{where}: the key 'text' is missing")
    return {_TEXT: on_one_line(_string(found.pop(_TEXT), where, _TEXT)), **_wishes(found, where, also=(_TEXT,))}


def _prefix(line: str, where: str) -> Fields:
    return {"prefix": line} if line.strip() else {}


def _constraints(line: str, where: str) -> Fields:
    return _wishes(_loaded(line, where), where) if line.strip() else {}


def _loaded(line: str, where: str) -> dict[str, Any]:
    """The JSON object of a line, with its keys renamed to nmt's names."""
    try:
        found = json.loads(line, object_pairs_hook=lambda pairs: _unique(pairs, where))
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        )
        raise DataError(f"{where}: not a JSON object: {shown(line)} ({reason})") from error
    if not isinstance(found, dict):
        raise DataError(f"{where}: not a JSON object: {shown(line)}")
    return found


def _unique(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        name = _ALSO_CALLED.get(key, key)
        if name in found:
            raise DataError(f"{where}: {shown(key)} is given twice")
        found[name] = value
    return found


def _wishes(found: Mapping[str, Any], where: str, *, also: Sequence[str] = ()) -> Fields:
    """Fields of a Request from the keys of an object; `also`: further allowed keys."""
    fields: Fields = {}
    for key, value in found.items():
        if key not in _WISHES:
            raise DataError(refused(where, key, [*also, *_WISHES], problem="is not a known key"))
        fields[_WISHES[key]] = _string(value, where, key) if key == "prefix" else _phrases(value, where, key)
    return fields


def _phrases(value: Any, where: str, key: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_string(value, where, key),)
    if not isinstance(value, list):
        raise DataError(f"{where}: {key}: {shown(value)} is neither a text nor a list of texts")
    return tuple(_string(phrase, where, key) for phrase in value)


def _string(value: Any, where: str, key: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: {key}: {shown(value)} is not a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can hold half of a surrogate pair
        raise DataError(f"{where}: {key}: {shown(value)} is not Unicode text") from error
    return value


def _check_lines(name: str, path: str) -> None:
    """Compare the numbers of lines of two files before anything is translated; a pipe can be read only once."""
    if not Path(path).exists() or os.path.isfile(path):
        found = _count(path)
        if os.path.isfile(name) and found != (expected := _count(name)):
            raise wide(Path(name), Path(path)) or DataError(
                f"{name} has {counted(expected, 'line')} but {path} has {found:,}; {_ONE_EACH}"
            )


def _count(path: str) -> int:
    return sum(1 for _ in read_lines(path, undecodable=Undecodable("empty")))
