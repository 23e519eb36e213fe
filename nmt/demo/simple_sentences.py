"""Sentences of one clause: statements, negation, description, number, place."""

from __future__ import annotations

from dataclasses import replace

from nmt.demo import english, german
from nmt.demo.clauses import action, comparison, description, statement_of
from nmt.demo.lexicon import BE, COST
from nmt.demo.numbers import english_number, german_number
from nmt.demo.sampling import Sampler
from nmt.demo.syntax import Clause, NounPhrase, Phrase

_FOUND_IN = {
    "town": ("animal", "building"),
    "area": ("animal", "high"),
    "building": ("furniture", "room"),
    "room": ("furniture", "device"),
}


def statement(sampler: Sampler) -> Phrase:
    """Somebody does something."""
    return statement_of(action(sampler))


def negation(sampler: Sampler) -> Phrase:
    """nicht and kein."""
    return statement_of(action(sampler, negated=True))


def nobody(sampler: Sampler) -> Phrase:
    """A subject with kein: "No child sleeps"."""
    subject = NounPhrase(noun=sampler.noun(("person",)), determiner="no")
    return statement_of(replace(action(sampler, subject=subject, plain=sampler.chance(0.5)), frequency=None))


def quality(sampler: Sampler) -> Phrase:
    """A predicate adjective, which has no ending."""
    return statement_of(description(sampler, negated=sampler.chance(0.25)))


def ownership(sampler: Sampler) -> Phrase:
    """A genitive: "The car of my brother is red."."""
    return statement_of(description(sampler, sampler.owned(("vehicle", "clothing", "portable", "furniture"))))


def comparative(sampler: Sampler) -> Phrase:
    """größer als."""
    return statement_of(comparison(sampler))


def measure(sampler: Sampler) -> Phrase:
    """Prices and ages, in words."""
    count = sampler.number()
    in_english, in_german = english_number(count), german_number(count)
    if sampler.chance(0.5):
        price = Phrase(f"{in_english} euros", f"{in_german} Euro")
        return statement_of(Clause(verb=COST, subject=sampler.definite(("thing", "food")), predicate=price))
    age = Phrase(f"{in_english} years old", f"{in_german} Jahre alt")
    subject = sampler.subject(("person", "animal", "building"))
    if isinstance(subject, NounPhrase):
        subject = replace(subject, adjective=None)
    return statement_of(Clause(verb=BE, subject=subject, predicate=age))


def location(sampler: Sampler) -> Phrase:
    """Two-way prepositions with the dative."""
    negated = sampler.chance(0.2)
    subject = sampler.definite(("portable", "person", "animal"), every=not negated)
    spots = ("seat", "surface", "room") if "portable" in subject.noun.tags else ("seat", "room", "area", "building")
    return statement_of(Clause(verb=BE, subject=subject, place=sampler.place(*spots), negated=negated))


def existence(sampler: Sampler) -> Phrase:
    """es gibt with the accusative, behind a fronted place."""
    where = sampler.pick(tuple(_FOUND_IN))
    place = sampler.place(where)
    thing = sampler.new(_FOUND_IN[where], many=True)
    verb = "are" if thing.plural else "is"
    return Phrase(
        f"{place.english} there {verb} {english.nominal(thing)}.",
        f"{place.german} gibt es {german.nominal(thing, 'accusative')}.",
    )
