"""The sentences of the demo corpus: clauses around a verb, kinds of sentences, and how often each comes.

`python -m scripts.demo_grammar.sentences` writes nmt/demo_corpus/demo.tsv.bz2, the text that nmt has.
"""

from __future__ import annotations

import bz2
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple, cast

from nmt.demo_corpus.text import PAIRS, TEXT
from scripts.demo_grammar import english, german, sampling
from scripts.demo_grammar.german import Case
from scripts.demo_grammar.sampling import FREQUENCIES, PACES, Sampler
from scripts.demo_grammar.words import (
    BE,
    COST,
    HOPE,
    KNOW,
    LIKE,
    RAIN,
    SAY,
    SNOW,
    THINK,
    Adjective,
    Clause,
    Nominal,
    NounPhrase,
    Phrase,
    Pronoun,
    Verb,
    english_number,
    find_verb,
    german_number,
)

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
    mood = sampling.PLAIN if plain else sampling.mood(sampler, verb, past=past, negated=negated)
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
        clause = replace(clause, manner=sampler.pick(PACES))
    simple = clause.tense == "present" and clause.modal is None and not busy and not clause.negated
    if simple and "stative" not in extras:
        if sampler.chance(0.2):
            return replace(clause, frequency=sampler.pick(FREQUENCIES))
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
    time = sampling.past_time(sampler) if past and "person" in who.noun.tags and sampler.chance(0.4) else None
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


_SOMEBODY = Pronoun(gender="m")


def yes_no_question(sampler: Sampler) -> Phrase:
    """The verb comes first."""
    clause = description(sampler) if sampler.chance(0.2) else action(sampler)
    clause = replace(clause, fronted=False)
    return Phrase(english.inverted(clause) + "?", german.verb_first(clause) + "?")


def word_question(sampler: Sampler) -> Phrase:
    """Who, what, whom, where, when, why, how many."""
    return sampler.pick((_who, _what, _whom, _where, _when, _why, _how_many))(sampler)


def _asked(word: Phrase, clause: Clause) -> Phrase:
    clause = replace(clause, fronted=False)
    spoken = english.statement(clause) if clause.gap else english.inverted(clause)
    return Phrase(f"{word.english} {spoken}?", german.verb_second(clause, front=word.german) + "?")


def _who(sampler: Sampler) -> Phrase:
    return _asked(Phrase("who", "wer"), replace(action(sampler, subject=_SOMEBODY), gap=True))


def _what(sampler: Sampler) -> Phrase:
    clause = action(sampler, frame="acc", objects=("thing", "food", "text", "device", "clothing"))
    return _asked(Phrase("what", "was"), replace(clause, object=None))


def _whom(sampler: Sampler) -> Phrase:
    case = sampler.pick(("acc", "dat"))
    clause = action(sampler, frame=case, objects=("person",))
    return _asked(Phrase("whom", "wen" if case == "acc" else "wem"), replace(clause, object=None))


def _where(sampler: Sampler) -> Phrase:
    if sampler.chance(0.5):
        thing = sampler.definite(("thing", "person", "animal", "building"))
        return _asked(Phrase("where", "wo"), Clause(verb=BE, subject=thing))
    return _asked(Phrase("where", "wo"), replace(action(sampler, frame="at"), place=None))


def _when(sampler: Sampler) -> Phrase:
    return _asked(Phrase("when", "wann"), replace(action(sampler), time=None, fronted=False, frequency=None))


def _why(sampler: Sampler) -> Phrase:
    return _asked(Phrase("why", "warum"), action(sampler))


def _how_many(sampler: Sampler) -> Phrase:
    clause = action(sampler, frame="acc", objects=("thing", "food", "text", "clothing", "person", "animal"))
    noun = sampler.noun(clause.verb.objects, countable=True)
    word = Phrase(f"how many {noun.english_plural}", f"wie viele {noun.german_plural}")
    return _asked(word, replace(clause, object=None))


_IT = Pronoun(gender="n", thing=True)


def because(sampler: Sampler) -> Phrase:
    """weil and obwohl send the verb to the end."""
    word = sampler.pick((Phrase("because", "weil"), Phrase("because", "weil"), Phrase("although", "obwohl")))
    if sampler.chance(0.4):
        return _joined(*_bought_because(sampler), word=word)
    main = _feeling(sampler) if sampler.chance(0.5) else action(sampler, plain=True)
    return _joined(main, action(sampler, subject=_same_or_other(sampler, main.subject)), word=word)


def _feeling(sampler: Sampler) -> Clause:
    who = replace(sampler.definite(("person",)), adjective=None)
    return Clause(verb=BE, subject=who, predicate=predicate(sampler, sampler.adjective(who.noun, scales=("feeling",))))


def _bought_because(sampler: Sampler) -> tuple[Clause, Clause]:
    """A thing taken up by a pronoun: "... buys the car because it is cheap", "because he needs it"."""
    verb = find_verb(sampler.pick(("buy", "sell", "look for", "find", "forget", "bring along")))
    thing = sampler.definite(verb.objects, every=False)
    who = sampler.subject(("person",))
    main = Clause(verb=verb, subject=who, object=thing)
    if sampler.chance(0.5):
        return main, Clause(verb=BE, subject=taken_up(thing), predicate=property_of(sampler, thing))
    selling = verb.english == "sell"
    need = find_verb("need" if selling or sampler.chance(0.7) else "look for")
    return main, Clause(verb=need, subject=_same_or_other(sampler, who), object=taken_up(thing), negated=selling)


