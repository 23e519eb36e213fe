"""The width of a terminal, and lines that fit it."""

from __future__ import annotations

import os
import re
from typing import TextIO

USUAL_COLUMNS = 80
"""Where the terminal does not say."""


def columns(stream: TextIO) -> int | None:
    """Width of the terminal that `stream` writes to; None where it is a file or a pipe."""
    try:
        if not stream.isatty():
            return None
        return os.get_terminal_size(stream.fileno()).columns or USUAL_COLUMNS
    except (OSError, ValueError):  # it is closed, or no real file
        return None


def wrapped(line: str, width: int, *, indent: int = 2) -> str:
    """`line` in lines of at most `width` columns, where that can be, the others begun with `indent` spaces.

    Cut where two spaces stand, else at one; a word that is too long, such as a path, stays whole.
    """
    from tqdm.utils import disp_len  # late, for what is written to a file is not wrapped

    if disp_len(line) <= width:
        return line
    rows = [""]
    for gap, piece in re.findall(r"( *)(\S+(?: \S+)*)", line):
        words = [piece] if indent + disp_len(piece) <= width else piece.split(" ")
        for place, word in enumerate(words):
            space = gap if place == 0 else " "
            if not rows[-1].strip() or disp_len(rows[-1]) + len(space) + disp_len(word) <= width:
                rows[-1] += space + word
            else:
                rows.append(" " * indent + word)
    return "\n".join(rows)
