"""Vocabulary files as the original Zero system reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nmt.data import Vocabulary
from nmt.data.text import read_lines
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.errors import CheckpointError, DataError

_STRIPPED = " \t\n\r\x0b\x0c"
"""What Zero, a program for Python 2, takes off both ends of a line of bytes."""


def read_vocabulary(path: Path) -> tuple[Vocabulary, list[str]]:
    """The tokens of a vocabulary file with the ids that Zero gives them, and notes for the user.

    One token per line; the three special tokens come first whether or not the file has them, and of a repeated token
    the first one counts. For Zero a blank line, or a line with a space inside, is a token that no text can contain: its
    id is kept under its own name. Raises DataError for a file that is missing, empty or not UTF-8.
    """
    tokens: dict[str, None] = {}
    repeated, odd = 0, []
    for number, line in enumerate(read_lines(path), start=1):
        token = line.strip(_STRIPPED)
        if token in SPECIAL_TOKENS:
            continue
        repeated += token in tokens
        if token not in tokens and (token == "" or any(sign in token for sign in _STRIPPED)):
            odd.append(number)
        tokens[token] = None
    if not tokens:
        raise DataError(f"{path}: the vocabulary is empty; one token per line is expected")
    notes = []
    if repeated:
        notes.append(f"{path}: {repeated} repeated tokens; the first of each counts, as in Zero")
    if odd:
        places = ", ".join(str(number) for number in odd[:5]) + (", ..." if len(odd) > 5 else "")
        notes.append(f"{path}: no text can contain the tokens of lines {places}, blank or with a space inside")
    return Vocabulary(_spellable(tokens)), notes


def _spellable(tokens: Iterable[str]) -> list[str]:
    """`tokens` with those that a vocabulary file cannot hold named <line-1>, <line-2>, ... after their place."""
    taken = set(tokens)
    names = []
    for place, token in enumerate(tokens, start=1):
        name = token
        if token == "" or any(sign in token for sign in _STRIPPED):
            name = f"<line-{place}>"
            while name in taken:
                name = f"<{name}>"
            taken.add(name)
        names.append(name)
    return names


def vocabulary_text(tokens: Iterable[str], *, where: object) -> str:
    """The lines of a vocabulary file that gives `tokens`, special ones included, the ids of their places in Zero.

    Raises CheckpointError, naming the model `where`, for tokens that Zero would read otherwise.
    """
    rest = list(tokens)[len(SPECIAL_TOKENS) :]
    seen: set[str] = set(SPECIAL_TOKENS)
    for place, token in enumerate(rest, start=len(SPECIAL_TOKENS)):
        if not token or any(sign in token for sign in _STRIPPED) or token in seen:
            raise CheckpointError(f"{where}: token {place} of its vocabulary, {token!r}, has another meaning in Zero")
        seen.add(token)
    return "".join(f"{token}\n" for token in (*SPECIAL_TOKENS, *rest))
