"""Glossaries: terms of the source language with their translations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from nmt.data.spans import Span
from nmt.data.text import read_lines
from nmt.errors import DataError, shown

_UNIT = re.compile(r"\w+|[^\w\s]")


class Glossary:
    """Terms and their translations.

    A term is matched as whole words. A term in lower case matches any case, another one only its exact spelling. Of
    overlapping terms the one that begins first counts, and of these the longest.
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        self._by_first: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        # The longest first, and of terms that differ only in case, the one that matches only its own case.
        for term in sorted(terms, key=lambda term: (-len(term), term == term.lower())):
            first = _UNIT.search(term)
            if first is not None:
                own = self._by_first.setdefault(first[0].lower(), [])
                own.append((_pattern(term), terms[term]))

    def find(self, line: str) -> list[tuple[Span, str]]:
        """Where in a line terms are, in order, and the translation of each."""
        found: list[tuple[Span, str]] = []
        end = 0
        for unit in _UNIT.finditer(line):
            if unit.start() < end:
                continue
            for pattern, target in self._by_first.get(unit[0].lower(), ()):
                match = pattern.match(line, unit.start())
                if match is not None:
                    found.append((match.span(), target))
                    end = match.end()
                    break
        return found


def _pattern(term: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in term.split())
    last = r"(?!\w)" if term[-1].isalnum() else ""
    return re.compile(words + last, re.IGNORECASE if term == term.lower() else 0)


def load_glossary(path: str | Path) -> Glossary:
    """Read a file of lines `source TAB target`; blank lines and those that begin with # are left out.

    Raises DataError naming file and line for any other line, and for a term with two translations.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        columns = [" ".join(column.split()) for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            raise DataError(f"{where}: {shown(line)} is not a term, a tab and its translation")
        term, target = columns
        if terms.setdefault(term, target) != target:
            raise DataError(f"{where}: {shown(term)} has two translations, {shown(terms[term])} and {shown(target)}")
    if not terms:
        raise DataError(f"{path}: the glossary is empty; lines of a term, a tab and its translation are expected")
    return Glossary(terms)
