"""What a container grants, CPU time, and the settings before torch is imported, of which a user's own win."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from nmt import system
from nmt.system import CACHES, WAITING, CpuClock, frozen_objects, prepare_environment, used_cpu_seconds


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def quota(root: Path, membership: str) -> float | None:
    (root / "membership").write_text(membership)
    return system.cpu_quota(root, root / "membership")


def test_version_2_takes_the_tightest_group_above(tmp_path: Path) -> None:
    group(tmp_path / "a" / "b", cpu__max="max 100000\n")
    group(tmp_path / "a", cpu__max="150000 100000\n")
    group(tmp_path, cpu__max="400000 100000\n")
    assert quota(tmp_path, "0::/a/b\n") == 1.5
    assert quota(tmp_path, "0::/\n") == 4
    assert quota(tmp_path, "0::/../other\n") == 4  # a path of the host, seen from inside a container


def test_version_1(tmp_path: Path) -> None:
    group(tmp_path / "cpu,cpuacct" / "a", cpu__cfs_quota_us="250000\n", cpu__cfs_period_us="100000\n")
    group(tmp_path / "cpu,cpuacct", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    membership = "4:memory:/a\n1:cpu,cpuacct:/a\n"
    assert quota(tmp_path, membership) == 2.5


def test_no_limit(tmp_path: Path) -> None:
    group(tmp_path, cpu__max="max 100000\n")
    assert quota(tmp_path, "0::/\n") is None
    assert quota(tmp_path, "") is None
    assert system.cpu_quota(tmp_path, tmp_path / "absent") is None


@pytest.mark.parametrize(("granted", "expected"), [(None, 8), (2.5, 2), (0.5, 1), (64.0, 8)])
def test_usable_cores(monkeypatch: pytest.MonkeyPatch, granted: float | None, expected: int) -> None:
    monkeypatch.setattr(system, "available_cores", lambda: 8)
    monkeypatch.setattr(system, "cpu_quota", lambda: granted)
    assert system.usable_cores() == expected


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


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "available_cores", lambda: 8)
    monkeypatch.setattr(system, "usable_cores", lambda: 8)


def test_everything_where_nothing_is_set(eight_cores: None) -> None:
    settings: dict[str, str] = {}
    prepare_environment(settings)
    assert settings == {**CACHES, **WAITING}


@pytest.mark.parametrize("name", WAITING)
def test_a_users_way_of_waiting_is_left_alone(eight_cores: None, name: str) -> None:
    settings = {name: "ACTIVE"}
    prepare_environment(settings)
    assert settings == {**CACHES, name: "ACTIVE"}


def test_a_limit_on_cpu_time_is_a_limit_on_threads(eight_cores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "usable_cores", lambda: 2)
    settings: dict[str, str] = {}
    prepare_environment(settings)
    assert settings["OMP_NUM_THREADS"] == "2"
    settings = {"OMP_NUM_THREADS": "5"}
    prepare_environment(settings)
    assert settings["OMP_NUM_THREADS"] == "5"


def test_commands_set_it_before_torch_is_there() -> None:
    """In a process of its own, because torch is imported here."""
    program = "import nmt.cli.train, os, sys; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    clean = {name: value for name, value in os.environ.items() if name not in WAITING}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=clean, check=True)
    assert done.stdout.split() == [WAITING["GOMP_SPINCOUNT"], "False"]


def test_one_of_several_processes_says_what_is_lost_in_a_line_of_its_own(eight_cores: None) -> None:
    settings = {"WORLD_SIZE": "2"}
    prepare_environment(settings)
    assert settings["TORCH_CPP_LOG_LEVEL"] == "ERROR"


def test_a_mistake_in_the_options_of_no_command_waits_for_torch() -> None:
    commands = re.findall(r'"nmt-[a-z]+=(nmt[.a-z_]+):main"', (Path(__file__).parents[1] / "setup.py").read_text())
    assert {"nmt.cli.convert", "nmt.evaluating.command", "nmt.cli.train"} <= {*commands}
    imports = "; ".join(f"import {name}" for name in commands)
    program = f"{imports}; import sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_training_leaves_the_garbage_collector_as_it_was() -> None:
    gc.unfreeze()  # what conftest.py has frozen
    try:
        with pytest.raises(KeyError), frozen_objects():
            frozen = gc.get_freeze_count()
            assert frozen > 1000
            with frozen_objects():  # of a training inside another
                pass
            assert gc.get_freeze_count() == frozen
            raise KeyError
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()
