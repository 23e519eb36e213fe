"""Loading: several models, other checkpoints, number formats; mistakes in the arguments; the end of a translator."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.library.loading import prepare_search
from nmt.ops.dispatch import selection
from nmt.system import CACHES, WAITING
from tests.library.conftest import SENTENCES


def test_several_models_are_an_ensemble(tiny_run: Path, local: nmt.Translator) -> None:
    paths = [tiny_run / "checkpoints/step-10", str(tiny_run / "checkpoints/step-20")]
    with nmt.load(paths, device="cpu") as both:
        assert [path.name for path in both.models] == ["step-10", "step-20"]
        assert "ensemble of 2 models" in repr(both)
        assert [r.score for r in both.translate(SENTENCES)] != [r.score for r in local.translate(SENTENCES)]


def test_another_checkpoint_and_number_format(tiny_run: Path) -> None:
    with nmt.load(tiny_run, device="cpu", checkpoint=20, precision="int8") as translator:
        assert translator.models[0].name == "step-20"
        assert translator.precision == "int8"
        assert len(translator.translate(SENTENCES)) == len(SENTENCES)


def test_lines_longer_than_in_the_training_of_any_model_are_noted(tiny_run: Path, tmp_path: Path) -> None:
    """Each alone was trained on other lengths; the order of the models does not matter."""
    paths = [tmp_path / "short", tmp_path / "long"]
    for path, step, longest in zip(paths, (10, 20), (3, 9), strict=True):
        shutil.copytree(tiny_run / f"checkpoints/step-{step}", path)
        shutil.copytree(tiny_run / "tokenizer", path / "tokenizer")
        (path / "facts.json").write_text(f'{{"longest_source": {longest}}}')
    for models in (paths, paths[::-1]):
        with nmt.load(models, device="cpu") as both:
            assert "longer_than_training" not in both.translate("a b c").notes
            assert "longer_than_training" in both.translate("a b c d").notes


def test_a_path_may_begin_with_the_home_directory(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tiny_run.parent))
    with nmt.load(Path("~") / tiny_run.name, device="cpu") as translator:
        assert translator.models == [tiny_run / "checkpoints/step-10"]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"device": "gpu"}, nmt.ConfigError, "device: 'gpu' is not allowed. Allowed: auto, cpu, cuda, or cuda:N."),
        ({"precision": "fp8"}, nmt.ConfigError, "precision: 'fp8' is not allowed. Allowed: auto, fp32, bf16, int8."),
        ({"checkpoint": "newest"}, nmt.ConfigError, "checkpoint: 'newest' is not allowed. Allowed: best, last, or"),
        ({"path": "missing"}, nmt.CheckpointError, "missing: no such directory; give a run"),
        ({"path": []}, nmt.ConfigError, "path: no model is given"),
        ({"path": 3}, TypeError, "path must be a path or a list of paths, not int 3"),
        ({"plugins": "missing.py"}, nmt.ConfigError, "plugins: missing.py: no such file"),
    ],
)
def test_mistakes_are_one_line(tiny_run: Path, arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    given = {"path": tiny_run, "device": "cpu", **arguments}
    with pytest.raises(kind) as caught:
        nmt.load(**given)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_closed_translator_says_so(tiny_run: Path) -> None:
    translator = nmt.load(tiny_run, device="cpu")
    translator.close()
    translator.close()
    for call in (lambda: translator.translate("a"), lambda: translator.score("a", "b"), lambda: translator.stream([])):
        with pytest.raises(nmt.NmtError, match="this translator is closed"):
            call()


def test_after_a_fork_it_is_to_be_loaded_again(local: nmt.Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(nmt.NmtError, match="call nmt.load after forking"):
        local.translate("a")


def test_loading_leaves_the_kernels_of_the_process(tiny_run: Path) -> None:
    before = selection()
    with nmt.load(tiny_run, device="cpu") as translator:
        translator.translate("a b")
        assert selection() is before


CLEAN = {name: value for name, value in os.environ.items() if name not in (*WAITING, *CACHES, "OMP_NUM_THREADS")}
"""An environment without settings of the user's own."""


def said_by(program: str, **settings: str) -> tuple[str, list[str]]:
    """What a program writes to standard output, and the lines of its standard error."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, env={**CLEAN, **settings}, check=True)
    return done.stdout.strip(), done.stderr.splitlines()


def test_where_torch_is_not_there_yet_it_makes_the_settings_of_the_commands(tiny_run: Path) -> None:
    program = f"""
        import os, sys, nmt
        translator = nmt.load({str(tiny_run)!r}, device="cpu")
        print(os.environ["GOMP_SPINCOUNT"], repr(translator).rpartition(", ")[2], translator.translate("a b").text)
    """
    said, warned = said_by(program)
    assert said.startswith("1000 in this process> ") and warned == []


def test_where_torch_came_first_it_makes_the_settings_that_torch_still_takes_and_names_the_other_once(
    tiny_run: Path,
) -> None:
    program = f"""
        import os, torch, nmt
        calls = []
        torch.set_num_threads(3)
        from nmt.library import loading as environment
        environment.keep_large_blocks = lambda: calls.append("allocator")
        environment.usable_cores, environment.available_cores = (lambda: 2), (lambda: 4)
        for _ in range(2):
            translator = nmt.load({str(tiny_run)!r}, device="cpu", worker=True)
        print(os.environ.get("LRU_CACHE_CAPACITY"), os.environ.get("GOMP_SPINCOUNT"), torch.get_num_threads(), calls)
    """
    said, warned = said_by(program)
    assert said == "512 None 2 ['allocator', 'allocator']"
    ignored, spinning = warned
    assert ignored.startswith("worker: has no effect any more")
    assert spinning.startswith("torch was imported before nmt.load, so its threads spin while they wait: ")
    said, warned = said_by(program.replace(", worker=True", ""), GOMP_SPINCOUNT="0")
    assert said == "None 0 3 []" and warned == []  # the user's own settings


def test_a_gpu_needs_no_settings_of_threads(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("nmt.library.loading.is_prepared", lambda: False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for device in ("auto", "cuda:1"):
        prepare_search(device)
    assert caplog.records == []
