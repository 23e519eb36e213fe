"""What curves are drawn of: logs of resumed, damaged, old and odd runs, panels and axes."""

from __future__ import annotations

import json
import math

import pytest

from nmt.errors import ConfigError, DataError
from nmt.plotting import AXES, default_panels, find_panels, read_logs, remarks
from tests.conftest import REPOSITORY
from tests.plotting.logs import events, train, validation, write_run

OLD = REPOSITORY / "tests" / "fixtures" / "runs_0.1.0" / "gru"


def test_a_run_and_its_log_are_the_same(tmp_path):
    run = write_run(tmp_path / "a", events())
    of_run, of_file = read_logs([run, run / "log.jsonl"])
    assert of_run == of_file and of_run.label == "a" and of_run.damaged == 0
    assert of_run.points("train", "lr", AXES["updates"]) == [(50 * n, 1e-5 * 50 * n) for n in range(1, 7)]
    assert of_run.points("validation", "bleu", AXES["updates"]) == [(100, 5), (200, 10), (300, 15)]


@pytest.mark.parametrize(("axis", "last"), [("updates", 300), ("epochs", 3), ("minutes", 3), ("cpu", 150)])
def test_axes(tmp_path, axis, last):
    (log,) = read_logs([write_run(tmp_path / "a", events())])
    assert log.points("validation", "bleu", AXES[axis])[-1] == (pytest.approx(last), 15)


def test_what_a_resumed_run_did_again_counts_as_it_was_done_last(tmp_path):
    again = [
        *events(),
        {"event": "start", "step": 150, "resumed": True},
        train(200, lr=0.5),
        validation(200, bleu=33.0),
    ]
    (log,) = read_logs([write_run(tmp_path / "a", again)])
    assert log.points("train", "lr", AXES["updates"]) == [(50, 5e-4), (100, 1e-3), (150, 1.5e-3), (200, 0.5)]
    assert log.points("validation", "bleu", AXES["updates"]) == [(100, 5), (200, 33)]


@pytest.mark.parametrize(
    "tail",
    ['{"event": "train", "step": 350, "lo', '{"event": "validation", "step": 350, "signatures": {"bleu": "x"}', "7\n"],
)
def test_a_damaged_line_is_left_out_and_reported(tmp_path, tail):
    run = write_run(tmp_path / "a", events(), tail=tail)
    (log,) = read_logs([run])
    assert log.damaged == 1 and log.points("train", "loss", AXES["updates"])[-1][0] == 300
    assert remarks([log], default_panels([log]), AXES["updates"]) == [f"{run}/log.jsonl: left out 1 damaged line"]


def test_null_is_a_gap_and_a_number_that_was_not_measured_is_none(tmp_path):
    found = [train(50), train(100, loss=None), train(150), validation(150)]
    del found[-1]["bleu"]
    (log,) = read_logs([write_run(tmp_path / "a", found)])
    (_, gap, after) = log.points("train", "loss", AXES["updates"])
    assert gap[0] == 100 and math.isnan(gap[1]) and after == (150, 6.5)
    assert log.points("validation", "bleu", AXES["updates"]) == []


def test_default_panels_are_those_that_the_logs_have(tmp_path):
    with_scores, without = read_logs(
        [write_run(tmp_path / "a", events()), write_run(tmp_path / "b", [train(50), train(100)])]
    )
    assert [panel.name for panel in default_panels([without])] == ["loss", "lr", "norm", "speed"]
    names = [panel.name for panel in default_panels([without, with_scores])]
    assert names == ["loss", "bleu", "chrf", "lr", "norm", "speed"]
    panels = default_panels([without, with_scores])
    assert remarks([without, with_scores], panels, AXES["updates"]) == [f"{tmp_path}/b/log.jsonl: has no bleu, chrf"]


def test_panels_by_name_by_key_and_by_mistake(tmp_path):
    logs = read_logs([write_run(tmp_path / "a", [train(50, padding=0.1, skipped=0, memory_mb=10**400)])])
    panels = find_panels(["norm", "grad_norm", "target_tokens_per_second", "padding"], logs)
    assert [(panel.name, panel.key) for panel in panels] == [
        ("norm", "grad_norm"),
        ("speed", "target_tokens_per_second"),
        ("padding", "padding"),
    ]
    with pytest.raises(ConfigError) as raised:
        find_panels(["los"], logs)
    allowed = "Allowed: loss, objective, lr, norm, speed, padding, skipped."
    assert str(raised.value) == f"--panels: 'los' is in no log. Did you mean 'loss'? {allowed}"


def test_labels_tell_runs_apart(tmp_path):
    runs = [write_run(tmp_path / name, events()) for name in ("x/first", "y/first", "second")]
    assert [log.label for log in read_logs(runs)] == ["x/first", "y/first", "second"]
    assert [log.label for log in read_logs([runs[0], runs[0]])] == ["first", "first"]
    assert [log.label for log in read_logs(runs, labels=["_a", "b", "c"])] == ["_a", "b", "c"]
    with pytest.raises(ConfigError, match="--labels: 1 label for 3 runs; give one for each"):
        read_logs(runs, labels=["a"])
    with pytest.raises(ConfigError, match="--labels: 4 labels for 3 runs; give one for each"):
        read_logs(runs, labels=["a", "b", "c", "d"])


def test_there_is_no_log(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path}/log.jsonl: no such file; is {tmp_path} a run directory"):
        read_logs([tmp_path])
    with pytest.raises(DataError, match=f"{tmp_path}/x: no such file; give a run directory, or its log.jsonl"):
        read_logs([tmp_path / "x"])


def test_a_run_of_an_earlier_version(tmp_path):
    (log,) = read_logs([OLD])
    lines = [json.loads(line) for line in (OLD / "log.jsonl").read_text().splitlines()]
    losses = [(event["step"], event["loss"]) for event in lines if event["event"] == "train"]
    assert losses and log.points("train", "loss", AXES["updates"]) == losses
    assert log.points("train", "loss", AXES["cpu"]) == []
    said = remarks([log], default_panels([log]), AXES["cpu"])
    assert said[0] == f"{OLD}/log.jsonl: left out {len(log.events)} events without CPU seconds"
    assert "includes label smoothing" in said[1] and len(said) == 2
