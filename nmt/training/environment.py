"""What the last bits of a training depend on besides its configuration, its data and its place in them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from nmt import __version__
from nmt.ops.in_use import kernels_in_use
from nmt.system import cpu_info
from nmt.training.distributed import World


def environment(world: World) -> dict[str, str]:
    """Names and values, as people read them, of all that sums are rounded by."""
    return {
        "device": _gpu(world.device) if world.device.type == "cuda" else _cpu(),
        "processes": str(world.size),
        "threads": str(torch.get_num_threads()),
        "kernels": kernels_in_use(world.device),
        "MKL_CBWR": os.environ.get("MKL_CBWR", "not set"),
        "PyTorch": str(torch.__version__),
        "nmt": __version__,
    }


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One line that names what differs, none where nothing does, or where it is not known what was before."""
    changed = [f"{name} {before[name]} -> {value}" for name, value in now.items() if before.get(name, value) != value]
    if not changed:
        return []
    return [f"from here on equal up to rounding, not bit for bit, because this has changed: {', '.join(changed)}"]


def _gpu(device: torch.device) -> str:
    return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"


def _cpu() -> str:
    """The CPU and the instructions that PyTorch uses; Intel's library chooses its code by them."""
    return f"CPU {cpu_info('model name')} with {torch.backends.cpu.get_cpu_capability()}".replace("  ", " ")
