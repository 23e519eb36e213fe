"""Nothing wrong leaves silently: weights and scores that are no numbers, cut and long lines, bytes that are no text."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.cli import translate
from nmt.interop import run_layout
from nmt.interop.run_layout import FACTS, TrainingFacts, read_facts, write_facts
from nmt.models import build_model
from nmt.models.base import Encoded, Seq2Seq
from nmt.registry import STARTS
from nmt.scoring import command as score
from tests.console import call
from tests.tiny_run import change_weights, make_run

NAME = "readout.linear.weights.0"
TEXT = "a b\nd c\n\nb\nc\n"
"""With a `poison` lines 2 and 5 have no translation."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "in").write_text(TEXT)
    return make_run(tmp_path / "run")


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model gives NaN for sentences with the source word `c`, as one that overflows would."""
    encode = Seq2Seq.encode

    def poisoned(model: Seq2Seq, source: Tensor, **options: Any) -> Encoded:
        encoded = encode(model, source, **options)
        bad = (source == 5).any(1)
        return encoded._replace(memory=torch.where(bad[:, None, None], math.nan, encoded.memory))

    monkeypatch.setattr(Seq2Seq, "encode", poisoned)


def set_all(weights: dict[str, Tensor], value: float) -> None:
    for weight in weights.values():
        weight.fill_(value)


def said(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_every_command_refuses_weights_that_are_no_numbers(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], value: float
) -> None:
    def alter(weights: dict[str, Tensor]) -> None:
        weights[NAME].view(-1)[3:6] = value

    file = change_weights(run, alter)
    wanted = f"{file}: {NAME} contains NaN or infinite values (3 of 128)"
    text = str(tmp_path / "in")
    for name, *arguments in (
        ("nmt-translate", str(run), "-i", text),
        ("nmt-translate", str(run / "checkpoints/step-20"), str(run), "-i", text),
        ("nmt-score", str(run), "--source", text, "--target", text),
        ("nmt-eval", str(run), "--source", text, "--ref", text),
        ("nmt-average", str(run), "--best", "2", "-o", str(tmp_path / "average")),
        ("nmt-convert", "to-zero", str(run), "-o", str(tmp_path / "zero.npz")),
    ):
        assert call(name, *arguments) == 1, name
        out, err = capfd.readouterr()
        assert out == "" and err == f"{name}: {wanted}\n"
    assert call("nmt-check", str(run), "--json") == 1
    assert any(wanted in problem for problem in json.loads(capfd.readouterr().out)["problems"])
    assert not (tmp_path / "average").exists() and not (tmp_path / "zero.npz").exists()


def test_several_tensors_are_listed_in_a_bounded_line(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    change_weights(run, lambda weights: set_all(weights, math.nan))
    assert translate.main([str(run), "-i", str(run.parent / "in")]) == 1
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and err.count("contains NaN") == 3 and " more\n" in err


def test_weights_in_float64_that_fp32_has_not_are_refused(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    change_weights(run, lambda weights: weights.update({NAME: weights[NAME].double() + 1e39}))
    assert translate.main([str(run), "-i", str(run.parent / "in")]) == 1
    assert f"{NAME} contains NaN or infinite values (128 of 128)" in capfd.readouterr().err


@pytest.mark.parametrize(("precision", "code"), [("fp32", 0), ("bf16", 2)])
def test_weights_that_bf16_has_not_are_refused_for_it(
    run: Path, capfd: pytest.CaptureFixture[str], precision: str, code: int
) -> None:
    change_weights(run, lambda weights: weights[NAME].view(-1).__setitem__(0, -3.4e38))
    arguments = ["-i", str(run.parent / "in"), "--precision", precision, "--beam-size", "1", "--device", "cpu"]
    found = translate.main([str(run), *arguments])
    err = capfd.readouterr().err
    assert found == code or precision == "fp32" and "no translation with a finite score" in err
    assert (f"precision: {NAME} holds 3.4e+38, too large for bf16; choose fp32" in err) == (code == 2)


SEARCHES = [["--beam-size", "3"], ["--beam-size", "1"], ["--beam-size", "1", "--format", "jsonl"], ["--search", "beam"]]


@pytest.mark.parametrize("options", SEARCHES)
@pytest.mark.parametrize("kind", ["alone", "ensemble", "shortlist", "int8"])
def test_lines_without_a_finite_hypothesis(
    run: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    kind: str,
) -> None:
    (tmp_path / "corpus.en").write_text("a b c d\n" * 3)
    (tmp_path / "corpus.de").write_text("x y z u\n" * 3)
    arguments = [str(run), "-i", str(tmp_path / "in"), "--device", "cpu", *options]
    if kind == "ensemble":
        arguments.insert(0, str(run / "checkpoints/step-20"))
    if kind == "shortlist":
        made = ["-o", str(tmp_path / "list"), "--train", str(tmp_path / "corpus")]
        assert call("nmt-shortlist", str(run), *made) == 0
        arguments += ["--shortlist", str(tmp_path / "list")]
    if kind == "int8":
        arguments += ["--precision", "int8"]
    capfd.readouterr()
    assert translate.main(arguments) == 0
    sound = capfd.readouterr().out.splitlines()
    poison(monkeypatch)
    assert translate.main(arguments) == 1
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert "; 2 lines have no translation with a finite score: 2, 5" in err.splitlines()[-1]
    assert [lines[i] for i in (0, 2, 3)] == [sound[i] for i in (0, 2, 3)]
    if "jsonl" in options:
        found = [json.loads(line) for line in lines]
        assert [record["translations"] for record in found][1::3] == [[{"text": "", "score": None}]] * 2
        assert all("no_finite_translation" in found[i]["notes"] for i in (1, 4))
    else:
        assert [line == "" for line in lines] == [False, True, True, False, True]


def test_evaluation_and_scores_count_them_too(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch)
    text = str(tmp_path / "in")
    assert call("nmt-eval", str(run), "--source", text, "--ref", text, "--metrics", "chrf") == 1
    out, err = capfd.readouterr()
    assert "2 lines have no translation with a finite score: 2, 5" in err and "chrF2" in out
    assert score.main([str(run), "--source", text, "--target", text]) == 1
    assert "2 lines with a score that is not finite: 2, 5" in said(capfd)
    assert score.main([str(run), "--source", text, "--target", text, "--json"]) == 1
    record = json.loads(capfd.readouterr().out)
    assert [value is None for value in record["scores"]] == [False, True, False, False, True]
    assert record["perplexity"] is None
    assert call("nmt-distill", str(run), "-o", str(tmp_path / "made"), "--source", text, "-q") == 1
    assert "2 lines without a translation of finite probability" in capfd.readouterr().err


def test_lines_cut_by_the_length_limit_are_noted(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def alter(weights: dict[str, Tensor], *, sign: float) -> None:
        weights["embeddings.bias"].zero_()
        weights["readout.linear.weights.0"].zero_()
        weights["readout.linear.bias"].fill_(1.0)
        weights["embeddings.target"][:] = torch.randn(10, 8) * 0.1
        weights["embeddings.target"][2] = 9.0 * sign

    for sign, numbers in ((-1.0, "4 lines stopped at the length limit: 1, 2, 4, 5"), (1.0, None)):
        change_weights(run, lambda weights, sign=sign: alter(weights, sign=sign))  # type: ignore[misc]
        for beam in ("1", "3"):
            assert translate.main([str(run), "-i", str(tmp_path / "in"), "--beam-size", beam]) == 0
            summary = said(capfd)
            assert (numbers in summary) if numbers else ("length limit" not in summary)


def test_sources_longer_than_any_in_training_are_counted(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(run), "-i", str(tmp_path / "in"), "--beam-size", "1"]
    assert translate.main(arguments) == 0
    assert "longer" not in said(capfd)
    write_facts(run, TrainingFacts(1))
    assert translate.main(arguments) == 0
    assert "2 lines longer than any in training (1 token): 1, 2" in said(capfd)
    other = make_run(tmp_path / "other")
    for models in ([str(run), str(other)], [str(other), str(run)]):  # one of an ensemble has never seen such a line
        assert translate.main([*models, *arguments[1:]]) == 0
        assert "2 lines longer than any in training (1 token): 1, 2" in said(capfd)
    scored = [str(run), "--source", str(tmp_path / "in"), "--target", str(tmp_path / "in")]
    assert score.main(scored) == 0
    assert "2 lines longer than any in training (1 token): 1, 2" in said(capfd)
    assert call("nmt-average", str(run), "--last", "2", "-o", str(tmp_path / "average")) == 0
    assert read_facts(tmp_path / "average").longest == 1
    (run / FACTS).unlink()  # a run of an older version: what its configuration allowed is known
    (tmp_path / "in").write_text("a " * 101 + "\n")
    assert translate.main(arguments) == 0
    assert "1 line longer than training allowed (100 tokens): 1" in said(capfd)
    (run / FACTS).write_text('{"longest_source": "many"}')
    assert translate.main(arguments) == 1
    assert f"{FACTS}: cannot be used" in said(capfd)


BAD = b"a\n\xff b\nd\n\xed\xa0\x80\n"


def test_strict_writes_the_lines_before_the_bad_one(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad").write_bytes(b"a\nb\n\xff\nd\n")
    assert translate.main([str(run), "-i", str(tmp_path / "bad")]) == 1
    out, err = capfd.readouterr()
    assert out.count("\n") == 2 and "bad, line 3: not UTF-8" in err.splitlines()[-1]
    arguments = [str(run), "--source", str(tmp_path / "bad"), "--target", str(tmp_path / "bad")]
    assert score.main(arguments) == 1
    out, err = capfd.readouterr()
    assert out.count("\n") == 2 and "bad, line 3: not UTF-8" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("policy", "fate", "sources"),
    [
        ("replace", "such bytes replaced by U+FFFD", ["a", "\ufffd b", "d", "\ufffd" * 3]),
        ("empty", "read as empty", ["a", "", "d", ""]),
    ],
)
def test_bytes_that_are_no_text_replaced_or_left_out(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], policy: str, fate: str, sources: list[str]
) -> None:
    bad = str(tmp_path / "bad")
    Path(bad).write_bytes(BAD)
    assert translate.main([str(run), "-i", bad, "--errors", policy, "--format", "jsonl"]) == 0
    out, err = capfd.readouterr()
    found: list[dict[str, Any]] = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [record["source"] for record in found] == sources
    assert ["not_utf8" in record.get("notes", []) for record in found] == [False, True, False, True]
    assert [record["translations"][0]["text"] == "" for record in found] == [source == "" for source in sources]
    assert f"2 lines not UTF-8, {fate}: 2, 4" in err.splitlines()[-1]
    assert score.main([str(run), "--source", bad, "--target", bad, "--errors", policy]) == 0
    out, err = capfd.readouterr()
    assert out.count("\n") == 4 and err.count(f"bad: 2 lines not UTF-8, {fate}: 2, 4") == 2
    assert call("nmt-eval", "--hyp", bad, "--ref", bad, "--metrics", "chrf", "--errors", policy) == 0
    assert capfd.readouterr().err.count(f"bad: 2 lines not UTF-8, {fate}: 2, 4") == 2


def test_training_does_not_begin_or_go_on_with_them(run: Path, tmp_path: Path) -> None:
    from nmt.errors import CheckpointError
    from nmt.interop.model_dir import load_model
    from nmt.training.run_dir import CheckpointStore
    from nmt.training.state import Ranking

    loaded = load_model(run)
    model = build_model(loaded.config.model, loaded.tokenizer.source_size, loaded.tokenizer.target_size)
    change_weights(run, lambda weights: set_all(weights, math.inf))
    training = replace(loaded.config.training, init_from=str(run_layout.step_dir(run, 10)))
    start = STARTS.get("model")(replace(loaded.config, training=training))
    with pytest.raises(CheckpointError, match="contains NaN or infinite values"):
        start.load(model, loaded.tokenizer)

    checkpoints = CheckpointStore(tmp_path / "other", keep_last=3, keep_best=0, config_text="seed: 1\n")
    ranking = Ranking(metric="loss", higher_is_better=False)
    whole, broken = {"w": torch.ones(3)}, {"w": torch.tensor([1.0, math.nan, 2.0])}
    checkpoints.save(1, weights=whole, state={}, ranking=ranking)
    checkpoints.save(2, weights=broken, state={}, ranking=ranking)
    checkpoints.save(3, weights=whole, state={"updater": {"trained_weights": broken}}, ranking=ranking)
    warned: list[str] = []
    found = checkpoints.load_newest(warn=warned.append)
    assert found is not None and found.path.name == "step-1"
    assert ["w contains NaN or infinite values (1 of 3); set aside" in line for line in warned] == [True, True]
