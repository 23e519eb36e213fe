"""Lines in windows: how long one waits for its next line, and how much it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest

from nmt.data import text as module
from nmt.data.text import windows


class Sender:
    """Lines by the seconds at which each comes, and the clock that goes on when they are waited for."""

    def __init__(self, times: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._times = list(times)
        self._taken = 0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def __iter__(self) -> Iterator[float]:
        while self._taken < len(self._times):
            self._taken += 1
            self.now = max(self.now, self._times[self._taken - 1])
            yield self._times[self._taken - 1]

    def arrives(self, seconds: float) -> bool:
        comes = self._times[self._taken] if self._taken < len(self._times) else self.now
        self.now = min(max(self.now, comes), self.now + max(0.0, seconds))
        return comes <= self.now


def test_a_window_ends_with_the_first_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is waited for is not kept, those written one right after another stay together."""
    times = [0.0, 0.0005, 0.001, 1.0, 1.5, 1.5005]
    sender = Sender(times, monkeypatch)
    found = []
    for window in windows(sender, size=10, arrives=sender.arrives, length=lambda line: 1):
        assert sender.now - window[-1] <= 1.001 * module.PAUSE
        found.append(window)
    assert found == [times[:3], [1.0], [1.5, 1.5005]]


def test_a_sender_without_pauses_is_answered_before_the_window_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender([0.0005 * number for number in range(1000)], monkeypatch)
    window = next(windows(sender, size=1000, arrives=sender.arrives, length=lambda line: 1))
    assert len(window) == pytest.approx(module.PATIENCE / 0.0005, abs=2)
    assert sender.now <= module.PATIENCE + module.PAUSE


def test_what_came_during_the_work_is_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender([0.0005 * number for number in range(1000)], monkeypatch)
    found = windows(sender, size=1000, arrives=sender.arrives, length=lambda line: 1)
    first = len(next(found))
    sender.now = 2.0  # the window is translated
    assert [len(window) for window in found] == [1000 - first]


def test_a_window_of_long_lines_holds_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHARACTERS", 10)
    assert list(windows(["12345"] * 5, size=4)) == [["12345"] * 2, ["12345"] * 2, ["12345"]]
    assert list(windows(["1"] * 5, size=4)) == [["1"] * 4, ["1"]]
