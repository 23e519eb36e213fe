"""Training that starts from the weights of another model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from nmt.interop import run_layout
from nmt.interop.run_layout import read_facts
from tests.tiny_training import nmt_train, write_config, write_corpus


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    """A trained run, moved away from where tiny.yaml trains."""
    write_corpus(tmp_path)
    assert nmt_train(write_config(tmp_path)) == 0
    (tmp_path / "run").rename(tmp_path / "teacher")
    return tmp_path / "teacher"


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step}" / "model.safetensors")


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_the_weights_are_taken_over_and_nothing_else(teacher: Path, ema: float) -> None:
    folder = teacher.parent
    still = {"lr": 1e-30, "max_steps": 1, "ema_decay": ema}
    assert (
        nmt_train(write_config(folder, training={**still, "init_from": str(teacher / "checkpoints" / "step-12")})) == 0
    )
    theirs, ours = weights(teacher, 12), weights(folder / "run", 1)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert "starting from the weights in" in (folder / "run" / "train.log").read_text()


def test_architecture_and_tokenizer_come_with_the_model(teacher: Path) -> None:
    """Other text would make another vocabulary, and other sizes are the defaults; what is free may differ."""
    folder = teacher.parent
    for language in ("en", "de"):
        lines = (folder / f"dev.{language}").read_text(encoding="utf-8")
        (folder / f"train.{language}").write_text(lines, encoding="utf-8")
    path = write_config(folder, training={"lr": 1e-30, "max_steps": 1, "init_from": str(teacher)})
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    raw["model"] = {"dropout": 0.0, "init_range": 0.1}
    del raw["data"]["tokenizer"]
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    assert nmt_train(path) == 0
    theirs, ours = weights(teacher, 12), weights(folder / "run", 1)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    names = {"source.vocab", "target.vocab"}
    for name in names:
        assert (folder / "run" / "tokenizer" / name).read_bytes() == (teacher / "tokenizer" / name).read_bytes()
    shutil.rmtree(teacher)
    assert nmt_train(path, "--set", "training.max_steps=2") == 0, "resumed"


def test_of_a_run_the_weights_are_those_of_its_best_checkpoint(teacher: Path) -> None:
    rows = (run_layout.Scored(6, 1.0), run_layout.Scored(12, 2.0))
    run_layout.write_best(teacher, run_layout.Best("loss", rows))
    still = {"lr": 1e-30, "max_steps": 1, "init_from": str(teacher)}
    assert nmt_train(write_config(teacher.parent, training=still)) == 0
    ours = weights(teacher.parent / "run", 1)
    same = {
        step: all(torch.equal(ours[name], theirs) for name, theirs in weights(teacher, step).items())
        for step in (6, 12)
    }
    assert same == {6: True, 12: False}


def test_the_longest_source_that_a_model_has_read_is_kept_with_it(teacher: Path) -> None:
    """The later training text has the same words in lines of two."""
    folder, longest = teacher.parent, read_facts(teacher).longest
    for language in ("en", "de"):
        path = folder / f"train.{language}"
        words = path.read_text(encoding="utf-8").split()
        lines = (" ".join(words[first : first + 2]) for first in range(0, len(words), 2))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert longest is not None and longest > 2
    assert nmt_train(write_config(folder, training={"max_steps": 1, "init_from": str(teacher)})) == 0
    assert read_facts(folder / "run").longest == longest
    assert nmt_train(write_config(folder, training={"max_steps": 2, "init_from": str(teacher)})) == 0, "resumed"
    assert read_facts(folder / "run").longest == longest


def test_resuming_needs_the_model_no_more(teacher: Path) -> None:
    folder = teacher.parent
    assert nmt_train(write_config(folder, training={"max_steps": 6, "init_from": str(teacher)})) == 0
    shutil.rmtree(teacher)
    assert nmt_train(write_config(folder, training={"max_steps": 12, "init_from": str(teacher)})) == 0
    assert (folder / "run" / "checkpoints" / "step-12").is_dir()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"init_from": "nowhere"}}, "training.init_from: nowhere: no such directory"),
        ({"model": {"hidden_size": 16}}, "model.hidden_size: 16 is not what training.init_from has, 8"),
        ({"data": {"tokenizer_options": {"min_count": 20}}}, "min_count: 20 is not what training.init_from has, 1"),
        ({"data": {"tokenizer_options": {"source_vocab": "words"}}}, "has another tokenizer than this run"),
    ],
)
def test_what_does_not_fit(
    teacher: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, dict[str, object]],
    message: str,
) -> None:
    capsys.readouterr()
    monkeypatch.chdir(teacher.parent)
    Path("words").write_text("ba\nbe\n", encoding="utf-8")
    config = write_config(teacher.parent, **{"training": {"init_from": str(teacher)}, **changes})
    assert nmt_train(config) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error and not (teacher.parent / "run" / "checkpoints").exists()
    assert nmt_train(write_config(teacher.parent, training={"init_from": str(teacher)})) == 0, "a mistake can be mended"
