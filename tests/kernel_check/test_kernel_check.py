"""How operations are tried on a GPU before `auto` runs them: trials in processes, what is kept and what is said."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt import kernel_check
from nmt.errors import ConfigError
from nmt.kernel_check import __main__ as program
from nmt.kernel_check import record, trials
from nmt.kernel_check.cases import CHECKS, SMALL
from nmt.kernel_check.comparison import DifferenceError
from nmt.kernel_check.record import Findings
from nmt.models.graphed import GraphedModel
from nmt.ops import dispatch
from nmt.ops.dispatch import Selection

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")


def scripts(**programs: str) -> trials.Command:
    """In place of the checks, Python programs."""
    return lambda operation, device: [sys.executable, "-c", programs[operation]]


def test_every_operation_that_auto_may_run_is_checked() -> None:
    assert CHECKS.keys() == kernel_check.OPERATIONS == dispatch.TRITON_KERNELS.keys() | {"decoding_step", "lstm_layer"}


@pytest.mark.parametrize("operation", sorted(CHECKS))
def test_what_is_right_passes(operation: str) -> None:
    """Here the C kernels, where there are any."""
    for storage in (torch.float32, torch.bfloat16):
        CHECKS[operation](CPU, SMALL, storage, Selection("auto", frozenset({operation})))


def test_what_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is off by 1 in 1,000, in the last step alone."""
    lrn = sys.modules["nmt.ops.lrn"]
    choose = lrn.choose

    def slightly_wrong(operation: str, reference: Any, *, like: torch.Tensor) -> Any:
        if dispatch._selected.choice == "reference":
            return reference

        def run(*arguments: Any, **options: Any) -> Any:
            outputs, last = choose(operation, reference, like=like)(*arguments, **options)
            return outputs, last * 1.001

        return run

    monkeypatch.setattr(lrn, "choose", slightly_wrong)
    with pytest.raises(DifferenceError, match="result 1 differs from the reference's by "):
        CHECKS["lrn"](CPU, SMALL, torch.float32, Selection("auto", frozenset({"lrn"})))


def with_gradient(factor: float, value: torch.Tensor) -> torch.Tensor:
    """The same value with a gradient that is so many times as large."""
    return factor * value - (factor - 1) * value.detach()


def test_a_wrong_gradient_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off by 1 in 100, where the values are right; of the loss its weighted sum alone is differentiated."""
    lrn, cases = sys.modules["nmt.ops.lrn"], sys.modules["nmt.kernel_check.cases"]
    choose, loss = lrn.choose, cases.linear_cross_entropy

    def wrong_sequence(operation: str, reference: Any, *, like: torch.Tensor) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            outputs, last = choose(operation, reference, like=like)(*arguments, **options)
            return with_gradient(1.01, outputs), last

        return reference if dispatch._selected.choice == "reference" else run

    def wrong_loss(*arguments: Any, **options: Any) -> Any:
        total, losses = loss(*arguments, **options)
        return total if dispatch._selected.choice == "reference" else with_gradient(1.01, total), losses

    monkeypatch.setattr(lrn, "choose", wrong_sequence)
    monkeypatch.setattr(cases, "linear_cross_entropy", wrong_loss)
    for operation in ("lrn", "linear_cross_entropy"):
        with pytest.raises(DifferenceError, match="differs from the reference's by "):
            CHECKS[operation](CPU, SMALL, torch.float32, Selection("auto", frozenset({operation})))


def test_wrong_words_of_a_decoding_step_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    decoding = sys.modules["nmt.kernel_check.decoding"]

    class OtherWords(GraphedModel):
        def best(self, *arguments: Any) -> Any:
            found, state = super().best(*arguments)
            return found._replace(words=found.words.roll(1, 1)), state

    monkeypatch.setattr(decoding, "GraphedModel", OtherWords)
    with pytest.raises(DifferenceError, match="the best words differ"):
        CHECKS["decoding_step"](CPU, SMALL, torch.float32, Selection("auto", frozenset({"decoding_step"})))


def test_what_is_not_a_number_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = sys.modules["nmt.ops.attention"]

    def without_context(operation: str, reference: Any, *, like: torch.Tensor) -> Any:
        if dispatch._selected.choice == "reference":
            return reference
        return lambda *arguments, **options: [part * torch.nan for part in reference(*arguments, **options)]

    monkeypatch.setattr(attention, "choose", without_context)
    with pytest.raises(DifferenceError):
        CHECKS["attention"](CPU, SMALL, torch.float32, Selection("auto", frozenset({"attention"})))


def test_a_trial_that_crashes_or_hangs_harms_only_its_operation(tmp_path: Path) -> None:
    child = tmp_path / "child"
    hanging = f"import os, time; open({str(child)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    command = scripts(
        right="",
        wrong="import sys; print('float32: result 1 differs'); sys.exit(10)",
        full="import sys; print('CUDA out of memory'); sys.exit(11)",
        crashes="import os; os.abort()",
        fails="raise ValueError('no such kernel')",
        hangs=hanging,
    )
    operations = ["hangs", "right", "wrong", "full", "crashes", "fails"]
    findings, undecided = trials.try_out(operations, GPU, command=command, seconds=3)
    assert findings.verified == {"right"}
    assert findings.refused == {
        "wrong": "float32: result 1 differs",
        "crashes": f"ended by signal {int(signal.SIGABRT)}",
        "fails": "failed: ValueError: no such kernel",
        "hangs": "has not ended in 3 seconds",
    }
    assert undecided == {"full": "CUDA out of memory"}
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)


def test_an_interrupt_ends_the_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child"
    hanging = f"import os, time; open({str(child)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    sleep = time.sleep

    def interrupted(seconds: float) -> None:
        sleep(seconds)
        if child.exists() and child.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(trials.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trials.try_out(["hangs"], GPU, command=scripts(hangs=hanging))
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_trial_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    """It would go on using the GPU."""
    ready = tmp_path / "ready"
    trial = (
        "import os, time; from nmt.kernel_check.__main__ import end_with_parent; end_with_parent(); "
        f"open({str(ready)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )
    start = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {trial!r}], start_new_session=True).wait()"
    )
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


@pytest.fixture
def _a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As far as the record looks at one."""
    properties = SimpleNamespace(name="GPU of 2026", major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: properties.name)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(kernel_check, "triton_problem", lambda: None)
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    kernel_check.verified_on.cache_clear()


