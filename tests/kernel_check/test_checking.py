"""What is known of a GPU's kernels: what is tried, kept and said, and when something is tried again."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import nmt.kernel_check as kernel_check
from nmt.errors import ConfigError
from nmt.kernel_check import __main__ as program
from nmt.kernel_check import checking
from nmt.kernel_check.checking import FIRST, MOST_SECONDS, MOST_TIMES, Outcome, Task, Tell, find_out
from nmt.ops import dispatch
from nmt.ops.dispatch import Selection

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
KEYS = ["attention", "decoding_step", "dropout", "linear_cross_entropy"]
RIGHT = Outcome("right")
FULL = Outcome("undecided", "the GPU has too little free memory: end what uses it")
LATE = Outcome("undecided", "it has not ended in 300 seconds", timed_out=True)


class Tried:
    """In place of the processes: what they find, and what they were asked."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.asked: list[str] = []
        self.seconds: dict[str, float] = {}

    def __call__(self, tasks: Sequence[Task], tell: Tell, *, processes: int) -> None:
        for task in tasks:
            self.seconds |= task.seconds
            for name in task.seconds:
                self.asked.append(name)
                tell(name, self.outcomes.get(name, RIGHT))

    def again(self) -> list[str]:
        """What it was asked since the last call."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture(autouse=True)
def capability(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """A GPU, as far as this package looks at one, with this compute capability."""
    found = [9, 0]
    properties = SimpleNamespace(name="GPU of 2026", major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: properties.name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: tuple(found))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 80 << 30))
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    for place in (kernel_check, program):
        monkeypatch.setattr(place, "triton_problem", lambda: None)
    kernel_check._can_have_kernels.cache_clear()
    return found


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Tried:
    found = Tried()
    monkeypatch.setattr(checking, "try_out", found)
    return found


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """One that needs all of KEYS."""
    monkeypatch.setattr(kernel_check, "needed", lambda model, purpose: KEYS)
    return nn.Module()


def verified(model: nn.Module, **options: object) -> frozenset[str]:
    """What `auto` runs for the model after the check."""
    with dispatch.selected("auto"):
        kernel_check.use_verified_kernels([model], device=GPU, **{"purpose": "training", **options})  # type: ignore[arg-type]
        return dispatch.selection().verified


def the_record() -> Path:
    path = checking.record_file(GPU)
    assert path is not None
    return path


def test_what_was_found_is_kept_and_said(tried: Tried, model: nn.Module, caplog: pytest.LogCaptureFixture) -> None:
    """A difference for good, an accident until the next start."""
    tried.outcomes = {"dropout": Outcome("wrong", "float32: result 0 differs"), "attention": FULL}
    assert verified(model) == {"decoding_step", "linear_cross_entropy"}
    assert caplog.messages[0] == (
        f"kernels: checking 4 operations on GPU of 2026, once: results are kept in {the_record()}"
    )
    progress = [message.partition(" s: ")[2] for message in caplog.messages[1:5]]
    assert progress == ["attention is not tried", "decoding_step is right", "dropout is wrong",
                        "linear_cross_entropy is right"]  # fmt: skip
    assert [message.split(",")[0] for message in caplog.messages[1:5]] == [f"kernels: {n} of 4" for n in (1, 2, 3, 4)]
    assert caplog.messages[5:] == [
        "kernels: PyTorch runs dropout, because nmt's kernel is wrong on this GPU: float32: result 0 differs",
        "kernels: slower PyTorch code runs attention, because nmt's kernels could not be checked: the GPU has too "
        "little free memory: end what uses it (tried again at the next start)",
    ]
    assert tried.again() == [FIRST, *KEYS]
    assert verified(model) == {"decoding_step", "linear_cross_entropy"}
    assert tried.again() == [FIRST, "attention"]
    assert caplog.messages[-1].endswith("2 times (tried again at the next start)")
    tried.outcomes = {}
    assert verified(model) == {"attention", "decoding_step", "linear_cross_entropy"}
    tried.again()
    verified(model)
    assert tried.again() == []
    assert {outcome.state for outcome in find_out(KEYS, GPU, again=True).values()} == {"right"}
    assert tried.again() == [FIRST, *KEYS]


def test_each_outcome_is_kept_at_once(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found before Ctrl-C is not tried again."""

    def interrupted(tasks: Sequence[Task], tell: Tell, *, processes: int) -> None:
        if FIRST in tasks[0].seconds:
            return tell(FIRST, RIGHT)
        tell("dropout", RIGHT)
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "try_out", interrupted)
    with pytest.raises(KeyboardInterrupt):
        find_out(KEYS, GPU)
    monkeypatch.setattr(checking, "try_out", tried)
    find_out(KEYS, GPU)
    assert tried.asked == [FIRST, "attention", "decoding_step", "linear_cross_entropy"]


