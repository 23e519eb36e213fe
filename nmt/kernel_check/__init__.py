"""Selection of kernels for this machine's GPU with `kernels: auto`: those whose results there match PyTorch's.

The kernels are the same everywhere, compilers, drivers and GPUs are not. So the first command with a kind of GPU and
versions of the driver, PyTorch, Triton and this package checks the operations of its model against the reference, and
keeps the results in the cache directory, next to the C kernels. Only a kernel with differing results is excluded
permanently. A check that could not run, for example because another process used the GPU's memory, is repeated.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

import torch
from torch import nn

from nmt.errors import ConfigError
from nmt.kernel_check.cases import FORWARD, WITHOUT_TRITON, Purpose, needed, plain, recurrences
from nmt.kernel_check.checking import find_out
from nmt.ops.dispatch import LEAST_CAPABILITY, interpreted, selection, set_kernels, triton_problem

__all__ = ["Purpose", "choose_kernels", "recurrences", "use_verified_kernels", "verify_operations"]

logger = logging.getLogger(__name__)


def choose_kernels(choice: str, *, device: torch.device) -> None:
    """`nmt.ops.dispatch.set_kernels` for models on this device; with `auto` on a GPU no kernel runs yet.

    Raises ConfigError as that does, and for `triton` on a CPU without Triton's interpreter.
    """
    if choice == "triton" and device.type == "cpu" and not interpreted():
        raise ConfigError(
            "kernels: 'triton' is not possible, because the device is the CPU. Allowed there: auto, reference; "
            "and with TRITON_INTERPRET=1 triton, which is slow."
        )
    set_kernels(choice)


def use_verified_kernels(
    models: Sequence[nn.Module], *, device: torch.device, purpose: Purpose, check: bool = True
) -> None:
    """With `auto` on a GPU, enable the verified kernels for these models; unknown ones are checked first, which may
    take minutes, unless `check` is false. Kernels that are not used are reported."""
    if selection().choice != "auto" or device.type != "cuda" or not _can_have_kernels(device):
        return
    keys = dict.fromkeys(key for model in models for key in needed(model, purpose))
    names = [key if purpose == "training" else f"{key}{FORWARD}" for key in keys]
    set_kernels("auto", verified=_right(names, device, check=check))


def verify_operations(keys: tuple[str, ...], *, device: torch.device) -> None:
    """Like `use_verified_kernels` for training, for operations such as `sequence lrn`, in addition to those already
    verified.

    Cheap from the second call in a process on, so that a module can call it each time it runs.
    """
    if selection().choice != "auto" or device.type != "cuda" or not _can_have_kernels(device):
        return
    wanted = selection().verified - set(keys) | _found_right(keys, device)
    if wanted != selection().verified:
        set_kernels("auto", verified=wanted)


def _right(names: Sequence[str], device: torch.device, *, check: bool = True) -> frozenset[str]:
    """The keys of these checks that are verified on this GPU; others are reported."""
    if triton_problem():
        names = [name for name in names if plain(name) in WITHOUT_TRITON]
    found, reasons = find_out(names, device, check=check), dict[str, list[str]]()
    for name, outcome in sorted(found.items()):
        if outcome.state == "wrong":
            text = "kernels: PyTorch runs %s, because nmt's kernel is wrong on this GPU: %s"
            logger.warning(text, plain(name), outcome.reason)
        elif outcome.state == "undecided":
            reasons.setdefault(outcome.why, []).append(plain(name))
    for reason, untried in reasons.items():
        what = "everything" if len(untried) == len(found) else ", ".join(untried)
        logger.warning(
            "kernels: slower PyTorch code runs %s, because nmt's kernels could not be checked: %s", what, reason
        )
    return frozenset(plain(name) for name, outcome in found.items() if outcome.state == "right")


_found_right = functools.cache(_right)


@functools.cache
def _can_have_kernels(device: torch.device) -> bool:
    """Whether the GPU is new enough for any kernel; if not, or if Triton cannot run, this is reported once."""
    major, minor = torch.cuda.get_device_capability(device)
    problem = triton_problem()
    if (major, minor) < LEAST_CAPABILITY:
        problem = f"its compute capability, {major}.{minor}, is below {LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}"
    if problem:
        logger.warning("kernels: slower PyTorch code runs on this GPU, because %s", problem)
    return (major, minor) >= LEAST_CAPABILITY
