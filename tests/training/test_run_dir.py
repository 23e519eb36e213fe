"""The run directory: translations of validations that are kept, files written whole, differences at a resume."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import translate
from nmt.config import Config, load_config
from nmt.errors import ConfigError, DataError
from nmt.training.run_dir import check_resumable, kept_translations, rewind_translations, write_lines
from tests.tiny_training import events, nmt_train, write_config, write_corpus
from tests.training.test_checkpoint import largest_file


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
    assert rewind_translations(tmp_path, 0, validated=False) == 0
    for step in (2, 4, 6):
        write_lines(kept_translations(tmp_path, step), ["eins", "", "zwei"])
    (tmp_path / "validation/step-9.txt.mine").touch()
    assert rewind_translations(tmp_path, 4, validated=True) == 1
    assert rewind_translations(tmp_path, 4, validated=False) == 1
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


def configured(*, dropout: float = 0.1, **model: Any) -> Config:
    tokenizer = {"tokenizer": "sentencepiece", "tokenizer_options": {"model_type": "bpe", "bpe_dropout": dropout}}
    return load_config({"run_dir": "r", "data": tokenizer, "model": model})


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        (configured(dropout=0.2), ["  data.tokenizer_options.bpe_dropout: 0.1 -> 0.2"]),
        (
            configured(cell="ssru", cell_options={}),
            ["  model.cell: 'lrn' -> 'ssru'", "  model.cell_options: {'tanh': False} -> {"],
        ),
    ],
)
def test_the_options_that_differ_are_named_and_no_others(new: Config, lines: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        check_resumable(configured(), new, run=Path("r"))
    said = str(error.value).split("\n")[1:]
    assert len(said) == len(lines) and all(map(str.startswith, said, lines))


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines.txt"
    write_lines(path, ["one", "two"])
    with largest_file(1000), pytest.raises(DataError, match="lines.txt: cannot be written"):
        write_lines(path, ["a longer line"] * 1000)
    assert path.read_text(encoding="utf-8") == "one\ntwo\n"
    assert [file.name for file in path.parent.iterdir()] == ["lines.txt"]
