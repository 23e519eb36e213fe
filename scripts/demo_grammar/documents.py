"""Short documents by the demo grammar in which "it" is a thing of the sentence before, whose gender German must know.

The sentences with "it" are drawn without regard to the noun, so that none of them tells its gender.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

from scripts.demo_grammar.sampling import Sampler, past_time
from scripts.demo_grammar.sentences import action, predicate, statement, statement_of, taken_up
from scripts.demo_grammar.words import BE, Clause, NounPhrase, Phrase, Pronoun, adjectives, find_verb

_VERBS = ("buy", "find", "look for", "need", "see", "sell")
"""Those that take any thing."""
_ADJECTIVES = tuple(adjective for adjective in adjectives() if "thing" in adjective.tags)
_SPEAKERS = (Pronoun(person=1), Pronoun(person=1, plural=True))
_LONGEST = 14
FORMS = ("er", "ihn", "sie", "es")
"""What "it" can be in German."""


class Sentence(NamedTuple):
    """A sentence in both languages."""

    english: str
    german: str


def generate_documents(count: int, *, seed: int) -> list[list[Sentence]]:
    """The first `count` documents for a seed, of two or three sentences; no two have the same English text.

    A number gives the beginning of what a larger one gives. The sequence depends on nothing but this code.
    """
    rng = random.Random(seed)
    found: dict[tuple[str, ...], list[Sentence]] = {}
    while len(found) < count:
        document = _document(Sampler(rng))
        if all(len(side.split()) <= _LONGEST for sentence in document for side in sentence):
            found.setdefault(tuple(sentence.english for sentence in document), document)
    return list(found.values())


def has_pronoun(english: str) -> bool:
    """Whether "it" is in a sentence."""
    return "it" in english.lower().rstrip(".").split()


def _document(sampler: Sampler) -> list[Sentence]:
    thing = replace(sampler.definite(("thing",), every=False), plural=False)
    sentences = [_first(sampler, thing), statement_of(_second(sampler, thing))]
    if sampler.chance(0.5):
        if sampler.chance(0.5):
            sentences.append(statement_of(_second(sampler, thing)))
        else:
            before = statement(Sampler(random.Random(sampler.below(2**32))))
            sentences = sentences if has_pronoun(before.english) else [before, *sentences]
    return [Sentence(*(f"{side[0].upper()}{side[1:]}" for side in sentence)) for sentence in sentences]


def _first(sampler: Sampler, thing: NounPhrase) -> Phrase:
    """The noun, as the subject or as what somebody buys, sees, ..."""
    if sampler.chance(0.3):
        return statement_of(Clause(verb=BE, subject=thing, predicate=predicate(sampler, sampler.pick(_ADJECTIVES))))
    clause = action(sampler, frame="acc", objects=("thing",), subject=sampler.definite(("person",), every=False))
    return statement_of(replace(clause, verb=find_verb(sampler.pick(_VERBS)), object=thing, negated=False))


def _second(sampler: Sampler, thing: NounPhrase) -> Clause:
    """The pronoun, as the subject or as what I or we need, sell, ..."""
    negated = sampler.chance(0.25)
    if sampler.chance(0.5):
        described = predicate(sampler, sampler.pick(_ADJECTIVES))
        tense = "past" if sampler.chance(0.25) else "present"
        return Clause(verb=BE, subject=taken_up(thing), predicate=described, tense=tense, negated=negated)
    verb, who = find_verb(sampler.pick(_VERBS)), sampler.pick(_SPEAKERS)
    clause = Clause(verb=verb, subject=who, object=taken_up(thing), negated=negated)
    if sampler.chance(0.3):
        clause = replace(clause, tense="past", time=past_time(sampler), fronted=sampler.chance(0.4))
    return clause
