"""OTEM and UTEM by hand and as Zero computes them; what repeats, what is short."""

from __future__ import annotations

import math

import pytest

from nmt.report.over_under import is_repeating, otem, over_under, repeated_share, utem


def words(*lines: str) -> list[list[str]]:
    return [line.split() for line in lines]


HYPOTHESES = words(
    "the the cat sat on on the mat mat",
    "a dog",
    "we are we are we are here",
    "",
    "birds sing in the small green tree near the house",
)
FIRST = words(
    "the cat sat on the mat",
    "a big dog ran away from us",
    "we are here",
    "nothing",
    "two birds sing in the green tree by the house",
)
SECOND = words(
    "a cat was sitting on the the mat",
    "the dog",
    "here we are and there we are",
    "",
    "birds are singing in the tree",
)
# Computed by otem(n=2) and utem(n=4) in utils/metric.py of Zero (bzhangGo/zero, commit 4228717).
ZERO = [
    (HYPOTHESES, [FIRST], 0.18320424315469405, 0.5267037049981956),
    (SECOND, [FIRST], 0.06765100914917384, 0.9359301701626753),
    (HYPOTHESES, [FIRST, SECOND], 0.13848939043403646, 0.2767037435842237),
    ([line[:3] for line in HYPOTHESES], [FIRST, SECOND], 0.0, 0.6682889686671307),
]


@pytest.mark.parametrize(("hypotheses", "references", "over", "under"), ZERO)
def test_as_zero_computes_them(hypotheses, references, over, under):
    assert otem(hypotheses, references) == pytest.approx(100 * over, abs=1e-10)
    assert utem(hypotheses, references) == pytest.approx(100 * under, abs=1e-10)


def test_over_translation_by_hand():
    # "b": twice instead of once, 1 too many; "x", which the reference lacks: 3 times, 2 too many; so 3 of 7 words.
    # "x x": twice, 1 too many; the other pairs once: 1 of 6. 7 words instead of 4: times exp(1 - 4 / 7).
    found = otem(words("a b b x x x c"), [words("a b c d")])
    assert found == pytest.approx(100 * math.sqrt(3 / 7 * 1 / 6) * math.exp(1 - 4 / 7))


def test_under_translation_by_hand():
    # Missing: d and one b of 5 words, "b b" and "c d" of 4 pairs. 3 words instead of 5: times exp(1 - 3 / 5).
    found = utem(words("a b c"), [words("a b b c d")], order=2)
    assert found == pytest.approx(100 * math.sqrt(2 / 5 * 2 / 4) * math.exp(1 - 3 / 5))


def test_of_several_references_the_one_that_finds_least_but_something_counts():
    one, two, none = words("a a a"), words("a a b"), words("a a a a")
    line = words("a a a a")
    # Of "a" 3 words, 2 or none are expected: 1, 2 or nothing too many; of "a a" 2 pairs, 1 or 3.
    assert otem(line, [one, two]) == pytest.approx(100 * math.sqrt(1 / 4 * 1 / 3) * math.exp(1 - 3 / 4))
    assert otem(line, [none, two]) == pytest.approx(100 * math.sqrt(2 / 4 * 2 / 3))


def test_nothing_to_find():
    assert otem(FIRST, [FIRST]) == utem(FIRST, [FIRST]) == 0
    assert otem(words(""), [words("")]) == utem(words(""), [words("")]) == 0
    assert otem(words("", ""), [words("a", "b c")]) == 0
    assert utem(words("", "x"), [words("a b c d", "")]) > 50


def test_repetition_and_length():
    found = over_under(HYPOTHESES, [FIRST])
    assert found.length_ratio == pytest.approx(28 / 27)
    assert found.repeated[0] == pytest.approx(100 * 3 / (8 + 1 + 6 + 0 + 9)), "we are" and "are we"
    assert (found.empty, found.short, found.repeating) == (1, 2, 1)
    assert repeated_share(words("a b a b a b"), 2) == pytest.approx(3 / 5)
    assert repeated_share(words("a"), 2) == 0


def test_of_references_that_are_equally_close_in_length_the_shorter_one_counts() -> None:
    long, short = words("a b c d"), words("a b")
    for references in ([long, short], [short, long]):
        assert over_under(words("a b c"), references).length_ratio == pytest.approx(3 / 2)


def test_an_empty_translation_of_an_empty_line_is_right() -> None:
    assert over_under(words("", "", "a"), [words("", "b", "c")]).empty == 1


def test_what_a_reference_says_twice_may_be_said_twice():
    (line,) = words("no no no he said no no no")
    assert is_repeating(line, words("no he said"))
    assert not is_repeating(line, [*words("no he said"), line])
    assert not is_repeating(words("one two three one two")[0], words("x"))
