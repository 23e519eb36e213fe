"""Translations of validations that are kept: whole, of the right weights, and the same after a kill."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nmt.cli import translate
from nmt.training.run_dir import KeptTranslations
from tests.tiny_training import events, nmt_train, write_config, write_corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def files(run: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in (run / "validation").iterdir()}


def test_each_validation_leaves_its_translations_also_after_a_kill(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = {"validate_every": 3, "save_every": 6, "keep_best": 0, "keep_last": 9, "lr": 0.05}
    config, run = write_config(folder, training=training, evaluation={"keep_translations": True}), folder / "run"
    assert nmt_train(config) == 0
    kept = files(run)
    assert sorted(kept) == [f"step-{step}.txt" for step in (12, 3, 6, 9)] and len(set(kept.values())) > 1
    for step in (6, 12):
        output = folder / "again"
        model = str(run / f"checkpoints/step-{step}")
        assert translate.main([model, "-i", str(folder / "dev.en"), "-o", str(output), "--device", "cpu"]) == 0
        assert output.read_text(encoding="utf-8") == kept[f"step-{step}.txt"]
    validation = events(run, kinds=("validation",))[-1]
    assert (validation["translations"], validation["translated"]) == ("step-12.txt", 8)
    assert f"8 translations in {run}/validation/step-12.txt" in capsys.readouterr().err
    shutil.rmtree(run / "checkpoints/step-12")
    assert nmt_train(config, "--set", "training.validate_every=4") == 0
    assert "2 files of translations, too" in capsys.readouterr().err
    assert files(run) == {**{name: kept[name] for name in ("step-3.txt", "step-6.txt", "step-12.txt")},
                          "step-8.txt": files(run)["step-8.txt"]}  # fmt: skip


def test_rewinding_leaves_what_is_valid_and_what_is_none_of_its_files(tmp_path: Path) -> None:
    kept = KeptTranslations(tmp_path)
    assert kept.rewind(0, validated=False) == 0
    for step in (2, 4, 6):
        kept.write(step, ["eins", "", "zwei"])
    (tmp_path / "validation/step-9.txt.mine").touch()
    assert kept.rewind(4, validated=True) == 1
    assert kept.rewind(4, validated=False) == 1
    assert files(tmp_path) == {"step-2.txt": "eins\n\nzwei\n", "step-9.txt.mine": ""}


def test_without_the_key_nothing_is_kept(folder: Path) -> None:
    assert nmt_train(write_config(folder, training={"max_steps": 1})) == 0
    assert not (folder / "run/validation").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"dev": None}}, "needs validation data in data.dev"),
        ({"evaluation": {"metrics": []}}, "needs evaluation.metrics"),
    ],
)
def test_what_the_key_needs(folder: Path, capsys: pytest.CaptureFixture[str], changes: dict, message: str) -> None:
    config = write_config(folder, **changes)
    assert nmt_train(config, "--set", "evaluation.keep_translations=true") == 2
    assert f"evaluation.keep_translations: {message}" in capsys.readouterr().err
