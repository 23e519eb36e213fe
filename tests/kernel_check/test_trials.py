"""Processes that check kernels: what becomes of those that crash, hang, find a difference or lose their parent."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nmt.kernel_check import checking
from nmt.kernel_check.cases import DifferenceError
from nmt.kernel_check.checking import FIRST, Outcome, Task, explained

CPU = torch.device("cpu")
WORKER = """
import json, os, sys, time
def say(state, reason=""):
    print(json.dumps([name, state, reason]), flush=True)
    if state == "undecided":
        sys.exit()
programs = json.loads(sys.argv[1])
for name in json.loads(sys.argv[2])[0]:
    exec(programs[name])
"""


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """By name, in place of its check, a Python program."""
    found: dict[str, str] = {}

    def command(task: Task) -> list[str]:
        return [sys.executable, "-c", WORKER, json.dumps(found), json.dumps(task)]

    monkeypatch.setattr(Task, "command", command)
    return found


def tried(*groups: list[str], seconds: float = 60, processes: int = 2) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    tasks = [Task(dict.fromkeys(group, seconds), "cuda:0") for group in groups]
    checking.try_out(tasks, found.__setitem__, processes=processes)
    return found


def test_only_what_differs_is_wrong(programs: dict[str, str]) -> None:
    """What comes behind an accident in its group is tried all the same."""
    programs |= {
        "right": "print('a compiler speaks'); print('[1]'); say('right')",
        "wrong": "say('wrong', 'float32: result 1 differs')",
        "full": "say('undecided', 'CUDA out of memory. Tried to allocate 2 GiB')",
        "crashes": "os.abort()",
        "killed": "os.kill(os.getpid(), 9)",
        "nameless": "os.kill(os.getpid(), 40)",
        "fails": "raise ValueError('Python has no such kernel')",
        "compiles": "print('x.c:3:10: fatal error: Python.h: No such file', file=sys.stderr); say('undecided', 'gcc')",
        "ends": "sys.exit()",
        "last": "say('right')",
    }
    found = tried(["wrong", "crashes", "full", "killed", "nameless", "fails", "last"], ["compiles", "ends", "right"])
    assert {name for name, outcome in found.items() if outcome.state == "right"} == {"right", "last"}
    assert found["wrong"] == Outcome("wrong", "float32: result 1 differs")
    reasons = {name: outcome.reason for name, outcome in found.items() if outcome.state == "undecided"}
    assert reasons == {
        "full": "the GPU has too little free memory: end what uses it (nvidia-smi lists it)",
        "crashes": "it was ended by SIGABRT",
        "killed": "it was ended by SIGKILL; if no user did it, this machine has too little free memory",
        "nameless": "it was ended by signal 40",
        "fails": "ValueError: Python has no such kernel",
        "compiles": "Triton needs Python's C headers: install python3-dev (python3-devel on Fedora)",
        "ends": "it printed nothing",
    }


def test_what_hangs_is_ended_with_all_that_it_has_started(programs: dict[str, str], tmp_path: Path) -> None:
    """And only that: what was told before counts, what comes behind goes on. A compiler writes to the pipe."""
    child, pipe = tmp_path / "child", tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    compiler = f"import subprocess; subprocess.Popen(['sleep', '60'], stdout=open({str(pipe)!r}, 'wb'))"
    programs |= {
        "before": "say('right')",
        "hangs": f"{compiler}; open({str(child)!r}, 'w').write(str(os.getpid())); time.sleep(600)",
        "behind": "say('right')",
    }
    found = tried(["before", "hangs", "behind"], seconds=1.5)
    assert found["hangs"] == Outcome("undecided", "it has not ended in 2 seconds", timed_out=True)
    assert found["before"] == found["behind"] == Outcome("right")
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)
    has_ended, _, _ = select.select([reader], [], [], 20)  # when the last process with the pipe ends
    os.close(reader)
    assert has_ended


def test_a_line_may_come_in_two_parts(programs: dict[str, str], tmp_path: Path) -> None:
    """The second part is written when the line before it has been told."""
    told, found = tmp_path / "told", dict[str, Outcome]()
    lines = "".join(f"{json.dumps(line)}\n" for line in (["first", "right", ""], ["second", "wrong", "differs"]))
    programs |= {
        "first": f"""print({lines[:-9]!r}, end="", flush=True)
