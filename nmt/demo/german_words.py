"""German inflection: articles, adjective endings, nouns, pronouns and verb forms."""

from __future__ import annotations

import re
from typing import Literal

from nmt.demo.lexicon import Adjective, Noun, Verb
from nmt.demo.syntax import Determiner, Person, Pronoun

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
