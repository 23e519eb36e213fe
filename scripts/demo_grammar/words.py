"""The words of the demo grammar, read from the tables next to this file, and the content of a sentence before it is
expressed in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

Gender = Literal["m", "f", "n"]


@dataclass(frozen=True, kw_only=True)
class Noun:
    """A noun in both languages; `weak` is the German n-declension, `mass` has no plural."""

    english: str
    english_plural: str
    german: str
    gender: Gender
    german_plural: str
    weak: bool
    mass: bool
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Adjective:
    """An adjective; `german_stem` takes the endings, the comparatives are None where none is used.

    Two adjectives of one `scale` ("age", "colour") do not stand together.
    """

    english: str
    english_comparative: str | None
    german: str
    german_comparative: str | None
    german_stem: str
    scale: str
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb and the frame it needs.

    `prefix` is the separable prefix, `infinitive` comes without it. `changed_stem` serves du and er;
    `participle` comes without the prefix; None means regular. `particle` is the English one that a
    pronoun precedes ("turn it on"). `subjects` and `objects` are tags of nouns that make sense.
    """

    english: str
    english_past: str
    particle: str
    prefix: str
    infinitive: str
    changed_stem: str | None
    participle: str | None
    auxiliary: Literal["haben", "sein"]
    frame: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    extras: tuple[str, ...]


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    header, *lines = (line.split("\t") for line in text.splitlines())
    for line in lines:
        yield dict(zip(header, line, strict=True))


def _tags(cell: str) -> tuple[str, ...]:
    return () if cell == "-" else tuple(cell.split(","))


def _or_none(cell: str) -> str | None:
    return None if cell == "-" else cell


def regular_plural(english: str) -> str:
    """The regular English plural: box - boxes, city - cities, key - keys."""
    if english.endswith(("s", "x", "ch", "sh")):
        return english + "es"
    if english.endswith("y") and english[-2] not in "aeiou":
        return english[:-1] + "ies"
    return english + "s"


def regular_past(english: str) -> str:
    """The regular English past of a verb whose last letter is not doubled; "look for" - "looked for"."""
    head, _, tail = english.partition(" ")
    if head.endswith("e"):
        head += "d"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ied"
    else:
        head += "ed"
    return f"{head} {tail}".strip()


def _comparative(english: str, cell: str) -> str | None:
    if cell == "none":
        return None
    if cell == "more":
        return f"more {english}"
    if cell != "-":
        return cell
    if english.endswith("e"):
        return english + "r"
    return (english[:-1] + "i" if english.endswith("y") else english) + "er"


def _read_noun(row: dict[str, str]) -> Noun:
    english = row["english"]
    return Noun(
        english=english,
        english_plural=regular_plural(english) if row["plural"] == "-" else row["plural"],
        german=row["german"],
        gender=cast(Gender, row["gender"]),
        german_plural=row["german_plural"],
        weak=row["declension"] == "weak",
        mass=row["declension"] == "mass",
        tags=_tags(row["tags"]),
    )


def _compound(row: dict[str, str], head: Noun) -> Noun:
    """A compound declines as its head: Küchen + der Tisch = der Küchentisch, die Küchentische."""
    english, first = row["english"], row["first_part"]
    stem = english.removesuffix(head.english)
    return Noun(
        english=english,
        english_plural=stem + head.english_plural if stem != english else regular_plural(english),
        german=first + head.german.lower(),
        gender=head.gender,
        german_plural=first + head.german_plural.lower(),
        weak=head.weak,
        mass=head.mass,
        tags=head.tags,
    )


@cache
def nouns() -> tuple[Noun, ...]:
    """All nouns, the compounds after the simple ones."""
    simple = [_read_noun(row) for row in _rows("nouns.tsv")]
    heads = {noun.english: noun for noun in simple}
    return (*simple, *(_compound(row, heads[row["head"]]) for row in _rows("compounds.tsv")))


@cache
def adjectives() -> tuple[Adjective, ...]:
    """All adjectives."""
    return tuple(
        Adjective(
            english=row["english"],
            english_comparative=_comparative(row["english"], row["comparative"]),
            german=row["german"],
            german_comparative=_or_none(row["german_comparative"]),
            german_stem=_or_none(row["german_stem"]) or row["german"].removesuffix("e"),
            scale=row["scale"],
            tags=_tags(row["tags"]),
        )
        for row in _rows("adjectives.tsv")
    )


@cache
def verbs() -> tuple[Verb, ...]:
    """All verbs."""
    return tuple(_read_verb(row) for row in _rows("verbs.tsv"))


def _read_verb(row: dict[str, str]) -> Verb:
    english, _, particle = row["english"].partition("|")
    prefix, _, infinitive = row["german"].rpartition("|")
    return Verb(
        english=english,
        english_past=regular_past(english) if row["past"] == "-" else row["past"].partition("|")[0],
        particle=particle,
        prefix=prefix,
        infinitive=infinitive,
        changed_stem=_or_none(row["changed_stem"]),
        participle=_or_none(row["participle"]),
        auxiliary=cast(Literal["haben", "sein"], row["auxiliary"]),
        frame=row["frame"],
        subjects=_tags(row["subjects"]),
        objects=_tags(row["objects"]),
        extras=_tags(row["extras"]),
    )


def find_noun(english: str) -> Noun:
    """The noun with this English singular; KeyError if there is none."""
    return {noun.english: noun for noun in nouns()}[english]


