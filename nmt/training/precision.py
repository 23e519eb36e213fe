"""Which number format training computes in: fp32, or autocast to bf16 or fp16 with fp32 weights."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal

import torch

from nmt.errors import ConfigError
from nmt.ops.hardware import bf16_hardware, device_noun

PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]

FP16_CAPABILITY: Final = (7, 0)
"""Compute capability from which GPUs of NVIDIA have matrix units for fp16."""


@dataclass(frozen=True)
class Precision:
    """A chosen number format; `str()` gives the format and the reason in one line."""

    name: Literal["fp32", "bf16", "fp16"]
    reason: str
    device: torch.device

    @property
    def dtype(self) -> torch.dtype | None:
        """What autocast casts to; None for fp32."""
        return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.name]

    def autocast(self) -> AbstractContextManager[object]:
        """Context for forward passes; does nothing for fp32."""
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def grad_scaler(self) -> torch.amp.GradScaler:
        """Loss scaling for fp16; for other formats it is disabled."""
        return torch.amp.GradScaler(self.device.type, enabled=self.name == "fp16")

    def __str__(self) -> str:
        how = "fp32" if self.name == "fp32" else f"{self.name} autocast, fp32 weights"
        return f"precision: {how} ({self.reason})"


def choose_precision(requested: PrecisionName, *, device: torch.device) -> Precision:
    """Turn `training.precision` into what suits `device`.

    `auto` takes bf16 where it is faster than fp32, else fp32. Raises ConfigError for fp16 without CUDA.
    """
    if requested == "fp16" and device.type != "cuda":
        raise ConfigError(
            f"training.precision: 'fp16' needs a CUDA GPU, not {device.type}. Allowed here: auto, fp32, bf16."
        )
    if requested in ("fp32", "fp16"):
        return Precision(requested, "as configured", device)
    hardware = bf16_hardware(device)
    if requested == "auto":
        if hardware:
            return Precision("bf16", f"auto: {hardware}", device)
        fp16 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= FP16_CAPABILITY
        hint = "; it has fp16, for which set training.precision: fp16" if fp16 else ""
        return Precision("fp32", f"auto: this {device_noun(device)} has no fast bf16 arithmetic{hint}", device)
    note = "" if hardware else f"; this {device_noun(device)} is slow in bf16, fp32 may be faster"
    return Precision("bf16", f"as configured{note}", device)
