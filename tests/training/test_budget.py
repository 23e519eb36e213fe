"""A budget of CPU time: where it ends a run, what counts, and that the run goes on as if it had not been stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt
from nmt.cli import train
from nmt.library import training as library
from nmt.training.state import Budget, Limits, Outlook, Progress, Ranking, TimeLeft, duration
from nmt.training.update import Updater
from nmt.training.validation import Validator
from tests.tiny_training import events, nmt_train, same, training_state, write_config, write_corpus

START, UPDATE, VALIDATION = 0.5, 1.0, 0.25
"""CPU seconds that a command takes before its first update, an update and a validation, by the faked clock."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _faked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command has a clock that only updates and validations move."""
    clocks: list[Any] = []

    class FakeClock:
        def __init__(self) -> None:
            self.used = START
            clocks.append(self)

        def seconds(self) -> float:
            return self.used

    def costs(cls: type, name: str, seconds: float) -> None:
        original = getattr(cls, name)

        def method(self: Any, *arguments: Any, **options: Any) -> Any:
            clocks[-1].used += seconds
            return original(self, *arguments, **options)

        monkeypatch.setattr(cls, name, method)

    costs(Updater, "update", UPDATE)
    costs(Validator, "validate", VALIDATION)
    monkeypatch.setattr(train, "CpuClock", FakeClock)
    monkeypatch.setattr(library, "CpuClock", FakeClock)


def cpu_seconds(run: Path, kind: str) -> list[float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["cpu_seconds"] for line in lines if line["event"] == kind]


