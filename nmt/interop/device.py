"""Which device a command computes on, and why it is not the GPU that the machine has."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import torch

from nmt.errors import SettingError, say_once
from nmt.kernel_check.checking import explained

_DEVICES = Path("/dev")


def choose_device(name: str | torch.device, *, index: int | None = None) -> torch.device:
    """The device called `name`; `auto` is a GPU if there is one that can be used. An unusable GPU is reported.

    `index` is the number of this process's GPU where several processes work together, all on GPUs or none.
    Raises ConfigError for a GPU that does not exist or cannot be used.
    """
    device = torch.device("cuda" if name == "auto" else name)
    if device.type != "cuda":
        return device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one line instead of PyTorch's long message
        problem = _problem(device if index is None else torch.device("cuda", index))
        others = index is not None and torch.cuda.is_available()
    if problem is None:
        return device
    if name != "auto" or others:
        raise SettingError(("device", f"'cuda' is not possible, because {problem}. Allowed: auto, cpu."))
    if torch.version.cuda and _has_gpu():
        say_once(__name__, f"device: the CPU is used, because {problem}")
    return torch.device("cpu")


def _problem(device: torch.device) -> str | None:
    """Why this GPU cannot be used, None if it can; found out by using it."""
    if not torch.version.cuda and not torch.version.hip:
        return f"PyTorch {torch.__version__} is a build for CPUs only"
    try:
        if torch.cuda.is_available():
            torch.ones(1, device=device).add_(1).item()
            return None
        if _has_gpu():
            torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        first = str(error).strip().split("\n")[0].rstrip(".")
        return f"the GPU cannot be used: {explained(str(error), unknown=first)}"
    return "PyTorch finds no GPU here"


def _has_gpu() -> bool:
    """Whether this machine has NVIDIA's driver for a GPU that is not hidden from us."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and any(_DEVICES.glob("nvidia[0-9]*"))
