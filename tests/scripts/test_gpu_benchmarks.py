"""The GPU benchmarks without a GPU: that they run at all, what they add up, and what is said where none can be used."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import torch

from nmt.ops.dispatch import triton_problem
from tests.conftest import pytest_collection_modifyitems

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def script() -> Iterator[Callable[[str], ModuleType]]:
    def load(name: str) -> ModuleType:
        if (SCRIPTS / name).suffix:
            return importlib.import_module(name.removesuffix(".py"))
        loader = SourceFileLoader(name, str(SCRIPTS / name))
        spec = spec_from_loader(name, loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
        return module

    sys.path.insert(0, str(SCRIPTS))
    yield load
    sys.path.remove(str(SCRIPTS))


def run_once(function: Callable[[], object], *, prepare: Callable[[], object] | None = None) -> float:
    function()
    return 2.0


def on_cpu(timing: ModuleType) -> Any:
    return timing.Bench(torch.device("cpu"), run_once, fast="reference")


def rows_of(groups: Any) -> dict[str, Any]:
    return {row.what: row for group in groups.values() for row in group()}


def test_all_operations_are_measured(script: Callable[[str], ModuleType]) -> None:
    timing, ops = script("gpu_timing.py"), script("bench_ops.py")
    shapes = ops.Shapes(
        elementwise=(2, 3, 4),
        recurrent=(2, 3, 4),
        attention=(2, 3, 3, 4),
        loss=(3, 9, 4),
        stack=(2, 3, 4),
        dropped=(2, 3, 4),
        copied=8,
    )
    rows = rows_of(ops.groups(on_cpu(timing), shapes))
    assert len(rows) == 1 + 6 * 3 + 3 + 3 * 5 + 1 + 3 + 7 + 1 + 1 + 1
    assert rows["copy bandwidth"].value == pytest.approx(2 * 8 / 2e-6 / 1e9)
    share = rows["sru backward, share of copy bandwidth"]  # ten tensors of 2 x 3 x 4 values of two bytes
    assert share.value == pytest.approx(10 * 2 * 24 / (2 * 8))
    assert share.met
    assert rows["atr forward"].value == pytest.approx(2 / 3)
    assert rows["3 layers of lrn against torch LSTM"].met is False
    assert rows["lrn against the loop with autograd"].met is False


def test_models_are_measured(script: Callable[[str], ModuleType]) -> None:
    timing, models = script("gpu_timing.py"), script("bench_models.py")
    size = models.Size(width=4, layers=2, words=9, sentences=2, length=3, beam=2)
    rows = rows_of(models.groups(on_cpu(timing), size))
    assert len(rows) == 2 * 4 + 2 + 1 + 3
    assert rows["training step, lrn of gru as a loop"].met is False
    assert rows["training, lrn"].value == pytest.approx(6 / 2e-6)


def test_training_steps_are_profiled(script: Callable[[str], ModuleType]) -> None:
    timing, profiles = script("gpu_timing.py"), script("profile_steps.py")
    size = script("bench_models.py").Size(width=4, layers=1, words=9, sentences=2, length=3, beam=2)
    rows = rows_of(profiles.groups(on_cpu(timing), size))
    for unit in profiles.UNITS:
        assert rows[f"step of {unit}"].value > 0
        assert 0 < rows[f"step of {unit}, host busy"].value <= 1
        assert rows[f"step of {unit}, kernels"].value == 0  # on a CPU


def test_a_profile_counts_what_a_gpu_does(script: Callable[[str], ModuleType]) -> None:
    profiles = script("profile_steps.py")
    seen = [
        ("aten::mm", False, 0, 9), ("cudaLaunchKernel", False, 0, 2), ("cuLaunchKernelEx", False, 2, 3),
        ("cudaGraphLaunch", False, 3, 4), ("cudaMemcpyAsync", False, 4, 5), ("cudaStreamSynchronize", False, 5, 9),
        ("cudaMalloc", False, 0, 1), ("short", True, 1, 2), ("long", True, 4, 7), ("Memcpy HtoD", True, 6, 8),
        ("short", True, 20, 21),
    ]  # fmt: skip
    rows = {row.what: row for row in profiles.rows("x", [profiles.Event(*event) for event in seen], wall=20, host=10)}
    values = {what.removeprefix("step of x"): row.value for what, row in rows.items()}
    assert values == {
        "": 0.02, ", host busy": 0.5, ", GPU busy": 0.3, ", launches by the host": 4, ", waits for the GPU": 1,
        ", allocations": 1, ", kernels": 3, ": 1 x long": 0.003, ": 2 x short": 0.002, ": 1 x Memcpy HtoD": 0.002,
    }  # fmt: skip
    assert rows["step of x, kernels"].details == {"copies": 1}


@pytest.mark.skipif(triton_problem() is not None, reason=str(triton_problem()))
def test_what_the_host_does_in_a_micro_batch_is_counted(script: Callable[[str], ModuleType]) -> None:
    """No wait, and of each graph some copies into it and one or two out of it."""
    size = script("bench_models.py").Size(width=64, layers=2, words=99, sentences=4, length=5)
    counting = script("count_launches.py")
    count = counting.micro_batch("gru", size)
    assert count.waits == 0
    assert count.replays >= 8
    assert count.in_graphs > 5 * count.replays
    assert count.copies <= 5 * count.replays
    step = counting.search_step("lrn", size)
    assert (step.waits, step.replays) == (0, 1)
    assert step.copies <= 4
    assert not counting.Tensor(1).is_cuda


def test_a_table_says_what_was_met(script: Callable[[str], ModuleType]) -> None:
    timing = script("gpu_timing.py")
    rows = [timing.Row("a", 2.5, "us", 3.0, most=True), timing.Row("b", 0.5, "x", 5), timing.Row("c", 1, "")]
    assert timing.table([row.as_json() for row in rows]).splitlines()[2:] == [
        "| a | 2.5 us | ≤ 3 us | yes |",
        "| b | 0.5 x | ≥ 5 x | no |",
        "| c | 1 |  |  |",
    ]


@pytest.fixture
def gpu(script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`gpu_timing` where there seems to be a GPU."""
    timing = script("gpu_timing.py")
    monkeypatch.setattr(timing, "gpu_problem", lambda: None)
    return timing


