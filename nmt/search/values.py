"""What is asked for a line, what a search finds for it in ids, and what becomes of it in text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError, DataError, refused, shown
from nmt.light import results

WINDOW = 2000
"""Lines read, sorted by length and translated together; this bounds the memory for input of any length."""

FIRST_EOS_PENALTY = 1e8
"""Taken from the log-probability of the end symbol at the first step, so that nothing starts by ending (Zero)."""


@dataclass(frozen=True)
class Hypothesis:
    """Token ids, without the end symbol, and the log-probability divided by the length penalty."""

    ids: list[int]
    score: float
    has_ended: bool = True
    """Whether the end symbol was found; else the limit of its length has cut it."""
    is_finite: bool = True
    """Whether all its probabilities are numbers above 0; else there is no translation, and the ids mean nothing."""


def cut(ids: list[int]) -> list[int]:
    """The ids before the first end or padding symbol."""
    for position, token in enumerate(ids):
        if token in (EOS, PAD):
            return ids[:position]
    return ids


@dataclass(frozen=True)
class Request(results.Request):
    """A line, and what its translation must begin with, must contain and must not contain.

    `required`, `forbidden`: any list of strings, or one string. A plain `str` is a request without any wish.
    """

    required: tuple[str, ...] = ()
    """Phrases that the translation contains."""
    forbidden: tuple[str, ...] = ()
    """Phrases that the translation does not contain, as words or sequences of words."""
    where: str = field(default="", repr=False, compare=False)
    """What errors call this request, such as `FILE, line 3`; by default its text."""

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

    def error(self, message: str) -> DataError:
        """What is raised for a wish that cannot be granted."""
        return DataError(f"{self.where or repr(self.text)}: {message}")


def as_request(line: str | Request) -> Request:
    """A line as a request."""
    return Request(text=line) if isinstance(line, str) else line


Alignment = tuple[tuple[int, int], ...]
"""Pairs of a source word and a target word, both counted from 0, as Pharaoh's format has them; by target words."""

Detail = Literal["tokens", "scores", "entropies", "attention", "alignment", "heads", "confidence"]
"""What a translation can have besides its text and score."""
Details = Collection[Detail]

ScoredText = results.Hypothesis
"""One translation in text. The attention of its parts, and of their heads, are tensors where torch computes."""

_FIELDS: Final[Mapping[Detail, str]] = MappingProxyType(
    {
        "tokens": "tokens",
        "scores": "token_scores",
        "entropies": "token_entropies",
        "attention": "attention_of_parts",
        "alignment": "alignment",
        "heads": "heads_of_parts",
    }
)
DETAILS: Final[tuple[Detail, ...]] = (*_FIELDS, "confidence")


def with_details(found: ScoredText, details: Details) -> ScoredText:
    """A translation with those of its details that were asked for; empty ones where no model has made it."""
    fields: dict[str, Any] = {}
    for detail, name in _FIELDS.items():
        value = getattr(found, name)
        fields[name] = None if detail not in details else () if value is None else value
    return replace(found, **fields)


def check_details(details: Details) -> None:
    """Raise ConfigError for a detail that there is not."""
    for detail in details:
        if detail not in DETAILS:
            raise ConfigError(refused("details", detail, DETAILS, problem="is not known"))


def wants_pieces(details: Details) -> bool:
    """Whether the tokens of the source are wanted, too."""
    return not {"tokens", "attention", "heads"}.isdisjoint(details)


SPLIT = "split"
SEVERAL = "several_sentences"
NOT_FINITE = "no_finite_translation"
AT_LIMIT = "length_limit"
LONGER = "longer_than_training"


@dataclass(frozen=True)
class Translation:
    """What became of one input line."""

    source: str
    hypotheses: list[ScoredText]
    """Best first, one at least. An empty line has one, empty, with score 0; where there is none that `is_finite`, the
    score is -infinity."""
    source_tokens: int = 0
    """Tokens sent through the model, the end symbol not counted."""
    unknown: int = 0
    """Of these, tokens that the vocabulary lacks."""
    parts: int = 1
    """Parts that it was translated in: its sentences, where it is split into these, and parts of what has more tokens
    than `decoding.split_long`."""
    sentences: int = 1
    """Sentences among these; a line that is not split counts as one."""
    several: bool = False
    """Whether it has several sentences and was translated as a whole, because it is not known what the model was
    trained on."""
    in_capitals: bool = False
    """Whether it is in capitals, but was translated by its small letters."""
    longest_part: int = 0
    """Tokens of the longest of them, the end symbol not counted."""
    has_ended: bool = True
    """False where the best hypothesis, of one part at least, was cut by the limit of its length."""
    is_finite: bool = True
    """False where, for one part at least, no hypothesis has a finite probability; the translation is empty then."""
    missing: int = 0
    """Phrases that the request requires and the best translation lacks."""
    source_pieces: tuple[str, ...] | None = None
    """Where tokens or attention are asked for, the source tokens as the model reads them, the end symbol of each part
    counted."""

    @property
    def best(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text

    def result(self, longest: int) -> results.Result:
        """The same for users, with its notes; `longest`: tokens of the longest source in the training of all models."""
        notes = {
            SPLIT: self.parts > self.sentences,
            SEVERAL: self.several,
            "capitals": self.in_capitals,
            NOT_FINITE: not self.is_finite,
            AT_LIMIT: not self.has_ended,
            LONGER: self.longest_part > longest,
            "required_missing": self.missing > 0,
        }
        return results.Result(
            self.source,
            self.hypotheses,
            self.source_tokens,
            self.unknown,
            self.source_pieces,
            tuple(filter(notes.get, notes)),
        )
