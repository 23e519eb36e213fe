"""What computes for a translator, in this process or in another one, and what is known of its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nmt.library.inspection import Inspection
from nmt.library.request import Request
from nmt.library.results import PairScore, Result

if TYPE_CHECKING:
    from nmt.config import Config


@dataclass(frozen=True)
class Facts:
    """What is known of loaded models, of several the first unless said otherwise."""

    paths: tuple[str, ...]
    """Directories of the weights of all models, or files for the engine."""
    config: Config | None
    """None of a file for the engine, which does not have it."""
    device: str
    precision: str
    """Number format of the search, and why."""
    longest_source: int
    """Tokens of the longest source sentence that every one of the models was trained on."""
    languages: tuple[str, str]
    """Codes of source and target language; "?" where they are not known."""
    kernels: str = ""
    """What computes, for people."""
    without_kernels: str = ""
    """Why slower PyTorch code computes on a CPU in place of compiled kernels; empty where these do."""


class Computing(Protocol):
    """Models that translate and score, in this process or another one."""

    facts: Facts
    place: str
    """Where they compute, for people."""

    def check(self, options: dict[str, Any]) -> None:
        """Raise ConfigError or DataError for options that cannot be had."""

    def translate(self, sentences: Sequence[str | Request], options: dict[str, Any]) -> list[Result]:
        """The results of some sentences, each on one line, all at once."""

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None) -> list[PairScore]:
        """The scores of (source, target) pairs, all at once."""

    def inspect(self, source: str, target: str | None) -> Inspection:
        """What goes on inside the models that read a source, one line, and a target, by default the translation."""

    def joined(self, lines: Sequence[str]) -> list[str]:
        """Target text written as translations are, its subwords joined to words."""

    def close(self) -> None:
        """Give the memory back; nothing can be computed afterwards."""
