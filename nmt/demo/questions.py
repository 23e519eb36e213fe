"""Questions: yes or no, and with a question word."""

from __future__ import annotations

from dataclasses import replace

from nmt.demo import english, german
from nmt.demo.clauses import action, description
from nmt.demo.lexicon import BE
from nmt.demo.sampling import Sampler
from nmt.demo.syntax import Clause, Phrase, Pronoun

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
