"""The main job through the console commands: train, translate, evaluate, score, average, translate again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.console import call, entry_points
from tests.tiny_training import events, write_config, write_corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and a run of 12 updates with checkpoints at 6 and 12, of raw text in subwords."""
    folder = tmp_path_factory.mktemp("job")
    write_corpus(folder, dev=12)
    for language in ("en", "de"):
        with (folder / f"train.{language}").open("a", encoding="utf-8") as file:
            file.write("Ein Stück Käse, bitte!\n")
    config = write_config(
        folder,
        data={"tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 330}, "test": str(folder / "dev")},
        decoding={"beam_size": 3},
    )
    assert call("nmt-train", "--config", str(config), "--device", "cpu") == 0
    return folder


def translated(model: Path, text: Path, output: Path, *options: str) -> list[str]:
    assert call("nmt-translate", str(model), "-i", str(text), "-o", str(output), *options) == 0
    lines = output.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    return lines


def printed_json(capfd: pytest.CaptureFixture[str], name: str, *arguments: str) -> Any:
    capfd.readouterr()
    assert call(name, *arguments, "--json") == 0
    return json.loads(capfd.readouterr().out)


def test_all_commands_are_installed() -> None:
    assert set(entry_points()) == {
        "nmt-train",
        "nmt-translate",
        "nmt-eval",
        "nmt-score",
        "nmt-average",
        "nmt-check",
        "nmt-compare",
        "nmt-confidence",
        "nmt-shortlist",
        "nmt-convert",
        "nmt-data",
        "nmt-export",
        "nmt-distill",
        "nmt-backtranslate",
        "nmt-plot",
        "nmt-report",
        "nmt-rank",
        "nmt-sample",
        "nmt-tag",
        "nmt-classify",
        "nmt-serve",
    }


def test_deep_attention_trains_resumes_and_translates(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path)
    deep = {"architecture": "rnnsearch_deepatt", "encoder_layers": 2, "decoder_layers": 2, "layer_norm": True}
    config = write_config(tmp_path, model=deep, training={"validate_every": 3})
    assert call("nmt-train", "--config", str(config), "--dry-run", "--device", "cpu") == 0
    assert "  initial_states" in capfd.readouterr().out
    run = tmp_path / "run"
    stopped = ("--set", "training.max_steps=6", "--set", f"run_dir={run}")
    for more in (stopped, ("--set", f"run_dir={run}"), ("--set", f"run_dir={tmp_path / 'whole'}")):
        assert call("nmt-train", "--config", str(config), "--device", "cpu", *more) == 0
    ends = [folder / "checkpoints/step-12/model.safetensors" for folder in (run, tmp_path / "whole")]
    weights, at_once = (load_file(end) for end in ends)
    assert all((weights[name] == value).all() for name, value in at_once.items())
    losses = [line["loss"] for line in events(run, kinds=("validation",))]
    assert losses[-1] < 0.98 * losses[0]
    for options in ((), ("--precision", "int8"), ("--beam-size", "1")):
        assert len(translated(run, tmp_path / "dev.en", tmp_path / "out", *options)) == 8


def test_translate_then_evaluate_is_evaluate_with_the_model(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, reference = str(folder / "dev.en"), str(folder / "dev.de")
    output = tmp_path / "dev.de"
    lines = translated(folder / "run", folder / "dev.en", output)
    assert len(lines) == 12
    scores = printed_json(capfd, "nmt-eval", "--hyp", str(output), "--ref", reference)
    assert [score["name"] for score in scores] == ["BLEU", "chrF2", "TER"]
    with_model = (str(folder / "run"), "--source", source, "--ref", reference)
    assert printed_json(capfd, "nmt-eval", *with_model) == scores
    # What the trainer wrote at its end came from the same checkpoint by the same search.
    assert (folder / "run/test.de").read_text(encoding="utf-8").split("\n")[:-1] == lines


def test_the_average_is_a_model_of_its_own(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, average = folder / "run", tmp_path / "average"
    assert call("nmt-average", str(run), "--last", "2", "-o", str(average)) == 0
    steps = [load_file(run / f"checkpoints/step-{step}/model.safetensors") for step in (6, 12)]
    weights = load_file(average / "model.safetensors")
    assert weights.keys() == steps[0].keys()
    assert all(tensor.allclose((steps[0][name] + steps[1][name]) / 2) for name, tensor in weights.items())

    def score(model: Path, *options: str) -> Any:
        files = ("--source", str(folder / "dev.en"), "--target", str(folder / "dev.de"))
        return printed_json(capfd, "nmt-score", str(model), *files, *options)

    averaged, first, last = score(average), score(run, "--checkpoint", "6"), score(run, "--checkpoint", "12")
    assert averaged["sentences"] == 12
    assert averaged["perplexity"] not in (first["perplexity"], last["perplexity"])
    assert averaged["perplexity"] < first["perplexity"]  # it has half of the later updates
    # It needs nothing of the run: not its tokenizer, its configuration or its place.
    moved = tmp_path / "elsewhere" / "model"
    moved.parent.mkdir()
    shutil.move(average, moved)
    run.rename(folder / "hidden")
    try:
        lines = translated(moved, folder / "dev.en", tmp_path / "out", "--n-best", "2", "--format", "jsonl")
        again = score(moved)
    finally:
        (folder / "hidden").rename(run)
    assert [json.loads(line)["line"] for line in lines] == list(range(12))
    assert again == averaged


def test_strange_lines_are_lines(folder: Path, tmp_path: Path) -> None:
    """One line out for each line in, whatever Unicode calls a line break, and the same in batches of every size."""
    texts = [
        "ba be",
        "",
        " \t",
        "\u2028",
        "ba\u2028be\u2029bo",
        "ba\u0085be",
        "ba\x00be",
        "\u00a0",
        "ba\rbe",
        "ba\x0b\x0c",
    ]
    texts += ["ba\x1c\x1d\x1ebe", "\ufeffba", "\u200b", "😀👩‍👩‍👧 ba", "ba\r", "b" * 300, "\x00", "Käse" * 20]
    text = tmp_path / "strange"
    text.write_bytes("\n".join(texts).encode())  # the last line has no end
    lines = translated(folder / "run", text, tmp_path / "out")
    assert len(lines) == len(texts)
    assert [line for line, source in zip(lines, texts, strict=True) if not source.strip()] == [""] * 4
    assert translated(folder / "run", text, tmp_path / "out", "--batch-tokens", "1") == lines
    assert translated(folder / "run", text, tmp_path / "out", "--batch-tokens", "9999") == lines
    carriage_returns = tmp_path / "crlf"
    carriage_returns.write_bytes("".join(f"{source}\r\n" for source in texts[:14]).encode())
    assert translated(folder / "run", carriage_returns, tmp_path / "out") == lines[:14]