def test_without_a_first_kernel_no_other_is_tried(
    tried: Tried, model: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    """But what needs no Triton; the reason is said once."""
    tried.outcomes[FIRST] = Outcome("undecided", "Triton needs a C compiler: install gcc or clang, or set CC to one")
    assert verified(model) == {"decoding_step"}
    assert tried.again() == [FIRST, "decoding_step"]
    (said,) = [message for message in caplog.messages if "compiler" in message]
    assert said == (
        "kernels: slower PyTorch code runs attention, dropout, linear_cross_entropy, because nmt's kernels could not "
        "be checked: Triton needs a C compiler: install gcc or clang, or set CC to one (tried again at the next start)"
    )


def test_what_ends_too_late_gets_more_time_each_time_but_not_for_ever(
    tried: Tried, model: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    tried.outcomes["attention"] = FULL  # which is no time-out
    for _ in range(MOST_TIMES):
        verified(model)
    tried.outcomes["attention"] = LATE
    for time_number in range(MOST_TIMES):
        verified(model)
        assert tried.seconds["attention"] == MOST_SECONDS * 2**time_number
    tried.again()
    assert "attention" not in verified(model)
    assert tried.again() == []
    assert caplog.messages[-1].endswith(", 3 times (only python -m nmt.kernel_check tries again)")
    find_out(KEYS, GPU, again=True)
    assert tried.seconds["attention"] == MOST_SECONDS


def test_what_another_process_has_just_tried_in_vain_is_left(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a machine start together and wait for the first of them."""
    path, times = the_record(), iter([100.0])
    monkeypatch.setattr(checking.time, "time", lambda: next(times, 200.0))
    path.write_text(json.dumps({"attention": FULL._replace(when=150.0)._asdict()}))
    assert find_out(["attention"], GPU)["attention"].state == "undecided"
    assert tried.asked == []
    monkeypatch.setattr(checking.time, "time", lambda: 200.0)
    find_out(["attention"], GPU)
    assert tried.asked == [FIRST, "attention"]


def test_search_needs_no_gradients(tried: Tried, model: nn.Module) -> None:
    """What is right with them is right without, but not the other way round."""
    assert verified(model, purpose="search") == set(KEYS)
    assert tried.again() == [FIRST, *(f"{key} forward" for key in KEYS)]
    assert verified(model) == set(KEYS)
    assert tried.again() == [FIRST, *KEYS]
    the_record().unlink()
    verified(model)
    tried.again()
    assert verified(model, purpose="search") == set(KEYS)
    assert tried.again() == []


def test_a_dry_run_only_reads(tried: Tried, model: nn.Module) -> None:
    assert verified(model, check=False) == frozenset()
    find_out(["dropout"], GPU)
    tried.again()
    assert verified(model, check=False) == {"dropout"}
    assert tried.again() == []


def test_nothing_is_checked_below_capability_8(
    tried: Tried, model: nn.Module, capability: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    capability[:] = [7, 5]
    for _ in range(2):
        assert verified(model) == frozenset()
    assert tried.asked == []
    assert caplog.messages == [
        "kernels: slower PyTorch code runs on this GPU, because its compute capability, 7.5, is below 8.0"
    ]


def test_capability_8_is_enough(tried: Tried, model: nn.Module, capability: list[int]) -> None:
    capability[:] = [8, 0]
    assert verified(model) and verified(model) < set(tried.asked)


def test_without_triton_the_rest_is_checked_and_that_is_said_once(
    tried: Tried, model: nn.Module, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch, "triton_version", lambda: "3.2.0")
    monkeypatch.setattr(kernel_check, "triton_problem", dispatch.triton_problem)
    for _ in range(2):
        assert verified(model) == {"decoding_step"}
    assert tried.asked == ["decoding_step"]
    assert [message for message in caplog.messages if "Triton" in message] == [
        "kernels: slower PyTorch code runs on this GPU, because Triton 3.2.0 is older than 3.6, which a newer PyTorch "
        "brings"
    ]


def test_only_auto_on_a_gpu_looks(tried: Tried, model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    for choice, device in (("auto", CPU), ("reference", GPU)):
        with dispatch.selected("auto"):
            kernel_check.choose_kernels(choice, device=device)
            kernel_check.use_verified_kernels([model], device=device, purpose="training")
            assert dispatch.selection() == Selection(choice)
    assert tried.asked == []
    with pytest.raises(ConfigError, match="not a known choice"):
        kernel_check.choose_kernels("trition", device=GPU)
    monkeypatch.setattr("nmt.kernel_check.interpreted", lambda: False)
    with pytest.raises(
        ConfigError, match="'triton' is not possible.* CPU. Allowed there: auto, reference; and with TRITON_"
    ):
        kernel_check.choose_kernels("triton", device=CPU)


@pytest.mark.parametrize("damage", ["", "[]", '{"dropout": 3}', '{"dropout": {"state": "good"}}', "\0\0"])
def test_a_damaged_record_is_made_again(damage: str, tried: Tried) -> None:
    the_record().write_text(damage)
    find_out(["dropout"], GPU)
    assert tried.asked == [FIRST, "dropout"]
    assert checking.read_record(the_record())["dropout"].state == "right"


def test_a_cache_that_cannot_be_written_to_is_no_error(
    tried: Tried, model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "file" / "cache"))
    assert verified(model) == set(KEYS)
    assert caplog.messages[0].endswith("each time, because results cannot be kept")


def test_a_full_disk_is_no_error(
    tried: Tried, model: nn.Module, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert verified(model) == set(KEYS)
    (said,) = [message for message in caplog.messages if "cannot be kept" in message]
    assert said.endswith("No space left on device")
    assert [path.suffix for path in Path(os.environ["NMT_CACHE"]).iterdir()] == [".lock"]


def test_processes_that_cannot_be_started_are_an_accident(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(*arguments: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(checking.subprocess, "Popen", start)
    assert verified(model) == frozenset()
    assert caplog.messages[-1] == (
        "kernels: slower PyTorch code runs everything, because nmt's kernels could not be checked: Resource "
        "temporarily unavailable (tried again at the next start)"
    )


def test_a_record_that_others_can_have_written_is_not_believed(tried: Tried, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        find_out(["dropout"], GPU)
    assert tried.again() == [FIRST, "dropout"]
    path = the_record()
    path.chmod(0o666)
    find_out(["dropout"], GPU)
    assert tried.again() == [FIRST, "dropout"]
    path.parent.chmod(0o777)
    other = the_record()
    assert other.parent != path.parent and other.name == path.name
    assert f"{path.parent} can be written to by others (mode 0777), so they are kept in" in caplog.messages[-1]


def test_other_versions_drivers_and_plugins_have_a_record_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, driver = tmp_path / "unit.py", tmp_path / "version"
    plugin.write_text("x = 1\n")
    monkeypatch.setattr(checking, "_DRIVER", driver)
    paths = [the_record(), checking.record_file(GPU, [plugin])]
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\nGCC version: gcc 12\n")
    assert checking.driver_version().startswith("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15")
    paths.append(the_record())
    driver.write_text(driver.read_text().replace("gcc 12", "gcc 13"))
    assert the_record() == paths[-1]
    library = SimpleNamespace(cuDriverGetVersion=lambda number: setattr(number._obj, "value", 12080) or 0)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert checking.driver_version().endswith("550.54.15, CUDA 12080")
    paths.append(the_record())
    monkeypatch.setattr(torch, "__version__", "99.0")
    paths.append(the_record())
    assert len(set(paths)) == len(paths)


def test_the_command_prints_all_and_tries_all_again(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([]) == 1
    assert capsys.readouterr().err == "nmt.kernel_check: PyTorch finds no GPU here\n"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(program, "all_keys", lambda: KEYS)
    assert program.main([]) == 0
    assert capsys.readouterr().out == "".join(f"{key}: right\n" for key in KEYS)
    tried.outcomes = {"dropout": Outcome("wrong", "result 0 differs"), "attention": FULL}
    assert program.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert f"attention: {FULL.reason} (tried again at the next start)" in lines
    assert "dropout: result 0 differs" in lines and "decoding_step: right" in lines
    for name in list(tried.outcomes):
        other = tried.outcomes.pop(name)
        assert program.main([]) == 1
        tried.outcomes[name] = other
    capsys.readouterr()
    assert program.main(["decoding_step", "cuda:0"]) == 0
    assert capsys.readouterr().out == "decoding_step: right\n"


def test_time_stands_in_the_record(tried: Tried) -> None:
    find_out(["dropout"], GPU)
    assert abs(checking.read_record(the_record())["dropout"].when - time.time()) < 60


def test_layers_have_theirs_verified_beside_those_of_models(
    tried: Tried, model: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a process; what a model needs stays verified, and what is wrong is not, whoever asked for it."""
    kernel_check._found_right.cache_clear()
    tried.outcomes = {"bidirectional lrn": Outcome("wrong", "float32: result 0 differs")}
    keys = ("bidirectional lrn", "sequence lrn")
    with dispatch.selected("auto"):
        kernel_check.use_verified_kernels([model], device=GPU, purpose="search")
        for _ in range(2):
            kernel_check.verify_operations(keys, device=GPU)
            assert dispatch.selection() == Selection("auto", frozenset({*KEYS, "sequence lrn"}))
        assert tried.again()[-3:] == [FIRST, *keys]
        assert caplog.messages[-1].startswith("kernels: PyTorch runs bidirectional lrn, because nmt's kernel")
        kernel_check.use_verified_kernels([model], device=GPU, purpose="search")
        kernel_check.verify_operations(keys, device=GPU)
        assert "sequence lrn" in dispatch.selection().verified, "another model does not take it away for good"
    kernel_check.verify_operations(keys, device=CPU)
    with dispatch.selected("reference"):
        kernel_check.verify_operations(keys, device=GPU)
        assert dispatch.selection() == Selection("reference")
    assert tried.again() == []
