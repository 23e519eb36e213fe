"""Text that is split into subwords must not be scored against text that is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nmt.errors import DataError, counted

MARK = "@@"
"""What subword-nmt puts at the end of a subword that the next one continues."""
SHARE = 0.1
"""Smallest share of non-empty lines with a mark; with fewer, the mark is taken for ordinary text."""


def check_subwords(texts: Mapping[str, Sequence[str]]) -> str | None:
    """The message if all `texts`, by the names of their files, are split into subwords; None if none is.

    Raises DataError naming two texts if one is split and the other is not.
    """
    marked = {name: sum(map(_is_marked, lines)) for name, lines in texts.items()}
    split = [name for name, lines in texts.items() if marked[name] > SHARE * sum(map(bool, lines))]
    if not split:
        return None
    first = split[0]
    found = f"{first}: {marked[first]} of {counted(len(texts[first]), 'line')} are split into subwords ('{MARK} ')"
    whole = [name for name in texts if name not in split]
    if whole:
        raise DataError(f"{found}, but {whole[0]} is not; join them first: sed -E 's/{MARK}( |$)//g'")
    return f"{found}, and so is the rest; the scores are those of subwords, not of words"


def _is_marked(line: str) -> bool:
    return f"{MARK} " in line or line.endswith(MARK)
