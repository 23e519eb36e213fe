"""What becomes of a line: its translations, and on request the tokens, scores, attention and alignment of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from nmt.errors import ConfigError, refused

if TYPE_CHECKING:  # what translates without torch has translations, too
    from torch import Tensor

    from nmt.search.alignment import Alignment

Detail = Literal["tokens", "scores", "entropies", "attention", "heads", "alignment"]
"""What a translation can have besides its text and score."""
Details = Collection[Detail]
DETAILS: Final[tuple[Detail, ...]] = ("tokens", "scores", "entropies", "attention", "heads", "alignment")


@dataclass(frozen=True)
class ScoredText:
    """One translation, a single line, and its length-penalised log-probability; the rest where it was asked for."""

    text: str
    score: float
    tokens: tuple[str, ...] | None = None
    """As the model wrote them, the end symbol counted where it has ended; of a line in parts those of all parts."""
    token_scores: tuple[float, ...] | None = None
    """The log-probability of each token, those before it given."""
    attention_of_parts: tuple[Any, ...] | None = None
    """Over the source tokens when each token was written [T, S], of each part of the line; lists where no torch
    translates."""
    alignment: Alignment | None = None
    """Pairs of words, what white space separates: of the line, and of `text`."""
    token_entropies: tuple[float, ...] | None = None
    """The entropy of the distribution of each token in nats; of the words of a shortlist, where there is one."""
    heads_of_parts: tuple[dict[str, Tensor], ...] | None = None
    """What `attention` is the mean of: that of each attending layer [heads, T, S], of each part of the line."""


def with_details(text: str, details: Details, alignment: Alignment = ()) -> ScoredText:
    """A translation that no model has made, with the details that were asked for."""
    return ScoredText(
        text,
        0.0,
        () if "tokens" in details else None,
        () if "scores" in details else None,
        () if "attention" in details else None,
        alignment if "alignment" in details else None,
        token_entropies=() if "entropies" in details else None,
        heads_of_parts=() if "heads" in details else None,
    )


def check_details(details: Details) -> None:
    """Raise ConfigError for a detail that there is not."""
    for detail in details:
        if detail not in DETAILS:
            raise ConfigError(refused("details", detail, DETAILS, problem="is not known"))


def wants_pieces(details: Details) -> bool:
    """Whether the tokens of the source are wanted, too."""
    return not {"tokens", "attention", "heads"}.isdisjoint(details)


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
