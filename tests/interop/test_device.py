"""Which device a command takes, and what it says of a GPU that it cannot use."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from nmt.errors import ConfigError, say_once
from nmt.interop import device
from nmt.interop.device import choose_device


class Machine:
    """As far as PyTorch and this package look at one with an NVIDIA GPU."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.available, self.error = True, ""
        (folder / "nvidia0").touch()
        monkeypatch.setattr(device, "_DEVICES", folder)
        monkeypatch.setattr(torch.version, "cuda", "12.9")
        monkeypatch.setattr(torch.cuda, "is_available", self._is_available)
        monkeypatch.setattr(torch.cuda, "init", self._use)
        monkeypatch.setattr(torch, "ones", self._use)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        say_once.cache_clear()

    def _is_available(self) -> bool:
        warnings.warn("CUDA initialization: pages of it", stacklevel=2)
        return self.available

    def _use(self, *arguments: object, **options: object) -> torch.Tensor:
        if self.error:
            raise RuntimeError(self.error)
        return torch.zeros(1)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.filterwarnings("error")
def test_a_gpu_that_works_is_taken(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    assert choose_device("cpu") == torch.device("cpu")
    assert caplog.messages == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("available", "error", "said"),
    [
        (
            False,
            "The NVIDIA driver on your system is too old (found version 11040).\nPlease update",
            "NVIDIA's driver is too old for this PyTorch: install a newer driver",
        ),
        (False, "Unexpected error from cudaGetDeviceCount(). Did you\nrun?", "Unexpected error from cudaGetDeviceC"),
        (True, "CUDA error: out of memory\nCUDA kernel errors", "the GPU has too little free memory: end what uses it"),
        (True, "CUDA error: all CUDA-capable devices are busy or unavailable", "another process has the GPU to itself"),
        (
            True,
            "CUDA error: no kernel image is available",
            "this PyTorch is not built for such a GPU: install a PyTorch",
        ),
    ],
)
def test_a_gpu_that_cannot_be_used_is_said_once(
    available: bool, error: str, said: str, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """And the CPU computes, unless the GPU was asked for."""
    machine.available, machine.error = available, error
    for _ in range(2):
        assert choose_device("auto") == torch.device("cpu")
    (line,) = caplog.messages
    assert line.startswith(f"device: the CPU is used, because the GPU cannot be used: {said}") and "\n" not in line
    with pytest.raises(
        ConfigError, match=r"^device: 'cuda' is not possible, because the GPU cannot be used: .* auto, cpu\.$"
    ):
        choose_device("cuda")


def test_processes_that_work_together_do_not_go_on_without_a_gpu(machine: Machine) -> None:
    machine.error = "CUDA error: out of memory"
    with pytest.raises(ConfigError, match="too little free memory"):
        choose_device("auto", index=0)
    machine.available = False
    assert choose_device("auto", index=0) == torch.device("cpu")


def test_nothing_is_said_where_there_is_no_gpu(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Or where it is hidden, or PyTorch is a build for CPUs."""
    machine.available, machine.error = False, "The NVIDIA driver on your system is too old"
    with monkeypatch.context() as hidden:
        hidden.setenv("CUDA_VISIBLE_DEVICES", "")
        assert choose_device("auto") == torch.device("cpu")
    with monkeypatch.context() as other_build:
        other_build.setattr(torch.version, "cuda", None)
        assert choose_device("auto") == torch.device("cpu")
    (tmp_path / "nvidia0").unlink()
    assert choose_device("auto") == torch.device("cpu")
    assert caplog.messages == []
