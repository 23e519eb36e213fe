"""What number formats a device computes in."""

from __future__ import annotations

import torch

from nmt.cpus import cpu_info


def bf16_hardware(device: torch.device) -> str:
    """What makes `device` faster in bf16 than in fp32, in a few words; empty if nothing does or it cannot be told."""
    if device.type == "cuda":
        # Since Ampere (compute capability 8); torch's own test also says yes to emulation.
        if torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0):
            return ""
        return f"{torch.cuda.get_device_name(device)} computes in bf16" if torch.cuda.is_bf16_supported() else ""
    if device.type == "cpu":
        if _cpu_says("_is_amx_tile_supported"):
            return "this CPU has AMX"
        # On Intel's CPUs the products of avx512_bf16 run at half the speed of fp32's: what is fast there is AMX, which
        # virtual machines may hide.
        if _cpu_says("_is_avx512_bf16_supported") and cpu_info("vendor_id") != "GenuineIntel":
            return "this CPU has avx512_bf16"
    return ""


def device_noun(device: torch.device) -> str:
    """What people call such a device."""
    return {"cpu": "CPU", "cuda": "GPU"}.get(device.type, device.type)


def _cpu_says(name: str) -> bool:
    """Ask one of torch's private CPU tests; False where this version of torch does not have it."""
    test = getattr(torch.cpu, name, None)
    return bool(test()) if callable(test) else False
