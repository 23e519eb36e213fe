"""Which implementation runs, and what a user is told when the one asked for does not exist."""

from __future__ import annotations

import re
import threading
from types import SimpleNamespace

import pytest
import torch

from nmt.errors import ConfigError, say_once
from nmt.ops import dispatch


def reference() -> str:
    return "reference"


def kernel() -> str:
    return "kernel"


KERNEL = f"{__name__}:kernel"


def chosen(choice: str, operation: str = "lrn") -> str:
    """What runs on the CPU after `choice`, without leaving the choice behind."""

    with dispatch.selected(choice):
        return dispatch.choose(operation, reference, like=torch.zeros(1), native=KERNEL, triton=KERNEL)()


@pytest.mark.parametrize(
    ("choice", "usable", "runs"),
    [("auto", True, "kernel"), ("auto", False, "reference"), ("reference", True, "reference")],
)
def test_a_cpu_runs_the_c_kernels_where_there_are_any(
    choice: str, usable: bool, runs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch.native, "usable", lambda like: usable)
    assert chosen(choice) == runs


def test_triton_without_a_kernel_for_this_operation_or_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_version", lambda: "3.6.0")
    monkeypatch.setattr(dispatch, "interpreted", lambda: False)
    for operation in ("lrn", "gru"):
        with pytest.raises(ConfigError, match=f"no kernel for {operation} on cpu"):
            chosen("triton", operation)


@pytest.mark.parametrize(
    ("version", "problem"),
    [(None, "Triton is not installed"), ("3.5.1", r"Triton 3\.5\.1 is older than 3\.6"), ("2.9", "older than 3.6")],
)
def test_without_a_triton_that_will_do_the_reference_runs_and_that_is_said_once(
    version: str | None, problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch, "triton_version", lambda: version)
    say_once.cache_clear()
    gpu = SimpleNamespace(is_cuda=True, dtype=torch.float32, device=torch.device("cuda"))
    with dispatch.selected("auto", verified={"lrn"}):
        for _ in range(2):
            assert dispatch.choose("lrn", reference, like=gpu, triton=KERNEL) is reference
    assert len(caplog.messages) == 1
    assert re.search(f"^lrn: .*{problem}.*, slower PyTorch code runs.$", caplog.messages[0])
    with pytest.raises(ConfigError, match=f"^kernels: 'triton' was asked for, but .*{problem}.* Use auto.$"):
        dispatch.set_kernels("triton")


def test_auto_leaves_out_kernels_that_are_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_problem", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    gpu = SimpleNamespace(is_cuda=True, dtype=torch.float32, device=torch.device("cuda"))
    for choice, runs in (("auto", ["reference", "kernel"]), ("triton", ["kernel", "kernel"])):
        with dispatch.selected(choice, verified={"b"}):
            assert [
                dispatch.choose(operation, reference, like=gpu, triton=KERNEL)() for operation in ("a", "b")
            ] == runs


def test_all_threads_run_what_was_chosen() -> None:
    """Autograd runs checkpointed layers again in threads of its own, and servers translate in theirs."""
    found = []
    with dispatch.selected("reference"):
        thread = threading.Thread(target=lambda: found.append(dispatch.use_native(torch.zeros(1))))
        thread.start()
        thread.join()
    assert found == [False]


@pytest.mark.parametrize("version", ["3.6.0", "3.10.0", "3.7.0+git1234", "4.0"])
def test_versions_that_will_do(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_version", lambda: version)
    assert dispatch.triton_problem() is None


def test_unknown_choice_names_the_near_miss() -> None:
    with pytest.raises(ConfigError, match="'trition' .* mean 'triton'.* Allowed: auto, triton, reference"):
        chosen("trition")
