"""Sentences of two clauses: subordinate, coordinate, relative and infinitive clauses."""

from __future__ import annotations

from dataclasses import replace

from nmt.demo import english, german
from nmt.demo.clauses import action, description, predicate, property_of, statement_of, taken_up
from nmt.demo.lexicon import BE, HOPE, KNOW, RAIN, SAY, SNOW, THINK, find_verb
from nmt.demo.sampling import Sampler
from nmt.demo.syntax import Clause, Nominal, Phrase, Pronoun

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
