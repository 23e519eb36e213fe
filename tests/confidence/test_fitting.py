"""The fit of the estimate and the measures of it, by hand and against definitions."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from nmt.confidence.fitting import (
    NOTED,
    area,
    bins,
    calibration_error,
    check_bar,
    crossed,
    fitted,
    usual_of,
)
from nmt.confidence.rating import ORDER, Letters, Usual
from nmt.data import read_lines
from nmt.demo_corpus.text import Demo
from nmt.errors import DataError


def drawn(count: int, *, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Features of another scale each, one of which never varies, and what they make probable."""
    source = np.random.default_rng(seed)
    values = np.column_stack([source.normal(-2, 0.5, count), source.normal(30, 9, count), np.full(count, 0.25)])
    p = 1 / (1 + np.exp(-(3 + 2 * values[:, 0] + 0.05 * values[:, 1])))
    return values, source.random(count) < p


def test_the_weights_are_those_that_made_the_data_and_the_sum_of_estimates_is_right() -> None:
    values, good = drawn(20_000)
    found = fitted(values, good)
    assert found.weights[:2] == pytest.approx([2.0, 0.05], rel=0.1) and found.weights[2] == 0
    assert found.of(values).mean() == pytest.approx(good.mean(), abs=1e-9), "as logistic regression has it"
    others, right = drawn(20_000, seed=2)
    assert calibration_error(found.of(others), right) < 0.01
    assert area(found.of(others)[right], found.of(others)[~right]) > 0.7


def test_data_that_can_be_divided_has_finite_weights() -> None:
    values = np.arange(40.0)[:, None]
    found = fitted(values, values[:, 0] >= 20)
    assert np.isfinite(found.weights).all() and found.of(values)[0] < 0.05 < 0.95 < found.of(values)[-1]


def test_folds_do_not_see_what_they_estimate() -> None:
    """Noise is learned by a fit, but not by the fits to other parts."""
    values, good = np.random.default_rng(3).normal(size=(60, 12)), np.arange(60) % 2 == 0
    own, others = fitted(values, good).of(values), crossed(values, good)
    assert area(own[good], own[~good]) > 0.65 > area(others[good], others[~good])
    part = np.arange(60) % 5 == 2
    assert others[part] == pytest.approx(fitted(values[~part], good[~part]).of(values[part]))


def test_calibration_error_by_hand() -> None:
    estimates = np.array([0.05, 0.09, 0.5, 0.55, 0.59, 1.0])
    good = np.array([False, True, True, True, False, True])
    found = bins(estimates, good)
    assert [(one.first, one.lines, one.share) for one in found] == [(0, 2, 0.5), (0.5, 3, 2 / 3), (0.9, 1, 1)]
    expected = (2 * abs(0.07 - 0.5) + 3 * abs((0.5 + 0.55 + 0.59) / 3 - 2 / 3) + 0) / 6
    assert calibration_error(estimates, good) == pytest.approx(expected)


def test_the_area_is_the_share_of_pairs_in_the_right_order() -> None:
    source = random.Random(4)
    high, low = [source.randint(2, 9) for _ in range(30)], [source.randint(0, 7) for _ in range(20)]
    pairs = [(a > b) + (a == b) / 2 for a in high for b in low]
    assert area(high, low) == pytest.approx(sum(pairs) / len(pairs))
    assert area(high, []) is area([], low) is None


def test_a_bar_that_divides_nothing_is_refused_with_one_that_does() -> None:
    scores = np.array([100.0] * 80 + [70.5] * 15 + [30.0] * 5)
    with pytest.raises(DataError, match="95 of 100 translations have a chrF of 60 or more.*--at-least, such as 94, or"):
        check_bar(scores, 60)
    check_bar(scores, 80)
    with pytest.raises(DataError, match="give another --at-least, or more text"):
        check_bar(np.full(50, 100.0), 60)