def _same_or_other(sampler: Sampler, subject: Nominal) -> Nominal:
    """The subject again as a pronoun, if its pronoun is certain; else another subject."""
    if isinstance(subject, Pronoun):
        return subject
    certain = "person" in subject.noun.tags and (subject.noun.gender != "n" or subject.plural)
    if certain and subject.determiner not in ("every", "no"):
        return taken_up(subject)
    return sampler.definite(("person",))


def condition(sampler: Sampler) -> Phrase:
    """wenn, mostly in front: the main clause then begins with its verb."""
    weather = Clause(verb=sampler.pick((RAIN, SNOW)), subject=_IT)
    sub = weather if sampler.chance(0.3) else action(sampler, plain=True)
    who = sampler.subject(("person",)) if sub is weather else _same_or_other(sampler, sub.subject)
    main = replace(action(sampler, subject=who, past=False, plain=sampler.chance(0.5)), fronted=False)
    if sampler.chance(0.25):
        return _joined(main, sub, word=Phrase("if", "wenn"))
    return Phrase(
        f"if {english.statement(sub)}, {english.statement(main)}.",
        f"wenn {german.verb_last(sub)}, {german.verb_first(main)}.",
    )


def reported(sampler: Sampler) -> Phrase:
    """dass and ob."""
    speaker = sampler.subject(("person",))
    if sampler.chance(0.3):
        main = Clause(verb=KNOW, subject=speaker, negated=True)
        return _joined(main, action(sampler), word=Phrase("whether", "ob"))
    main = Clause(verb=sampler.pick((SAY, THINK, KNOW, HOPE)), subject=speaker)
    content = description(sampler) if sampler.chance(0.25) else action(sampler, negated=sampler.chance(0.2))
    return _joined(main, content, word=Phrase("that", "dass"))


def contrast(sampler: Sampler) -> Phrase:
    """Two main clauses; the pronoun of the second agrees in gender with the noun of the first."""
    subject = replace(sampler.definite(("thing", "vehicle", "building", "animal"), every=False), adjective=None)
    said = sampler.adjective(subject.noun)
    first = Clause(verb=BE, subject=subject, predicate=predicate(sampler, said))
    more = property_of(sampler, subject, beside=said)
    second = replace(first, subject=taken_up(subject), predicate=more, negated=sampler.chance(0.5))
    return Phrase(
        f"{english.statement(first)}, but {english.statement(second)}.",
        f"{german.verb_second(first)}, aber {german.verb_second(second)}.",
    )


def relative(sampler: Sampler) -> Phrase:
    """A relative clause at the subject, as its subject or its object."""
    if sampler.chance(0.5):
        head = replace(sampler.definite(("person",), every=False), adjective=None)
        clause = replace(action(sampler, subject=head, frame=sampler.pick(("acc", "dat", "at")), plain=True), gap=True)
    else:
        clause = replace(action(sampler, frame=sampler.pick(("acc", "acc", "dat")), plain=True), object=None)
        head = replace(sampler.definite(clause.verb.objects, every=False), adjective=None)
    subject = replace(head, relative=clause)
    return statement_of(Clause(verb=BE, subject=subject, predicate=property_of(sampler, head)))


def purpose(sampler: Sampler) -> Phrase:
    """um ... zu, with zu inside separable verbs."""
    main = action(sampler, frame="to", subject=sampler.subject(("person",)))
    frame = sampler.pick(("acc", "acc", "dat", "none"))
    aim = action(sampler, subject=main.subject, frame=frame, extra="aim", plain=True)
    return Phrase(
        f"{english.statement(main)} {english.purpose(aim)}.",
        f"{german.verb_second(main)}, {german.purpose(aim)}.",
    )


def _joined(main: Clause, subordinate: Clause, *, word: Phrase) -> Phrase:
    sub = replace(subordinate, fronted=False)
    return Phrase(
        f"{english.statement(main)} {word.english} {english.statement(sub)}.",
        f"{german.verb_second(main)}, {word.german} {german.verb_last(sub)}.",
    )


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


class Pair(NamedTuple):
    """A sentence in both languages and the name of the kind it is of."""

    english: str
    german: str
    kind: str


_SEED = 20_260_117
_LONGEST = 14


def generate(count: int) -> list[Pair]:
    """The first `count` pairs of the demo corpus; no sentence occurs twice, in either language.

    The sequence depends on nothing but this code: Python keeps `Random.random` and `randrange`
    the same from version to version.
    """
    rng = random.Random(_SEED)
    bounds = list(accumulate(kind.weight for kind in KINDS))
    pairs: list[Pair] = []
    seen: set[str] = set()
    while len(pairs) < count:
        draw = rng.randrange(bounds[-1])
        build = next(kind.build for bound, kind in zip(bounds, KINDS, strict=True) if draw < bound)
        built = build(Sampler(rng))
        english, german = (f"{sentence[0].upper()}{sentence[1:]}" for sentence in built)
        if max(len(english.split()), len(german.split())) > _LONGEST or english in seen or german in seen:
            continue
        seen.update((english, german))
        pairs.append(Pair(english, german, build.__name__))
    return pairs


def text_of(pairs: Sequence[Pair]) -> str:
    """The pairs as the text of nmt has them: a line each, English, a tab, German."""
    return "".join(f"{pair.english}\t{pair.german}\n" for pair in pairs)


if __name__ == "__main__":
    TEXT.write_bytes(bz2.compress(text_of(generate(PAIRS)).encode()))
