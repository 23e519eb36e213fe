"""Models that are ready to translate: runs and folders with torch, files with the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import argparse

    from nmt.interop.facts import LongestSource
    from nmt.search import Request, Translation
    from nmt.search.values import Details


class Translating(Protocol):
    """Translates some lines, all at once."""

    def translate_window(self, lines: Sequence[str | Request], *, details: Details = ()) -> list[Translation]:
        """The n best translations of each line, in order, with the details asked for."""


class Opened(NamedTuple):
    """One model or an ensemble, with the options of a command line."""

    translator: Translating
    models: int
    n_best: int
    described: str
    """Models, place, search and number format, for people."""
    languages: tuple[str, str]
    longest: LongestSource
    """Longest source in training; at least one model has never seen a longer one."""
    joined: Callable[[str], str]
    """Target text in the form of written translations, with subwords joined to words."""


class OpenModels(Protocol):
    """Loads the models of a command line."""

    def __call__(
        self,
        arguments: argparse.Namespace,
        *,
        place: str,
        scores: bool,
        say: Callable[[str], object] | None,
        before_batch: Callable[[], object] | None,
        on_batch: Callable[[int], object],
    ) -> Opened:
        """`say` is called with each change beyond the options; `place` names the device, for people."""
