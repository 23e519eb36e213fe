"""Options of metrics, which follow their names on a command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

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
