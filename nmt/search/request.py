"""What is asked for a line: its text, and what its translation must begin with, must contain and must not contain."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Request:
    """One line to translate. A line that is a plain `str` is a request without any wish."""

    text: str
    """The source text."""
    prefix: str = ""
    """Text that the translation begins with; with a space at its end its last word is complete."""
    required: tuple[str, ...] = ()
    """Phrases that the translation contains."""
    forbidden: tuple[str, ...] = ()
    """Phrases that the translation does not contain, as words or sequences of words."""
    where: str = ""
    """What errors call this request, such as `FILE, line 3`; by default its text."""

    def error(self, message: str) -> DataError:
        """What is raised for a wish that cannot be granted."""
        return DataError(f"{self.where or repr(self.text)}: {message}")


def as_request(line: str | Request) -> Request:
    """A line as a request."""
    return Request(text=line) if isinstance(line, str) else line


def characters_of(line: str | Request) -> int:
    """Length of a line's text."""
    return len(as_request(line).text)
