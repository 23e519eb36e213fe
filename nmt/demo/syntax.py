"""The content of a sentence, before it is expressed in English or German words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from nmt.demo.lexicon import Adjective, Gender, Noun, Verb

Determiner = Literal["the", "a", "this", "every", "no", "my", "your", "his", "her", "our", "bare"]
Tense = Literal["present", "past"]
Person = Literal[1, 2, 3]


class Phrase(NamedTuple):
    """An adverbial, predicate or question word, ready in both languages."""

    english: str
    german: str


class Modal(NamedTuple):
    """A modal verb. `governs_to`: English says it with a full verb and "to" ("want to")."""

    english: str
    german: str
    governs_to: bool = False


@dataclass(frozen=True, kw_only=True)
class Pronoun:
    """A personal pronoun. `gender` is the German one; `thing` is "it" in English whatever the gender."""

    person: Person = 3
    plural: bool = False
    gender: Gender = "m"
    thing: bool = False


@dataclass(frozen=True, kw_only=True)
class NounPhrase:
    """A noun with all that belongs to it.

    `count` is a number from 2 to 99 and makes the phrase plural. `owner` follows as "of the man",
    in German in the genitive. `relative` is a clause about this noun; see `Clause.gap`.
    """

    noun: Noun
    determiner: Determiner
    plural: bool = False
    count: int | None = None
    adjective: Adjective | None = None
    owner: NounPhrase | None = None
    relative: Clause | None = None

    @property
    def person(self) -> Person:
        """Noun phrases are always third person."""
        return 3

    @property
    def indefinite(self) -> bool:
        """Whether German negates the phrase with "kein": "a car", "apples", "cold milk"."""
        return self.determiner in ("a", "bare") and self.count is None


Nominal = NounPhrase | Pronoun


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A verb and what depends on it.

    `gap`: the subject is not spoken, because a relative pronoun or question word stands for it; the
    verb still agrees with it. `fronted`: the time opens the clause, so that German inverts.
    `complement` is the prepositional object ("for the bus"), `place` tells where, `direction` where to,
    `means` with what vehicle, `predicate` what a "be" clause says about its subject.
    """

    verb: Verb
    subject: Nominal
    gap: bool = False
    object: Nominal | None = None
    recipient: Nominal | None = None
    complement: Phrase | None = None
    predicate: Phrase | None = None
    tense: Tense = "present"
    modal: Modal | None = None
    negated: bool = False
    time: Phrase | None = None
    fronted: bool = False
    frequency: Phrase | None = None
    manner: Phrase | None = None
    means: Phrase | None = None
    place: Phrase | None = None
    direction: Phrase | None = None

    def __post_init__(self) -> None:
        if self.modal is not None and self.tense == "past":
            raise ValueError("the grammar has no past tense of modal verbs")
        if self.fronted and self.time is None:
            raise ValueError("a fronted time needs a time")


CAN = Modal("can", "können")
MUST = Modal("must", "müssen")
MAY = Modal("may", "dürfen")
SHOULD = Modal("should", "sollen")
WILL = Modal("will", "werden")
WANT = Modal("want", "wollen", governs_to=True)
LIKE = Modal("like", "gern", governs_to=True)
