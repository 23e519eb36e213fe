"""Options of metrics, which follow their names on a command line; scores of sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

import nmt
from nmt.evaluating.command import main

HYPOTHESES, REFERENCES = ["the cat sat on the mat", "a b c d e"], ["the cat sat on a mat", "x b y d e"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, lines in (("hyp", HYPOTHESES), ("ref", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return ["--hyp", str(tmp_path / "hyp"), "--ref", str(tmp_path / "ref")]


@pytest.mark.parametrize(
    ("text", "expected", "name"),
    [
        ("bleu,max_order=2", {"max_ngram_order": 2}, "BLEU-2"),
        ("bleu,max_order=6", {"max_ngram_order": 6}, "BLEU-6"),
        ("bleu,smooth=floor", {"smooth_method": "floor"}, "BLEU"),
        ("bleu,smooth=none,lowercase=true", {"smooth_method": "none", "lowercase": True}, "BLEU"),
    ],
)
def test_bleu_is_that_of_sacrebleu(
    files: list[str], capsys: pytest.CaptureFixture[str], text: str, expected: dict[str, object], name: str
) -> None:
    assert main([*files, "--metrics", text, "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    scorer = BLEU(**expected)
    assert found["score"] == pytest.approx(scorer.corpus_score(HYPOTHESES, [REFERENCES]).score)
    assert found["name"] == name and f"smooth:{expected.get('smooth_method', 'exp')}" in found["signature"]
    assert len(found["precisions"]) == expected.get("max_ngram_order", 4)
    assert nmt.evaluate(HYPOTHESES, REFERENCES, metrics=[text])["bleu"] == found["score"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bleu,max_order", "metric bleu,max_order: 'max_order' is not an option with its value, such as bleu,OPTION=3"),
        ("bleu,max_order=2,max_order=3", "metric bleu,max_order=2,max_order=3: max_order is given twice"),
        ("bleu,max_order=10", "bleu.max_order: must be from 1 to 9, not 10"),
        ("bleu,smooth=no", "bleu.smooth: 'no' is not allowed. Did you mean 'none'? Allowed: exp, floor, add-k, none."),
        ("bleu,order=2", "order"),
    ],
)
def test_mistakes(files: list[str], capsys: pytest.CaptureFixture[str], text: str, problem: str) -> None:
    assert main([*files, "--metrics", text]) == 2
    out, err = capsys.readouterr()
    assert not out and problem in err and err.count("\n") == 1
    assert main([*files, "--metrics", "bleu", "bleu,max_order=2"]) == 2
    assert "metric bleu: is given twice, with other options" in capsys.readouterr().err


def test_scores_of_sentences(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems = ["--hyp", files[1], files[3], "--ref", files[3], "--labels", "a", "b"]
    for name in ("scores.tsv", "scores.jsonl"):
        command = [*systems, "--metrics", "bleu", "chrf", "--sentences", str(tmp_path / name)]
        assert main([*command, "--samples", "10"]) == 0
    assert "effective_order" not in capsys.readouterr().err
    head, *rows = [line.split("\t") for line in (tmp_path / "scores.tsv").read_text().splitlines()]
    assert head == ["line", "a bleu", "a chrf", "b bleu", "b chrf"]
    scorers = BLEU(effective_order=True), CHRF()
    for place, (row, hypothesis, reference) in enumerate(zip(rows, HYPOTHESES, REFERENCES, strict=True), start=1):
        expected = [scorer.sentence_score(hypothesis, [reference]).score for scorer in scorers]
        assert [float(cell) for cell in row] == pytest.approx([place, *expected, 100, 100], abs=1e-4)
    objects = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [entry["references"] for entry in objects] == [[line] for line in REFERENCES]
    assert objects[1]["systems"]["a"]["text"] == HYPOTHESES[1] and objects[1]["line"] == 2
    assert objects[1]["systems"]["a"]["scores"]["chrf"] == pytest.approx(float(rows[1][2]), abs=1e-4)


def test_where_scores_of_sentences_go(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files, "--sentences", "scores.txt"]) == 2
    assert "--sentences scores.txt: must end in .tsv or .jsonl" in capsys.readouterr().err
    assert main([*files, "--sentences", str(tmp_path / "none" / "scores.tsv")]) != 0
    out, err = capsys.readouterr()
    assert not out and str(tmp_path / "none") in err
    (tmp_path / "hyp.tsv").write_text((tmp_path / "hyp").read_text())
    assert main(["--hyp", str(tmp_path / "hyp.tsv"), *files[2:], "--sentences", str(tmp_path / "hyp.tsv")]) == 2
    assert "is also the input" in capsys.readouterr().err
    assert (tmp_path / "hyp.tsv").read_text() == (tmp_path / "hyp").read_text()
