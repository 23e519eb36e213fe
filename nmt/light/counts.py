"""Counts of translated lines, and their summary: no problem stays unreported."""

from __future__ import annotations

from .cards import cards_of, longest_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from .binding import Results
    from .translator import Translator

UNK: Final = 1
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
    """Counts of lines and tokens; `policy` is that of `--errors`."""

    def __init__(self, policy: str) -> None:
        self.lines = self.empty = self.tokens = self.unknown = 0
        self.not_finite, self.at_limit, self.longer, self.split, self.several, self.not_utf8 = (
            Noted() for _ in range(6)
        )
        self._fate = {"replace": "such bytes replaced by U+FFFD", "empty": "read as empty"}.get(policy)
        self._longest: tuple[int, bool] | None = None

    def add(self, found: Results, not_utf8: Iterable[int], translator: Translator) -> list[list[str]]:
        """Count more results; return the notes of each line, in the words of `--format jsonl`."""
        if self._longest is None:
            self._longest = longest_source(cards_of(translator)) or (_ANY_LENGTH, False)
        odd = set(not_utf8)
        return [self._add(found, line, is_odd=self.lines + 1 in odd) for line in range(found.count)]

    def _add(self, found: Results, line: int, *, is_odd: bool) -> list[str]:
        self.lines += 1
        parts = [found.source_ids(line, part) for part in range(found.parts(line))]
        self.empty += not parts
        self.tokens += sum(map(len, parts)) - len(parts)
        self.unknown += sum(part.count(UNK) for part in parts)
        longest = max(map(len, parts), default=1) - 1
        notes = (
            ("not_utf8", self.not_utf8, is_odd),
            ("split", self.split, len(parts) > found.sentences(line)),
            ("several_sentences", self.several, found.has_several(line)),
            ("no_finite_translation", self.not_finite, not found.is_finite(line)),
            ("length_limit", self.at_limit, found.was_cut(line)),
            ("longer_than_training", self.longer, self._longest is not None and longest > self._longest[0]),
        )
        for _, noted, is_so in notes:
            if is_so:
                noted.add(self.lines)
        return [name for name, _, is_so in notes if is_so]

    def summary(self, seconds: float) -> str:
        """One line for people."""
        text = f"{counted(self.lines, 'line')} in {seconds:.1f} s ({self.lines / max(seconds, 1e-9):.1f} a second)"
        if self.empty:
            text += f"; {self.empty:,} empty"
        if self.unknown:
            text += f"; {self.unknown / self.tokens:.2%} of the source tokens are not in the vocabulary"
        return "; ".join([text, *self.problems()])

    def problems(self) -> list[str]:
        """The problems, with the numbers of the first lines that have them."""
        said = (
            (self.not_finite, f"{'has' if self.not_finite.count == 1 else 'have'} no translation with a finite score"),
            (self.at_limit, "stopped at the length limit"),
            (self.longer, f"longer than {self._training()}"),
            (self.split, "translated in parts (--split-long)"),
            (self.several, "of several sentences translated as a whole (--split sentences translates each by itself)"),
            (self.not_utf8, f"not UTF-8, {self._fate}"),
        )
        return [noted.said(what) for noted, what in said if noted]

    def _training(self) -> str:
        tokens, is_known = self._longest or (0, False)
        return f"{'any in training' if is_known else 'training allowed'} ({counted(tokens, 'token')})"


def counted(number: int, noun: str) -> str:
    """A number and what it counts: `1 line`, `1,203 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