while not os.path.exists({str(told)!r}):
    time.sleep(0.01)
print({lines[-9:]!r}, end="", flush=True)""",
        "second": "pass",
    }

    def tell(name: str, outcome: Outcome) -> None:
        found[name] = outcome
        told.touch()

    checking.try_out([Task({"first": 60, "second": 60}, "cuda:0")], tell, processes=1)
    assert found == {"first": Outcome("right"), "second": Outcome("wrong", "differs")}


def test_an_interrupt_ends_the_trials(
    programs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, sleep = tmp_path / "child", time.sleep
    programs["hangs"] = f"open({str(child)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    def interrupted(seconds: float) -> None:
        sleep(seconds)
        if child.exists() and child.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(checking, "time", SimpleNamespace(sleep=interrupted, monotonic=time.monotonic))
    with pytest.raises(KeyboardInterrupt):
        tried(["hangs"])
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_trial_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    """It would go on using the GPU."""
    ready = tmp_path / "ready"
    plugin = tmp_path / "waits.py"
    plugin.write_text(f"import os, time\nopen({str(ready)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n")
    command = Task({}, "cuda:0", [str(plugin)]).command()
    start = f"import subprocess; subprocess.Popen({command!r}, start_new_session=True).wait()"
    parent = subprocess.Popen([sys.executable, "-c", start])
    deadline = time.monotonic() + 60
    while not (ready.exists() and ready.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    child = Path("/proc", ready.read_text())
    assert child.exists()
    parent.kill()
    parent.wait()
    with contextlib.suppress(OSError):  # no such process
        while "\nState:\tZ" not in (child / "status").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, Outcome("right")),
        (DifferenceError("result 1 differs"), Outcome("wrong", "float32, width 40: result 1 differs")),
        (torch.cuda.OutOfMemoryError("CUDA out of memory.\nTried"), Outcome("undecided", explained("out of memory"))),
        (MemoryError(), Outcome("undecided", explained("MemoryError"))),
        (
            RuntimeError("CUDA error: illegal address\nCompile with"),
            Outcome("undecided", "float32, width 40: CUDA error: illegal address"),
        ),
    ],
)
def test_what_a_check_finds(error: Exception | None, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = []

    def check(*arguments: object) -> None:
        gradients.append(torch.is_grad_enabled())
        if error is not None:
            raise error

    monkeypatch.setattr(checking, "check_key", check)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    flags = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    try:
        assert checking.check_one("sequence lrn", CPU) == checking.check_one("sequence lrn forward", CPU) == outcome
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = flags
    half = len(gradients) // 2
    assert all(gradients[:half]) and not any(gradients[half:])


def test_a_real_process_checks_one_after_the_other(tmp_path: Path) -> None:
    """Here on the CPU, and on a GPU that is not there; it imports the files of plugins first."""
    plugin = tmp_path / "my_unit.py"
    plugin.write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'imported')!r}).touch()\n")
    found: dict[str, Outcome] = {}
    names = {"dropout": 100.0, "dropout forward": 100.0, "no_such_operation": 100.0}
    checking.try_out([Task(names, "cpu", [str(plugin)])], found.__setitem__, processes=1)
    assert found["dropout"] == found["dropout forward"] == Outcome("right")
    assert found["no_such_operation"].state == "undecided" and "no_such_operation" in found["no_such_operation"].reason
    assert (tmp_path / "imported").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_can_be_tried() -> None:
    outcome = checking.check_one(FIRST, torch.device("cuda", 0))
    assert outcome.state == "undecided" and outcome.reason


def test_processes_are_as_many_as_cores_and_memory_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "usable_cores", lambda: 4)
    for free, groups, wanted in ((80 << 30, 3, 3), (80 << 30, 9, 4), (5 << 30, 9, 2), (100, 9, 1)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 90 << 30))
        monkeypatch.setattr(checking, "HOST_BYTES", 1)
        assert checking.how_many(CPU, groups) == wanted
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 90 << 30))
    monkeypatch.setattr(checking, "HOST_BYTES", 1 << 50)
    assert checking.how_many(CPU, 9) == 1