def test_results_are_written_as_they_come_with_where_they_come_from(
    gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, seen = tmp_path / "rows.json", []

    def first() -> Iterator[Any]:
        yield gpu.Row("a", 2.5, "us", 3.0, details={"us": 1})
        seen.append(len(json.loads(file.read_text(encoding="utf-8"))["rows"]))
        yield gpu.Row("b", 1.0, "us")

    assert gpu.run_groups("bench", {"first": first, "second": lambda: [gpu.Row("c", 1.0, "us")]}, file) == 0
    written = json.loads(file.read_text(encoding="utf-8"))
    assert seen == [1]
    assert [row["what"] for row in written["rows"]] == ["a", "b", "c"]
    assert written["rows"][0] == {
        "what": "a", "value": 2.5, "unit": "us", "target": 3.0, "most": False, "details": {"us": 1}, "met": False
    }  # fmt: skip
    assert written.keys() >= {"date", "device", "torch", "triton"}
    assert "| a | 2.5 us |" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [file]


def failing(timing: ModuleType) -> dict[str, Any]:
    """Groups of which one fails after its first row."""

    def bad() -> Iterator[Any]:
        yield timing.Row("b", 1.0, "us")
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    return {"good": lambda: [timing.Row("a", 1.0, "us")], "bad": bad, "rest": lambda: [timing.Row("c", 1.0, "us")]}


def test_a_group_that_fails_is_named_and_the_others_are_measured(
    gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "gpu_works", lambda: True)
    assert gpu.run_groups("bench", failing(gpu), tmp_path / "rows.json") == 1
    written = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))
    assert [row["what"] for row in written["rows"]] == ["a", "b", "c"]
    reason = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert written["failed"] == {"bad": reason}
    assert capsys.readouterr().err.endswith(f"bench: bad: {reason}\n")


def test_another_process_goes_on_where_a_gpu_is_lost_to_one(
    gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, commands = tmp_path / "rows.json", []

    def call(command: list[str]) -> int:
        commands.append(command[-4:])
        monkeypatch.setattr(gpu, "gpu_works", lambda: True)
        return int(gpu.run_groups("bench", failing(gpu), file, after=command[-1]))

    monkeypatch.setattr(gpu, "gpu_works", lambda: False)
    monkeypatch.setattr(gpu.subprocess, "call", call)
    assert gpu.run_groups("bench", failing(gpu), file) == 1
    assert commands == [["-o", str(file), "--after", "bad"]]
    written = json.loads(file.read_text(encoding="utf-8"))
    assert [row["what"] for row in written["rows"]] == ["a", "b", "c"]
    assert written["failed"].keys() == {"bad"}
    assert capsys.readouterr().out.count("| c |") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["bench_ops.py", "bench_models.py", "profile_steps.py", "gpu_check"])
