"""A GPU that computes nothing: tensors of the device "meta" that say they are on one, and Triton without launches.

Reading a value on the host raises, as there is none: so what would wait for a GPU is found without one.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import pytest
import torch
from torch import Tensor

FAKE_GPU: Final = torch.device("meta")


def pretend_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on tensors on FAKE_GPU pass for a GPU's; returns the names of the Triton kernels launched, as they are.

    There is no autocast.
    """
    launched: list[str] = []

    def launcher(kernel: Any, grid: Any) -> Any:
        return lambda *_, **__: launched.append(kernel.fn.__name__)

    monkeypatch.setattr(Tensor, "is_cuda", property(lambda x: x.device == FAKE_GPU), raising=False)
    monkeypatch.setattr(torch.cuda, "device_of", lambda x: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    with contextlib.suppress(ImportError):
        from triton.runtime.jit import KernelInterface

        monkeypatch.setattr(KernelInterface, "__getitem__", launcher)
    return launched
