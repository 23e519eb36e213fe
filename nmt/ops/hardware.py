"""What a device computes with: the number formats that are fast there, and the kernels; names of devices."""

from __future__ import annotations

import torch

from nmt.ops import native
from nmt.ops.dispatch import selection, triton_version
from nmt.system import cpu_info


def bf16_hardware(device: torch.device) -> str:
    """The hardware that makes `device` faster in bf16 than in fp32, in a few words; empty if none or unknown."""
    if device.type == "cuda":
        # Since Ampere (compute capability 8); torch's own test is also true for emulation.
        if torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0):
            return ""
        return f"{torch.cuda.get_device_name(device)} computes in bf16" if torch.cuda.is_bf16_supported() else ""
    if device.type == "cpu":
        if _cpu_says("_is_amx_tile_supported"):
            return "this CPU has AMX"
        # On Intel's CPUs products with avx512_bf16 run at half the speed of fp32; only AMX is fast there, and virtual
        # machines may hide it.
        if _cpu_says("_is_avx512_bf16_supported") and cpu_info("vendor_id") != "GenuineIntel":
            return "this CPU has avx512_bf16"
    return ""


def device_noun(device: torch.device) -> str:
    """The usual name of such a device."""
    return {"cpu": "CPU", "cuda": "GPU"}.get(device.type, device.type)


def _cpu_says(name: str) -> bool:
    """The answer of one of torch's private CPU tests; False if this version of torch does not have it."""
    test = getattr(torch.cpu, name, None)
    return bool(test()) if callable(test) else False


def kernels_in_use(device: torch.device) -> str:
    """The implementations chosen for a device, described so exactly that equal words mean equal code; other kernels
    give the same results except for rounding."""
    choice, verified = selection()
    if choice == "reference":
        return "PyTorch"
    if device.type == "cpu":
        return f"C {native.identity()}" if choice == "auto" and native.problem() is None else "PyTorch"
    if choice == "triton":
        return f"Triton {triton_version()}"
    return f"Triton {triton_version()} for {', '.join(sorted(verified))}" if verified else "PyTorch"
