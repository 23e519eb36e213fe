"""The kinds of sentences in the demo corpus and how often each comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nmt.demo.complex_sentences import because, condition, contrast, purpose, relative, reported
from nmt.demo.questions import word_question, yes_no_question
from nmt.demo.sampling import Sampler
from nmt.demo.simple_sentences import (
    comparative,
    existence,
    location,
    measure,
    negation,
    nobody,
    ownership,
    quality,
    statement,
)
from nmt.demo.syntax import Phrase


class Kind(NamedTuple):
    """A kind of sentence and how often it comes."""

    weight: int
    build: Callable[[Sampler], Phrase]


KINDS = (
    Kind(26, statement),
    Kind(9, negation),
    Kind(2, nobody),
    Kind(7, yes_no_question),
    Kind(9, word_question),
    Kind(7, quality),
    Kind(4, ownership),
    Kind(4, comparative),
    Kind(4, measure),
    Kind(4, location),
    Kind(3, existence),
    Kind(6, because),
    Kind(4, condition),
    Kind(5, reported),
    Kind(3, contrast),
    Kind(4, relative),
    Kind(3, purpose),
)
