"""Mistakes in settings, which a configuration and a command line call by different names."""

from __future__ import annotations

from collections.abc import Callable

from nmt.errors import ConfigError


class SettingError(ConfigError):
    """Mistakes in settings, as (key, message); a command whose options set them says the options instead."""

    def __init__(self, *problems: tuple[str, str]) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return self.said()

    def said(self, named: Callable[[str], str] = str) -> str:
        """The message, with `named` of each key."""
        return "; ".join(f"{named(key)}: {message}" for key, message in self.problems)
