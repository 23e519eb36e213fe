"""English sentences: agreement, do-support, particles and word order."""

from __future__ import annotations

from collections.abc import Iterable

from scripts.demo_grammar.words import BE, CAN, Clause, Nominal, NounPhrase, Pronoun, Verb, english_number

_PRONOUNS = {
    (1, False): ("I", "me"),
    (2, False): ("you", "you"),
    (1, True): ("we", "us"),
    (3, True): ("they", "them"),
}
_BY_GENDER = {"m": ("he", "him"), "f": ("she", "her"), "n": ("it", "it")}


def nominal(phrase: Nominal, *, subject: bool = False) -> str:
    """A pronoun or noun phrase; only pronouns differ between subject and object."""
    if isinstance(phrase, Pronoun):
        return _pronoun(phrase)[0 if subject else 1]
    parts = [english_number(phrase.count)] if phrase.count is not None else []
    if phrase.adjective is not None:
        parts.append(phrase.adjective.english)
    parts.append(phrase.noun.english_plural if phrase.plural else phrase.noun.english)
    text = _join([_determiner(phrase, parts[0]), *parts])
    if phrase.owner is not None:
        text += f" of {nominal(phrase.owner)}"
    return text if phrase.relative is None else f"{text} {relative_clause(phrase, phrase.relative)}"


def _pronoun(pronoun: Pronoun) -> tuple[str, str]:
    if pronoun.person == 3 and not pronoun.plural:
        return ("it", "it") if pronoun.thing else _BY_GENDER[pronoun.gender]
    return _PRONOUNS[pronoun.person, pronoun.plural]


def _determiner(phrase: NounPhrase, following: str) -> str:
    if phrase.determiner == "bare":
        return ""
    if phrase.determiner == "a":
        return "" if phrase.plural else ("an" if following[0] in "aeiou" else "a")
    if phrase.determiner == "this" and phrase.plural:
        return "these"
    return phrase.determiner


def relative_clause(head: NounPhrase, clause: Clause) -> str:
    """A clause about `head`: "who" and "whom" for people, "that" for the rest."""
    personal = "who" if clause.gap else "whom"
    word = personal if "person" in head.noun.tags else "that"
    return f"{word} {statement(clause)}"


def statement(clause: Clause) -> str:
    """Subject before verb; a fronted time opens the clause."""
    auxiliary, verb = _verb_group(clause, inverted=False)
    subject = "" if clause.gap else nominal(clause.subject, subject=True)
    front = clause.time.english if clause.fronted and clause.time is not None else ""
    return _join([front, subject, auxiliary, _not(clause), _frequency(clause), verb, *_rest(clause)])


def inverted(clause: Clause) -> str:
    """Auxiliary before subject, as in questions."""
    auxiliary, verb = _verb_group(clause, inverted=True)
    subject = nominal(clause.subject, subject=True)
    return _join([auxiliary, subject, _not(clause), _frequency(clause), verb, *_rest(clause)])


def purpose(clause: Clause) -> str:
    """An infinitive clause with "in order to"."""
    return _join(["in order to", clause.verb.english, *_rest(clause)])


def _not(clause: Clause) -> str:
    cannot = clause.modal == CAN
    return "not" if clause.negated and not cannot else ""


def _frequency(clause: Clause) -> str:
    return "" if clause.frequency is None else clause.frequency.english


def _verb_group(clause: Clause, *, inverted: bool) -> tuple[str, str]:
    """The auxiliary (or a form of "be") and the full verb, either of which may be empty."""
    verb, base = clause.verb, clause.verb.english
    if clause.modal is not None and not clause.modal.governs_to:
        return ("cannot" if clause.negated and clause.modal == CAN else clause.modal.english), base
    third = clause.subject.person == 3 and not clause.subject.plural
    if clause.modal is not None:
        head, tail = clause.modal.english, f" to {base}"
    elif verb == BE:
        return _be(clause), ""
    else:
        head, tail = base, ""
    if inverted or clause.negated:
        support = "did" if clause.tense == "past" else ("does" if third else "do")
        return support, head + tail
    if clause.tense == "past":
        return "", verb.english_past
    return "", (third_person(head) if third else head) + tail


def _be(clause: Clause) -> str:
    person, plural = clause.subject.person, clause.subject.plural
    if clause.tense == "past":
        return "were" if plural or person == 2 else "was"
    if plural or person == 2:
        return "are"
    return "am" if person == 1 else "is"


def third_person(verb: str) -> str:
    """The form for he and she: goes, washes, carries, looks for."""
    head, _, tail = verb.partition(" ")
    if head == "have":
        head = "has"
    elif head.endswith(("s", "sh", "ch", "x", "o")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ies"
    else:
        head += "s"
    return f"{head} {tail}".strip()


def _rest(clause: Clause) -> list[str]:
    """Objects with the particle of the verb, then complement, direction, means, manner, place, time."""
    time = None if clause.fronted else clause.time
    after = [clause.predicate, clause.complement, clause.direction, clause.means, clause.manner, clause.place, time]
    return [*_objects(clause, clause.verb), *(part.english for part in after if part is not None)]


def _objects(clause: Clause, verb: Verb) -> list[str]:
    objects = [nominal(phrase) for phrase in (clause.recipient, clause.object) if phrase is not None]
    particle = verb.particle
    return [*objects, particle] if isinstance(clause.object, Pronoun) else [particle, *objects]


def _join(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)
