"""Counts of translated lines, and their summary: no problem stays unreported."""

from __future__ import annotations

from .binding import UNK
from .translator import longest_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from .binding import Results
    from .translator import Translator

_SHOWN: Final = 10  # numbers of lines
_ANY_LENGTH: Final = 2**31  # tokens, more than any line has


class Noted:
    """How many lines have some problem, and the numbers, from 1, of the first few."""

    def __init__(self) -> None:
        self.count = 0
        self._numbers: list[int] = []

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, number: int) -> None:
        """Note the line with this number."""
        self.count += 1
        if len(self._numbers) < _SHOWN:
            self._numbers.append(number)

    def said(self, what: str) -> str:
        """Lines and what they have in common: `3 lines stopped at the length limit: 17, 40, 93`."""
        more = ", ..." if self.count > _SHOWN else ""
        return f"{counted(self.count, 'line')} {what}: {', '.join(map(str, self._numbers))}{more}"


class Counts:
    """Counts of translated lines, of their tokens, and of their notes in the words of `--format jsonl`.

    `policy` is that of `--errors`; `split_long`: by what lines are translated in parts, for people.
    """

    def __init__(self, policy: str, *, split_long: str) -> None:
        self.lines = self.empty = self.tokens = self.unknown = 0
        self.noted: dict[str, Noted] = {}
        self.longest: tuple[int, bool] | None = None
        """Tokens of the longest source in training, and whether it is known or only the limit of its length."""
        self._fate = {"replace": "such bytes replaced by U+FFFD", "empty": "read as empty"}.get(policy)
        self._split_long = split_long

    def add(self, tokens: int, unknown: int, notes: Iterable[str]) -> None:
        """Count a line."""
        self.lines += 1
        self.empty += not tokens
        self.tokens += tokens
        self.unknown += unknown
        for name in notes:
            self.noted.setdefault(name, Noted()).add(self.lines)

    def add_found(self, found: Results, not_utf8: Iterable[int], translator: Translator) -> list[list[str]]:
        """Count lines that the engine has translated; return the notes of each."""
        if self.longest is None:
            self.longest = longest_source(translator.cards()) or (_ANY_LENGTH, False)
        odd = set(not_utf8)
        every = []
        for line in range(found.count):
            parts = found.sources(line)
            notes = [*(["not_utf8"] if self.lines + 1 in odd else []), *found.notes(line)]
            longest = max(map(len, parts), default=1) - 1
            notes += ["longer_than_training"] if longest > self.longest[0] else []
            self.add(sum(map(len, parts)) - len(parts), sum(part.count(UNK) for part in parts), notes)
            every.append(notes)
        return every

    @property
    def exit_code(self) -> int:
        """1 if a line has no translation."""
        return int("no_finite_translation" in self.noted)

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
        failed = self.noted.get("no_finite_translation")
        verb = "has" if failed and failed.count == 1 else "have"
        tokens, is_known = self.longest or (0, False)
        training = f"{'any in training' if is_known else 'training allowed'} ({counted(tokens, 'token')})"
        said = {
            "no_finite_translation": f"{verb} no translation with a finite score",
            "required_missing": "without all required phrases",
            "length_limit": "stopped at the length limit",
            "longer_than_training": f"longer than {training}",
            "unlike_training": "unlike the training text, such as in another language",
            "split": f"translated in parts ({self._split_long})",
            "several_sentences": "of several sentences translated as a whole (--split sentences translates each by "
            "itself)",
            "capitals": "in capitals translated by their small letters",
            "not_utf8": f"not UTF-8, {self._fate}",
        }
        return [self.noted[name].said(what) for name, what in said.items() if name in self.noted]


def counted(number: int, noun: str) -> str:
    """A number and what it counts: `1 line`, `1,203 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
