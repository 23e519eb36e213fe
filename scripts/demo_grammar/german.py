"""German: the inflection of words, and sentences with the verb second, first or last."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from scripts.demo_grammar.words import (
    LIKE,
    Adjective,
    Clause,
    Determiner,
    Nominal,
    Noun,
    NounPhrase,
    Person,
    Pronoun,
    Verb,
    german_number,
)

Case = Literal["nominative", "accusative", "dative", "genitive"]
Slot = Literal["m", "f", "n", "plural"]
Declension = Literal["weak", "mixed", "strong"]

_SLOTS: tuple[Slot, ...] = ("m", "f", "n", "plural")


def _table(**cases: str) -> dict[tuple[str, str], str]:
    """One row for each case with the endings for m, f, n, plural; "-" is no ending."""
    return {
        (case, slot): ending.replace("-", "")
        for case, row in cases.items()
        for slot, ending in zip(_SLOTS, row.split(), strict=True)
    }


_DEFINITE = _table(
    nominative="der die das die",
    accusative="den die das die",
    dative="dem der dem den",
    genitive="des der des der",
)
_DIESER = _table(nominative="er e es e", accusative="en e es e", dative="em er em en", genitive="es er es er")
_EIN = _table(nominative="- e - e", accusative="en e - e", dative="em er em en", genitive="es er es er")
_ADJECTIVE = {
    "weak": _table(nominative="e e e en", accusative="en e e en", dative="en en en en", genitive="en en en en"),
    "mixed": _table(nominative="er e es en", accusative="en e es en", dative="en en en en", genitive="en en en en"),
    "strong": _table(nominative="er e es e", accusative="en e es e", dative="em er em en", genitive="en er en er"),
}
_DER_WORDS = {"this": "dies", "every": "jed"}
_EIN_WORDS = {"a": "ein", "no": "kein", "my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser"}

_PRONOUNS: dict[tuple[Person, Slot], tuple[str, str, str]] = {
    (3, "m"): ("er", "ihn", "ihm"),
    (3, "f"): ("sie", "sie", "ihr"),
    (3, "n"): ("es", "es", "ihm"),
    (3, "plural"): ("sie", "sie", "ihnen"),
    (1, "m"): ("ich", "mich", "mir"),
    (2, "m"): ("du", "dich", "dir"),
    (1, "plural"): ("wir", "uns", "uns"),
}

_CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}

_IRREGULAR_PRESENT = {
    "sein": "bin bist ist sind",
    "haben": "habe hast hat haben",
    "werden": "werde wirst wird werden",
    "wissen": "weiß weißt weiß wissen",
    "können": "kann kannst kann können",
    "müssen": "muss musst muss müssen",
    "dürfen": "darf darfst darf dürfen",
    "sollen": "soll sollst soll sollen",
    "wollen": "will willst will wollen",
}
_PRETERITE = {"sein": "war warst war waren", "haben": "hatte hattest hatte hatten"}
_INSEPARABLE = ("be", "ge", "er", "ver", "zer", "ent", "emp", "miss")
_NEEDS_E = re.compile(r"(?:[td]|ch[mn]|[bdfgkpst][mn])$")


def slot_of(noun: Noun, *, plural: bool) -> Slot:
    """The column of the tables: the gender, or plural."""
    return "plural" if plural else noun.gender


def determiner_form(determiner: Determiner, case: Case, slot: Slot) -> str:
    """der, einen, keiner, diesem, ...; "" for a bare noun and for "a" in the plural."""
    if determiner == "bare" or (determiner == "a" and slot == "plural"):
        return ""
    if determiner == "the":
        return _DEFINITE[case, slot]
    if determiner in _DER_WORDS:
        return _DER_WORDS[determiner] + _DIESER[case, slot]
    return _EIN_WORDS[determiner] + _EIN[case, slot]


def declension_after(determiner: Determiner, slot: Slot) -> Declension:
    """Weak after der-words, mixed after ein-words, strong where no determiner stands."""
    if determiner_form(determiner, "dative", slot) == "":
        return "strong"
    return "weak" if determiner == "the" or determiner in _DER_WORDS else "mixed"


def adjective_form(adjective: Adjective, declension: Declension, case: Case, slot: Slot) -> str:
    """An attributive adjective with its ending: "alten", "teures", "hohe"."""
    return adjective.german_stem + _ADJECTIVE[declension][case, slot]


def noun_form(noun: Noun, case: Case, *, plural: bool) -> str:
    """A noun in its case: "Kindern", "Hauses", "Jungen"."""
    if plural:
        form = noun.german_plural
        return form + "n" if case == "dative" and not form.endswith(("n", "s")) else form
    if noun.weak and case != "nominative":
        return noun.german_plural  # weak nouns have one form for all but the nominative singular
    if case == "genitive" and noun.gender != "f":
        return noun.german + _genitive_ending(noun.german)
    return noun.german


def _genitive_ending(noun: str) -> str:
    """Busses; Hauses, Tisches; Mannes (one syllable that ends in a consonant); Gartens."""
    if re.search(r"[^aeiouäöü]us$", noun):
        return "ses"
    if noun.endswith(("s", "ß", "x", "z", "sch")):
        return "es"
    one_syllable = len(re.findall(r"[aeiouyäöü]+", noun.lower())) == 1
    return "es" if one_syllable and noun[-1] not in "aeiouäöüh" else "s"


def pronoun_form(pronoun: Pronoun, case: Case) -> str:
    """ich, ihn, ihr, ...; there is no genitive."""
    slot: Slot = "plural" if pronoun.plural else (pronoun.gender if pronoun.person == 3 else "m")
    nominative, accusative, dative = _PRONOUNS[pronoun.person, slot]
    return {"nominative": nominative, "accusative": accusative, "dative": dative}[case]


def relative_pronoun(case: Case, slot: Slot) -> str:
    """der, die, das, den, dem, denen: the article, but "denen" in the dative plural."""
    return "denen" if (case, slot) == ("dative", "plural") else _DEFINITE[case, slot]


def contract(preposition: str, phrase: str) -> str:
    """A preposition before a phrase, with its article drawn in: "zu", "der Schule" is "zur Schule"."""
    article, _, rest = phrase.partition(" ")
    joined = f"{preposition} {article}"
    return f"{_CONTRACTIONS.get(joined, joined)} {rest}".strip()


def _stem(infinitive: str) -> str:
    return infinitive.removesuffix("en") if infinitive.endswith("en") else infinitive.removesuffix("n")


def present(infinitive: str, changed_stem: str | None, person: Person, *, plural: bool) -> str:
    """The present tense without separable prefix; du and er take `changed_stem` where there is one."""
    if infinitive in _IRREGULAR_PRESENT:
        return _IRREGULAR_PRESENT[infinitive].split()[3 if plural else person - 1]
    if plural:
        return infinitive
    if person == 1:
        return _stem(infinitive) + "e"
    stem = changed_stem or _stem(infinitive)
    if changed_stem is None and _NEEDS_E.search(stem):
        stem += "e"
    if person == 3:
        return stem + "t"
    return stem + ("t" if stem.endswith(("s", "ß", "x", "z")) else "st")


def preterite(infinitive: str, person: Person, *, plural: bool) -> str | None:
    """The simple past of sein and haben; None for verbs that form their past with the participle."""
    forms = _PRETERITE.get(infinitive)
    return forms.split()[3 if plural else person - 1] if forms else None


def participle(verb: Verb) -> str:
    """The past participle: gekauft, verkauft, repariert, aufgemacht, angerufen."""
    if verb.participle is not None:
        return verb.prefix + verb.participle
    stem = _stem(verb.infinitive)
    unstressed = verb.infinitive.startswith(_INSEPARABLE) or verb.infinitive.endswith("ieren")
    return verb.prefix + ("" if unstressed else "ge") + stem + ("et" if _NEEDS_E.search(stem) else "t")


def infinitive(verb: Verb) -> str:
    """The bare infinitive: "aufmachen"."""
    return verb.prefix + verb.infinitive


def zu_infinitive(verb: Verb) -> str:
    """The infinitive with zu, which goes inside a separable verb: "zu kaufen", "aufzumachen"."""
    return f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}"


def nominal(phrase: Nominal, case: Case) -> str:
    """A pronoun or noun phrase in a case, e.g. "dem alten Mann", "einundzwanzig rote Äpfel"."""
    if isinstance(phrase, Pronoun):
        return pronoun_form(phrase, case)
    slot = slot_of(phrase.noun, plural=phrase.plural)
    parts = [determiner_form(phrase.determiner, case, slot)]
    if phrase.count is not None:
        parts.append(german_number(phrase.count))
    if phrase.adjective is not None:
        declension = declension_after(phrase.determiner, slot)
        parts.append(adjective_form(phrase.adjective, declension, case, slot))
    parts.append(noun_form(phrase.noun, case, plural=phrase.plural))
    if phrase.owner is not None:
        parts.append(nominal(phrase.owner, "genitive"))
    text = _join(parts)
    return text if phrase.relative is None else f"{text}, {relative_clause(phrase, phrase.relative)},"


def prepositional(preposition: str, phrase: NounPhrase | Pronoun, case: Case) -> str:
    """A preposition with its phrase, contracted where German contracts: "im Garten", "zur Schule"."""
    return contract(preposition, nominal(phrase, case))


def relative_clause(head: NounPhrase, clause: Clause) -> str:
    """A clause about `head`: "der das Auto kauft" (gap: it is the subject), else "das die Frau kauft"."""
    case: Case = "nominative" if clause.gap else object_case(clause)
    slot = slot_of(head.noun, plural=head.plural)
    return f"{relative_pronoun(case, slot)} {verb_last(clause)}"


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
    return _join(["um", *_middle(clause), zu_infinitive(clause.verb)])


def _skeleton(clause: Clause) -> _Skeleton:
    subject = "" if clause.gap else nominal(clause.subject, "nominative")
    finite, bracket = _verbs(clause)
    return _Skeleton(subject, finite, _middle(clause), bracket)


def _verbs(clause: Clause) -> tuple[str, list[str]]:
    """The finite verb and what closes the clause: prefix, infinitive or participle."""
    verb, person, plural = clause.verb, clause.subject.person, clause.subject.plural
    if clause.modal is not None and clause.modal != LIKE:
        return present(clause.modal.german, None, person, plural=plural), [infinitive(verb)]
    if clause.tense == "past":
        simple = preterite(verb.infinitive, person, plural=plural)
        if simple is not None:
            return simple, []
        return present(verb.auxiliary, None, person, plural=plural), [participle(verb)]
    finite = present(verb.infinitive, verb.changed_stem, person, plural=plural)
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
