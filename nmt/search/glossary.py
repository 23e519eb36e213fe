"""Glossaries: files of terms of the source language and their translations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nmt.data.matching import Matcher, canonical
from nmt.data.text import read_lines
from nmt.errors import DataError, shown


def load_glossary(path: str | Path, *, reads: Callable[[str], str] = str) -> Matcher[str]:
    """Read a file of lines `source TAB target`; blank lines and those that begin with # are left out.

    `reads`: how the model's tokenizer normalises a text. Raises DataError naming file and line for any other line, and
    for a term with two translations.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        columns = [" ".join(column.split()) for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            raise DataError(f"{where}: {shown(line)} is not a term, a tab and its translation")
        term, target = canonical(columns[0]), columns[1]
        if terms.setdefault(term, target) != target:
            raise DataError(f"{where}: {shown(term)} has two translations, {shown(terms[term])} and {shown(target)}")
    if not terms:
        raise DataError(f"{path}: the glossary is empty; lines of a term, a tab and its translation are expected")
    return Matcher(terms, reads=reads)
