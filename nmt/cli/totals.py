"""Counts of translated lines, and their summary: no problem stays unreported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nmt.cli.common import EXIT_FAILURE
from nmt.data.text import NotedLines, Undecodable
from nmt.errors import counted

if TYPE_CHECKING:
    from nmt.interop.facts import LongestSource
    from nmt.interop.model_dir import LoadedModel
    from nmt.search import Translation


def shortest_training(models: Sequence[LoadedModel]) -> LongestSource:
    """The longest source that every model has seen in training."""
    return min((model.longest_source for model in models), key=lambda longest: longest.tokens)


SEVERAL_HELP = "--split sentences translates each by itself"


@dataclass
class Totals:
    """Counts of lines and tokens; problem lines are noted by their numbers, from 1."""

    longest: LongestSource
    undecodable: Undecodable = field(default_factory=Undecodable)
    """The rule by which the lines were read."""
    lines: int = 0
    empty: int = 0
    tokens: int = 0
    unknown: int = 0
    split: NotedLines = field(default_factory=NotedLines)
    several: NotedLines = field(default_factory=NotedLines)
    not_finite: NotedLines = field(default_factory=NotedLines)
    at_limit: NotedLines = field(default_factory=NotedLines)
    longer: NotedLines = field(default_factory=NotedLines)
    missing: NotedLines = field(default_factory=NotedLines)

    def add(self, translation: Translation) -> list[str]:
        """Count one line; return its problems, in the words of `--format jsonl`."""
        from nmt.search.values import AT_LIMIT, LONGER, MISSING, NOT_FINITE, SEVERAL, SPLIT, notes_of

        self.lines += 1
        self.empty += translation.source_tokens == 0
        self.tokens += translation.source_tokens
        self.unknown += translation.unknown
        notes = ["not_utf8"] if self.undecodable.had(self.lines) else []
        noted = {
            SPLIT: self.split,
            SEVERAL: self.several,
            NOT_FINITE: self.not_finite,
            AT_LIMIT: self.at_limit,
            LONGER: self.longer,
            MISSING: self.missing,
        }
        for name in notes_of(translation, longest=self.longest.tokens):
            noted[name].add(self.lines)
            notes.append(name)
        return notes

    def summary(self, seconds: float, *, models: int = 1) -> str:
        """One line for people."""
        text = f"{counted(self.lines, 'line')} in {seconds:.1f} s ({self.lines / max(seconds, 1e-9):.1f} a second)"
        if models > 1:
            text += f" by {models} models"
        if self.empty:
            text += f"; {self.empty:,} empty"
        if self.unknown:
            text += f"; {self.unknown / self.tokens:.2%} of the source tokens are not in the vocabulary"
        return "; ".join([text, *self.problems()])

    def problems(self) -> list[str]:
        """The problems, with the numbers of the first lines that have them."""
        verb = "has" if self.not_finite.count == 1 else "have"
        said = (
            (self.not_finite, f"{verb} no translation with a finite score"),
            (self.missing, "without all required phrases"),
            (self.at_limit, "stopped at the length limit"),
            (self.longer, f"longer than {self.longest}"),
            (self.split, "translated in parts (decoding.split_long)"),
            (self.several, f"of several sentences translated as a whole ({SEVERAL_HELP})"),
        )
        found = [noted.said(what) for noted, what in said if noted]
        return [*found, self.undecodable.summary()] if self.undecodable.noted else found

    @property
    def exit_code(self) -> int:
        """1 if a line has no translation."""
        return EXIT_FAILURE if self.not_finite else 0