def find_adjective(english: str) -> Adjective:
    """The adjective with this English form; KeyError if there is none."""
    return {adjective.english: adjective for adjective in adjectives()}[english]


def find_verb(english: str) -> Verb:
    """The verb with this English infinitive, particle included; KeyError if there is none."""
    return {f"{verb.english} {verb.particle}".strip(): verb for verb in verbs()}[english]


def _closed_class(english: str, past: str, infinitive: str, auxiliary: Literal["haben", "sein"]) -> Verb:
    return Verb(
        english=english,
        english_past=past,
        particle="",
        prefix="",
        infinitive=infinitive,
        changed_stem=None,
        participle=None,
        auxiliary=auxiliary,
        frame="none",
        subjects=(),
        objects=(),
        extras=(),
    )


BE = _closed_class("be", "was", "sein", "sein")
COST = _closed_class("cost", "cost", "kosten", "haben")
RAIN = _closed_class("rain", "rained", "regnen", "haben")
SNOW = _closed_class("snow", "snowed", "schneien", "haben")
SAY = _closed_class("say", "said", "sagen", "haben")
THINK = _closed_class("think", "thought", "glauben", "haben")
KNOW = _closed_class("know", "knew", "wissen", "haben")
HOPE = _closed_class("hope", "hoped", "hoffen", "haben")


_ENGLISH_SMALL = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_ENGLISH_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_GERMAN_SMALL = (
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
)
_GERMAN_TENS = ("zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")


def english_number(value: int) -> str:
    """Words for 0..99: 21 is "twenty-one"."""
    tens, ones = _split(value)
    if tens < 2:
        return _ENGLISH_SMALL[value]
    return _ENGLISH_TENS[tens - 2] + (f"-{_ENGLISH_SMALL[ones]}" if ones else "")


def german_number(value: int) -> str:
    """Words for 0..99, ones before tens: 21 is "einundzwanzig"."""
    tens, ones = _split(value)
    if tens < 2:
        return _GERMAN_SMALL[value]
    first = "ein" if ones == 1 else _GERMAN_SMALL[ones]
    return (f"{first}und" if ones else "") + _GERMAN_TENS[tens - 2]


def _split(value: int) -> tuple[int, int]:
    if not 0 <= value <= 99:
        raise ValueError(f"number words go from 0 to 99, not {value}")
    return divmod(value, 10)


Determiner = Literal["the", "a", "this", "every", "no", "my", "your", "his", "her", "our", "bare"]
Tense = Literal["present", "past"]
Person = Literal[1, 2, 3]


class Phrase(NamedTuple):
    """An adverbial, predicate or question word, ready in both languages."""

    english: str
    german: str


class Modal(NamedTuple):
    """A modal verb. `governs_to`: English says it with a full verb and "to" ("want to")."""

    english: str
    german: str
    governs_to: bool = False


@dataclass(frozen=True, kw_only=True)
class Pronoun:
    """A personal pronoun. `gender` is the German one; `thing` is "it" in English whatever the gender."""

    person: Person = 3
    plural: bool = False
    gender: Gender = "m"
    thing: bool = False


@dataclass(frozen=True, kw_only=True)
class NounPhrase:
    """A noun with all that belongs to it.

    `count` is a number from 2 to 99 and makes the phrase plural. `owner` follows as "of the man",
    in German in the genitive. `relative` is a clause about this noun; see `Clause.gap`.
    """

    noun: Noun
    determiner: Determiner
    plural: bool = False
    count: int | None = None
    adjective: Adjective | None = None
    owner: NounPhrase | None = None
    relative: Clause | None = None

    @property
    def person(self) -> Person:
        """Noun phrases are always third person."""
        return 3

    @property
    def indefinite(self) -> bool:
        """Whether German negates the phrase with "kein": "a car", "apples", "cold milk"."""
        return self.determiner in ("a", "bare") and self.count is None


Nominal = NounPhrase | Pronoun


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A verb and what depends on it.

    `gap`: the subject is not spoken, because a relative pronoun or question word stands for it; the
    verb still agrees with it. `fronted`: the time opens the clause, so that German inverts.
    `complement` is the prepositional object ("for the bus"), `place` tells where, `direction` where to,
    `means` with what vehicle, `predicate` what a "be" clause says about its subject.
    """

    verb: Verb
    subject: Nominal
    gap: bool = False
    object: Nominal | None = None
    recipient: Nominal | None = None
    complement: Phrase | None = None
    predicate: Phrase | None = None
    tense: Tense = "present"
    modal: Modal | None = None
    negated: bool = False
    time: Phrase | None = None
    fronted: bool = False
    frequency: Phrase | None = None
    manner: Phrase | None = None
    means: Phrase | None = None
    place: Phrase | None = None
    direction: Phrase | None = None

    def __post_init__(self) -> None:
        if self.modal is not None and self.tense == "past":
            raise ValueError("the grammar has no past tense of modal verbs")
        if self.fronted and self.time is None:
            raise ValueError("a fronted time needs a time")


CAN = Modal("can", "können")
MUST = Modal("must", "müssen")
MAY = Modal("may", "dürfen")
SHOULD = Modal("should", "sollen")
WILL = Modal("will", "werden")
WANT = Modal("want", "wollen", governs_to=True)
LIKE = Modal("like", "gern", governs_to=True)
