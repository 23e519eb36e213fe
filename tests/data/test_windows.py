"""Lines in windows: how long one waits for its next line, and how much it holds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nmt.data import windows as module
from nmt.data.windows import windows


def test_patience_is_counted_from_the_first_line_of_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line comes every 0.15 seconds: one fits into the patience of 0.2, a second one does not."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def arrives(seconds: float) -> bool:
        clock.now += min(seconds, 0.15)
        return seconds >= 0.15

    assert list(windows(iter("abcdef"), size=10, arrives=arrives)) == [["a", "b"], ["c", "d"], ["e", "f"]]


def test_a_window_of_long_lines_holds_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHARACTERS", 10)
    assert list(windows(["12345"] * 5, size=4)) == [["12345"] * 2, ["12345"] * 2, ["12345"]]
    assert list(windows(["1"] * 5, size=4)) == [["1"] * 4, ["1"]]
