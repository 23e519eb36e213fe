"""Where what was kept stands in a translation, for attention that says so by hand."""

from __future__ import annotations

import re

import pytest
import torch

from nmt.data.tokenizer import word_spans
from nmt.kept_text.lines import KeptLine, keep
from nmt.kept_text.matcher import Matcher
from nmt.kept_text.placing import Placer, pieces_of, source_units, written


def placed(line: str, translation: str, sources: str, glossary: dict[str, str] | None = None) -> str:
    """The translation with what is kept of the line in it.

    Words of both, and placeholders, are tokens. `sources` has the word of the model's text that each word of the
    translation comes from, with a smaller weight also that after the stroke.
    """
    kept = keep(line, placeholders=True, glossary=None if glossary is None else Matcher(glossary))
    assert isinstance(kept, KeptLine)
    tokens = [match.span() for match in re.finditer(rf"{kept.stand_in}|[^\s{kept.stand_in}]+", kept.text)]
    words = word_spans(translation)
    attention = torch.full((len(words), len(tokens) + 1), 0.01)
    for row, source in zip(attention, sources.split(), strict=True):
        for place, weight in zip(source.split("/"), (1.0, 0.6), strict=False):
            row[int(place)] = weight
    items = list(enumerate(kept.kept))
    units = source_units(kept.text, tokens, items)
    pieces = pieces_of(translation, [5] * len(words), words, attention, units)
    return written(Placer(pieces, units, items).placed()).text


@pytest.mark.parametrize(
    ("line", "translation", "sources", "wanted"),
    [
        ("a {x} runs .", "ein Foo rennt .", "0 1 2 3", "ein {x} rennt ."),
        # Words next to each other become one, of several runs the heaviest; others stay.
        ("{x} runs .", "Ein Foo rennt Bar .", "0 0 1 0 2", "{x} rennt Bar ."),
        # A mark is never replaced, also where it gets the attention of the word beside it.
        ("see {x} now", "siehe Foo, jetzt", "0 1 2", "siehe {x}, jetzt"),
        ("{x} runs", "Foo-Bar. rennt", "0 1", "{x}. rennt"),
        # Equal ones, and an order that changes.
        ("{x} sees {x} and {y}", "Ypsilon und Foo sieht Bar", "4 3 0 1 2", "{y} und {x} sieht {x}"),
        # Nothing comes from it: beside its neighbour, as far from it as in the source.
        ("the dog {x} runs", "der Hund rennt", "0 1 3", "der Hund {x} rennt"),
        ("{x} runs", "rennt", "1", "{x} rennt"),
        ("run {x}", "renne !", "0 0", "renne {x} !"),
        ("a {x} {y} b", "eins zwei", "0 3", "eins {x} {y} zwei"),
        # What comes as well from a word beside it, which has no other, stays: an article, a noun.
        ("a {x} runs", "ein Foo rennt", "1/0 1 2", "ein {x} rennt"),
        ("in a {x} shirt", "in einem T-Shirt", "0 2/1 2/3", "in einem {x} T-Shirt"),
        ("a {x} shirt", "ein Foo Hemd", "0 1/2 2", "ein {x} Hemd"),
        # A full stop that attends to a word is no neighbour.
        ("go to {x}", "gehe .", "0 1", "gehe {x} ."),
    ],
)
def test_words(line: str, translation: str, sources: str, wanted: str) -> None:
    assert placed(line, translation, sources) == wanted


