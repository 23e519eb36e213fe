"""References for translations of validation and test text: the target side, or files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nmt.data.text import ParallelText, as_list, read_lines
from nmt.data.tokenizer import Tokenizer
from nmt.errors import DataError, counted, missing


def read_references(files: str | Sequence[str] | None, text: ParallelText | None, *, key: str) -> list[list[str]]:
    """One stream of lines for each set of references of `text`: its target side, or that of each of `files`.

    Files may be packed (.gz). Raises DataError, naming `key` and the file, if it is missing, not UTF-8 or has another
    number of lines than the text.
    """
    if text is None:
        return []
    if files is None:
        return [text.target]
    try:
        streams = [list(read_lines(file)) for file in as_list(files)]
    except DataError as error:
        raise DataError(f"{key}: {error}") from error
    for file, lines in zip(as_list(files), streams, strict=True):
        if len(lines) != len(text.source):
            counts = f"{file} has {counted(len(lines), 'line')}, but the text to translate {len(text.source)}"
            raise DataError(f"{key}: {counts}; a file has a reference for each line of all prefixes")
    return streams


def join_references(
    streams: Sequence[Sequence[str]], tokenizer: Tokenizer, *, name: str
) -> tuple[list[list[str]], list[str]]:
    """References in the form of translations, and lines for people if that changes them.

    Without this, references that are split into subwords, as the text that a model of subwords trains on, would be
    scored against translations whose subwords are joined. `name` says which text it is.
    """
    joined = [[tokenizer.joined_target(line) for line in stream] for stream in streams]
    pairs = [pair for before, after in zip(streams, joined, strict=True) for pair in zip(before, after, strict=True)]
    changed = sum(before != after for before, after in pairs)
    said = f"{name}: {changed:,} of {len(pairs):,} reference lines are split into subwords; they are joined for scoring"
    return joined, [said] if changed else []


def missing_references(files: str | Sequence[str] | None, *, key: str) -> list[tuple[str, str]]:
    """The key of each missing file, with the message about it."""
    return [
        (key if isinstance(files, str) else f"{key}.{index}", missing(file))
        for index, file in enumerate(as_list(files))
        if not Path(file).is_file()
    ]
