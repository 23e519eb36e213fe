"""Which implementation of an operation runs: the plain PyTorch reference or a Triton kernel."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import torch
from torch import Tensor

from nmt.errors import ConfigError, near_miss, say_once
from nmt.ops import native

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

CHOICES: Final = ("auto", "triton", "reference")

LEAST_TRITON: Final = (3, 6)
"""The oldest Triton the kernels have been compiled and tested with; below it the references run."""

TRITON_DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16)
"""How kernels can read and write sequences; their state is always fp32."""

TRITON_KERNELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "atr": "nmt.ops.atr.triton:atr_triton",
        "attention": "nmt.ops.attention.triton:attention_triton",
        "both_directions": "nmt.ops.both.triton:both_directions_triton",
        "conditional": "nmt.ops.conditional.triton:conditional_triton",
        "dropout": "nmt.ops.dropout.triton:dropout_triton",
        "gru": "nmt.ops.gru.triton:gru_triton",
        "linear_cross_entropy": "nmt.ops.linear_cross_entropy.triton:linear_cross_entropy_triton",
        "lrn": "nmt.ops.lrn.triton:lrn_triton",
        "lstm": "nmt.ops.lstm.triton:lstm_triton",
        "olrn": "nmt.ops.olrn.triton:olrn_triton",
        "one_to_one": "nmt.ops.conditional.triton:one_to_one_triton",
        "sru": "nmt.ops.sru.triton:sru_triton",
    }
)
"""The one place that lists kernels: name of the operation -> "module:function", imported at its first use
because Triton is not installed everywhere. The function takes the arguments that the reference is chosen for, to which
it leaves what it cannot do."""

NATIVE_KERNELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "atr": "nmt.ops.atr.native:atr_native",
        "conditional": "nmt.ops.conditional.native:conditional_native",
        "deep_attention": "nmt.ops.conditional.native:deep_attention_native",
        "dropout": "nmt.ops.dropout.native:dropout_native",
        "gru": "nmt.ops.gru.native:gru_native",
        "linear_cross_entropy": "nmt.ops.linear_cross_entropy.native:linear_cross_entropy_native",
        "lrn": "nmt.ops.lrn.native:lrn_native",
        "lstm": "nmt.ops.lstm.native:lstm_native",
        "olrn": "nmt.ops.olrn.native:olrn_native",
        "one_to_one": "nmt.ops.conditional.one_to_one:one_to_one_native",
        "sru": "nmt.ops.sru.native:sru_native",
    }
)
"""The same for the C kernels of a CPU, see `nmt.ops.native`."""


class Selection(NamedTuple):
    """What runs where there is a choice."""

    choice: str = "auto"
    verified: frozenset[str] = frozenset()
    """What `auto` runs on a GPU: kernels, `decoding_step` and `lstm_layer`; see `nmt.kernel_check`."""


_selected = Selection()
"""Of the whole process: threads of autograd, which run checkpointed layers again, and of servers see it too."""


def set_kernels(choice: str, *, verified: Iterable[str] = ()) -> None:
    """Choose the implementations of this process: `auto` (on a GPU what is `verified`), `triton` or `reference`.

    Raises ConfigError for another word, and for `triton` where no kernel can run at all.
    """
    global _selected
    if choice not in CHOICES:
        hint = near_miss(str(choice), CHOICES)
        raise ConfigError(f"kernels: {choice!r} is not a known choice.{hint} Allowed: {', '.join(CHOICES)}.")
    if choice == "triton":
        problem = triton_problem() if TRITON_KERNELS else "this version has no Triton kernels"
        if problem:
            raise ConfigError(f"kernels: 'triton' was asked for, but {problem}. Use auto.")
    _selected = Selection(choice, frozenset(verified))


def selection() -> Selection:
    """What has been chosen."""
    return _selected


@contextlib.contextmanager
def selected(choice: str, *, verified: Iterable[str] = ()) -> Iterator[None]:
    """`set_kernels` for the length of a block."""
    global _selected
    before = _selected
    set_kernels(choice, verified=verified)
    try:
        yield
    finally:
        _selected = before


@functools.cache
def triton_version() -> str | None:
    """The version of the installed Triton, None where there is none; nothing is imported."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def triton_problem() -> str | None:
    """Why the Triton of this environment cannot be used, None if it can."""
    version = triton_version()
    if version is None:
        return f"Triton is not installed (pip install 'triton>={_dotted(LEAST_TRITON)}'; there is one for Linux)"
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < LEAST_TRITON:
        return f"Triton {version} is older than {_dotted(LEAST_TRITON)}, which a newer PyTorch brings"
    return None


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def choose(operation: str, reference: F, *, like: Tensor) -> F:
    """Return the function that computes `operation` on tensors such as `like`.

    Raises ConfigError if the user insists on Triton and there is no kernel for it on that device.
    """
    choice, verified = _selected
    if operation in NATIVE_KERNELS and use_native(like):
        return load_kernel(NATIVE_KERNELS[operation])
    if choice == "reference" or (choice == "auto" and operation not in verified):
        return reference
    if operation in TRITON_KERNELS and like.is_cuda:
        problem = triton_problem() or _cannot_run(like)
        return fall_back(operation, problem, reference=reference) if problem else load_kernel(TRITON_KERNELS[operation])
    if choice == "triton":
        raise ConfigError(f"kernels: 'triton' has no kernel for {operation} on {like.device.type}. Use auto.")
    return reference


def no_kernel(what: str, *, like: Tensor) -> None:
    """Say once that PyTorch computes `what`, such as a design of a unit, on tensors for which others have kernels.

    Raises ConfigError if the user insists on Triton.
    """
    choice, _ = _selected
    if choice == "triton":
        raise ConfigError(f"kernels: 'triton' has no kernel for {what}. Use auto.")
    if use_native(like) or (choice == "auto" and like.is_cuda):
        say_once(logger, f"{what}: there is no kernel for it, slower PyTorch code runs.")


def use_verified(operation: str, like: Tensor) -> bool:
    """Whether an operation on tensors such as `like` runs in its form for GPUs that needs no Triton: as a CUDA graph,
    or by cuDNN."""
    choice, verified = _selected
    return like.is_cuda and (choice == "triton" or (choice == "auto" and operation in verified))


def use_native(like: Tensor) -> bool:
    """Whether the C kernels compute on tensors such as `like`: on a CPU, where they could be compiled."""
    return _selected.choice == "auto" and native.usable(like)


def _cannot_run(like: Tensor) -> str | None:
    if like.dtype not in TRITON_DTYPES:
        return f"there is none for {str(like.dtype).removeprefix('torch.')}"
    if torch.cuda.get_device_capability(like.device) < (8, 0):
        return "the GPU is older than compute capability 8.0"
    return None


def load_kernel(path: str) -> Any:
    """Import what a table of kernels lists as "module:function"."""
    module, _, function = path.partition(":")
    return getattr(importlib.import_module(module), function)


def fall_back(operation: str, problem: str, *, reference: F) -> F:
    """The reference, where a kernel exists but cannot run for the reason `problem`; said once for each reason.

    Raises ConfigError if the user insists on Triton.
    """
    if _selected.choice == "triton":
        raise ConfigError(f"kernels: 'triton' cannot run {operation}: {problem}. Use auto.")
    say_once(logger, f"{operation}: the PyTorch reference runs instead of the Triton kernel: {problem}.")
    return reference