def test_letters_by_hand() -> None:
    letters = Letters(Letters.counted(["Ab ab, a1"]))
    assert letters.counts == {" a": 3, " ab": 2, " ab ": 2, " a ": 1}
    # Of the words ` ab `, ` ab ` and ` a `: one letter first, that after a, that after ` a`.
    new = 1e-3
    single = {"a": (3 + 3 * new) / (8 + 3), "b": (2 + 3 * new) / (8 + 3), " ": (3 + 3 * new) / (8 + 3)}
    first = (3 + 1 * single["a"]) / (3 + 1)
    after_a = (2 + 2 * single["b"]) / (3 + 2)
    b = (2 + 2 * after_a) / (3 + 2)
    total, count = letters.score("AB")
    after_b = (2 + 1 * single[" "]) / (2 + 1)
    end = (2 + 1 * ((2 + 1 * after_b) / 3)) / 3
    assert count == 3 and total == pytest.approx(math.log(first) + math.log(b) + math.log(end))
    assert letters.score("12 - 3!") == (0.0, 0)
    assert ORDER == 4


def test_probabilities_of_all_letters_after_others_add_up() -> None:
    words = ["haus", "maus", "laus", "aus", "hausaufgabe"]
    letters = Letters(Letters.counted([" ".join(words)]))
    known = sorted(set("".join(words)) | {" "})
    for context in (" ha", "aus", "xyz", "us"):
        total = sum(math.exp(letters._log(context + letter)) for letter in known)
        assert 0.7 < total < 1, context  # the rest is left for letters that were never seen


def test_usual_text_is_told_from_other_text() -> None:
    source = random.Random(5)
    german = "der die das und ist nicht auch ein wird".split()  # noqa: SIM905
    english = "the of and that with which have not".split()  # noqa: SIM905

    def lines(words: list[str], count: int) -> list[str]:
        return [" ".join(source.choices(words, k=source.randint(1, 9))) for _ in range(count)]

    usual = usual_of(Letters.counted(lines(german, 300)), lines(german, 2000))
    assert isinstance(usual, Usual)
    assert sum(not usual.has(line) for line in lines(german, 2000)) <= 2000 * 0.01
    assert sum(not usual.has(line.upper()) for line in lines(german, 2000)) <= 2000 * 0.01, "case tells nothing"
    assert sum(not usual.has(line) for line in lines(english, 500)) > 450
    assert usual.has("") and usual.has("12, 13.")
    values = sorted(value for value in map(usual.of, lines(german, 2000)) if value is not None)
    assert values[int(3 * NOTED * len(values)) + 5] >= usual.least
    assert usual_of({" a": 1}, ["", "1"]) is None


def test_ten_letters_of_usual_text_are_added_to_a_line() -> None:
    usual = Usual(Letters(Letters.counted(["das ist ein haus"])), mean=-1.5, least=-9.0)
    total, letters = usual.letters.score("das")
    assert letters == 4, "the end of the word counts"
    assert usual.of("das") == pytest.approx((total + 10 * -1.5) / (4 + 10))


def test_the_demo_corpus_is_told_from_other_languages(tmp_path: Path) -> None:
    """As docs/confidence.md says: at most 1 % false notes, and an AUC of 0.95 or more."""
    Demo.write(tmp_path, "en", "de")
    train, dev, test, german = (
        list(read_lines(tmp_path / name)) for name in ("train.en", "dev.en", "test.en", "test.de")
    )
    usual = usual_of(Letters.counted(train), dev)
    assert usual is not None
    assert sum(not usual.has(line) for line in test) <= 0.01 * len(test)
    others = [*german, *read_lines(Path(__file__).with_name("six_languages.txt"))]
    assert len(others) == 590 and sum(not usual.has(line) for line in others) > 0.98 * len(others)
    known, values = ([value for value in map(usual.of, lines) if value is not None] for lines in (test, others))
    assert (area(known, values) or 0) > 0.99
