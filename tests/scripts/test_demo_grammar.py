"""The grammar of the demo corpus: hand-checked phrases and sentences in both languages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scripts.demo_grammar import english, german
from scripts.demo_grammar.sentences import taken_up
from scripts.demo_grammar.words import (
    BE,
    CAN,
    LIKE,
    WANT,
    WILL,
    Clause,
    NounPhrase,
    Phrase,
    Pronoun,
    find_adjective,
    find_noun,
    find_verb,
)

TODAY = Phrase("today", "heute")
HE, SHE, ME, YOU = Pronoun(gender="m"), Pronoun(gender="f"), Pronoun(person=1), Pronoun(person=2)


def np(words: str, **more: Any) -> NounPhrase:
    """A noun phrase from "determiner [adjective] noun", such as "the old man"."""
    determiner, *adjective, noun = words.split()
    found = find_adjective(adjective[0]) if adjective else None
    return NounPhrase(noun=find_noun(noun), determiner=determiner, adjective=found, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phrase", "case", "expected"),
    [
        (np("the old man"), "nominative", "der alte Mann"),
        (np("the old man"), "accusative", "den alten Mann"),
        (np("the old man"), "dative", "dem alten Mann"),
        (np("the old man"), "genitive", "des alten Mannes"),
        (np("the old woman"), "dative", "der alten Frau"),
        (np("the old house"), "accusative", "das alte Haus"),
        (np("the old house", plural=True), "nominative", "die alten Häuser"),
        (np("the old house", plural=True), "dative", "den alten Häusern"),
        (np("a new table"), "nominative", "ein neuer Tisch"),
        (np("a new table"), "accusative", "einen neuen Tisch"),
        (np("a new lamp"), "dative", "einer neuen Lampe"),
        (np("a new book"), "accusative", "ein neues Buch"),
        (np("a new book", plural=True), "accusative", "neue Bücher"),
        (np("a new book", plural=True), "dative", "neuen Büchern"),
        (np("no new book", plural=True), "accusative", "keine neuen Bücher"),
        (np("my young boy"), "accusative", "meinen jungen Jungen"),
        (np("our tired daughter"), "dative", "unserer müden Tochter"),
        (np("this dark room"), "nominative", "dieses dunkle Zimmer"),
        (np("every expensive car"), "accusative", "jedes teure Auto"),
        (np("a high tree"), "nominative", "ein hoher Baum"),
        (np("bare cold milk"), "accusative", "kalte Milch"),
        (np("bare hot coffee"), "accusative", "heißen Kaffee"),
        (np("bare cold water"), "nominative", "kaltes Wasser"),
        (np("bare red apple", plural=True, count=21), "accusative", "einundzwanzig rote Äpfel"),
        (np("the car", owner=np("my brother")), "nominative", "das Auto meines Bruders"),
        (np("the hat", owner=np("the neighbour")), "accusative", "den Hut des Nachbarn"),
    ],
)
def test_noun_phrases_agree(phrase: NounPhrase, case: german.Case, expected: str) -> None:
    assert german.nominal(phrase, case) == expected


def test_english_noun_phrases() -> None:
    assert english.nominal(np("a old uncle")) == "an old uncle"
    assert english.nominal(np("a uncle")) == "an uncle"
    assert english.nominal(np("a new apple")) == "a new apple"
    assert english.nominal(np("a child", plural=True)) == "children"
    assert english.nominal(np("this knife", plural=True)) == "these knives"
    assert english.nominal(np("the car", owner=np("my brother"))) == "the car of my brother"


def clause(subject: NounPhrase | Pronoun, verb: str, **more: Any) -> Clause:
    """A clause with the verb of that English name."""
    return Clause(verb=BE if verb == "be" else find_verb(verb), subject=subject, **more)


CAR = np("a car")
MAIN = [
    (clause(np("the man"), "buy", object=CAR), "the man buys a car", "der Mann kauft ein Auto"),
    (
        clause(np("the man"), "buy", object=CAR, time=TODAY, fronted=True),
        "today the man buys a car",
        "heute kauft der Mann ein Auto",
    ),
    (
        clause(np("the man"), "buy", object=CAR, time=TODAY),
        "the man buys a car today",
        "der Mann kauft heute ein Auto",
    ),
    (clause(HE, "buy", object=CAR, negated=True), "he does not buy a car", "er kauft kein Auto"),
    (
        clause(HE, "buy", object=np("the car"), negated=True, tense="past", time=TODAY),
        "he did not buy the car today",
        "er hat heute das Auto nicht gekauft",
    ),
    (
        clause(SHE, "drink", object=np("bare hot coffee"), negated=True),
        "she does not drink hot coffee",
        "sie trinkt keinen heißen Kaffee",
    ),
    (
        clause(HE, "buy", object=np("bare red apple", plural=True, count=3), negated=True),
        "he does not buy three red apples",
        "er kauft drei rote Äpfel nicht",
    ),
    (clause(HE, "open", object=np("the door")), "he opens the door", "er macht die Tür auf"),
    (
        clause(HE, "turn on", object=np("the lamp"), modal=WILL),
        "he will turn on the lamp",
        "er wird die Lampe einschalten",
    ),
    (
        clause(HE, "turn on", object=Pronoun(gender="f", thing=True), tense="past"),
        "he turned it on",
        "er hat sie eingeschaltet",
    ),
    (clause(np("the boy"), "help", object=np("the man")), "the boy helps the man", "der Junge hilft dem Mann"),
    (
        clause(np("the boy"), "give", recipient=np("the child", plural=True), object=np("a book")),
        "the boy gives the children a book",
        "der Junge gibt den Kindern ein Buch",
    ),
    (
        clause(SHE, "give", recipient=ME, object=np("the key"), time=TODAY),
        "she gives me the key today",
        "sie gibt mir heute den Schlüssel",
    ),
    (clause(YOU, "travel", modal=WANT), "you want to travel", "du willst fahren"),
    (clause(np("the girl"), "go", tense="past"), "the girl went", "das Mädchen ist gegangen"),
    (clause(HE, "read", object=CAR, modal=LIKE), "he likes to read a car", "er liest gern ein Auto"),
    (clause(ME, "swim", modal=CAN, negated=True), "I cannot swim", "ich kann nicht schwimmen"),
    (
        clause(np("the dog", plural=True), "be", predicate=Phrase("big", "groß"), tense="past"),
        "the dogs were big",
        "die Hunde waren groß",
    ),
    (clause(YOU, "be", predicate=Phrase("old", "alt"), negated=True), "you are not old", "du bist nicht alt"),
    (clause(YOU, "be", predicate=Phrase("old", "alt"), tense="past"), "you were old", "du warst alt"),
    (clause(HE, "have", object=CAR, tense="past"), "he had a car", "er hatte ein Auto"),
    (
        clause(
            SHE,
            "travel",
            direction=Phrase("to Berlin", "nach Berlin"),
            means=Phrase("by train", "mit dem Zug"),
            time=TODAY,
            negated=True,
        ),
        "she does not travel to Berlin by train today",
        "sie fährt heute nicht mit dem Zug nach Berlin",
    ),
]


@pytest.mark.parametrize(("said", "in_english", "in_german"), MAIN)
def test_main_clauses(said: Clause, in_english: str, in_german: str) -> None:
    assert english.statement(said) == in_english
    assert german.verb_second(said) == in_german


def test_questions_put_the_verb_first() -> None:
    said = clause(np("the man"), "call", object=np("the woman"), tense="past")
    assert english.inverted(said) == "did the man call the woman"
    assert german.verb_first(said) == "hat der Mann die Frau angerufen"
    assert german.verb_first(replace(said, tense="present")) == "ruft der Mann die Frau an"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (clause(HE, "get up"), "er aufsteht"),
        (clause(HE, "get up", tense="past"), "er aufgestanden ist"),
        (clause(HE, "get up", modal=WANT), "er aufstehen will"),
        (clause(HE, "call", object=np("the woman"), negated=True), "er die Frau nicht anruft"),
        (clause(np("the boy"), "read", object=np("the book"), time=TODAY), "der Junge heute das Buch liest"),
    ],
)
def test_subordinate_clauses_end_with_the_verb(said: Clause, expected: str) -> None:
    assert german.verb_last(said) == expected


def test_purpose_clauses() -> None:
    said = clause(HE, "open", object=np("a window"))
    assert english.purpose(said) == "in order to open a window"
    assert german.purpose(said) == "um ein Fenster aufzumachen"


@pytest.mark.parametrize(
    ("head", "about", "in_english", "in_german"),
    [
        (
            np("the man"),
            clause(np("the man"), "buy", object=CAR, gap=True),
            "the man who buys a car",
            "der Mann, der ein Auto kauft,",
        ),
        (np("the key"), clause(SHE, "look for"), "the key that she looks for", "der Schlüssel, den sie sucht,"),
        (
            np("the child", plural=True),
            clause(SHE, "help"),
            "the children whom she helps",
            "die Kinder, denen sie hilft,",
        ),
        (np("the lamp"), clause(ME, "turn off"), "the lamp that I turn off", "die Lampe, die ich ausschalte,"),
    ],
)
def test_relative_pronouns_agree(head: NounPhrase, about: Clause, in_english: str, in_german: str) -> None:
    phrase = replace(head, relative=about)
    assert english.nominal(phrase) == in_english
    assert german.nominal(phrase, "nominative") == in_german


@pytest.mark.parametrize(
    ("words", "plural", "in_english", "in_german"),
    [
        ("the key", False, "it", "er"),
        ("the door", False, "it", "sie"),
        ("the house", False, "it", "es"),
        ("the house", True, "they", "sie"),
        ("the teacher", False, "she", "sie"),
        ("the doctor", False, "he", "er"),
    ],
)
def test_pronouns_agree_with_the_german_gender(words: str, plural: bool, in_english: str, in_german: str) -> None:
    pronoun = taken_up(np(words, plural=plural))
    assert english.nominal(pronoun, subject=True) == in_english
    assert german.nominal(pronoun, "nominative") == in_german


def test_impossible_clauses_are_refused() -> None:
    with pytest.raises(ValueError, match="modal"):
        clause(HE, "swim", modal=CAN, tense="past")
    with pytest.raises(ValueError, match="time"):
        clause(HE, "swim", fronted=True)
