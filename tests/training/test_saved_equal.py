"""What a run saves at its start loads back equal: odd words of the text, names that look like numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.cli import translate
from nmt.config import load_saved
from nmt.data.saved_tokenizer import load_tokenizer
from nmt.interop import run_layout
from nmt.interop.model_dir import load_model
from nmt.optimization import average
from nmt.run_check import command as check
from tests.tiny_training import nmt_train, training_state, write_config, write_corpus


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["3e-4", "08"])
def test_a_run_whose_name_looks_like_a_number(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, training={"max_steps": 1})
    assert nmt_train(config, "--set", f"run_dir='{name}'") == 0
    assert nmt_train(config, "--set", f"run_dir='{name}'", "--set", "training.max_steps=2") == 0
    assert check.main([name]) == 0
    capsys.readouterr()
    assert nmt_train(config, "--set", f"run_dir='{name}'", "--dump-config") == 0
    (folder / "dumped.yaml").write_text(capsys.readouterr().out)
    assert load_saved("dumped.yaml").run_dir == name
    assert load_saved(Path(name, "config.yaml")).run_dir == str(folder / name)


def test_a_carriage_return_inside_a_word(folder: Path) -> None:
    for language in ("en", "de"):
        with (folder / f"train.{language}").open("ab") as stream:
            stream.write(b" \r x\nba\r x\n")
    config = write_config(folder, training={"max_steps": 1})
    assert nmt_train(config) == 0
    assert nmt_train(config, "--set", "training.max_steps=2") == 0
    assert check.main(["run"]) == 0
    (folder / "in").write_bytes(b" \r x\n")
    assert translate.main(["run", "-i", "in", "-o", "out"]) == 0
    loaded = load_model("run")
    assert loaded.tokenizer.source_tokens(loaded.tokenizer.encode_source(["ba\r \r x"])[0]) == ["ba\r", "\r", "x"]


def test_nothing_begins_with_a_tokenizer_that_does_not_load_back(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.data.vocabulary._is_saved", lambda path: False)  # as versions before read their own files
    (folder / "train.en").write_bytes(b"ba\r x ba\n")
    (folder / "train.de").write_bytes(b"ba x\n")
    assert nmt_train(write_config(folder)) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert "run/tokenizer: this tokenizer would not load again" in line
    assert not (folder / "run").exists() or not (folder / "run/tokenizer").exists()


def test_older_runs_get_checksums_when_they_go_on_and_averages_have_them(folder: Path) -> None:
    config = write_config(folder, training={"max_steps": 1})
    assert nmt_train(config) == 0
    (folder / "run/tokenizer/checksums.json").unlink()
    assert average.main(["run", "--last", "1", "-o", "averaged"]) == 0
    assert nmt_train(config, "--set", "training.max_steps=2") == 0
    before = (folder / "run/tokenizer/checksums.json").read_bytes()
    saved = load_saved(folder / "run/config.yaml")
    (folder / "averaged/tokenizer/source.vocab").write_text("other\n")
    (folder / "run/tokenizer/source.vocab").write_text("other\n")
    for model in ("averaged", "run"):
        with pytest.raises(Exception, match="source.vocab: changed since it was saved"):
            load_tokenizer(model, saved)
    assert nmt_train(config, "--set", "training.max_steps=3") == 1
    assert (folder / "run/tokenizer/checksums.json").read_bytes() == before
    assert run_layout.last_step(Path("run")) == 2 and training_state(Path("run"), 2)
