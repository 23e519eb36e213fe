"""Clauses built around a verb: its frame filled with fitting nouns, its mood, its adverbials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from nmt.demo import adverbials, english, german
from nmt.demo.german_words import Case
from nmt.demo.lexicon import BE, Adjective, Verb
from nmt.demo.sampling import Sampler
from nmt.demo.syntax import LIKE, Clause, Nominal, NounPhrase, Phrase, Pronoun

TRANSITIVE = ("acc", "acc", "acc", "dat")
FRAMES = (*TRANSITIVE, "dat+acc", "none", "at", "to", "prepositional")


def action(
    sampler: Sampler,
    *,
    frame: str | None = None,
    objects: Sequence[str] = (),
    extra: str | None = None,
    subject: Nominal | None = None,
    negated: bool = False,
    past: bool = True,
    plain: bool = False,
) -> Clause:
    """Somebody does something.

    `frame`, `objects` and `extra` narrow the verbs; a given `subject` is a person. `plain` keeps the
    clause short and in the present: no optional adverbials.
    """
    verb = sampler.verb(
        frame or sampler.pick(FRAMES), subjects=("person",) if subject else (), objects=objects, extra=extra
    )
    who = subject or sampler.subject(verb.subjects, every=not negated)
    mood = adverbials.PLAIN if plain else adverbials.mood(sampler, verb, past=past, negated=negated)
    clause = Clause(
        verb=verb,
        subject=who,
        tense=mood.tense,
        modal=mood.modal,
        time=mood.time,
        fronted=mood.time is not None and sampler.chance(0.4),
        negated=negated,
    )
    clause = _fill_frame(sampler, clause)
    return clause if plain else _adverbials(sampler, clause)


def _fill_frame(sampler: Sampler, clause: Clause) -> Clause:
    verb, every = clause.verb, not clause.negated
    many = "many" in verb.extras and not clause.negated
    if verb.frame in ("acc", "dat"):
        if "person" in verb.objects and sampler.chance(0.2):
            return replace(clause, object=sampler.other_than(clause.subject))
        if verb.frame == "dat":
            return replace(clause, object=sampler.definite(verb.objects, every=every))
        return replace(clause, object=sampler.object(verb.objects, many=many, every=every))
    if verb.frame == "dat+acc":
        known = sampler.chance(0.7)
        recipient = sampler.definite(("person",), every=every) if known else sampler.other_than(clause.subject)
        return replace(clause, recipient=recipient, object=sampler.object(verb.objects, every=every))
    if verb.frame == "at":
        return replace(clause, place=_place_for(sampler, verb))
    if verb.frame in ("to", "to,by"):
        far = verb.frame == "to,by"
        means = sampler.vehicle() if far and sampler.chance(0.4) else None
        return replace(clause, direction=sampler.direction(far=far), means=means)
    if ":" in verb.frame:
        in_english, in_german, case = verb.frame.split(":")
        target = sampler.definite(verb.objects, every=every)
        complement = sampler.prepositional(in_english, in_german, target, case=_CASES[case])
        return replace(clause, complement=complement)
    return clause


_CASES: dict[str, Case] = {"acc": "accusative", "dat": "dative"}


def _place_for(sampler: Sampler, verb: Verb) -> Phrase:
    return sampler.place("seat", "area") if "seat" in verb.extras else sampler.place()


def _adverbials(sampler: Sampler, clause: Clause) -> Clause:
    extras, busy = clause.verb.extras, clause.time is not None
    if "place" in extras and not clause.negated and sampler.chance(0.25 if busy else 0.4):
        clause = replace(clause, place=_place_for(sampler, clause.verb))
    elif "pace" in extras and sampler.chance(0.3):
        clause = replace(clause, manner=sampler.pick(adverbials.PACES))
    simple = clause.tense == "present" and clause.modal is None and not busy and not clause.negated
    if simple and "stative" not in extras:
        if sampler.chance(0.2):
            return replace(clause, frequency=sampler.pick(adverbials.FREQUENCIES))
        if sampler.chance(0.2) and _can_be_liked(clause):
            return replace(clause, modal=LIKE)
    return clause


def _can_be_liked(clause: Clause) -> bool:
    counted = isinstance(clause.object, NounPhrase) and clause.object.count is not None
    return "person" in clause.verb.subjects and clause.manner is None and not counted


def description(sampler: Sampler, subject: NounPhrase | None = None, *, negated: bool = False) -> Clause:
    """Something is as it is: "The old house is very big.", "My brother was tired yesterday."."""
    kinds = ("person", "animal", "thing", "building", "vehicle", "room")
    who = subject or sampler.definite(kinds, every=not negated)
    past = sampler.chance(0.25)
    time = adverbials.past_time(sampler) if past and "person" in who.noun.tags and sampler.chance(0.4) else None
    return Clause(
        verb=BE,
        subject=who,
        predicate=property_of(sampler, who),
        tense="past" if past else "present",
        negated=negated,
        time=time,
        fronted=time is not None and sampler.chance(0.4),
    )


def property_of(sampler: Sampler, phrase: NounPhrase, *, beside: Adjective | None = None) -> Phrase:
    """A predicate adjective, sometimes with "very" or "too", on another scale than its neighbours."""
    return predicate(sampler, sampler.adjective(phrase.noun, beside=beside or phrase.adjective))


def predicate(sampler: Sampler, adjective: Adjective) -> Phrase:
    """The adjective after "be", which has no ending in German; colours have no degrees."""
    if adjective.english_comparative is not None and sampler.chance(0.4):
        degree = sampler.pick((Phrase("very", "sehr"), Phrase("too", "zu")))
        return Phrase(f"{degree.english} {adjective.english}", f"{degree.german} {adjective.german}")
    return Phrase(adjective.english, adjective.german)


_SCALES_OF = {
    "person": ("strength", "manner", "wealth", "feeling", "mind", "fame"),
    "animal": ("strength", "speed", "feeling", "mind"),
    "vehicle": ("speed", "price"),
    "building": ("looks",),
    "furniture": ("price", "weight", "looks"),
    "clothing": ("price", "length", "temperature"),
    "device": ("price", "weight"),
}


def comparison(sampler: Sampler) -> Clause:
    """As in "The dog is bigger than the cat."; both belong to one kind of thing."""
    kind = sampler.pick(tuple(_SCALES_OF))
    first, second = sampler.definite((kind,)), sampler.definite((kind,))
    first, second = replace(first, adjective=None), replace(second, adjective=None)
    adjective = sampler.adjective(first.noun, scales=("age", "size", *_SCALES_OF[kind]))
    than = Phrase(
        f"{cast(str, adjective.english_comparative)} than {english.nominal(second)}",
        f"{cast(str, adjective.german_comparative)} als {german.nominal(second, 'nominative')}",
    )
    return Clause(verb=BE, subject=first, predicate=than)


def taken_up(phrase: NounPhrase) -> Pronoun:
    """The pronoun for a noun phrase; it has the gender of the German word, "it" or "he" in English.

    Not for "the child" and "the girl", where people choose between the word's gender and the person's.
    """
    person = "person" in phrase.noun.tags
    return Pronoun(plural=phrase.plural, gender=phrase.noun.gender, thing=not person and not phrase.plural)


def statement_of(clause: Clause) -> Phrase:
    """A main clause by itself, as a sentence."""
    return Phrase(english.statement(clause) + ".", german.verb_second(clause) + ".")
