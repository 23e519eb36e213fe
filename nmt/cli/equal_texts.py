"""Parallel texts, whose lines belong together: translations, references, source."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from nmt.cli.common import say
from nmt.cli.descriptors import require
from nmt.data.text import Policy, Undecodable
from nmt.errors import DataError, counted

STDIN: Final = "-"


def read_texts(program: str, texts: Sequence[Sequence[str]], *, policy: Policy) -> list[list[str]]:
    r"""The lines of each text, a list of files to concatenate; all texts must have the same number of lines.

    Invalid UTF-8 is an error. Only "\n" ends a line, as in the sacrebleu command's files (its standard input also
    ends lines at "\r"). Raises DataError for a text without lines, too.
    """
    read = [[line for name in text for line in _read(program, name, Undecodable(policy))] for text in texts]
    first = " ".join(texts[0])
    for names, lines in zip(texts, read, strict=True):
        if len(lines) != len(read[0]):
            raise DataError(
                f"{first} has {counted(len(read[0]), 'line')} but {' '.join(names)} has {len(lines)}; "
                "they must be equal"
            )
    if not read[0]:
        raise DataError(f"{first}: no line to score")
    return read


def _read(program: str, name: str, undecodable: Undecodable) -> list[str]:
    from nmt.data import read_lines

    source: Any = name
    if name == STDIN:
        require(0)
        source, name = sys.stdin, "standard input"
    lines = list(read_lines(source, name=name, undecodable=undecodable))
    if undecodable.noted:
        say(program, f"{name}: {undecodable.summary()}")
    return lines
