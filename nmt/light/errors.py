"""Errors, each worded in one line."""

from __future__ import annotations


class NmtError(Exception):
    """Base of all errors shown to users as one line; `exit_code` is what the command returns."""

    exit_code = 1


def place_of(error: EngineError) -> tuple[int | None, str]:
    """The place of the line, from 0, that an error of the engine names, if it names one, and the problem."""
    place, _, problem = str(error).removeprefix("line ").partition(": ")
    return (int(place), problem) if place.isdigit() else (None, str(error))


class DataError(NmtError):
    """Text, vocabulary or corpus files that cannot be used."""


class EngineError(NmtError):
    """A model file, an option or a text that cannot be used."""


class StoppedError(NmtError):
    """A call that its `Stop` has ended."""


class ArgumentError(EngineError, TypeError):
    """A value of a type that is not allowed; a TypeError, too."""


class PlaceError(EngineError, IndexError):
    """A number that nothing has; an IndexError, too."""


class UsageError(EngineError):
    """An error about an option of the command."""

    exit_code = 2


def missing(path: object, advice: str = "") -> str:
    """The message about a file that does not exist."""
    return f"{path}: no such file" + (f"; {advice}" if advice else "")


LONGEST_VALUE = 60


def shortened(text: str, most: int = LONGEST_VALUE) -> str:
    """`text` or, if it is longer than `most`, its beginning and its end."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]} ... {text[-most // 6 :]}"


def shown(value: object) -> str:
    """A user's value as errors show it: its `repr`, shortened."""
    return shortened(repr(value))


def refused(name: str, value: object, allowed: str, *, problem: str = "is not allowed") -> str:
    """The message about the value of an option."""
    return f"{name}: {value!r} {problem}. Allowed: {allowed}."