def test_without_a_gpu_one_line_says_so(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr == f"{name.removesuffix('.py')}: no NVIDIA GPU can be used here.\n"
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_the_whole_check_takes_less_than_nine_minutes(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    check = script("gpu_check")
    parts = check.parts(tmp_path)
    tests, rest = [[part.seconds for part in parts if part.alone is alone] for alone in (False, True)]
    assert max(tests) + sum(rest) <= check.MOST_SECONDS < 9 * 60


def test_the_processes_of_the_check_share_all_tests(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    check = script("gpu_check")
    shares = [part.command for part in check.parts(tmp_path) if part.name.startswith("tests ")]
    assert [command[command.index("--share") + 1] for command in shares] == [f"{i}/16" for i in range(16)]
    for path in check.TESTS:
        assert (SCRIPTS.parent / path.partition("=")[2] if path.startswith("--") else SCRIPTS.parent / path).exists()


def test_a_share_is_every_nth_test() -> None:
    def share(given: str | None, behind: list[str] | None = None) -> list[int]:
        items: list[Any] = [SimpleNamespace(nodeid=str(i)) for i in range(7)]
        options = {"--share": given, "--behind": behind}
        pytest_collection_modifyitems(cast("Any", SimpleNamespace(getoption=options.get)), items)
        return [int(item.nodeid) for item in items]

    assert [share(f"{i}/3") for i in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert share(None) == list(range(7))
    assert share(None, ["2"]) == [3, 4, 5, 6]
    assert share("0/2", ["2", "4"]) == [6]


def test_test_files_run_together_and_all_else_alone(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    check = script("gpu_check")
    text = (
        "import os, sys, time; from pathlib import Path; mine = Path(sys.argv[1]); mine.touch(); time.sleep(0.7); "
        "print(*sorted(p.name for p in mine.parent.iterdir() if p.suffix == '.run')); mine.unlink()"
    )
    names = {"tests a": False, "tests b": False, "tests c": False, "bench": True, "last": True}
    todo = [
        check.Part(name, [sys.executable, "-c", text, str(tmp_path / f"{name[-1]}.run")], 60, alone=alone)
        for name, alone in names.items()
    ]
    saved: list[int] = []
    done = check.check(todo, tmp_path, at_once=2, save=lambda found: saved.append(len(found["parts"])))["parts"]
    most = max(len(part["last"].split()) for name, part in done.items() if name.startswith("tests"))
    assert most == 2
    assert [done[name]["last"] for name in ("bench", "last")] == ["h.run", "t.run"]
    assert saved == [1, 2, 3, 4, 5]
    log = (tmp_path / "tests.log").read_text(encoding="utf-8")
    assert all(f"==== {name} ====" in log for name in "abc")
    assert {path.name for path in tmp_path.iterdir()} == {"tests.log", "bench.log", "last.log"}


def test_a_part_that_fails_or_takes_too_long_does_not_stop_the_others(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    check = script("gpu_check")
    programs = {"late": "import time; time.sleep(60)", "bad": "print('why'); exit(3)", "good": "print('ok')"}
    limits = {"late": 1, "bad": 60, "good": 60}
    todo = [check.Part(name, [sys.executable, "-c", text], limits[name]) for name, text in programs.items()]
    done = check.check(todo, tmp_path)["parts"]
    assert [(part["exit"], part["last"]) for part in done.values()] == [(None, ""), (3, "why"), (0, "ok")]
    assert (tmp_path / "bad.log").read_text(encoding="utf-8") == "why\n"


def test_each_result_is_printed_when_it_is_there(
    gpu: ModuleType, script: Callable[[str], ModuleType], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    check, file, seen = script("gpu_check"), tmp_path / "bench_ops.json", list[str]()
    rows = [gpu.Row("a", 1.0, "us", 2.0, most=True).as_json(), gpu.Row("b", 3.0, "x").as_json()]

    def run(todo: Any, folder: Path, *, save: Any, look: Any, **_: Any) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for count in (1, 2):
            file.write_text(json.dumps({"rows": rows[:count]}), encoding="utf-8")
            look()
            seen.append(capsys.readouterr().out)
        parts["bench_ops"] = {"exit": 0, "seconds": 5.0, "last": "", "stopped_at": None, "said": []}
        save({"parts": parts, "seconds": 5})
        seen.append(capsys.readouterr().out)
        return {"parts": parts, "seconds": 5}

    monkeypatch.setattr(check, "check", run)
    assert check.main(["-o", str(tmp_path)]) == 0
    assert seen == [f"{gpu.HEAD}\n| a | 1 us | ≤ 2 us | yes |\n", "| b | 3 x |  |  |\n", seen[2]]
    assert seen[2] == f"bench_ops: done (5 s; {tmp_path.name}/bench_ops.log)\n"
    assert capsys.readouterr().out == f"\nTargets\n\n{gpu.HEAD}\n| a | 1 us | ≤ 2 us | yes |\n"
    assert json.loads((tmp_path / "gpu_check.json").read_text(encoding="utf-8"))["rows"] == rows


LIKE_PYTEST = """
import sys, time
tests = [f"tests/test_it.py::test_{name}" for name in ("first", "stuck[a b]", "last")]
for test in tests[tests.index(sys.argv[-1]) + 1 if "--behind" in sys.argv else 0 :]:
    print(test, end=" ", flush=True)
    time.sleep(60 if "stuck" in test else 0)
    print("PASSED  [ 50%]")
"""


def test_a_test_that_hangs_is_named_and_those_behind_it_run(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    check = script("gpu_check")
    part = check.Part("tests 0", [sys.executable, "-c", LIKE_PYTEST], 60, silent=2)
    first, second = check.check([part], tmp_path)["parts"].items()
    assert check.outcome(*first, tmp_path).startswith(
        "tests 0: not in time, hangs at tests/test_it.py::test_stuck[a b] ("
    )
    assert second[0] == "tests 0 behind tests/test_it.py::test_stuck[a b]"
    assert (second[1]["exit"], second[1]["last"]) == (0, "tests/test_it.py::test_last PASSED  [ 50%]")


def test_what_fails_is_named(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    check = script("gpu_check")
    program = "print('FAILED tests/a.py::test_b - why'); print('== 1 failed in 2 s =='); exit(1)"
    (done,) = check.check([check.Part("tests 0", [sys.executable, "-c", program], 60)], tmp_path)["parts"].values()
    assert check.outcome("tests 0", done, tmp_path).splitlines() == [
        f"tests 0: failed: 1 failed in 2 s ({done['seconds']:.0f} s; {tmp_path.name}/tests.log)",
        "  FAILED tests/a.py::test_b - why",
    ]


def test_what_the_check_of_kernels_says_is_printed(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    check = script("gpu_check")
    (part,) = (part for part in check.parts(tmp_path) if part.name == "kernel_check")
    program = "print('sequence lrn: right'); print('sequence atr: differs'); exit(1)"
    (done,) = check.check([part._replace(command=[sys.executable, "-c", program])], tmp_path)["parts"].values()
    assert check.outcome("kernel_check", done, tmp_path).splitlines()[1:] == [
        "  sequence lrn: right", "  sequence atr: differs"
    ]  # fmt: skip


def race_check(check: ModuleType, folder: Path) -> str:
    """What is said of the race check, and whether it was a failure, after it has run."""
    (part,) = (part for part in check.parts(folder) if part.name == "racecheck")
    (done,) = check.check([part], folder)["parts"].values()
    return f"{check.outcome(part.name, done, Path('here'))}, {done['exit']}"


def test_without_a_race_checker_that_is_said(
    script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = script("gpu_check")
    monkeypatch.setattr(check.shutil, "which", lambda name, path: None)
    assert race_check(check, tmp_path) == "racecheck: not run, as compute-sanitizer is not installed, 0"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "variable"), [("", "PATH"), ("bin", "CUDA_HOME"), ("bin", "CUDA_PATH"), ("backends/nvidia/bin", "")]
)
@pytest.mark.parametrize(("code", "said"), [(0, "done"), (1, "failed: 2 hazards"), (None, "not in time")])
def test_races_are_looked_for_where_there_is_a_checker(
    code: int | None, said: str, place: str, variable: str,
    script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    check = script("gpu_check")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    home = tmp_path / "home"
    if variable:
        monkeypatch.setenv(variable, f"{home}:/usr/bin:/bin" if variable == "PATH" else str(home))
    else:
        spec = SimpleNamespace(origin=str(home / "__init__.py"))
        monkeypatch.setattr(check.importlib.util, "find_spec", lambda name: spec)
    tool = home / place / "compute-sanitizer"
    tool.parent.mkdir(parents=True)
    ending = "sleep 60" if code is None else f"exit {code}"
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/given\necho 2 hazards\nexec 1>&-\n{ending}\n')
    tool.chmod(0o755)
    parts = check.parts(tmp_path)
    monkeypatch.setattr(check, "parts", lambda folder: [part._replace(seconds=1) for part in parts])
    result = race_check(check, tmp_path)
    assert result.startswith(f"racecheck: {said} (")
    assert result.endswith(f", {code}")
    given = (tmp_path / "given").read_text(encoding="utf-8")
    assert given.startswith("--tool racecheck ")
    assert " -m pytest " in given
