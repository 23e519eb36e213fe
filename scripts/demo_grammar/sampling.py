"""Random choices that keep a sentence sensible: who does what to what, when and where."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from scripts.demo_grammar import english, german
from scripts.demo_grammar.german import Case
from scripts.demo_grammar.words import (
    CAN,
    MAY,
    MUST,
    SHOULD,
    WANT,
    WILL,
    Adjective,
    Determiner,
    Modal,
    Noun,
    NounPhrase,
    Phrase,
    Pronoun,
    Tense,
    Verb,
    adjectives,
    english_number,
    german_number,
    nouns,
    verbs,
)

T = TypeVar("T")


CITIES = (
    Phrase("Berlin", "Berlin"),
    Phrase("Vienna", "Wien"),
    Phrase("Munich", "München"),
    Phrase("Cologne", "Köln"),
    Phrase("Hamburg", "Hamburg"),
    Phrase("Zurich", "Zürich"),
)

LOCATIONS = {
    "in": ("in", "in"),
    "at": ("at", "an"),
    "on": ("on", "auf"),
    "seat": ("on", "auf"),
    "surface": ("on", "auf"),
    "under": ("under", "unter"),
}
AROUND = (("next to", "neben"), ("behind", "hinter"), ("in front of", "vor"))
_UNITS = (("days", "Tagen"), ("weeks", "Wochen"), ("months", "Monaten"), ("years", "Jahren"))

_WEEKDAYS = tuple(
    Phrase(f"on {name}", f"am {german_name}")
    for name, german_name in zip(
        ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
        ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"),
        strict=True,
    )
)
_ANY_TIME = (
    Phrase("today", "heute"),
    Phrase("in the morning", "am Morgen"),
    Phrase("in the evening", "am Abend"),
    Phrase("in summer", "im Sommer"),
    Phrase("in winter", "im Winter"),
)
_PRESENT = (Phrase("now", "jetzt"), Phrase("every day", "jeden Tag"), Phrase("every week", "jede Woche"))
_PAST = (Phrase("yesterday", "gestern"), Phrase("last week", "letzte Woche"), Phrase("last year", "letztes Jahr"))
_FUTURE = (Phrase("tomorrow", "morgen"), Phrase("next week", "nächste Woche"), Phrase("next year", "nächstes Jahr"))
FREQUENCIES = (
    Phrase("often", "oft"),
    Phrase("always", "immer"),
    Phrase("sometimes", "manchmal"),
    Phrase("never", "nie"),
)
PACES = (Phrase("slowly", "langsam"), Phrase("quickly", "schnell"))


class Mood(NamedTuple):
    """Tense, modal and time of a clause, which depend on each other."""

    tense: Tense
    modal: Modal | None
    time: Phrase | None


PLAIN = Mood("present", None, None)
_MODALS = (CAN, MUST, MAY, SHOULD, WILL, WILL, WANT)
_NEGATED_MODALS = (CAN, SHOULD, WILL, WANT)


def mood(sampler: Sampler, verb: Verb, *, past: bool = True, negated: bool = False) -> Mood:
    """Present, past if allowed, or a modal, with a time that goes with it or none.

    A verb whose English past looks like the present ("read") is not put into the past, and of the
    modals only those are negated that negate alike in both languages.
    """
    if "stative" in verb.extras:
        return PLAIN
    draw = sampler.fraction()
    if draw < 0.4:
        if not past or verb.english == verb.english_past:
            return PLAIN
        return Mood("past", None, past_time(sampler) if sampler.chance(0.6) else None)
    times: tuple[Phrase, ...] = (*_PRESENT, *_ANY_TIME)
    modal = None
    if draw < 0.7:
        times, modal = (*_FUTURE, *_ANY_TIME, *_WEEKDAYS), sampler.pick(_NEGATED_MODALS if negated else _MODALS)
    return Mood("present", modal, sampler.pick(times) if sampler.chance(0.4) else None)


def past_time(sampler: Sampler) -> Phrase:
    """When something was: "yesterday", "on Monday", "three weeks ago", "at five o'clock"."""
    draw = sampler.fraction()
    if draw < 0.2:
        plural, german_dative = sampler.pick(_UNITS)
        count = sampler.number()
        return Phrase(f"{english_number(count)} {plural} ago", f"vor {german_number(count)} {german_dative}")
    if draw < 0.35:
        hour = sampler.hour()
        return Phrase(f"at {english_number(hour)} o'clock", f"um {german_number(hour)} Uhr")
    return sampler.pick((*_PAST, *_PAST, *_ANY_TIME, *_WEEKDAYS))


_POSSESSIVES: tuple[Determiner, ...] = ("my", "your", "his", "her", "our")
_PERSONAL = (
    Pronoun(person=1),
    Pronoun(person=2),
    Pronoun(gender="m"),
    Pronoun(gender="f"),
    Pronoun(person=1, plural=True),
    Pronoun(plural=True),
)
_HIM_OR_ME = (Pronoun(person=1), Pronoun(person=2), Pronoun(gender="m"), Pronoun(person=1, plural=True))


def _can_be_owned(noun: Noun) -> bool:
    return "kin" in noun.tags or not set(noun.tags) & {"person", "nature", "area"}


def _frame_kind(verb: Verb) -> str:
    if ":" in verb.frame:
        return "prepositional"
    return "to" if verb.frame == "to,by" else verb.frame


class Sampler:
    """Choices for one sentence; no noun is taken twice, except by saying so.

    It draws by `random` and `randrange` alone, whose sequences Python keeps from version to version.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._taken: set[str] = set()

    def fraction(self) -> float:
        """A number from 0 up to 1."""
        return self._rng.random()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.fraction() < probability

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, each as likely as the others."""
        return items[self._rng.randrange(len(items))]

    def below(self, end: int) -> int:
        """0..end - 1, each as likely as the others."""
        return self._rng.randrange(end)

    def number(self) -> int:
        """2..99, half of them below 13."""
        return self._rng.randrange(2, 13) if self.chance(0.5) else self._rng.randrange(13, 100)

    def hour(self) -> int:
        """2..12; at one o'clock German inflects the number, which the grammar leaves out."""
        return self._rng.randrange(2, 13)

    def noun(self, tags: Sequence[str], *, countable: bool = False) -> Noun:
        """A noun with one of the tags that the sentence does not have yet."""
        fitting = [
            noun
            for noun in nouns()
            if set(tags) & set(noun.tags) and noun.english not in self._taken and not (countable and noun.mass)
        ]
        noun = self.pick(fitting)
        self._taken.add(noun.english)
        return noun

    def adjective(self, noun: Noun, *, beside: Adjective | None = None, scales: Sequence[str] = ()) -> Adjective:
        """An adjective that fits the noun, and an adjective that it already has."""
        return self.pick(
            [
                adjective
                for adjective in adjectives()
                if set(adjective.tags) & set(noun.tags)
                and (beside is None or adjective.scale != beside.scale)
                and (not scales or adjective.scale in scales)
            ]
        )

    def verb(
        self, frame: str, *, subjects: Sequence[str] = (), objects: Sequence[str] = (), extra: str | None = None
    ) -> Verb:
        """A verb with this frame that takes one of these subjects and objects, where any are given.

        The frames "prepositional" and "to" stand for all of their kind.
        """
        return self.pick(
            [
                verb
                for verb in verbs()
                if _frame_kind(verb) == frame
                and (not subjects or set(subjects) & set(verb.subjects))
                and (not objects or set(objects) & set(verb.objects))
                and (extra is None or extra in verb.extras)
            ]
        )

    def subject(self, tags: Sequence[str], *, every: bool = True) -> NounPhrase | Pronoun:
        """Who does it: a definite noun phrase or, for people, a pronoun."""
        if "person" in tags and self.chance(0.3):
            return self.pick(_PERSONAL)
        return self.definite(tags, every=every)

    def definite(self, tags: Sequence[str], *, every: bool = True) -> NounPhrase:
        """A known thing or person: the, this, every, my, ..., with or without adjective."""
        noun = self.noun(tags)
        draw = self.fraction()
        determiner: Determiner = "the"
        if draw < 0.1:
            determiner = "this"
        elif draw < 0.3 and _can_be_owned(noun):
            determiner = self.pick(_POSSESSIVES)
        elif draw < 0.34 and every and not noun.mass:
            determiner = "every"
        single = noun.mass or determiner == "every" or ("person" in noun.tags and determiner in _POSSESSIVES)
        plural = not single and self.chance(0.25)
        return NounPhrase(noun=noun, determiner=determiner, plural=plural, adjective=self._sometimes_adjective(noun))

    def object(self, tags: Sequence[str], *, many: bool = False, every: bool = True) -> NounPhrase:
        """What is acted on: known, new ("a car", "apples", "cold milk") or, if `many`, counted."""
        if self.chance(0.45):
            return self.definite(tags, every=every)
        return self.new(tags, many=many)

    def new(self, tags: Sequence[str], *, many: bool = False) -> NounPhrase:
        """Something not spoken of before; relatives and the like are never new."""
        noun = self.noun(tags)
        adjective = self._sometimes_adjective(noun)
        if noun.mass:
            return NounPhrase(noun=noun, determiner="bare", adjective=adjective)
        if "kin" in noun.tags:
            return NounPhrase(noun=noun, determiner=self.pick(_POSSESSIVES), adjective=adjective)
        draw = self.fraction()
        if draw < 0.5 or "person" in noun.tags:
            return NounPhrase(noun=noun, determiner="a", adjective=adjective)
        count = self.number() if many and draw < 0.75 else None
        return NounPhrase(noun=noun, determiner="bare", plural=True, count=count, adjective=adjective)

    def other_than(self, subject: NounPhrase | Pronoun) -> Pronoun:
        """An object pronoun that does not turn the sentence back on its subject."""
        return self.pick([pronoun for pronoun in _HIM_OR_ME if pronoun.person != subject.person])

    def owned(self, tags: Sequence[str]) -> NounPhrase:
        """A thing and its owner in the genitive: "the car of my brother"."""
        owner = replace(self.definite(("person",), every=False), plural=False, adjective=None)
        return NounPhrase(noun=self.noun(tags, countable=True), determiner="the", owner=owner)

    def _sometimes_adjective(self, noun: Noun) -> Adjective | None:
        return self.adjective(noun) if self.chance(0.4) else None

    def place(self, *tags: str) -> Phrase:
        """Where: "in the garden", "next to the school"; `tags` narrow the nouns."""
        phrase = self._known_place(tags or ("building", "room", "area", "nature"))
        around = {"building", "seat", "surface", "high"} & set(phrase.noun.tags) and self.chance(0.3)
        if around:
            in_english, in_german = self.pick(AROUND)
        else:
            kind = next(tag for tag in phrase.noun.tags if tag in LOCATIONS)
            in_english, in_german = LOCATIONS[kind]
        return self.prepositional(in_english, in_german, phrase, case="dative")

    def direction(self, *, far: bool) -> Phrase:
        """Where to: "into the kitchen", "to the station", "to Berlin", "home"; `far` for a journey."""
        draw = self.fraction()
        if draw < 0.08:
            return Phrase("home", "nach Hause")
        if draw < (0.5 if far else 0.2):
            return self.city()
        if draw < (0.7 if far else 0.6):
            phrase = self._known_place(("town",) if far else ("in",))
            return self.prepositional("into", "in", phrase, case="accusative")
        phrase = self._known_place(("goal",) if far else ("goal", "building"))
        return self.prepositional("to", "zu", phrase, case="dative")

    def city(self) -> Phrase:
        """To a city: "to Vienna"."""
        name = self.pick(CITIES)
        return Phrase(f"to {name.english}", f"nach {name.german}")

    def vehicle(self) -> Phrase:
        """With what one travels: "by train"."""
        noun = self.noun(("transport",))
        phrase = NounPhrase(noun=noun, determiner="the")
        return Phrase(f"by {noun.english}", german.prepositional("mit", phrase, "dative"))

    def prepositional(self, in_english: str, in_german: str, phrase: NounPhrase | Pronoun, *, case: Case) -> Phrase:
        """A prepositional phrase in both languages."""
        return Phrase(f"{in_english} {english.nominal(phrase)}", german.prepositional(in_german, phrase, case))

    def _known_place(self, tags: Sequence[str]) -> NounPhrase:
        noun = self.noun(tags)
        private = bool(set(noun.tags) & {"room", "seat"}) and self.chance(0.3)
        determiner = self.pick(_POSSESSIVES) if private else "the"
        adjective = self.adjective(noun) if self.chance(0.15) else None
        return NounPhrase(noun=noun, determiner=determiner, adjective=adjective)
