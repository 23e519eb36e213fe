"""The end of a run: the test text by the best checkpoint and by the average of the last ones, also after kills."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nmt.cli import translate
from nmt.tasks import translation
from nmt.training import run as runs
from nmt.training.run_dir import average_weights
from tests.tiny_training import events, nmt_train, write_config, write_corpus

KINDS = ("average", "test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def configured(folder: Path, **training: Any) -> Path:
    changes = {"average_last": 2, "validate_every": 3, "max_steps": 9} | training
    return write_config(folder, data={"test": str(folder / "dev")}, training=changes, evaluation={"metrics": ["chrf"]})


def translated(folder: Path, model: Path) -> str:
    output = folder / "again.de"
    assert translate.main([str(model), "-i", str(folder / "dev.en"), "-o", str(output), "--device", "cpu"]) == 0
    return output.read_text(encoding="utf-8")


def test_average_of_the_last_is_scored_beside_the_best(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder / "run"
    assert nmt_train(configured(folder, lr=0.05)) == 0
    files = [run / f"checkpoints/step-{step}/model.safetensors" for step in (6, 9)]
    expected, found = average_weights(files), load_file(run / "average/model.safetensors")
    assert expected.keys() == found.keys() and all(torch.equal(expected[name], found[name]) for name in found)
    average, best, mean = events(run, kinds=("average", "test"))[1:2] + events(run, kinds=("test",))
    assert average["checkpoints"] == ["step-6", "step-9"]
    assert (best["checkpoint"], mean["checkpoint"]) == ("step-9", "average")
    assert best["chrf"] != mean["chrf"] and best["signatures"] == mean["signatures"]
    said = capsys.readouterr().err
    for event in (best, mean):
        assert f"test chrF2 = {event['chrf']:.2f} with {event['checkpoint']}  nrefs:1|" in said
    assert (run / "test.de").read_text(encoding="utf-8") == translated(folder, run)
    assert (run / "test.average.de").read_text(encoding="utf-8") == translated(folder, run / "average")
    capsys.readouterr()
    assert nmt_train(configured(folder, lr=0.05)) == 0
    assert "nothing to do, this run is finished" in capsys.readouterr().err
    assert nmt_train(configured(folder, lr=0.05, average_last=1)) == 0, "asked for only now"
    assert [event.get("checkpoints") for event in events(run, kinds=KINDS)] == [None, ["step-9"], None]
    weights = (load_file(run / path / "model.safetensors") for path in ("average", "checkpoints/step-9"))
    assert all(torch.equal(one, other) for one, other in zip(*(w.values() for w in weights), strict=True))


def test_the_test_text_is_translated_by_the_best_checkpoint_not_by_the_last(folder: Path) -> None:
    """At such a rate all are equal, and of these the first is the best."""
    still = {"lr": 1e-30, "early_stopping_metric": "loss", "average_last": 0, "max_steps": 6}
    assert nmt_train(configured(folder, **still)) == 0
    assert [event["checkpoint"] for event in events(folder / "run", kinds=("test",))] == ["step-3"]


@pytest.mark.parametrize("place", ["average_checkpoints", "read_weights", "write_lines"])
def test_what_a_kill_left_undone_is_done_by_the_same_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    run, config = folder / "run", configured(folder)
    with monkeypatch.context() as patch:
        owner = translation if place == "write_lines" else runs
        patch.setattr(owner, place, lambda *arguments, **options: (_ for _ in ()).throw(KeyboardInterrupt))
        assert nmt_train(config) == 130
    assert not (run / "test.average.de").exists()
    for leftover in (".writing-average-1", ".deleting-average"):
        (run / leftover).mkdir()
        (run / leftover / "config.yaml").touch()
    assert nmt_train(config) == 0
    assert [event["event"] for event in events(run, kinds=KINDS)] == ["test", "average", "test"], "each is told once"
    assert (run / "average/model.safetensors").is_file() and (run / "test.average.de").is_file()
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


def test_what_an_earlier_end_left_does_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = folder / "run"
    assert nmt_train(configured(folder, max_steps=3)) == 0
    before = (run / "average/model.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("nmt.training.run.finish", lambda *arguments, **options: (_ for _ in ()).throw(KeyboardInterrupt))
        assert nmt_train(configured(folder)) == 130
    assert nmt_train(configured(folder)) == 0
    assert (run / "average/model.safetensors").read_bytes() != before
    assert [event["step"] for event in events(run, kinds=KINDS)] == [3, 3, 3, 9, 9, 9]


def test_fewer_checkpoints_than_asked_for_are_averaged_and_that_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nmt_train(configured(folder, max_steps=3)) == 0
    said = capsys.readouterr().err
    assert f"averaged step-3 into {folder}/run/average (training.average_last is 2, but there are no more)" in said


def test_without_test_text_there_is_still_an_average(folder: Path) -> None:
    config = write_config(folder, training={"average_last": 2})
    assert nmt_train(config) == 0
    assert (folder / "run/average/model.safetensors").is_file() and not events(folder / "run", kinds=("test",))


def test_more_than_are_kept_is_a_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(configured(folder, average_last=3)) == 2
    assert "training.average_last: averages 3 checkpoints, but training.keep_last keeps 2" in capsys.readouterr().err


def test_a_directory_of_somebody_else_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = folder / "run/average/notes"
    theirs.mkdir(parents=True)
    assert nmt_train(configured(folder)) == 1
    assert f"{folder}/run/average: is in the way of training.average_last" in capsys.readouterr().err.splitlines()[-1]
    assert theirs.is_dir() and not (folder / "run/checkpoints").exists()
    shutil.rmtree(theirs.parent)
    assert nmt_train(configured(folder, max_steps=1)) == 0
