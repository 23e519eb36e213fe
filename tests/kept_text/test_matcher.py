"""Phrases in texts: in any form of Unicode, in scripts with and without spaces, each where the user wrote it."""

from __future__ import annotations

import time
import unicodedata

import pytest

from nmt.data.matching import is_in_text
from nmt.kept_text.matcher import Matcher


def found(phrase: str, text: str) -> list[str]:
    return [text[slice(*span)] for span, _ in Matcher({phrase: 1}).find(text)]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("written", ["NFC", "NFD"])
@pytest.mark.parametrize(
    "phrase", ["caf\u00e9", "Vi\u1ec7t Nam", "\ud559\uad50", "\u30d0\u30b9", "\u0958\u0932", "\u1e69"]
)
def test_composed_and_decomposed_letters_are_the_same(phrase: str, form: str, written: str) -> None:
    text = unicodedata.normalize(written, f"the {phrase}, \u00e9 {phrase}.")
    wanted = unicodedata.normalize(written, phrase)
    assert found(unicodedata.normalize(form, phrase), text) == [wanted, wanted]
    assert is_in_text(unicodedata.normalize(form, phrase), text)


@pytest.mark.parametrize(
    ("phrase", "text", "wanted"),
    [
        ("\u5148\u751f", "\u65e5\u672c\u306e\u5148\u751f\u3067\u3059\u3002", 1),
        ("iPhone", "\u6211\u7528iPhone\u624b\u673a", 1),
        ("\u0e44\u0e17\u0e22", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e14\u0e35", 1),
        ("\u1781\u17d2\u1798\u17c2\u179a", "\u1797\u17b6\u179f\u17b6\u1781\u17d2\u1798\u17c2\u179a", 1),
        ("\u101c\u1030", "\u1019\u103c\u1014\u103a\u1019\u102c\u101c\u1030\u1019\u103b\u102d\u102f\u1038", 1),
        ("\u0ea5\u0eb2\u0ea7", "\u0e9e\u0eb2\u0eaa\u0eb2\u0ea5\u0eb2\u0ea7", 1),
        ("\u30e9", "\u30e9\u30fc\u30e1\u30f3", 0),  # it would end before the mark that makes its vowel long
        ("\u0e01", "\u0e01\u0e34\u0e19", 0),  # and within a character
        # Korean: particles may follow, other syllables not; they fit the sound before.
        ("\ud559\uad50", "\ud559\uad50\uc5d0\uc11c\ub294 \ud559\uad50\ub97c, \ud559\uad50", 3),
        ("\ud559\uad50", "\ud559\uad50\uc885 \ub300\ud559\uad50", 0),
        ("\uc0ac", "\uc0ac\uacfc", 0),
        ("API", "API\ub97c API\uba85", 1),
        # Scripts with marks that are no letters for Python.
        ("\u0915\u093f", "\u0915\u093f\u0924\u093e\u092c \u0915\u093f", 1),
        ("cafe", "cafe\u0301 caf\u00e9", 0),
        ("\u0645\u06cc", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", 0),
        ("haus", "Haus HAUS hausen Hochhaus", 2),
        ("\u03bf\u03b4\u03bf\u03c2", "\u039f\u0394\u039f\u03a3 \u03bf\u03b4\u03bf\u03c2", 2),
        ("hot dog", "a hot \u00a0 dog", 1),
    ],
)
def test_where_words_begin_and_end(phrase: str, text: str, wanted: int) -> None:
    assert len(found(phrase, text)) == wanted


def test_texts_are_compared_as_they_are_read() -> None:
    def reads(text: str) -> str:
        return " ".join(unicodedata.normalize("NFKC", text).replace("\u00ad", "").split())

    matcher = Matcher({"10 m2": "a", "caf\u00e9": "b", "Kaffeehaus": "c", "2": "d"}, reads=reads)
    text = "(\uff11\uff10\u3000m\u00b2) \uff43\uff41\uff46e\u0301 Kaffee\u00adhaus 2\u00bd \u00bd"
    assert [(text[slice(*span)], value) for span, value in matcher.find(text)] == [
        ("\uff11\uff10\u3000m\u00b2", "a"),
        ("\uff43\uff41\uff46e\u0301", "b"),
        ("Kaffee\u00adhaus", "c"),
    ]


def test_kana_of_half_width_are_one_with_the_voicing_after_them() -> None:
    def reads(text: str) -> str:
        return unicodedata.normalize("NFKC", text)

    for phrase, text in (("\u30ac\u30b9", "\uff76\uff9e\uff7d\u3067"), ("\uff8a\uff9f\uff9d", "\u30d1\u30f3")):
        assert [span for span, _ in Matcher({phrase: 1}, reads=reads).find(text)] == [(0, len(text.rstrip("\u3067")))]
    assert not found("\uff76", "\uff76\uff9e") and not Matcher({"\u30ab": 1}, reads=reads).find("\uff76\uff9e")


@pytest.mark.parametrize("text", ["a" * 100_000, "e" + "\u0301" * 100_000, "\u5148" * 100_000, "hot " * 25_000])
def test_time_is_linear(text: str) -> None:
    started = time.process_time()
    Matcher({"hot dog": 1, "\u5148\u751f": 2, "a b": 3, "\u00e9": 4}).find(text)
    assert time.process_time() - started < 5
