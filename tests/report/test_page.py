"""The page: figures that are nmt.evaluate's, data that nothing in it can end, nothing from outside."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

import nmt
from nmt.evaluation import build_metric
from nmt.evaluation.metrics import counting
from nmt.report import Subject, contents, page, sentences
from nmt.report.contents import Words, letter
from nmt.report.over_under import over_under
from nmt.report.page import as_script
from tests.report.texts import HOSTILE, changed, text

REFERENCES = text(60, seed=1)
SYSTEMS = {"first": changed(REFERENCES, seed=2, share=0.4), "<b>second</b>": changed(REFERENCES, seed=3)}


def metrics(*names: str) -> list[Any]:
    return [counting(build_metric(name)) for name in names]


def subject(**given: Any) -> Subject:
    return Subject(**{"systems": SYSTEMS, "references": [REFERENCES], **given})


def made(found: Subject, *names: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    chosen = metrics(*names)
    words = Words({})
    figures = contents(found, chosen, words)
    data = sentences(found, words, {}, chrf=counting(build_metric("chrf"))).as_data({})
    return figures, data, page(figures, data, curves=("", ""), map_reason="")


@pytest.fixture(scope="module")
def both() -> tuple[dict[str, Any], dict[str, Any], str]:
    return made(subject(), "bleu", "ter")


def test_figures_are_those_of_the_evaluation(both: tuple[dict[str, Any], dict[str, Any], str]) -> None:
    figures, _, html = both
    found = {
        test: nmt.evaluate(SYSTEMS, REFERENCES, metrics=["bleu", "ter"], confidence=True, significance=test)
        .systems["<b>second</b>"]
        .as_json()
        for test in ("bootstrap", "approximate")
    }
    for place, card in enumerate(figures["scores"]):
        bootstrap, approximate = (entries[place] for entries in found.values())
        row = card["rows"][1]
        assert card["name"] == bootstrap["name"] and card["better"] == ("higher" if place == 0 else "lower")
        assert (
            row["score"] == f"{bootstrap['score']:.2f}" and row["half_width"] == f"{bootstrap['confidence']['ci']:.2f}"
        )
        difference = bootstrap["score"] - bootstrap["baselines"][0]["baseline_score"]
        assert row["difference"] == f"{difference:+.2f}"
        assert [test["text"] for test in row["tests"]] == [
            f"{entry['baselines'][0]['p_value']:.4f}" for entry in (bootstrap, approximate)
        ]
        assert row["best"] and not card["rows"][0]["best"]
        assert card["signatures"] == [entry["baselines"][0]["signature"] for entry in (bootstrap, approximate)]
        assert f">{row['score']}<" in html and row["tests"][1]["text"] in html
    (parts,) = figures["breakdowns"]
    assert parts["rows"][1]["penalty"] == f"{found['bootstrap'][0]['brevity_penalty']:.3f}"
    lengths = found["bootstrap"][0]["length"], found["bootstrap"][0]["reference_length"]
    assert (parts["rows"][1]["length"], parts["rows"][1]["reference"]) == tuple(map(str, lengths))
    assert lengths[0] != lengths[1]
    ours, theirs = (over_under(Words({}).of(SYSTEMS[name]), [Words({}).of(REFERENCES)]) for name in SYSTEMS)
    rows = [(row["otem"], row["utem"]) for row in figures["over_under"][:2]]
    assert rows == [(f"{each.otem:.2f}", f"{each.utem:.2f}") for each in (ours, theirs)]


def test_lengths_are_of_the_source_where_there_is_one(both: tuple[dict[str, Any], dict[str, Any], str]) -> None:
    figures, data, _ = both
    assert figures["length_of"] == "reference" and data["source"] is None
    source = ["word " * (5 if n < 20 else 35) for n in range(60)]
    found, data, _ = made(subject(source=source), "bleu")
    assert found["length_of"] == "source" and data["lengths"][:1] + data["lengths"][-1:] == [5, 35]
    (table,) = found["lengths"]
    assert [(row["name"], row["count"]) for row in table["rows"]] == [("0–10", "20"), ("31–40", "40")]
    alone = nmt.evaluate(SYSTEMS["first"][20:], REFERENCES[20:], metrics=["bleu"])["bleu"]
    assert table["rows"][1]["cells"][0].text == f"{alone:.2f}"
    assert max(cell.share for row in table["rows"] for cell in row["cells"]) == 100


def test_frequencies_and_a_single_system() -> None:
    counts = Counter({"dog": 5, "cat": 2000})
    found, _, html = made(subject(frequencies=counts, training="train.de"), "bleu")
    assert [row["name"] for row in found["frequencies"]] == ["0", "5–9", "1,000+"]
    assert "train.de" in html
    alone, _, html = made(subject(systems={"one": SYSTEMS["first"]}), "chrf")
    assert alone["scores"][0]["rows"][0]["tests"] == [] and alone["frequencies"] is None
    assert "p boot." not in html and "paired bootstrap" not in html and ">baseline<" not in html
    assert "bs:1000" in alone["scores"][0]["signatures"][0]
    (row,) = alone["scores"][0]["rows"]
    assert (row["left"], row["width"]) == (0, 100), "the bar of its interval takes all the room"


def test_words_of_a_frequency_that_only_translations_have_are_shown() -> None:
    systems = {"one": ["a dog rare", "a cat"], "two": ["a dog", "a cat"]}
    counts = Counter({"a": 9, "dog": 9, "cat": 9, "rare": 1})
    found, _, _ = made(subject(systems=systems, references=[systems["two"]], frequencies=counts), "chrf")
    rows = {row["name"]: (row["count"], [cell.text for cell in row["cells"]]) for row in found["frequencies"]}
    assert rows == {"1": ("0", ["0.0", "0.0"]), "5–9": ("4", ["100.0", "100.0"])}


def test_the_best_of_each_row_is_marked_but_not_of_equal_ones() -> None:
    found, _, html = made(subject(systems={"one": SYSTEMS["first"], "two": SYSTEMS["first"]}), "bleu", "ter")
    assert not any(row["best"] for card in found["scores"] for row in card["rows"]) and "(best)" not in html
    found, _, _ = made(subject(), "ter")
    for row in found["lengths"][0]["rows"]:
        values = [float(cell.text) for cell in row["cells"]]
        assert [cell.best for cell in row["cells"]] == [value == min(values) != max(values) for value in values]
    # What one word of 3,001 makes of the F1 does not show in its one decimal.
    lines = ["dog " * 500] * 6
    systems = {"right": lines, "a word too many": ["cat " + lines[0], *lines[1:]]}
    counts = Counter({"dog": 9, "cat": 9})
    found, _, _ = made(subject(systems=systems, references=[lines], frequencies=counts), "chrf")
    (row,) = found["frequencies"]
    assert [(cell.text, cell.best) for cell in row["cells"]] == [("100.0", False), ("100.0", False)]


def test_repetitions_with_several_references() -> None:
    twice = "no no no he said no no no"
    given = {"systems": {"one": [twice, "a b"]}, "references": [["he said no no", "a b"], [twice, "a b"]]}
    found, data, _ = made(subject(**given), "chrf")
    assert data["repeating"] == [[]], "one of the references says it twice, too"
    reference = over_under(Words({}).of(given["references"][0]), [Words({}).of(given["references"][0])])
    assert found["over_under"][-1]["repeated"] == [f"{share:.2f}" for share in reference.repeated]


def test_words_are_cut_with_the_options_of_bleu() -> None:
    assert Words({}).of(["A Dog."]) == [["A", "Dog", "."]]
    assert Words({"lowercase": True, "tokenize": "char"}).of(["A Dog."]) == [["a", "d", "o", "g", "."]]


def test_bleu_of_a_short_sentence_counts_the_orders_it_has() -> None:
    _, data, _ = made(
        subject(systems={"one": ["a dog", "two cats run"]}, references=[["a dog", "two cats run"]]), "chrf"
    )
    assert data["bleu"] == [[100.0, 100.0]]


def test_sentence_scores_are_sacrebleus(both: tuple[dict[str, Any], dict[str, Any], str]) -> None:
    from sacrebleu import sentence_bleu, sentence_chrf

    _, data, _ = both
    for place in (0, 9, 30):
        line, reference = SYSTEMS["first"][place], [REFERENCES[place]]
        assert data["bleu"][0][place] == round(sentence_bleu(line, reference).score, 1)
        assert data["chrf"][0][place] == round(sentence_chrf(line, reference).score, 1)


def test_no_text_ends_the_data_or_becomes_markup(both: tuple[dict[str, Any], dict[str, Any], str]) -> None:
    _, data, html = both
    html.encode()
    assert html.count("</script>") == 2 and "<img" not in html
    assert "<b>second</b>" not in html and "&lt;b&gt;second&lt;/b&gt;" in html
    (inside,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, flags=re.S)
    assert json.loads(inside) == data
    assert json.loads(inside)["references"][0][: len(HOSTILE)] == HOSTILE
    assert not set("<>&\u2028\u2029\n") & set(inside)


def test_data_is_escaped_by_itself() -> None:
    assert as_script({"a": "</script>\u2028\ud800é"}) == '{"a":"\\u003c/script\\u003e\\u2028\\ud800é"}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_script({"a": float("nan")})


def test_nothing_is_fetched(both: tuple[dict[str, Any], dict[str, Any], str]) -> None:
    _, _, html = both
    page_itself = re.sub(r'<script type="application/json".*?</script>', "", html, flags=re.S)
    assert re.findall(r"""(?:src|href|url|@import)\s*[=(]\s*["']?(?!#|data:)[\w/.]+""", page_itself) == []
    assert "default-src 'none'" in page_itself
    assert set(re.findall(r"https?://[^\s\"']+", page_itself)) <= {"http://www.w3.org/2000/svg"}


def test_letters() -> None:
    assert [letter(place) for place in (0, 25, 26, 51, 52, 702)] == ["A", "Z", "AA", "AZ", "BA", "AAA"]
