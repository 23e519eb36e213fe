"""The page: figures that are nmt.evaluate's, data that nothing in it can end, nothing from outside."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

import nmt
from nmt.evaluation import build_metric
from nmt.evaluation.counting import counting
from nmt.report import Subject, contents, page, sentences
from nmt.report.contents import letter
from nmt.report.page import as_script
from nmt.report.words import Words
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
    assert "p boot." not in html and "paired bootstrap" not in html
    assert "bs:1000" in alone["scores"][0]["signatures"][0]


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
