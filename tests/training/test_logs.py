"""Logs: valid JSON lines, continued and rewound."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import pytest

from nmt.errors import DataError, NmtError
from nmt.training.logs import RunLog, read_events
from nmt.training.state import Interval, perplexity


def test_lines_are_on_disk_at_once_and_valid_json(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.record("train", {"step": 1, "loss": math.nan, "perplexity": math.inf, "lr": 1 / 3})
    text = (tmp_path / "log.jsonl").read_text()
    line = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert line == {"event": "train", "step": 1, "loss": None, "perplexity": None, "lr": 0.33333333}
    log.say("über\nzwei")
    assert [row[20:] for row in (tmp_path / "train.log").read_text(encoding="utf-8").splitlines()] == ["über", "zwei"]
    log.close()


def test_files_are_made_with_the_first_line_only(tmp_path: Path) -> None:
    RunLog(tmp_path / "nowhere").close()
    assert not list(tmp_path.iterdir())


def test_rewinding_takes_out_later_and_broken_lines(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for step in (1, 2, 3, 4):
        log.record("train", {"step": step})
    with (tmp_path / "log.jsonl").open("a") as stream:
        stream.write('{"event": "train", "st')
    assert log.rewind(2) == 3
    log.record("start", {"step": 2})
    log.close()
    assert [(event["event"], event["step"]) for event in read_events(tmp_path)] == [
        ("train", 1),
        ("train", 2),
        ("start", 2),
    ]


def test_a_validation_that_the_checkpoint_does_not_know_is_taken_out(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for event, step in (("train", 2), ("validation", 2), ("train", 4), ("checkpoint", 4), ("validation", 4)):
        log.record(event, {"step": step})
    assert log.rewind(4) == 0
    assert log.rewind(4, validated=False) == 1
    log.close()
    kept = [(event["event"], event["step"]) for event in read_events(tmp_path)]
    assert kept == [("train", 2), ("validation", 2), ("train", 4), ("checkpoint", 4)]


def test_samples_may_hold_characters_that_look_like_line_ends(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    odd = "a\u2028b\u0085c\r\n\x0bd\x1c"
    log.record("validation", {"step": 1, "samples": [{"source": odd}]})
    log.record("train", {"step": 9})
    assert log.rewind(5) == 1
    log.close()
    assert read_events(tmp_path) == [{"event": "validation", "step": 1, "samples": [{"source": odd}]}]


def test_tensorboard_files_hold_the_curves(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = RunLog(tmp_path, tensorboard=True)
    log.record("train", {"step": 3, "loss": 2.5, "note": "text", "missing": None})
    log.close()
    curves = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    curves.Reload()
    assert curves.Tags()["scalars"] == ["train/loss"]
    (point,) = curves.Scalars("train/loss")
    assert (point.step, point.value) == (3, 2.5)


def test_interval_means_are_weighted_by_tokens() -> None:
    interval = Interval(
        updates=2,
        nll=30.0,
        objective=45.0,
        target_tokens=10,
        grad_norm=3.0,
        cells=40,
        tokens=30,
        seconds=2.0,
        waited=0.5,
        lr=0.1,
    )
    summary = interval.summary()
    assert summary["loss"] == 3.0 and summary["objective"] == 4.5
    assert summary["perplexity"] == pytest.approx(math.exp(3))
    assert summary["grad_norm"] == 1.5
    assert summary["target_tokens_per_second"] == 5.0
    assert summary["padding"] == 0.25
    assert summary["data_wait"] == 0.25
    interval.clear()
    assert interval == Interval()
    assert set(interval.summary().values()) == {None}
    assert perplexity(1e4) == math.inf


def test_sums_of_a_version_without_the_waiting_time_are_read() -> None:
    state = Interval(updates=2, waited=0.5).state_dict()
    del state["waited"]
    interval = Interval(waited=7.0)
    interval.load_state_dict(state)
    assert interval == Interval(updates=2)


def test_sums_of_a_version_that_added_up_the_smoothed_loss_start_anew() -> None:
    interval = Interval(updates=3)
    interval.load_state_dict({"updates": 2, "loss": 30.0, "target_tokens": 10})
    assert interval == Interval()


def test_lines_that_cannot_be_written_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "train.log").mkdir()
    with pytest.raises(DataError, match=r"train\.log: cannot be written \(Is a directory\)"):
        RunLog(tmp_path).say("hello")


def test_missing_tensorboard_is_said_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(NmtError, match=r"pip install 'nmt-recurrent\[tensorboard\]'"):
        RunLog(tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_resumed_curves_hide_what_is_done_again(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for steps, value in ((range(1, 6), 1.0), (range(3, 5), 2.0)):
        log = RunLog(tmp_path, tensorboard=True)
        log.record("start", {"step": steps[0] - 1})
        for step in steps:
            log.record("train", {"step": step, "loss": value})
        log.close()
        time.sleep(1.1)  # the names of the files count seconds
    curves = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    curves.Reload()
    assert [(event.step, event.value) for event in curves.Scalars("train/loss")] == [(1, 1), (2, 1), (3, 2), (4, 2)]


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    half = '{"event": "validation", "step": 2, "signatures": {"bleu": "x"}'
    lines = [
        '{"event": "train", "step": 1}',
        half,
        "[1]",
        '{"step": 2}',
        "\x00\x00",
        '{"event": "train", "step": 3}',
        half,
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert [event["step"] for event in read_events(tmp_path)] == [1, 3]
