"""The remaining time: by updates, by the time limit, unknown; and how it is written."""

from __future__ import annotations

import time

import pytest

from nmt.training.time_left import TimeLeft, duration


def test_remaining_time_counts_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    left = TimeLeft(step=100)
    assert left.seconds_left(step=100, last=200, deadline=None) is None
    now += 20
    assert left.seconds_left(step=110, last=200, deadline=None) == 180
    assert left.seconds_left(step=110, last=200, deadline=1050.0) == 30
    assert left.seconds_left(step=110, last=None, deadline=1050.0) == 30
    assert left.seconds_left(step=110, last=None, deadline=900.0) == 0
    assert left.seconds_left(step=110, last=105, deadline=None) == 0
    assert left.seconds_left(step=110, last=None, deadline=None) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (3569, "59 min"), (3571, "1 h 00 min"), (11100, "3 h 05 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_days() -> None:
    assert duration(86399) == "1 d 00 h"
    assert duration(2 * 86400 + 4 * 3600) == "2 d 04 h"
