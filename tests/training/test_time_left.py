"""The remaining time: by updates, by the time limit, unknown; and how it is written."""

from __future__ import annotations

import time

import pytest

from nmt.training.stopping import TimeLeft, duration


def test_remaining_time_counts_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    left = TimeLeft(step=100)
    assert left.outlook(step=100, last=200, deadline=None) == (None, 0.5, 200)
    assert left.outlook(step=100, last=200, deadline=1100.0) == (100, 0.0, None)
    now += 20
    assert left.outlook(step=110, last=200, deadline=None) == (180, 0.55, 200)
    assert left.outlook(step=110, last=None, deadline=900.0) == (0, 1.0, None)
    assert left.outlook(step=110, last=105, deadline=None) == (0, 1.0, 105)
    assert left.outlook(step=110, last=None, deadline=None) == (None, None, None)


def test_the_end_that_comes_first_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    left = TimeLeft(step=100)
    now += 20
    assert left.outlook(step=110, last=200, deadline=1050.0) == (30, 0.4, None)  # 20 of 50 seconds have passed
    assert left.outlook(step=110, last=None, deadline=1050.0) == (30, 0.4, None)
    assert left.outlook(step=110, last=120, deadline=1050.0) == (20, 110 / 120, 120)


def test_the_moment_at_which_something_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    left = TimeLeft(step=0)
    now += 20
    assert left.deadline(70.0, first=30.0, last=100.0) == 1035.0  # 40 in 20 seconds, so 30 in 15
    assert left.deadline(70.0, first=30.0, last=60.0) == 1020.0
    assert left.deadline(70.0, first=30.0, last=None) is None
    assert left.deadline(30.0, first=30.0, last=100.0) is None, "nothing is known yet"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (3569, "59 min"), (3571, "1 h 00 min"), (11100, "3 h 05 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_days() -> None:
    assert duration(86399) == "1 d 00 h"
    assert duration(2 * 86400 + 4 * 3600) == "2 d 04 h"
