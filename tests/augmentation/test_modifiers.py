"""What each modifier makes of a pair, and what it leaves alone."""

from __future__ import annotations

import random

import pytest

from nmt.augmentation.modifiers import Pair
from nmt.registry import MODIFIERS

PAIR = Pair("The dog's owner isn't here, in Rome.", "Der Besitzer ist „nicht“ hier, in Straße 3.")


def made(
    name: str, pair: Pair, *, seed: int = 1, languages: tuple[str, str] = ("en", "de"), following: Pair | None = None
) -> Pair:
    found: Pair = MODIFIERS.get(name)(languages)(pair, random.Random(seed), following)
    return found


@pytest.mark.parametrize(
    ("name", "pair", "expected"),
    [
        ("upper", PAIR, ("THE DOG'S OWNER ISN'T HERE, IN ROME.", "DER BESITZER IST „NICHT“ HIER, IN STRASSE 3.")),
        ("title", PAIR, ("The Dog's Owner Isn't Here, In Rome.", "Der Besitzer Ist „Nicht“ Hier, In Straße 3.")),
        ("lower", PAIR, ("the dog's owner isn't here, in rome.", PAIR.target)),
        ("no_end_mark", Pair("Really?!", "Wirklich ?"), ("Really", "Wirklich")),
        ("no_end_mark", Pair("你好。", "Hallo."), ("你好", "Hallo")),
        ("no_end_mark", Pair("No mark", "Mit Punkt."), ("No mark", "Mit Punkt.")),
        ("no_end_mark", Pair("...", "..."), ("...", "...")),
        ("punctuation", Pair("plain words", "x"), ("plain words", "x")),
        ("typos", Pair("to be or not", "x"), ("to be or not", "x")),
        ("merge", PAIR, PAIR),
    ],
)  # fmt: skip
def test_what_it_makes(name: str, pair: Pair, expected: tuple[str, str]) -> None:
    assert made(name, pair) == expected


def test_turkish_capitals() -> None:
    assert made("upper", Pair("iki ışık", "iki"), languages=("tr", "en")) == ("İKİ IŞIK", "IKI")
    assert made("lower", Pair("İKİ IŞIK", "IKI"), languages=("tr-TR", "en")).source == "iki ışık"


def test_two_pairs_as_one() -> None:
    assert made("merge", Pair("One.", "Eins."), following=Pair("Two.", "Zwei.")) == ("One. Two.", "Eins. Zwei.")
    assert made("merge", Pair("你好。", "Hallo."), following=Pair("再见。", "Ade.")) == ("你好。再见。", "Hallo. Ade.")


def test_typing_errors_change_one_long_word_of_twelve_and_no_first_letter() -> None:
    words = [f"{letter}bcdefgh" for letter in "acegikmoqsuwy"]
    kinds = set()
    for seed in range(60):
        found = made("typos", Pair(" ".join(words), "x"), seed=seed)
        assert found.target == "x"
        changed = [(old, new) for old, new in zip(words, found.source.split(), strict=True) if old != new]
        assert 1 <= len(changed) <= 2
        for old, new in changed:
            assert new[0] == old[0]
            assert set(new) <= set(old)
            kinds.add(len(new) - len(old))
    assert kinds == {-1, 0, 1}


def test_punctuation_changes_one_kind_of_the_source() -> None:
    pair = Pair("He said “yes” – it’s 3 000, right?", "Er sagte „ja“.")
    found = {made("punctuation", pair, seed=seed) for seed in range(60)}
    assert {one.target for one in found} == {pair.target}
    sources = {one.source for one in found}
    assert sources >= {
        'He said "yes" – it’s 3 000, right?',
        "He said “yes” - it’s 3 000, right?",
        "He said “yes” – it's 3 000, right?",
        "He said “yes” – it’s 3000, right?",
    }
    assert pair.source not in sources
