"""What the validation text was, in a few digests: scores on another one cannot be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.data.text import ParallelText, read_lines


class ValidationFacts(NamedTuple):
    """Number of lines of a validation text, and SHA-256 of each part."""

    lines: int
    source: str
    target: str
    references: str
    """Of all sets of references, in their order."""


def validation_facts(text: ParallelText, references: Sequence[Sequence[str]]) -> ValidationFacts:
    """The facts of a text and the references that its translations are scored against."""
    sets = _digest(_digest(stream) for stream in references)
    return ValidationFacts(len(text.source), _digest(text.source), _digest(text.target), sets)


def facts_of_files(files: Sequence[Path]) -> ValidationFacts | None:
    """The facts of a text that is not parallel, with the labels in it; None without files."""
    if not files:
        return None
    lines = [line for file in files for line in read_lines(file)]
    return ValidationFacts(len(lines), source="", target=_digest(lines), references="")


def _digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")  # which no line contains
    return digest.hexdigest()
