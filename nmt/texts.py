"""Names of parallel text: a prefix of two files, `SOURCE:TARGET`, or one file that has both sides."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nmt.errors import shown
from nmt.registry import FORMS

PACKED = (".gz", ".zst")
"""Endings of packed text."""
_FORMS = "a mapping is {source: FILE, target: FILE} or {file: FILE, columns: [SOURCE, TARGET]}"


class TextName(NamedTuple):
    """What a name says."""

    files: tuple[str, ...]
    """A prefix or a file; or the files of source and target."""
    form: str = ""
    """Of one file with both sides, a member of `FORMS`."""
    columns: tuple[str, ...] = ()
    """The columns or keys of source and target, where they are named."""


def read_name(name: str) -> TextName:
    """What `name` is if no files have it as their prefix: `corpus.tsv`, `corpus.tsv.gz:3:4`, `text.en:text.de`."""
    first, *others = name.split(":")
    form = unpacked(first).rpartition(".")[2].lower()
    if form in FORMS.names() and len(others) in (0, 2) and all(others):
        return TextName((first,), form, tuple(others))
    return TextName((first, *others) if len(others) == 1 and first and others[0] else (name,))


def unpacked(name: str) -> str:
    """The name without the ending of packed text."""
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def each_file(name: str, change: Callable[[str], str]) -> str:
    """`name` with each file in it changed; all of it is one prefix where that is not two existing files."""
    found = read_name(name)
    if len(found.files) == 2 and not all(map(os.path.exists, found.files)):
        return change(name)
    return ":".join([*map(change, found.files), *found.columns])


def name_of(value: Any) -> Any:
    """The name that stands for a mapping in a configuration, also in a list; ValueError for what is neither form."""
    if isinstance(value, list):
        return [name_of(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"source", "target"}:
        parts = [value["source"], value["target"]]
    elif value.keys() in ({"file"}, {"file", "columns"}):
        columns = value.get("columns", [])
        if not isinstance(columns, list) or len(columns) not in (0, 2):
            raise ValueError(f"columns: {shown(columns)} is not a list of two columns, those of source and target")
        parts = [value["file"], *(str(one) if type(one) is int else one for one in columns)]
        if isinstance(parts[0], str) and not read_name(parts[0]).form:
            raise ValueError(f"file: {shown(parts[0])} has no ending of a form. Allowed: {', '.join(FORMS.names())}.")
    else:
        raise ValueError(f"{shown(dict(value))} is not allowed; {_FORMS}")
    for part in parts:
        if not isinstance(part, str) or not part or ":" in part:
            raise ValueError(f"{shown(part)} is not allowed; names here are text without a colon")
    return ":".join(parts)
