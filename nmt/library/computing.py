"""The computing side of a translator, in this process or in another one, and facts about its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nmt.library.values import Inspection, PairScore, Request, Result
from nmt.light.binding import Stop

if TYPE_CHECKING:
    from nmt.config import Config


@dataclass(frozen=True)
class Facts:
    """Facts about loaded models; for an ensemble those of the first model, unless stated otherwise."""

    paths: tuple[str, ...]
    """Directories of the weights of all models, or files for the engine."""
    config: Config | None
    """None for a file for the engine, which has no configuration."""
    device: str
    precision: str
    """Number format of the search, and why."""
    longest_source: int
    """Tokens of the longest source sentence that every model has seen in training."""
    languages: tuple[str, str]
    """Codes of source and target language; "?" if unknown."""
    kernels: str = ""
    """The code that computes, for people."""
    without_kernels: str = ""
    """Why slower PyTorch code instead of compiled kernels computes on a CPU; empty if compiled kernels compute."""


class Computing(Protocol):
    """Models that translate and score, in this process or another one."""

    facts: Facts
    place: str
    """Their device, for people."""

    def check(self, options: dict[str, Any]) -> None:
        """Raise ConfigError or DataError for options that are not possible."""

    def translate(
        self, sentences: Sequence[str | Request], options: dict[str, Any], *, stop: Stop | None = None
    ) -> list[Result]:
        """The results of some sentences, one line each, translated together; StoppedError after `stop.set()`."""

    def hypotheses(self, options: dict[str, Any]) -> int:
        """Hypotheses of a sentence that a search with such options computes at once."""

    def parts(self, sentences: Sequence[str | Request], options: dict[str, Any]) -> list[list[int]]:
        """The source tokens of each part in which each sentence, one line, would be translated."""

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None) -> list[PairScore]:
        """The scores of (source, target) pairs, computed together."""

    def inspect(self, source: str, target: str | None) -> Inspection:
        """The inner values of the models for a source (one line) and a target (default: the translation)."""

    def joined(self, lines: Sequence[str]) -> list[str]:
        """Target text in the form of translations, with subwords joined to words."""

    def close(self) -> None:
        """Release the memory; nothing can be computed afterwards."""