class Tried:
    """In place of the trials: what they find, and what they were asked."""

    def __init__(self, refused: dict[str, str], undecided: dict[str, str]) -> None:
        self.refused, self.undecided = refused, undecided
        self.asked: list[list[str]] = []

    def __call__(self, operations: list[str], device: torch.device) -> tuple[Findings, dict[str, str]]:
        self.asked.append(operations)
        refused = {name: why for name, why in self.refused.items() if name in operations}
        undecided = {name: why for name, why in self.undecided.items() if name in operations}
        return Findings(frozenset(operations) - refused.keys() - undecided.keys(), refused), undecided


@pytest.mark.usefixtures("_a_gpu")
def test_what_was_found_is_kept_and_what_is_refused_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = Tried({"atr": "float32: result 0 differs"}, {"sru": "CUDA out of memory"})
    monkeypatch.setattr(trials, "try_out", tried)
    expected = kernel_check.OPERATIONS - {"atr", "sru"}
    with caplog.at_level(logging.WARNING):
        assert kernel_check.verified_on(GPU) == expected
    (path,) = Path(os.environ["NMT_CACHE"]).glob("gpu-*.json")
    count = len(kernel_check.OPERATIONS)
    assert caplog.messages == [
        f"kernels: checking {count} operations on GPU of 2026, once: what is found is kept in {path}",
        "kernels: PyTorch runs atr, because on this GPU our form of it is wrong: float32: result 0 differs",
        "kernels: PyTorch runs sru, because our form of it could not be tried: CUDA out of memory",
    ]
    kernel_check.verified_on.cache_clear()
    tried.undecided = {}
    assert kernel_check.verified_on(GPU) == expected | {"sru"}
    assert tried.asked == [sorted(kernel_check.OPERATIONS), ["sru"]]  # only what could not be tried before
    kernel_check.find_out(GPU, again=True)
    assert tried.asked[2:] == [sorted(kernel_check.OPERATIONS)]


@pytest.mark.usefixtures("_a_gpu")
@pytest.mark.parametrize("damage", ["", "[]", '{"verified": 3, "refused": {}}', '{"verified": []}', "\0\0"])
def test_a_damaged_record_is_made_again(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Tried({}, {})
    monkeypatch.setattr(trials, "try_out", tried)
    path = record.record_file(GPU)
    assert path is not None
    path.write_text(damage)
    kernel_check.find_out(GPU)
    assert tried.asked == [sorted(kernel_check.OPERATIONS)]
    assert json.loads(path.read_text()) == {"verified": sorted(kernel_check.OPERATIONS), "refused": {}}


@pytest.mark.usefixtures("_a_gpu")
def test_a_cache_that_cannot_be_written_to_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trials, "try_out", Tried({}, {}))
    (tmp_path / "file").touch()
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "file" / "cache"))
    assert kernel_check.verified_on(GPU) == kernel_check.OPERATIONS
    assert "each time, as there is no cache directory" in caplog.messages[-1]


