"""The English that code contains: docstrings, comments and texts of Python, comments of C, JavaScript, CSS and YAML.

Each function returns a text with as many lines as the source, where everything else is empty, so that a finding in
the text has the number of its line.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable
from pathlib import Path

WORDS = 4
"""A string of fewer words is a name, a key or a format, not a sentence."""


def _placed(source: str, parts: list[tuple[int, str]]) -> str:
    """Parts, each with the number of its first line from 0, in lines of their own."""
    lines = [""] * (source.count("\n") + 1)
    for first, part in parts:
        for number, line in enumerate(part.split("\n"), first):
            lines[number] += f" {line}"
    return "\n".join(lines) + "\n"


def python_prose(source: str) -> str:
    """Comments, and strings of some words: docstrings, help texts, messages."""
    parts = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "COMMENT" or (kind in ("STRING", "FSTRING_MIDDLE") and len(token.string.split()) >= WORDS):
            parts.append((token.start[0] - 1, re.sub(r"`[^`\n]*`", "``", token.string)))
    return _placed(source, parts)


def c_prose(source: str) -> str:
    """Comments of C, JavaScript and CSS."""
    comments = re.finditer(r"/\*.*?\*/|(?<!:)//[^\n]*", source, re.DOTALL)
    return _placed(source, [(source.count("\n", 0, comment.start()), comment[0]) for comment in comments])


def yaml_prose(source: str) -> str:
    """Comments of YAML."""
    comments = (re.search(r"(?:^|\s)#.*", line) for line in source.split("\n"))
    return _placed(source, [(number, comment[0]) for number, comment in enumerate(comments) if comment])


READERS = {
    ".py": python_prose,
    ".c": c_prose,
    ".h": c_prose,
    ".cpp": c_prose,
    ".js": c_prose,
    ".css": c_prose,
    ".yaml": yaml_prose,
}


def code_files(root: Path) -> list[Path]:
    """All files of nmt, scripts, configs and docs that have a reader."""
    files = (file for folder in ("nmt", "scripts", "configs", "docs") for file in (root / folder).rglob("*"))
    return sorted(file for file in files if file.is_file() and reader_of(file) is not None)


def reader_of(file: Path) -> Callable[[str], str] | None:
    """The function for this file, by its ending or, without one, by its first line; None if it is no code."""
    if file.suffix:
        return READERS.get(file.suffix)
    with file.open("rb") as opened:
        return python_prose if opened.readline().startswith(b"#!/usr/bin/env python") else None
