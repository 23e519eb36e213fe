"""The kernels that compute, in words: other kernels give the same results except for rounding."""

from __future__ import annotations

import torch

from nmt.ops import native
from nmt.ops.dispatch import selection, triton_version


def kernels_in_use(device: torch.device) -> str:
    """The implementations chosen for a device, described so exactly that equal words mean equal code."""
    choice, verified = selection()
    if choice == "reference":
        return "PyTorch"
    if device.type == "cpu":
        return f"C {native.identity()}" if choice == "auto" and native.problem() is None else "PyTorch"
    if choice == "triton":
        return f"Triton {triton_version()}"
    return f"Triton {triton_version()} for {', '.join(sorted(verified))}" if verified else "PyTorch"