@pytest.mark.usefixtures("_a_gpu")
def test_a_full_disk_is_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trials, "try_out", Tried({}, {}))
    monkeypatch.setattr(os, "fsync", full)
    assert kernel_check.verified_on(GPU) == kernel_check.OPERATIONS
    assert "could not be kept" in caplog.messages[-1] and "No space left" in caplog.messages[-1]
    assert [path.suffix for path in Path(os.environ["NMT_CACHE"]).iterdir()] == [".lock"]


@pytest.mark.usefixtures("_a_gpu")
def test_a_record_that_others_can_have_written_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = Tried({}, {})
    monkeypatch.setattr(trials, "try_out", tried)
    kernel_check.find_out(GPU)
    kernel_check.find_out(GPU)
    assert len(tried.asked) == 1
    path = record.record_file(GPU)
    assert path is not None
    path.chmod(0o666)
    kernel_check.find_out(GPU)
    assert len(tried.asked) == 2
    path.parent.chmod(0o777)
    other = record.record_file(GPU)
    assert other is not None and other.parent != path.parent and other.name == path.name
    assert f"{path.parent} can be written to by others (mode 0777), so they are kept in" in caplog.messages[-1]


@pytest.mark.usefixtures("_a_gpu")
def test_without_triton_the_rest_is_checked_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = Tried({}, {})
    monkeypatch.setattr(trials, "try_out", tried)
    monkeypatch.setattr(kernel_check, "triton_problem", lambda: "Triton is not installed (pip install triton)")
    for _ in range(2):
        assert kernel_check.verified_on(GPU) == {"decoding_step", "lstm_layer"}
    said = [message for message in caplog.messages if "Triton" in message]
    assert said == [
        "kernels: slower PyTorch code runs on this GPU, because Triton is not installed (pip install triton)"
    ]


@pytest.mark.usefixtures("_a_gpu")
def test_other_versions_have_a_record_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = record.record_file(GPU)
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert record.record_file(GPU) != first


def test_only_auto_on_a_gpu_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_check, "verified_on", lambda device: frozenset({"lrn"}))
    with dispatch.selected("auto"):
        kernel_check.choose_kernels("auto", device=CPU)
        assert dispatch._selected == Selection("auto")
        kernel_check.choose_kernels("reference", device=GPU)
        assert dispatch._selected == Selection("reference")
        kernel_check.choose_kernels("auto", device=GPU)
        assert dispatch._selected == Selection("auto", frozenset({"lrn"}))
        with pytest.raises(ConfigError, match="not a known choice"):
            kernel_check.choose_kernels("trition", device=GPU)
        with pytest.raises(ConfigError, match="'triton' was asked for, but the device is the CPU, .* Use auto.$"):
            kernel_check.choose_kernels("triton", device=CPU)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (None, trials.EQUAL, ""),
        (DifferenceError("result 1 differs"), trials.DIFFERENT, "float32, width 40: result 1 differs\n"),
        (torch.cuda.OutOfMemoryError("CUDA out of memory.\nTried"), trials.UNDECIDED, "CUDA out of memory.\n"),
        (RuntimeError("CUDA error: illegal address"), trials.DIFFERENT, "float32, width 40: CUDA error: illegal addr"),
    ],
)
def test_what_a_trial_says(
    error: Exception | None, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(*arguments: Any) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(program, "CHECKS", {"lrn": check})
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    flags = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    try:
        assert program.try_one("lrn", CPU) == code
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = flags
    assert capsys.readouterr().out.startswith(text)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_trial_without_a_gpu_is_undecided_and_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    findings, undecided = trials.try_out(["lrn"], GPU)
    assert findings == record.NOTHING
    assert list(undecided) == ["lrn"]
    assert program.main([]) == 1
    assert capsys.readouterr().err == "nmt.kernel_check: PyTorch finds no GPU here\n"


@pytest.mark.gpu
def test_on_this_gpu_all_is_right() -> None:
    findings, undecided = kernel_check.find_out(torch.device("cuda"), again=True)
    assert (findings.refused, undecided) == ({}, {})
