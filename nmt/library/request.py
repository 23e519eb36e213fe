"""A sentence with wishes for its translation."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.errors import shown


@dataclass(frozen=True)
class Request:
    """A sentence, and what its translation must begin with, must contain and must not contain."""

    text: str
    prefix: str = ""
    """Text that the translation begins with; a space at its end means that the last word is complete."""
    required: tuple[str, ...] = ()
    """Phrases that the translation contains; any list of strings, or one string."""
    forbidden: tuple[str, ...] = ()
    """Phrases that the translation does not contain, as words or sequences of words; the same."""

    def __post_init__(self) -> None:
        for name in ("text", "prefix"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a string, not {shown(getattr(self, name))}")
        for name in ("required", "forbidden"):
            given: object = getattr(self, name)
            phrases = (given,) if isinstance(given, str) else given
            if not isinstance(phrases, tuple | list) or not all(isinstance(phrase, str) for phrase in phrases):
                raise TypeError(f"{name} must be a string or a list of strings, not {shown(given)}")
            object.__setattr__(self, name, tuple(phrases))


WISHES = ("prefix", "required", "forbidden")
"""The wishes of a request."""
