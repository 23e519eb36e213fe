"""Errors a user can cause; each message is complete and needs no traceback."""

from __future__ import annotations


class NmtError(Exception):
    """Base of all errors shown to users as one line; `exit_code` is what the command returns."""

    exit_code = 1


class ConfigError(NmtError):
    """A mistake in a configuration file, an override or a command line."""

    exit_code = 2


class DataError(NmtError):
    """Text, vocabulary or corpus files that cannot be used."""


class CheckpointError(NmtError):
    """A run directory, checkpoint or model file that cannot be used."""


class UnreadableError(CheckpointError):
    """A file that cannot be read at this moment. It may be good: nothing may be done to it for that."""


def printable(text: str) -> str:
    """`text` with line ends, control characters and lone surrogates escaped: one harmless line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


_LONGEST_VALUE = 60


def shown(value: object) -> str:
    """A user's value as errors show it: its `repr`, of a long one the beginning and the end."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:40]} ... {text[-10:]}"
