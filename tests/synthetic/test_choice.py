"""Which translation becomes training text."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sacrebleu

from nmt.search.values import AT_LIMIT, LONGER, ScoredText
from nmt.synthetic.texts import Made, chosen, made

TEXTS = ("ein Hund sieht den Mann", "der Hund sieht einen Mann", "der Hund", "der Hund sieht einen Mann")


def of(texts: tuple[str, ...]) -> Made:
    return Made(texts, [f"{text} #{place}" for place, text in enumerate(texts)], (), 5)


@pytest.mark.parametrize(("name", "score"), [("bleu", sacrebleu.sentence_bleu), ("chrf", sacrebleu.sentence_chrf)])
def test_the_nearest_is_the_one_with_the_best_score_of_the_first_of_equals(name: str, score: object) -> None:
    for reference in ("der Hund sieht einen Mann .", "ein Hund sieht den Mann", "der Hunt", "x"):
        scores = [score(text, [reference]).score for text in TEXTS]  # type: ignore[operator]
        expected = scores.index(max(scores))
        assert chosen(of(TEXTS), reference, n_best=4, nearest=name) == [f"{TEXTS[expected]} #{expected}"]


def test_without_spaces_the_nearest_is_found_by_characters() -> None:
    texts = ("他不在家。", "我们今天喝茶。", "我们今天喝咖啡。")
    assert chosen(of(texts), "我们明天喝咖啡。", n_best=3, nearest="bleu") == [f"{texts[2]} #2"]


@pytest.mark.parametrize("reference", [None, "", "  "])
def test_without_a_reference_the_best(reference: str | None) -> None:
    assert chosen(of(TEXTS), reference, n_best=4, nearest="bleu") == [f"{TEXTS[0]} #0"]


def test_n_lines_always() -> None:
    assert chosen(of(TEXTS), None, n_best=2, nearest=None) == [f"{text} #{i}" for i, text in enumerate(TEXTS[:2])]
    assert chosen(of(TEXTS[:1]), "x", n_best=3, nearest=None) == [f"{TEXTS[0]} #0", "", ""]


@pytest.mark.parametrize(("n_best", "nearest", "lines"), [(1, None, 1), (3, None, 3), (4, "bleu", 1)])
def test_a_translation_cut_at_the_length_limit_is_no_training_text(n_best: int, nearest: str, lines: int) -> None:
    cut = replace(of(TEXTS), notes=[LONGER, AT_LIMIT])
    assert chosen(cut, "der Hund", n_best=n_best, nearest=nearest) == [""] * lines
    assert "" not in chosen(replace(cut, notes=[LONGER]), "der Hund", n_best=n_best, nearest=nearest)


def test_text_that_is_tokens_is_written_as_tokens() -> None:
    found = [ScoredText("better", 0.0, ("bet@@", "ter", "<eos>")), ScoredText("", 0.0, ("<eos>",)), ScoredText("", 0.0)]
    one = made(found, notes=["split"], source_tokens=3, as_tokens=True)
    assert (one.texts, one.written) == (["better", "", ""], ["bet@@ ter", "", ""])
    assert made(found, notes=[], source_tokens=3, as_tokens=False).written == ["better", "", ""]
