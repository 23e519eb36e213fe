"""What goes wrong, each in one line."""

from __future__ import annotations


class EngineError(Exception):
    """A model file, an option or a text that cannot be used."""


class UsageError(EngineError):
    """Of these an option of the command that cannot be had."""