def test_the_budget_ends_a_run_which_a_larger_one_continues_as_if_nothing_had_been(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped between two log lines and two validations: log, weights and training state as in one go."""
    training = {"max_steps": 10**6, "log_every": 4, "validate_every": 6}
    config = write_config(folder, training=training)
    alone, run = folder / "alone", folder / "run"
    # Updates and one validation: 0.5 + 12 + 2 * 0.25 = 13 seconds for 12 updates
    assert nmt_train(config, "--max-cpu-minutes", str(13 / 60), "--set", f"run_dir={alone}") == 0
    assert "training until update 1000000 or 13 CPU seconds are used; " in capsys.readouterr().err
    assert events(alone)[-1] == {"event": "checkpoint", "step": 12, "epoch": 0.8, "path": "step-12"}
    assert cpu_seconds(alone, "train") == [4.5, 8.75, 12.75]
    assert cpu_seconds(alone, "validation") == [6.75, 13.0] and cpu_seconds(alone, "end") == [13.0]

    assert nmt_train(config, "--max-cpu-minutes", str(5.5 / 60)) == 0
    said = capsys.readouterr().err
    assert "the budget of 5.5 CPU seconds is used at update 5, epoch 0.33" in said
    assert "translate with: " in said and "the same command" not in said
    # The validation that the budget adds, 0.25, counts, as does the start of the second command, 0.5.
    assert cpu_seconds(run, "validation") == [5.75]
    assert nmt_train(config, "--max-cpu-minutes", str(13.75 / 60)) == 0
    assert "or 13.8 CPU seconds are used, of which 5.8 seconds were used before; " in capsys.readouterr().err
    assert cpu_seconds(run, "start") == [0.5, 6.25]
    assert cpu_seconds(run, "validation") == [5.75, 7.5, 13.75]
    assert events(run, kinds=("train",)) == events(alone, kinds=("train",))
    states = [training_state(folder, 12) for folder in (run, alone)]
    del states[0]["ranking"]["scores"][5]
    assert same(*states)
    weights = [(folder / "checkpoints/step-12/model.safetensors").read_bytes() for folder in (run, alone)]
    assert weights[0] == weights[1]


def test_a_run_that_has_used_its_budget_is_finished(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, training={"max_steps": None})
    arguments = "--max-cpu-minutes", str(3 / 60)
    assert nmt_train(config, *arguments) == 0
    before = (folder / "run/log.jsonl").read_bytes()
    capsys.readouterr()
    assert nmt_train(config, *arguments) == 0
    assert "nothing to do, this run is finished: the budget of 3 CPU seconds is used" in capsys.readouterr().err
    assert (folder / "run/log.jsonl").read_bytes() == before
    assert nmt_train(config, "--set", "training.max_steps=4") == 0
    assert (folder / "run/checkpoints/step-4").is_dir()


def test_a_budget_that_the_start_uses_leaves_a_resumable_run(folder: Path) -> None:
    config = write_config(folder)
    assert nmt_train(config, "--max-cpu-minutes", str(START / 60)) == 0
    assert events(folder / "run", kinds=("end",))[0]["step"] == 0
    assert nmt_train(config) == 0
    assert events(folder / "run", kinds=("end",))[-1]["step"] == 12


def test_a_run_of_a_version_without_it_counts_from_its_resume(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder)
    assert nmt_train(config, "--set", "training.max_steps=6") == 0
    run = folder / "run"
    checkpoint = run / "checkpoints/step-6"
    state = torch.load(checkpoint / "training.pt", weights_only=True)
    del state["progress"]["cpu_seconds"]
    torch.save(state, checkpoint / "training.pt")
    (checkpoint / "SHA256SUMS").unlink()  # as the version before them
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    old = ({key: value for key, value in line.items() if key != "cpu_seconds"} for line in lines)
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    capsys.readouterr()
    assert nmt_train(config) == 0
    assert "CPU seconds count from here on: the version that started this run did not" in capsys.readouterr().err
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [line.get("cpu_seconds") for line in lines if line["event"] == "validation"] == [None, 6.75]


def test_the_library_takes_it(folder: Path) -> None:
    config = write_config(folder, training={"max_steps": None})
    with pytest.raises(nmt.ConfigError, match="max_cpu_minutes: -1 is not a number of minutes above 0"):
        nmt.train(config, max_cpu_minutes=-1)
    training = nmt.train(config, max_cpu_minutes=4.5 / 60, device="cpu")
    assert (training.step, training.finished) == (4, True)
    assert training.ending == "the budget of 4.5 CPU seconds is used"
    assert training.validation is not None and training.validation["cpu_seconds"] == 4.75


def test_a_rate_that_falls_to_the_end_knows_each_limit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"warmup_steps": 0, "shape": "linear"}
    training = {"schedule": "budgeted", "schedule_options": options, "lr": 0.01, "max_steps": 10, "log_every": 1}
    config = write_config(folder, training=training)

    def rates(name: str, *arguments: str) -> list[float]:
        assert nmt_train(config, *arguments, "--set", f"run_dir={folder / name}") == 0
        return [line["lr"] for line in events(folder / name, kinds=("train",))]

    assert rates("steps") == pytest.approx([0.01 * (1 - step / 10) for step in range(10)])
    # 15 updates an epoch: the limit of epochs is the nearer one. Resumed, the rate goes on as if nothing had been.
    epochs = [0.01 * (1 - step / 15) for step in range(15)]
    whole = "--set", "training.max_steps=30", "--set", "training.max_epochs=1"
    assert rates("epochs", *whole) == pytest.approx(epochs)
    # 0.5 CPU seconds before the first update, 1 for each: after 4 updates the budget of 4.5 is used.
    assert rates("budget", "--max-cpu-minutes", str(4.5 / 60)) == pytest.approx(
        [0.01 * (1 - (0.5 + step) / 4.5) for step in range(4)]
    )
    assert rates("budget", "--max-cpu-minutes", str(20 / 60))[4:6] == pytest.approx([0.006, 0.005])
    capsys.readouterr()
    patience = "--set", "training.max_steps=null", "--set", "training.patience=2"
    assert nmt_train(config, *patience, "--set", f"run_dir={folder / 'open'}") == 2
    line = next(number for number, text in enumerate(config.read_text().splitlines(), start=1) if "budgeted" in text)
    assert capsys.readouterr().err.endswith(
        f"  line {line}: training.schedule: 'budgeted' needs to know the end of training: "
        "give max_steps, max_epochs or --max-cpu-minutes\n"
    )


def test_limits_in_words() -> None:
    limits = Limits(max_epochs=40, budget=Budget(cpu_seconds=25 * 60))
    assert limits.described() == "training until epoch 40 or 25 CPU minutes are used"
    before = limits.described(used_cpu_seconds=451)
    assert before == "training until epoch 40 or 25 CPU minutes are used, of which 7.5 minutes were used before"
    many = Limits(budget=Budget(cpu_seconds=60 * 12345.25)).described()
    assert many == "training until 12,345.2 CPU minutes are used"
    assert Limits(budget=Budget(cpu_seconds=1.5)).reached(Progress(cpu_seconds=1.49), ranking()) is None


def ranking() -> Ranking:
    return Ranking(metric="loss", higher_is_better=False)


def outlook(left: TimeLeft, *, step: int, last: int | None, deadline: float | None) -> Outlook:
    limits = Limits(max_epochs=last, budget=Budget(deadline=deadline))
    return left.outlook(Progress(step=step), limits, updates_per_epoch=lambda: 1)


def test_remaining_time_counts_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    left = TimeLeft(Progress(step=100))
    assert outlook(left, step=100, last=200, deadline=None) == (None, 0.5, 200)
    assert outlook(left, step=100, last=200, deadline=1100.0) == (100, 0.0, None)
    now += 20
    assert outlook(left, step=110, last=200, deadline=None) == (180, 0.55, 200)
    assert outlook(left, step=110, last=None, deadline=900.0) == (0, 1.0, None)
    assert outlook(left, step=110, last=105, deadline=None) == (0, 1.0, 105)
    assert outlook(left, step=110, last=None, deadline=None) == (None, None, None)


def test_the_end_that_comes_first_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    left = TimeLeft(Progress(step=100))
    now += 20
    assert outlook(left, step=110, last=200, deadline=1050.0) == (30, 0.4, None)  # 20 of 50 seconds have passed
    assert outlook(left, step=110, last=None, deadline=1050.0) == (30, 0.4, None)
    assert outlook(left, step=110, last=120, deadline=1050.0) == (20, 110 / 120, 120)


def test_the_moment_at_which_something_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    left = TimeLeft(Progress(cpu_seconds=30.0))
    now += 20
    for used, most, seconds in ((70.0, 100.0, 15.0), (70.0, 60.0, 0.0), (70.0, None, None), (30.0, 100.0, None)):
        limits = Limits(budget=Budget(cpu_seconds=most))  # 40 in 20 seconds, so 30 in 15; nothing is known before
        found = left.outlook(Progress(cpu_seconds=used), limits, updates_per_epoch=lambda: 1)
        assert found.seconds == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (3569, "59 min"), (3571, "1 h 00 min"), (11100, "3 h 05 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_days() -> None:
    assert duration(86399) == "1 d 00 h"
    assert duration(2 * 86400 + 4 * 3600) == "2 d 04 h"
