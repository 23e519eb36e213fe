"""A run is used from any directory, and after it has moved together with its texts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from nmt.cli import translate
from nmt.config import load_saved
from nmt.report import command as report
from nmt.run_check import command as check
from nmt.shortlisting import command as shortlist
from tests.tiny_training import nmt_train, write_config, write_corpus

VOCABULARIES = {"source_vocab": "text/source", "target_vocab": "text/target"}


def relative(folder: Path, path: Path) -> dict[str, object]:
    """A configuration as people write it: its paths are relative to where they stand."""
    value: dict[str, object] = yaml.safe_load(path.read_text().replace(f"{folder}/text/", "text/"))
    return {**value, "run_dir": "runs/first"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with texts, vocabularies, a configuration and a run of one update."""
    text = tmp_path / "project" / "text"
    text.mkdir(parents=True)
    write_corpus(text)
    for side, language in (("source", "en"), ("target", "de")):
        words = sorted(set((text / f"train.{language}").read_text().split()))
        (text / side).write_text("".join(f"{word}\n" for word in words))
    (text / "terms").write_text("ba\tab\n")
    options = {"tokenizer_options": VOCABULARIES}
    config = write_config(
        text, data=options, training={"max_steps": 1}, decoding={"glossary": "text/terms", "max_length_offset": 3}
    )
    folder = tmp_path / "project"
    (folder / "c.yaml").write_text(yaml.safe_dump(relative(folder, config)))
    monkeypatch.chdir(folder)
    assert nmt_train(Path("c.yaml")) == 0
    return folder


def used(run: Path, folder: Path) -> None:
    """Whatever reads the files that a configuration names."""
    text = folder / "text"
    assert shortlist.main([str(run), "-o", str(folder / "list")]) == 0
    assert translate.main([str(run), "-i", str(text / "dev.en"), "-o", str(folder / "out"), "--device", "cpu"]) == 0
    page = ["--model", str(run), "--source", str(text / "dev.en"), "--ref", str(text / "dev.de"), "--device", "cpu"]
    assert report.main([*page, "--maps", "0", "-o", str(folder / "page.html")]) == 0
    assert str(text / "train.de") in (folder / "page.html").read_text()


def test_a_run_is_used_and_resumed_from_any_directory(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run = project / "runs" / "first"
    used(run, project)
    assert nmt_train(run / "config.yaml", "--set", "training.max_steps=2") == 0
    monkeypatch.chdir(project)
    assert nmt_train(Path("c.yaml"), "--set", "training.max_steps=3") == 0
    assert sorted(path.name for path in (run / "checkpoints").glob("step-*"))[-1] == "step-3"
    assert list(elsewhere.iterdir()) == []
    assert check.main([str(run)]) == 0 and "all is well" in capsys.readouterr().out


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_run_that_has_moved_with_its_texts_is_used_and_resumed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_copied: bool
) -> None:
    moved = tmp_path / "moved" / "here"
    moved.parent.mkdir()
    if is_copied:
        shutil.copytree(project, moved)
    else:
        project.rename(moved)
    monkeypatch.chdir(tmp_path)
    used(moved / "runs" / "first", moved)
    config = load_saved(moved / "runs" / "first" / "config.yaml")
    assert (config.run_dir, config.data.train) == (str(moved / "runs/first"), str(moved / "text/train"))
    monkeypatch.chdir(moved)
    assert nmt_train(Path("c.yaml"), "--set", "training.max_steps=2") == 0
    assert (moved / "runs/first/checkpoints/step-2").is_dir()
    assert not is_copied or not (project / "runs/first/checkpoints/step-2").exists()


def test_a_run_that_has_moved_alone_keeps_its_texts(project: Path, tmp_path: Path) -> None:
    (project / "runs" / "first").rename(tmp_path / "alone")
    config = load_saved(tmp_path / "alone" / "config.yaml")
    assert (config.run_dir, config.data.train) == (str(tmp_path / "alone"), str(project / "text/train"))
    assert config.data.tokenizer_options["source_vocab"] == str(project / "text/source")


def test_a_run_of_an_earlier_version_has_relative_paths(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = project / "runs" / "first"
    for file in (run / "config.yaml", run / "checkpoints" / "step-1" / "config.yaml"):
        file.write_text(file.read_text().replace(f"{project}/", ""))
    assert nmt_train(Path("c.yaml"), "--set", "training.max_steps=2") == 0
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace(f"{project}/", ""))
    used(run, project)
    monkeypatch.chdir(tmp_path)
    used(run, project)


def test_other_paths_of_the_same_files_are_not_other_values(project: Path) -> None:
    text = (project / "c.yaml").read_text()
    (project / "c.yaml").write_text(text.replace("text/", "./runs/../text/"))
    assert nmt_train(Path("c.yaml"), "--set", "training.max_steps=2") == 0
    (project / "text" / "more").write_bytes((project / "text" / "source").read_bytes())
    assert nmt_train(Path("c.yaml"), "--set", "data.tokenizer_options.source_vocab=text/more") == 2
