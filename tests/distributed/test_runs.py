"""Whole runs of several processes: they stop, fail, validate and resume together, whatever their number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.launch import Ranks
from tests.distributed.work import SIGINT, SIGKILL, SIGSTOP, SIGTERM, train_run
from tests.tiny_training import events, nmt_train, same, training_state, write_config, write_corpus

Start = Callable[..., Ranks]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def start(config: Path, *arguments: str, size: int = 2, timeout: float = 60, **tricks: tuple[str, Any]) -> Ranks:
    """nmt-train in several processes; `rank_1=("signal_at", (SIGTERM, 7))` is a trick that befalls one."""
    by_rank = {int(name.removeprefix("rank_")): trick for name, trick in tricks.items()}
    command = ["--config", str(config), *arguments]
    return Ranks(size, train_run, command, by_rank, folder=config.parent / "said", timeout=timeout)


def into(run: Path) -> tuple[str, str]:
    return "--set", f"run_dir={run}"


def test_resumed_run_of_two_equals_the_undisturbed_one_bit_for_bit(folder: Path) -> None:
    """With dropout. SIGTERM reaches rank 1 alone; both finish the update and rank 0 saves it."""
    config = write_config(folder, training={"accumulate": 2, "ema_decay": 0.9})
    straight, resumed = folder / "straight", folder / "resumed"
    assert start(config, *into(straight)).wait() == [0, 0]
    stopped = start(config, *into(resumed), rank_1=("signal_at", (SIGTERM, 7)))
    assert stopped.wait() == [143, 143]
    assert "stopped by SIGTERM at update 8" in stopped.said(0)[-2]
    assert not stopped.said(1), "rank 0 speaks for all"
    assert start(config, *into(resumed)).wait() == [0, 0]
    assert same(training_state(straight, 12), training_state(resumed, 12))
    weights = [(run / "checkpoints/step-12/model.safetensors").read_bytes() for run in (straight, resumed)]
    assert weights[0] == weights[1]
    interruption = [event for event in events(resumed) if event["step"] == 8]
    assert [event["event"] for event in interruption] == ["checkpoint"]
    assert [event for event in events(resumed) if event not in interruption] == events(straight)


def test_a_run_moves_between_numbers_of_processes(folder: Path) -> None:
    """3 updates by one process, 3 by two, 3 by three and the rest by one: the run that one does, but for rounding.

    With dropout, of which the processes' masks are those of one.
    """
    changes = {"accumulate": 2, "validate_every": 3, "save_every": 3, "log_every": 3, "keep_last": 9, "average_last": 2}
    changes |= {"sample_every": 2}
    config = write_config(
        folder, model={"dropout": 0.3, "recurrent_dropout": 0.2}, training=changes,
        evaluation={"metrics": ["chrf"]}, data={"test": str(folder / "dev")},
    )  # fmt: skip
    alone, moved = folder / "alone", folder / "moved"
    assert nmt_train(config, *into(alone)) == 0
    for steps, size in ((3, 1), (6, 2), (9, 3), (12, 1)):
        limit = (*into(moved), "--set", f"training.max_steps={steps}")
        if size == 1:
            assert nmt_train(config, *limit) == 0
        else:
            assert start(config, *limit, size=size).wait() == [0] * size
    ours, theirs = events(alone), events(moved)
    assert len(ours) == len(theirs) == 12
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert other[key] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), key
    samples = [[event["samples"] for event in events(run, kinds=("samples",))] for run in (alone, moved)]
    assert samples[0] == samples[1] and len(samples[0]) == 6
    states = [training_state(run, 12) for run in (alone, moved)]
    exact = ("step", "epoch", "batch", "target_tokens", "epoch_batches", "skipped", "validated_step")
    assert [states[0]["progress"][name] for name in exact] == [states[1]["progress"][name] for name in exact]
    for name in ("test.de", "test.average.de"):
        assert (alone / name).read_text(encoding="utf-8") == (moved / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("size", [2, 3])
def test_every_development_line_counts_once_and_in_order(folder: Path, size: int) -> None:
    """The same weights, validated by one process and by several: the same scores to the last bit, and samples.

    The test text, too, is translated by all of them.
    """
    config = write_config(
        folder, model={"init_range": 2.0}, training={"max_steps": 3, "lr": 1e-30},
        evaluation={"metrics": ["chrf"], "samples": 8}, data={"test": str(folder / "dev")},
    )  # fmt: skip
    runs = folder / "alone", folder / "together"
    assert nmt_train(config, *into(runs[0])) == 0
    assert start(config, *into(runs[1]), size=size).wait() == [0] * size
    one, other = (events(run, kinds=("validation",)) for run in runs)
    assert one == other and len(one) == 1
    assert len(one[0]["samples"]) == 6
    translated, shared = ((run / "test.de").read_text(encoding="utf-8").split("\n")[:-1] for run in runs)
    assert shared == translated != [line for rank in range(size) for line in translated[rank::size]]


def test_early_stop_ends_all(folder: Path) -> None:
    training = {"max_steps": None, "max_epochs": 9, "patience": 2, "validate_every": 2, "lr": 1.0}
    run = start(write_config(folder, training=training))
    assert run.wait() == [0, 0]
    assert any("no better loss in 2 validations" in line for line in run.said(0))


def test_the_time_of_one_is_the_time_of_all(folder: Path) -> None:
    run = start(write_config(folder), "--max-minutes", "9", rank_1=("late_after", 5))
    assert run.wait() == [0, 0]
    said = "\n".join(run.said(0))
    assert "the time limit is reached at update" in said and "the same command resumes this run" in said
    assert [event["step"] for event in events(folder / "run", kinds=("validation", "checkpoint"))] == [5, 5]


def test_cpu_time_is_that_of_all_together(folder: Path) -> None:
    budget = "--max-cpu-minutes", str(14 / 60)
    costs = {f"rank_{rank}": ("cpu_seconds_per_update", 1.0 + rank) for rank in range(2)}
    run = start(write_config(folder), *budget, **costs)
    assert run.wait() == [0, 0]
    assert any("the budget of 14 CPU seconds is used at update 5" in line for line in run.said(0))
    lines = [json.loads(line) for line in (folder / "run/log.jsonl").read_text(encoding="utf-8").splitlines()]
    counted = [(line["event"], line["cpu_seconds"]) for line in lines if line["event"] in ("train", "validation")]
    assert counted == [("train", 9.0), ("validation", 15.0)]


def test_ctrl_c_in_validation_breaks_it_off_everywhere(folder: Path) -> None:
    config = write_config(folder)
    run = start(config, rank_1=("signal_in_validation", SIGINT))
    assert run.wait() == [130, 130]
    assert any("validation interrupted" in line for line in run.said(0))
    assert [event["step"] for event in events(folder / "run", kinds=("checkpoint",))] == [6]
    assert start(config).wait() == [0, 0]
    assert [event["step"] for event in events(folder / "run", kinds=("validation",))] == [6, 12]


def test_a_killed_rank_ends_the_others_with_a_line_and_the_run_resumes(folder: Path) -> None:
    config = write_config(folder, training={"save_every": 2})
    run = start(config, size=3, rank_1=("signal_at", (SIGKILL, 5)))
    assert run.wait(30) == [1, -SIGKILL, 1]
    for rank in (0, 2):
        assert run.said(rank)[-1].startswith(f"nmt-train: rank {rank} of 3: lost contact with another process while ")
    assert len(run.said(2)) == 1
    assert start(config).wait() == [0, 0]
    assert "resuming" in (folder / "run/train.log").read_text(encoding="utf-8")
    assert events(folder / "run", kinds=("end",))[-1]["finished"]


def test_a_hanging_rank_ends_the_others_after_the_timeout(folder: Path) -> None:
    run = start(write_config(folder), timeout=2, rank_1=("signal_at", (SIGSTOP, 5)))
    run.processes[0].join(30)
    assert run.processes[0].exitcode == 1
    assert run.said(0)[-1].startswith("nmt-train: rank 0 of 2: lost contact with another process while ")
    run.processes[1].kill()
    run.wait()


@pytest.mark.parametrize(
    ("trick", "message", "code"),
    [
        (("add_arguments", ["--set", "seed=5"]), "the same configuration: rank 0 differs from 1", 1),
        (("add_arguments", ["--set", "seed=x"]), "seed: ", 2),
        (("other_weights", 3), "the same weights: rank 0 differs from 1", 1),
    ],
)  # fmt: skip
def test_ranks_that_differ_end_with_a_line_each(folder: Path, trick: tuple[str, Any], message: str, code: int) -> None:
    run = start(write_config(folder), rank_1=trick)
    codes = run.wait()
    assert codes[1] == code and codes[0] in (1, code)
    errors = [line for rank in (0, 1) for line in run.said(rank) if line.startswith("nmt-train: ")]
    assert len(errors) == 2
    assert any(message in line or message in "\n".join(run.said(1)) for line in errors)
    assert not (folder / "run/checkpoints/step-6").exists()


def test_a_run_directory_that_is_not_shared_is_named(folder: Path) -> None:
    """Two machines, each with a directory of that name."""
    (folder / "machine-0").mkdir()
    (folder / "machine-1").mkdir()
    tricks = {f"rank_{rank}": ("elsewhere", folder / f"machine-{rank}") for rank in (0, 1)}
    run = start(write_config(folder), "--set", "run_dir=run", **tricks)
    assert run.wait()[1] == 1
    assert "run: rank 0 has a run there, but it is not visible to this process" in run.said(1)[-1]
    assert not list((folder / "machine-1").iterdir())


@pytest.mark.parametrize("rank", [0, 1])
def test_a_checkpoint_that_one_rank_cannot_read_ends_all_and_stays(folder: Path, rank: int) -> None:
    config = write_config(folder)
    assert nmt_train(config) == 0
    before = sorted((folder / "run/checkpoints").iterdir())
    log = (folder / "run/log.jsonl").read_text()
    run = start(config, "--set", "training.max_steps=13", **{f"rank_{rank}": ("unreadable", "step-12/training.pt")})
    assert run.wait() == [1, 1]
    for each in (0, 1):
        (line,) = run.said(each)
        assert "step-12/training.pt: cannot be read now: Stale file handle; nothing has been changed" in line
    assert sorted((folder / "run/checkpoints").iterdir()) == before
    assert (folder / "run/log.jsonl").read_text() == log


def test_what_rank_0_cannot_do_the_others_do_not_wait_for(folder: Path) -> None:
    config = write_config(folder)
    (folder / "train.en").unlink()
    run = start(config)
    assert run.wait() == [1, 1]
    for rank in (0, 1):  # both look for the file: who finds out first tells the other
        assert run.said(rank)[0].startswith(f"nmt-train: rank {rank} of 2: ")
        assert "train.en" in " ".join(run.said(rank))
