"""Pairs of English sentences by the demo grammar: a premise, and a hypothesis that follows from it or does not.

Pairs come in groups of six about one matter: two hypotheses that exclude each other, each with an entailing, a
contradicting and a neutral premise. Each deciding premise entails one hypothesis and contradicts the other, and neutral
premises are built in the same way. So the label cannot be derived from the hypothesis alone or from the premise alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from scripts.demo_grammar import english, words
from scripts.demo_grammar.sampling import Sampler
from scripts.demo_grammar.words import Clause, Phrase, Verb, english_number

LABELS = ("entailment", "neutral", "contradiction")
GROUP = 6
"""Pairs of a group."""
_MOST = 12
"""The largest number."""
_KINDS_OF_THINGS = {
    "animal": "an animal",
    "building": "a building",
    "clothing": "a piece of clothing",
    "furniture": "a piece of furniture",
    "person": "a person",
    "vehicle": "a vehicle",
}
"""Tags of nouns, and the category of all nouns with a tag."""


class EntailmentPair(NamedTuple):
    """Two sentences, their words between spaces."""

    premise: str
    hypothesis: str
    label: str
    kind: str
    """What decides: negation, hyponyms or numbers."""


class _Matter(NamedTuple):
    """What a group is made of."""

    hypotheses: tuple[Clause, Clause]
    """They exclude each other."""
    decisive: tuple[Clause, Clause]
    """For each hypothesis, a premise from which it follows, so that the other cannot be true."""
    idle: tuple[Clause, Clause]
    """Premises that neither support nor contradict either."""


def generate_pairs(groups: int, *, seed: int) -> list[EntailmentPair]:
    """The first `groups` groups for a seed; no hypothesis is in two of them.

    A number of groups gives the beginning of what a larger one gives. The sequence depends on nothing but this code.
    """
    rng = random.Random(seed)
    pairs: list[EntailmentPair] = []
    seen: set[str] = set()
    while len(pairs) < groups * GROUP:
        sampler = Sampler(rng)
        build = sampler.pick(_BUILDERS)
        group = _pairs(sampler, build(sampler), kind=build.__name__)
        hypotheses = {pair.hypothesis for pair in group}
        if len(hypotheses) == 2 and not hypotheses & seen:
            seen |= hypotheses
            pairs += group
    return pairs


def _pairs(sampler: Sampler, matter: _Matter, *, kind: str) -> list[EntailmentPair]:
    hypotheses, decisive, idle = (list(map(_sentence, clauses)) for clauses in matter)
    if sampler.chance(0.5):
        idle.reverse()
    pairs = []
    for number, hypothesis in enumerate(hypotheses):
        premises = decisive[number], idle[number], decisive[1 - number]
        pairs += [EntailmentPair(*pair, kind) for pair in zip(premises, [hypothesis] * 3, LABELS, strict=True)]
    return pairs


def _sentence(clause: Clause) -> str:
    text = english.statement(clause)
    return f"{text[0].upper()}{text[1:]} ."


def _about(sampler: Sampler, verb: Verb) -> Clause:
    """Somebody does what the verb says to nothing yet."""
    return Clause(verb=verb, subject=sampler.definite(("person",), every=False))


def negation(sampler: Sampler) -> _Matter:
    """Somebody does something somewhere, or does not do it."""
    verb = sampler.verb("acc", subjects=("person",), extra="place")
    done = replace(_about(sampler, verb), object=sampler.definite(verb.objects, every=False))
    other = replace(done, object=sampler.definite(verb.objects, every=False))
    place = sampler.place()
    not_done, not_other = replace(done, negated=True), replace(other, negated=True)
    return _Matter(
        (done, not_done),
        (replace(done, place=place), not_done),
        (replace(other, place=place), not_other),
    )


def hyponyms(sampler: Sampler) -> _Matter:
    """Who sees a dog sees an animal, and who does not see an animal does not see a dog."""
    verb, kinds = sampler.pick(_verbs_of_kinds())
    own = sampler.pick(kinds)
    foreign = sampler.pick([kind for kind in kinds if kind != own])
    clause = _about(sampler, verb)

    def any_of(kind: str, *, negated: bool = False) -> Clause:
        return replace(clause, complement=Phrase(_KINDS_OF_THINGS[kind], ""), negated=negated)

    one, other = replace(clause, object=sampler.new((own,))), replace(clause, object=sampler.new((foreign,)))
    return _Matter(
        (any_of(own), replace(one, negated=True)),
        (one, any_of(own, negated=True)),
        (other, any_of(foreign, negated=True)),
    )


@cache
def _verbs_of_kinds() -> list[tuple[Verb, list[str]]]:
    """Verbs with the kinds of things that can be their object, where there are several."""
    found = []
    for verb in words.verbs():
        nouns = [noun for noun in words.nouns() if set(noun.tags) & set(verb.objects)]
        kinds = [kind for kind in _KINDS_OF_THINGS if any(kind in noun.tags for noun in nouns)]
        if verb.frame == "acc" and "person" in verb.subjects and len(kinds) > 1:
            found.append((verb, kinds))
    return found


def numbers(sampler: Sampler) -> _Matter:
    """Seven are more than five, and three are fewer."""
    verb = sampler.verb("acc", subjects=("person",), extra="many")
    clause = _about(sampler, verb)
    own, foreign = (sampler.noun(verb.objects, countable=True).english_plural for _ in range(2))
    limit = 3 + sampler.below(_MOST - 3)

    def counted(number: int, things: str, than: str = "") -> Clause:
        return replace(clause, complement=Phrase(f"{than}{english_number(number)} {things}", ""))

    def idle() -> Clause:
        return counted(2 + sampler.below(_MOST - 1), foreign)

    more, fewer = limit + 1 + sampler.below(_MOST - limit), 2 + sampler.below(limit - 2)
    return _Matter(
        (counted(limit, own, "more than "), counted(limit, own, "fewer than ")),
        (counted(more, own), counted(fewer, own)),
        (idle(), idle()),
    )


_BUILDERS: tuple[Callable[[Sampler], _Matter], ...] = (negation, hyponyms, numbers)
