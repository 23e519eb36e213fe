"""CPU time: of this process, of a child at work and of one that has ended."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from nmt.cpu_time import CpuClock, used_cpu_seconds

BURNT = 0.3


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def burn_and_wait(seconds: float, connection: Connection) -> None:
    burn(seconds)
    connection.send("done")
    connection.recv()


def test_work_counts_and_sleep_does_not() -> None:
    clock = CpuClock()
    started = time.process_time()
    time.sleep(0.2)
    assert clock.seconds() <= time.process_time() - started + 0.03  # os.times() counts hundredths of a second
    burn(BURNT)
    assert clock.seconds() >= BURNT - 0.03


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc, so that running children do not count")
def test_a_child_counts_once_while_it_runs_and_when_it_has_ended(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=burn_and_wait, args=(BURNT, theirs), daemon=True)
    child.start()
    ours.recv()
    unknown, running = used_cpu_seconds(proc=tmp_path), used_cpu_seconds()
    assert running - unknown >= BURNT - 0.03, "without /proc it counts when it has ended"
    ours.send("end")
    child.join()
    assert running <= used_cpu_seconds() < running + BURNT - 0.05


def test_the_name_of_a_program_cannot_move_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Child:
        pid = 77

    ticks = os.sysconf("SC_CLK_TCK")
    times = f"{ticks} {2 * ticks} {3 * ticks} {4 * ticks}"
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "stat").write_text(f"77 (a) b) 1) S 1 77 77 0 -1 4194304 9 9 9 9 {times} 20 0 1 0 5 6 7")
    monkeypatch.setattr(multiprocessing, "active_children", lambda: [Child()])
    with_child = used_cpu_seconds(proc=tmp_path)
    monkeypatch.setattr(multiprocessing, "active_children", list)
    assert with_child - used_cpu_seconds(proc=tmp_path) == pytest.approx(10, abs=0.5)


def test_the_clock_never_goes_back() -> None:
    readings = iter([5.0, 7.0, 6.5, 8.0])
    clock = CpuClock(lambda: next(readings))
    assert [clock.seconds() for _ in range(3)] == [2.0, 2.0, 3.0]
