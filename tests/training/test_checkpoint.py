"""Checkpoints: which are kept, written whole or not at all, what a killed process leaves behind."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from nmt.errors import CheckpointError
from nmt.interop import run_layout
from nmt.training.run_dir import CheckpointStore, read_checkpoint
from nmt.training.state import Ranking, random_state, set_random_state


def store(run: Path, *, keep_last: int = 2, keep_best: int = 1) -> CheckpointStore:
    return CheckpointStore(run, keep_last=keep_last, keep_best=keep_best, config_text="seed: 1\n")


def save(checkpoints: CheckpointStore, step: int, *, ranking: Ranking | None = None, size: int = 3) -> Path:
    weights = {"w": torch.full((size,), float(step))}
    ranking = ranking or Ranking(metric="loss", higher_is_better=False)
    return checkpoints.save(step, weights=weights, state={"progress": {"step": step}}, ranking=ranking)


@pytest.mark.parametrize(
    ("keep_last", "keep_best", "higher", "kept", "best"),
    [
        (1, 1, False, [20, 50], [20]),
        (2, 1, False, [20, 40, 50], [20, 40]),
        (1, 2, True, [10, 50], [10, 50]),
        (1, 3, False, [20, 30, 40, 50], [20, 30, 40]),
        (3, 0, True, [30, 40, 50], [50, 40, 30]),
    ],
)
def test_newest_and_best_checkpoints_stay(
    tmp_path: Path, keep_last: int, keep_best: int, higher: bool, kept: list[int], best: list[int]
) -> None:
    checkpoints = store(tmp_path, keep_last=keep_last, keep_best=keep_best)
    ranking = Ranking(metric="bleu", higher_is_better=higher)
    for step, score in zip((10, 20, 30, 40, 50), (9.0, 1.0, 2.0, 3.0, 9.0), strict=True):
        ranking.add(step, score, regular=True)
        save(checkpoints, step, ranking=ranking)
    assert run_layout.checkpoint_steps(tmp_path) == kept
    assert run_layout.best_steps(tmp_path)[: len(best)] == best
    recorded = json.loads((tmp_path / "checkpoints" / "best.json").read_text())
    assert recorded["metric"] == "bleu"
    assert {row["step"] for row in recorded["steps"]} == set(kept)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == sorted(
        ["best.json", *(f"step-{step}" for step in kept)]
    )


def test_nan_scores_are_never_best() -> None:
    ranking = Ranking(metric="loss", higher_is_better=False)
    assert not ranking.add(1, float("nan"), regular=True)
    assert ranking.add(2, 5.0, regular=True)
    assert not ranking.add(3, float("nan"), regular=True)
    assert ranking.ranked() == [2] and ranking.without_best == 1


def test_patience_does_not_count_validations_out_of_turn() -> None:
    ranking = Ranking(metric="loss", higher_is_better=False)
    ranking.add(1, 3.0, regular=True)
    assert ranking.add(2, 2.0, regular=False), "it may be the best checkpoint"
    assert not ranking.add(3, 2.5, regular=True)
    assert ranking.without_best == 0, "but patience goes as if it had not been"


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writing fails beyond this many bytes in a file, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [2_000, 6_000])
def test_full_disk_is_one_clear_error_and_leaves_the_last_checkpoint(tmp_path: Path, limit: int) -> None:
    """At 2000 bytes the weights cannot be written, at 6000 the training state cannot."""
    checkpoints = store(tmp_path, keep_last=1)
    save(checkpoints, 1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    state = {"moments": torch.zeros(5_000)}
    ranking = Ranking(metric="loss", higher_is_better=False)
    with largest_file(limit), pytest.raises(CheckpointError, match="cannot be written.*last good checkpoint is step-1"):
        checkpoints.save(2, weights={"w": torch.zeros(1_000)}, state=state, ranking=ranking)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert read_checkpoint(run_layout.step_dir(tmp_path, 1)).state["progress"] == {"step": 1}


def test_what_a_killed_process_leaves_is_cleared_away(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    save(checkpoints, 1)
    folder = tmp_path / "checkpoints"
    (folder / ".writing-step-2-99").mkdir()
    (folder / ".deleting-step-0").mkdir()
    (folder / ".best.json-9999999-0123abcd").touch()
    os.utime(folder / ".best.json-9999999-0123abcd", (1, 1))
    (folder / "step-1").rename(folder / ".replaced-step-1")  # killed between two renames
    loaded = checkpoints.load_newest(warn=pytest.fail)
    assert loaded is not None and loaded.path == folder / "step-1"
    assert [path.name for path in folder.iterdir()] == ["step-1"]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    save(checkpoints, 1)
    save(checkpoints, 1, size=5)
    assert read_checkpoint(tmp_path / "checkpoints/step-1").weights["w"].numel() == 5
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-1"]


def test_damaged_checkpoints_do_not_count_as_kept(tmp_path: Path) -> None:
    """Else the next save would delete the good one it has just written or loaded."""
    checkpoints = store(tmp_path, keep_last=1)
    save(checkpoints, 5)
    save(store(tmp_path, keep_last=9), 10)
    (tmp_path / "checkpoints/step-10/model.safetensors").write_bytes(b"rubbish")
    warnings: list[str] = []
    loaded = checkpoints.load_newest(warn=warnings.append)
    assert loaded is not None and loaded.state["progress"] == {"step": 5}
    assert len(warnings) == 1 and "step-10: damaged checkpoint" in warnings[0]
    save(checkpoints, 6)
    assert run_layout.checkpoint_steps(tmp_path) == [6]


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut no name may stand for what never was written: files, then their directory, then the name."""
    done: list[tuple[str, str]] = []
    sync, rename = os.fsync, os.rename

    def synced(descriptor: int) -> None:
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        sync(descriptor)

    def renamed(source: str | Path, target: str | Path) -> None:
        done.append(("rename", Path(target).name))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    path = save(store(tmp_path), 1)
    named = done.index(("rename", "step-1"))
    before = [name for what, name in done[:named] if what == "sync"]
    assert {file.name for file in path.iterdir()} <= set(before)
    assert before[-1].startswith(".writing-step-1"), "the directory comes after its files"
    assert ("sync", "checkpoints") in done[named:], "the name itself is on the disk, too"


def test_random_states_survive_saving(tmp_path: Path) -> None:
    import random

    import numpy as np

    torch.save(random_state(), tmp_path / "state.pt")
    drawn = (random.random(), np.random.rand(), torch.rand(3).tolist())
    set_random_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert (random.random(), np.random.rand(), torch.rand(3).tolist()) == drawn
