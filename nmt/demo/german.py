"""German sentences: noun phrases in their case, verb second, verb first and verb last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nmt.demo import german_words as words
from nmt.demo.german_words import Case
from nmt.demo.numbers import german_number
from nmt.demo.syntax import LIKE, Clause, Nominal, NounPhrase, Pronoun


def nominal(phrase: Nominal, case: Case) -> str:
    """A pronoun or noun phrase in a case, e.g. "dem alten Mann", "einundzwanzig rote Äpfel"."""
    if isinstance(phrase, Pronoun):
        return words.pronoun_form(phrase, case)
    slot = words.slot_of(phrase.noun, plural=phrase.plural)
    parts = [words.determiner_form(phrase.determiner, case, slot)]
    if phrase.count is not None:
        parts.append(german_number(phrase.count))
    if phrase.adjective is not None:
        declension = words.declension_after(phrase.determiner, slot)
        parts.append(words.adjective_form(phrase.adjective, declension, case, slot))
    parts.append(words.noun_form(phrase.noun, case, plural=phrase.plural))
    if phrase.owner is not None:
        parts.append(nominal(phrase.owner, "genitive"))
    text = _join(parts)
    return text if phrase.relative is None else f"{text}, {relative_clause(phrase, phrase.relative)},"


def prepositional(preposition: str, phrase: NounPhrase | Pronoun, case: Case) -> str:
    """A preposition with its phrase, contracted where German contracts: "im Garten", "zur Schule"."""
    return words.contract(preposition, nominal(phrase, case))


def relative_clause(head: NounPhrase, clause: Clause) -> str:
    """A clause about `head`: "der das Auto kauft" (gap: it is the subject), else "das die Frau kauft"."""
    case: Case = "nominative" if clause.gap else object_case(clause)
    slot = words.slot_of(head.noun, plural=head.plural)
    return f"{words.relative_pronoun(case, slot)} {verb_last(clause)}"


def object_case(clause: Clause) -> Case:
    """The case that the verb gives to its only object."""
    return "dative" if clause.verb.frame == "dat" else "accusative"


@dataclass(frozen=True)
class _Skeleton:
    """A clause in the order of the German fields."""

    subject: str
    finite: str
    middle: list[str]
    bracket: list[str]


def verb_second(clause: Clause, *, front: str | None = None) -> str:
    """A main clause; `front`, or the fronted time, pushes the subject behind the verb."""
    parts = _skeleton(clause)
    if front is None and clause.fronted and clause.time is not None:
        front = clause.time.german
    if front is None:
        return _join([parts.subject, parts.finite, *parts.middle, *parts.bracket])
    return _join([front, parts.finite, parts.subject, *parts.middle, *parts.bracket])


def verb_first(clause: Clause) -> str:
    """A yes/no question, or a main clause after a subordinate one."""
    parts = _skeleton(clause)
    return _join([parts.finite, parts.subject, *parts.middle, *parts.bracket])


def verb_last(clause: Clause) -> str:
    """A subordinate clause without its conjunction; a separable verb is one word again."""
    parts = _skeleton(clause)
    bracket, finite = parts.bracket, parts.finite
    if clause.verb.prefix and bracket == [clause.verb.prefix]:
        bracket, finite = [], clause.verb.prefix + finite
    return _join([parts.subject, *parts.middle, *bracket, finite])


def purpose(clause: Clause) -> str:
    """An infinitive clause with "um ... zu"; its subject is that of the main clause."""
    return _join(["um", *_middle(clause), words.zu_infinitive(clause.verb)])


def _skeleton(clause: Clause) -> _Skeleton:
    subject = "" if clause.gap else nominal(clause.subject, "nominative")
    finite, bracket = _verbs(clause)
    return _Skeleton(subject, finite, _middle(clause), bracket)


def _verbs(clause: Clause) -> tuple[str, list[str]]:
    """The finite verb and what closes the clause: prefix, infinitive or participle."""
    verb, person, plural = clause.verb, clause.subject.person, clause.subject.plural
    if clause.modal is not None and clause.modal != LIKE:
        return words.present(clause.modal.german, None, person, plural=plural), [words.infinitive(verb)]
    if clause.tense == "past":
        simple = words.preterite(verb.infinitive, person, plural=plural)
        if simple is not None:
            return simple, []
        return words.present(verb.auxiliary, None, person, plural=plural), [words.participle(verb)]
    finite = words.present(verb.infinitive, verb.changed_stem, person, plural=plural)
    return finite, [verb.prefix] if verb.prefix else []


def _middle(clause: Clause) -> list[str]:
    """Pronouns, time, dative, accusative, "nicht", means, manner, place, what the verb asks for last.

    Of two pronouns the accusative comes first, of two noun phrases the dative.
    """
    target, negator = _negated_object(clause)
    objects: list[tuple[Nominal, Case]] = []
    if target is not None:
        objects.append((target, object_case(clause)))
    if clause.recipient is not None:
        objects.append((clause.recipient, "dative"))
    pronouns = [nominal(phrase, case) for phrase, case in objects if isinstance(phrase, Pronoun)]
    phrases = [nominal(phrase, case) for phrase, case in reversed(objects) if isinstance(phrase, NounPhrase)]
    time = None if clause.fronted else clause.time
    before = [part.german for part in (time, clause.frequency) if part is not None]
    after = [clause.means, clause.manner, clause.place, clause.complement, clause.direction, clause.predicate]
    like = ["gern"] if clause.modal == LIKE else []
    return [*pronouns, *before, *like, *phrases, negator, *(part.german for part in after if part is not None)]


def _negated_object(clause: Clause) -> tuple[Nominal | None, str]:
    """The word "kein" goes into an indefinite object, otherwise "nicht" stands alone."""
    target = clause.object
    if not clause.negated:
        return target, ""
    if isinstance(target, NounPhrase) and target.indefinite:
        return replace(target, determiner="no"), ""
    return target, "nicht"


def _join(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)
