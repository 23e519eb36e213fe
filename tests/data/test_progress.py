"""Progress of long work where there is no terminal: a line now and then, nothing for short work."""

from __future__ import annotations

import pytest

from nmt.data import work as progress_module
from nmt.data.work import progress


def test_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    with progress("encoding train", total=4_000_000, unit=" pairs", done=1_000_000) as advance:
        for _ in range(10):
            now[0] += 13
            advance(100_000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == "encoding train: 38%, 1.50M of 4.00M pairs, 7.69k pairs/s, 05:25 left"


def test_nothing_for_short_work_and_when_it_is_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (True, False):
        with progress("reading", total=10, unit="B", shown=shown) as advance:
            advance(10)
    assert capsys.readouterr().err == ""
