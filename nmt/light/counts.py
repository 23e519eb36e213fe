"""What is counted while lines are translated, and how it is said: nothing odd leaves silently."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from .binding import Results
    from .translator import Translator

UNK: Final = 1
_SHOWN: Final = 10  # numbers of lines


class Noted:
    """How many lines something is true of, and the numbers, from 1, of the first few."""

    def __init__(self) -> None:
        self.count = 0
        self._numbers: list[int] = []

    def add(self, number: int) -> None:
        """Note the line with this number."""
        self.count += 1
        if len(self._numbers) < _SHOWN:
            self._numbers.append(number)

    def said(self, what: str) -> str:
        """That `what` is true of them: `3 lines stopped at the length limit: 17, 40, 93`."""
        more = ", ..." if self.count > _SHOWN else ""
        return f"{counted(self.count, 'line')} {what}: {', '.join(map(str, self._numbers))}{more}"


class Counts:
    """Counts of lines and tokens; `policy` is that of `--errors`."""

    def __init__(self, policy: str) -> None:
        self.lines = self.empty = self.tokens = self.unknown = 0
        self.not_finite, self.at_limit, self.longer, self.split, self.not_utf8 = (Noted() for _ in range(5))
        self._fate = {"replace": "read with U+FFFD in place of such bytes", "empty": "read as empty"}.get(policy)
        self._longest: int | None = None

    def add(self, found: Results, not_utf8: Iterable[int], translator: Translator) -> None:
        """Count what became of more lines."""
        if self._longest is None:
            self._longest = longest_training_source(translator)
        for number in not_utf8:
            self.not_utf8.add(number)
        for line in range(found.count):
            self.lines += 1
            parts = [found.source_ids(line, part) for part in range(found.parts(line))]
            self.empty += not parts
            self.tokens += sum(map(len, parts)) - len(parts)
            self.unknown += sum(part.count(UNK) for part in parts)
            notes = (
                (self.not_finite, not found.is_finite(line)),
                (self.at_limit, found.was_cut(line)),
                (self.longer, bool(parts) and max(map(len, parts)) - 1 > self._longest > 0),
                (self.split, len(parts) > 1),
            )
            for noted, is_so in notes:
                if is_so:
                    noted.add(self.lines)

    def summary(self, seconds: float) -> str:
        """One line for people."""
        text = f"{counted(self.lines, 'line')} in {seconds:.1f} s ({self.lines / max(seconds, 1e-9):.1f} a second)"
        if self.empty:
            text += f"; {self.empty:,} empty"
        if self.unknown:
            text += f"; {self.unknown / self.tokens:.2%} of the source tokens unknown to the vocabulary"
        return "; ".join([text, *self.problems()])

    def problems(self) -> list[str]:
        """What is to be looked at, with the numbers of the first lines that have it."""
        said = (
            (self.not_finite, f"{'has' if self.not_finite.count == 1 else 'have'} no translation with a finite score"),
            (self.at_limit, "stopped at the length limit"),
            (self.longer, f"longer than any in training ({self._longest} tokens)"),
            (self.split, "translated in parts (--split-long)"),
            (self.not_utf8, f"not UTF-8, {self._fate}"),
        )
        return [noted.said(what) for noted, what in said if noted.count]


def longest_training_source(translator: Translator) -> int:
    """Tokens of the longest source that the model was trained on, by its card; 0 where that is not known."""
    found = translator.card.get("longest_training_source")
    return found if isinstance(found, int) else 0


def counted(number: int, noun: str) -> str:
    """A number and what it counts: `1 line`, `1,203 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
