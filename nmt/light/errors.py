"""Errors, each worded in one line."""

from __future__ import annotations


class EngineError(Exception):
    """A model file, an option or a text that cannot be used."""


class UsageError(EngineError):
    """An error about an option of the command."""
