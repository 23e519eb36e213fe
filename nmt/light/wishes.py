"""What is asked for single lines, in JSON: the constraints of nmt-translate and nmt-light, and requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from .errors import DataError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_ALSO_CALLED: Final = {"target_prefix": "prefix", "constraints": "require", "avoid": "forbid"}
"""Sockeye's names of some of the keys."""
WISHES: Final = {"prefix": "prefix", "require": "required", "forbid": "forbidden"}
"""Keys, and their names in a Request."""


def read_wishes(line: str, where: str) -> dict[str, Any]:
    """The fields of a Request that a line of a file of constraints asks for; DataError, which begins with `where`, for
    what is not such a line."""
    return wishes_of(read_object(line, where), where) if line.strip() else {}


def read_object(line: str, where: str) -> dict[str, Any]:
    """The JSON object of a line, with its keys renamed to nmt's names."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            name = _ALSO_CALLED.get(key, key)
            if name in found:
                raise DataError(f"{where}: {shown(key)} is given twice")
            found[name] = value
        return found

    try:
        found = json.loads(line, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply"
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg}, column {error.colno}"
        raise DataError(f"{where}: not a JSON object: {shown(line)} ({reason})") from error
    if not isinstance(found, dict):
        raise DataError(f"{where}: not a JSON object: {shown(line)}")
    return found


def wishes_of(found: Mapping[str, Any], where: str, *, also: Sequence[str] = ()) -> dict[str, Any]:
    """Fields of a Request from the keys of an object; `also`: further allowed keys."""
    fields: dict[str, Any] = {}
    for key, value in found.items():
        if key not in WISHES:
            from difflib import get_close_matches  # late, as few make mistakes

            allowed = (*also, *WISHES)
            hint = "".join(f" Did you mean {name!r}?" for name in get_close_matches(key[:60], allowed, n=1))
            raise DataError(f"{where}: {shown(key)} is not a known key.{hint} Allowed: {', '.join(allowed)}.")
        if key == "prefix":
            fields[key] = text_of(value, where, key)
            continue
        if not isinstance(value, str | list):
            raise DataError(f"{where}: {key}: {shown(value)} is neither a text nor a list of texts")
        phrases = [value] if isinstance(value, str) else value
        fields[WISHES[key]] = tuple(text_of(phrase, where, key) for phrase in phrases)
    return fields


def text_of(value: object, where: str, key: str) -> str:
    """A value that must be text."""
    if not isinstance(value, str):
        raise DataError(f"{where}: {key}: {shown(value)} is not a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can hold half of a surrogate pair
        raise DataError(f"{where}: {key}: {shown(value)} is not Unicode text") from error
    return value


def also_given(field: str, where: str, there: str) -> DataError:
    """What is raised where two places ask for the same."""
    return DataError(f"{where}: {field}: is also given in {there}; give one of the two")
