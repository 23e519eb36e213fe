"""COMET through nmt-eval: with a stand-in for its package, and (slow) with the package and tiny models of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.evaluating.command import main
from nmt.learned_metrics import comet
from tests.conftest import REPOSITORY

SOURCE, HYPOTHESIS, REFERENCE = ["a b", "c", "d e f"], ["x", "y z", ""], ["x", "y", "z"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source, translations and a reference in the working directory, and a model's folder."""
    for name, lines in (("src", SOURCE), ("hyp", HYPOTHESIS), ("other", REFERENCE), ("ref", REFERENCE)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "model" / "checkpoints").mkdir(parents=True)
    for name in ("hparams.yaml", "checkpoints/model.ckpt"):
        (tmp_path / "model" / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


class StandIn(types.ModuleType):
    """The names of the package that are called, and how."""

    def __init__(self) -> None:
        super().__init__("comet")
        self.loaded: list[str] = []
        self.asked: list[tuple[list[dict[str, str]], dict[str, Any]]] = []

    def download_model(self, name: str) -> str:
        if not name.startswith("Unbabel/"):
            raise KeyError(f"Model '{name}' not supported\nby COMET.")
        return f"fetched {name}"

    def load_from_checkpoint(self, path: str) -> StandIn:
        self.loaded.append(path)
        return self

    def predict(self, rows: list[dict[str, str]], **options: Any) -> types.SimpleNamespace:
        self.asked.append((rows, options))
        return types.SimpleNamespace(scores=[len(row["mt"]) / 10 for row in rows])


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    made = StandIn()
    made.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "comet", made)
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"unbabel-comet": "2.2.7"}[name])
    comet._network.cache_clear()
    yield made
    comet._network.cache_clear()


TEXTS = ["--hyp", "hyp", "--ref", "ref", "--source", "src"]


def test_sentences_are_scored_with_source_and_reference(
    files: Path, package: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TEXTS, "--metrics", "comet", "cometkiwi,batch_size=4", "--format", "json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in scores] == ["COMET", "CometKiwi"]
    assert [row["score"] for row in scores] == pytest.approx([40 / 3] * 2)
    assert scores[0]["signature"] == "model:Unbabel/wmt22-comet-da|version:2.2.7"
    assert package.loaded == ["fetched Unbabel/wmt22-comet-da", "fetched Unbabel/wmt22-cometkiwi-da"]
    (rows, options), (kiwi, others) = package.asked
    every = zip(SOURCE, HYPOTHESIS, REFERENCE, strict=True)
    assert rows == [{"src": src, "mt": mt, "ref": ref} for src, mt, ref in every]
    assert kiwi == [{"src": src, "mt": mt} for src, mt in zip(SOURCE, HYPOTHESIS, strict=True)]
    assert (options["batch_size"], others["batch_size"]) == (16, 4)
    assert options["gpus"] == int(torch.cuda.is_available()) and not options["progress_bar"]


def test_systems_are_compared_by_one_model(files: Path, package: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    """Each text is scored once, also for intervals, p-values and a table, which are made of the scores of sentences."""
    arguments = ["--hyp", "hyp", "other", *TEXTS[2:], "--confidence", "--samples", "20", "--format", "json"]
    assert main([*arguments, "--metrics", "comet,model=model", "--sentences", "scores.tsv"]) == 0
    _, other = json.loads(capsys.readouterr().out)
    (metric,) = other["metrics"]
    assert metric["baselines"][0]["p_value"] > 0.04 and metric["confidence"]["ci"] == 0
    assert package.loaded == [str(Path("model/checkpoints/model.ckpt"))]
    assert len(package.asked) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (
            ["--metrics", "comet,model=nowhere"],
            2,
            "comet: the model nowhere cannot be used (KeyError: ",
        ),
        (["--metrics", "comet,model=src"], 2, "metric comet: model: hparams.yaml: no such file"),
        (["--metrics", "comet,batch_size=0"], 2, "comet.batch_size: must be 1 or more, not 0"),
        (["--metrics", "comet", "--ref", "ref", "other"], 1, "comet: compares with one reference; 2 are given"),
    ],
)
def test_mistakes(
    files: Path,
    package: StandIn,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    problem: str,
) -> None:
    assert main([*TEXTS, *arguments]) == code
    out, err = capsys.readouterr()
    assert not out and problem in err and err.count("\n") == 1


def test_it_needs_the_sources_and_its_package(
    files: Path, package: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TEXTS[:4], "--metrics", "cometkiwi"]) == 2
    assert "--metrics cometkiwi: needs --source" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "comet", None)
    assert main([*TEXTS, "--metrics", "comet"]) == 2
    assert "metric comet: the package unbabel-comet is not installed; pip install 'nmt-recurrent[comet]'" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_tiny_models_are_loaded_by_the_package_itself(files: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """In an environment of its own, as it needs older versions of numpy and transformers; fetches them by pip."""
    folder = tmp_path_factory.mktemp("comet")
    python = folder / "environment/bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / "environment")], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    torch_version = torch.__version__.partition("+")[0]
    for what in ([f"torch=={torch_version}"], [f"{REPOSITORY}[comet]"]):
        done = subprocess.run([*pip, *what], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"the extra comet cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    (folder / "text").write_text("".join(f"the small dog of house {i} saw a cat, der Hund {i}\n" for i in range(60)))
    made = [str(python), str(Path(__file__).with_name("tiny_comet.py")), str(folder / "models"), str(folder / "text")]
    subprocess.run(made, env=environment, check=True, capture_output=True)
    models = [f"{name},model={folder / 'models' / name}" for name in ("comet", "cometkiwi")]
    command = [str(python), "-m", "nmt.evaluating.command", *TEXTS, "--metrics", *models, "--format", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=files)
    assert done.returncode == 0 and done.stderr == ""
    comet_score, kiwi = json.loads(done.stdout)
    assert 0 < comet_score["score"] < 100 and comet_score["score"] != kiwi["score"]