@pytest.mark.parametrize(
    ("line", "translation", "sources", "wanted"),
    [
        ("a <b>big dog</b> runs", "ein großer Hund rennt", "0 1 2 3", "ein <b>großer Hund</b> rennt"),
        ("a <b> big dog </b> runs", "ein großer Hund rennt", "0 1 2 3", "ein <b> großer Hund </b> rennt"),
        # The pair encloses all that comes from what it enclosed.
        ("he <i>has seen</i> it", "er hat es gesehen", "0 1 3 2", "er <i>hat es gesehen</i>"),
        ("<p>he <i>runs</i></p>", "er rennt", "0 1", "<p>er <i>rennt</i></p>"),
        ("one<br/>two", "eins zwei", "0 1", "eins<br/>zwei"),
        ("a <b>{x}</b> runs", "ein Foo rennt", "0 1 2", "ein <b>{x}</b> rennt"),
        ("a <b>{x} dog</b> runs", "ein Foo Hund rennt", "0 1 2 3", "ein <b>{x} Hund</b> rennt"),
        # Without its other half, and without words inside.
        ("a dog</b> runs", "ein Hund rennt", "0 1 2", "ein Hund</b> rennt"),
        ("a <b>dog", "ein Hund", "0 1", "ein <b>Hund"),
        ("a <b>dog</b> runs", "ein rennt", "0 2", "ein <b></b> rennt"),
        # Where the order changes, pairs change places; where it crosses, the narrower one stays whole.
        ("<b>big</b> <i>dog</i> runs", "Hund groß rennt", "1 0 2", "<i>Hund</i> <b>groß</b> rennt"),
        ("<b>a c</b> <i>b</i>", "A B C", "0 2 1", "<b>A</b> <i>B</i> C"),
        ("<b>a c</b> <i>b d</i>", "A B C D", "0 2 1 3", "<b>A B C</b> <i>D</i>"),
        ("<p>a <b>c</b></p> <i>b</i>", "A B C", "0 2 1", "<p>A <b></b></p> <i>B</i> C"),
        # Beside placeholders, and in a word.
        ("two {x}<b>new</b> dogs", "zwei X neue Hunde", "0 1 2 3", "zwei {x} <b>neue</b> Hunde"),
        ("<b>a dog</b>{x}", "ein Hund Foo", "0 1 2", "<b>ein Hund</b> {x}"),
        ("a w<b>or</b>d", "ein Wort", "0 1", "ein <b>Wort</b>"),
        ("a<br/><br/>b &nbsp;c", "A B C", "0 1 2", "A<br/><br/>B &nbsp;C"),
        (
            "{% if a > b %}one{% else %}two{% endif %}",
            "eins zwei",
            "0 0",
            "{% if a > b %}eins zwei{% else %}{% endif %}",
        ),
    ],
)
def test_tags(line: str, translation: str, sources: str, wanted: str) -> None:
    assert placed(line, translation, sources) == wanted


@pytest.mark.parametrize(
    ("line", "translation", "sources", "wanted"),
    [
        ("a hot dog .", "ein heißer Hund .", "0 1 2 3", "ein Wiener Würstchen ."),
        # What the model has written as the glossary has it stays.
        ("a hot dog", "Wiener Würstchen Hund", "0 1 2", "Wiener Würstchen Hund"),
        ("Cat and cat", "Kater und Katze", "0 1 2", "Mieze und Mieze"),
        ("a hotdog and a big cat", "ein Hund und Katze", "0 1 2 5", "ein Hund und Mieze"),
        ("the US army and us", "die Armee und uns", "0 2 3 4", "die USA Armee und uns"),
    ],
)
def test_terms(line: str, translation: str, sources: str, wanted: str) -> None:
    terms = {"hot dog": "Wiener Würstchen", "cat": "Mieze", "US": "USA", "hot": "warm"}
    assert placed(line, translation, sources, terms) == wanted


def test_terms_of_scripts_without_spaces() -> None:
    kept = keep(
        "\u65e5\u672c\u306e\u5148\u751f\u3067\u3059\u3002",
        placeholders=False,
        glossary=Matcher({"\u5148\u751f": "Lehrer"}),
    )
    assert kept is not None
    assert [(item.span, item.text) for item in kept.kept] == [((3, 5), "Lehrer")]


def test_units_of_scripts_without_spaces_are_tokens() -> None:
    """So that a placeholder takes the place of a word, not of all the text up to a mark."""
    text, tokens = "\u8bf7\u4f60\u770b\u4e66\u3002", [(0, 1), (1, 2), (2, 4), (4, 5)]
    assert source_units(text, tokens, []).spans == tokens
    pieces = pieces_of(text, [5] * 4, tokens, torch.eye(4), source_units("a b c .", word_spans("a b c ."), []))
    assert [(piece.text, piece.gap, piece.source) for piece in pieces] == [
        ("\u8bf7", "", 0), ("\u4f60", "", 1), ("\u770b\u4e66", "", 2), ("\u3002", "", 3),
    ]  # fmt: skip
    assert source_units("don't", [(0, 3), (3, 5)], []).spans == [(0, 5)]
    assert source_units("\u0e14\u0e35\u0e21\u0e32\u0e01", [(0, 1), (1, 5)], []).spans == [(0, 5)]  # no mark alone
