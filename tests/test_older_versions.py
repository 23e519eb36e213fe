"""Runs that version 0.1.0 wrote translate and score as then, can be averaged and started from; resuming ends in a line.

How they were made: tests/fixtures/make_runs.py. Whatever changes, they are not made anew.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.conftest import REPOSITORY
from tests.console import call

RUNS = REPOSITORY / "tests" / "fixtures" / "runs_0.1.0"
NAMES = sorted(path.stem for path in RUNS.glob("*.yaml"))
SCORE_TOLERANCE = 1e-5
"""Of numbers in single precision, which other kernels compute now."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all runs and of their corpus, as current directory."""
    shutil.copytree(RUNS, tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


def translations(model: str, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """What nmt-translate makes of the validation text, with scores."""
    capsys.readouterr()
    flags = ("--format", "jsonl", "--precision", "fp32", "--device", "cpu")
    assert call("nmt-translate", model, "-i", "corpus/dev.en", *flags) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_there_is_a_run_of_each_unit() -> None:
    units = {yaml.safe_load((RUNS / name / "config.yaml").read_text())["model"]["cell"] for name in NAMES}
    assert units == {"atr", "gru", "lrn", "lstm", "olrn", "sru"}


@pytest.mark.parametrize("name", NAMES)
def test_translations_are_as_before(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [json.loads(line) for line in (folder / name / "translations.jsonl").read_text().splitlines()]
    found = translations(name, capsys)
    for line, before in zip(found, wanted, strict=True):
        assert [t["text"] for t in line["translations"]] == [t["text"] for t in before["translations"]]
        scores = [t["score"] for t in before["translations"]]
        assert [t["score"] for t in line["translations"]] == pytest.approx(scores, abs=SCORE_TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_as_before(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = ("--source", "corpus/dev.en", "--target", "corpus/dev.de")
    assert call("nmt-score", name, *pair, "--device", "cpu") == 0
    wanted = [float(line) for line in (folder / name / "scores.txt").read_text().split()]
    found = [float(line) for line in capsys.readouterr().out.split()]
    assert len(found) == 6 and found == pytest.approx(wanted, abs=SCORE_TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_checkpoints_can_be_averaged(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("nmt-average", name, "--last", "2", "-o", "averaged") == 0
    steps = [load_file(path) for path in sorted((folder / name).rglob("model.safetensors"))]
    mean = load_file(folder / "averaged" / "model.safetensors")
    for key, value in mean.items():
        torch.testing.assert_close(value, (steps[0][key].double() + steps[1][key].double()).div(2).float())
    assert len(translations("averaged", capsys)) == 6


def config(name: str, **training: Any) -> str:
    """The configuration of the run `name` with other keys of training, as a file for a run called `new`."""
    sections = yaml.safe_load(Path(f"{name}.yaml").read_text())
    sections["model"].setdefault("layer_norm", False)  # the default of that version
    options = sections["model"].get("cell_options", {})
    if options.get("gates") == "coupled":
        options["gates"] = "coupled_input"  # as that is called since
    sections["training"] |= {"max_steps": 1, "validate_every": 1, **training}
    Path("new.yaml").write_text(yaml.safe_dump({**sections, "run_dir": "new"}))
    return "new.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_training_starts_from_its_weights(name: str, folder: Path) -> None:
    file = config(name, init_from=name, lr=1e-30)
    assert call("nmt-train", "--config", file, "--device", "cpu") == 0
    before = load_file(folder / name / "checkpoints" / "step-600" / "model.safetensors")
    after = load_file(folder / "new" / "checkpoints" / "step-1" / "model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(after[key], value) for key, value in before.items())


def test_where_training_cannot_resume_one_line_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Although defaults, which that version's configuration has all written down, are others by now."""
    before = {path: path.read_bytes() for path in (folder / "lrn").rglob("*") if path.is_file()}
    assert call("nmt-train", "--config", "lrn.yaml", "--device", "cpu", "--set", "training.max_steps=700") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "lrn/checkpoints/step-600: training state of format 1" in line
    assert "finish the run with the version that started it" in line and "training.init_from" in line
    after = {path: path.read_bytes() for path in (folder / "lrn").rglob("*") if path.is_file() and path.name != "lock"}
    assert after == before
