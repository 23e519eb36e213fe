"""Which implementation of an operation runs: the plain PyTorch reference or a Triton kernel."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeVar

import torch
from torch import Tensor

from nmt.errors import ConfigError, refused, say_once
from nmt.ops import native
from nmt.ops.recurrence import traced

F = TypeVar("F", bound=Callable[..., Any])

CHOICES: Final = ("auto", "triton", "reference")

LEAST_TRITON: Final = (3, 6)
"""The oldest Triton version that the kernels were compiled and tested with; with older ones the references run."""

LEAST_CAPABILITY: Final = (8, 0)
"""Least compute capability of the GPUs that the kernels are written for."""

TRITON_DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16)
"""Types of sequences that kernels can read and write; their state is always fp32."""


class Selection(NamedTuple):
    """The chosen implementations."""

    choice: str = "auto"
    verified: frozenset[str] = frozenset()
    """The operations that `auto` runs on a GPU, each with the words of its units, such as `sequence lrn`; see
    `nmt.kernel_check`."""


_selected = Selection()
"""The choice of the whole process: threads of autograd, which rerun checkpointed layers, see it too."""

_own: ContextVar[Selection | None] = ContextVar("own_selection", default=None)
"""The choice of this thread only, inside `own_selection`."""


def set_kernels(choice: str, *, verified: Iterable[str] = ()) -> None:
    """Choose the implementations of this process: `auto` (on a GPU: those `verified`), `triton` or `reference`.

    Inside `own_selection` the choice applies to the block only. Raises ConfigError for another word, and for `triton`
    if no kernel can run at all.
    """
    if choice not in CHOICES:
        raise ConfigError(refused("kernels", choice, CHOICES, problem="is not a known choice"))
    if choice == "triton":
        problem = triton_problem()
        if problem:
            raise ConfigError(f"kernels: 'triton' was asked for, but {problem}. Use auto.")
    _select(Selection(choice, frozenset(verified)))


def selection() -> Selection:
    """The current choice."""
    return _own.get() or _selected


def _select(new: Selection) -> None:
    global _selected
    if _own.get() is None:
        _selected = new
    else:
        _own.set(new)


@contextlib.contextmanager
def selected(choice: str, *, verified: Iterable[str] = ()) -> Iterator[None]:
    """`set_kernels` for the duration of a block."""
    before = selection()
    set_kernels(choice, verified=verified)
    try:
        yield
    finally:
        _select(before)


@contextlib.contextmanager
def own_selection(own: Selection) -> Iterator[None]:
    """Choices that only this thread sees, starting from `own`, for the duration of a block.

    For inference: several models in a process can have different kernels, independent of other threads. A backward
    pass on a GPU runs in threads of autograd, which see the choice of the process.
    """
    token = _own.set(own)
    try:
        yield
    finally:
        _own.reset(token)


@functools.cache
def triton_version() -> str | None:
    """The version of the installed Triton, None without Triton; nothing is imported."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def triton_problem() -> str | None:
    """Why the Triton of this environment cannot be used, None if it can."""
    version, least = triton_version(), ".".join(map(str, LEAST_TRITON))
    if version is None:
        return f"Triton is not installed (pip install 'triton>={least}'; there is one for Linux)"
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < LEAST_TRITON:
        return f"Triton {version} is older than {least}, which a newer PyTorch brings"
    return None


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter, on any device: TRITON_INTERPRET=1 in the environment."""
    return triton_problem() is None and bool(load("triton:knobs").runtime.interpret)


def choose(operation: str, reference: F, *, like: Tensor, native: str | None = None, triton: str | None = None) -> F:
    """The function that computes `operation` on tensors such as `like`: a kernel, given as "module:function", or the
    reference, which takes the same arguments.

    Raises ConfigError if the user requires Triton and there is no Triton kernel for the operation on that device.
    """
    if use_native(like):
        return load(native) if native else reference
    return load(triton or "") if runs_triton(operation, like=like, there=triton is not None) else reference


def runs_triton(operation: str, *, like: Tensor, there: bool) -> bool:
    """Whether Triton kernels, if there are any, compute `operation` on tensors such as `like`.

    None runs while a graph is traced, because the tracer cannot see them. On a CPU they run in Triton's interpreter,
    if the user requires them.
    """
    choice, verified = selection()
    if traced() or choice == "reference" or (choice == "auto" and operation not in verified):
        return False
    if not there or not (like.is_cuda or (choice == "triton" and interpreted())):
        if choice == "triton":
            raise ConfigError(f"kernels: 'triton' has no kernel for {operation} on {like.device.type}. Use auto.")
        return False
    problem = triton_problem() or _cannot_run(like)
    if problem:
        no_kernel(operation, like=like, problem=problem)
    return problem is None


def no_kernel(what: str, *, like: Tensor, problem: str = "there is no kernel for it") -> None:
    """Report once, with the reason, that PyTorch computes `what`, such as a unit, where other units have kernels.

    Raises ConfigError if the user requires Triton.
    """
    choice, _ = selection()
    if choice == "triton":
        raise ConfigError(f"kernels: 'triton' cannot run {what}: {problem}. Use auto.")
    if use_native(like) or (choice == "auto" and like.is_cuda):
        say_once(__name__, f"{what}: {problem}, slower PyTorch code runs.")


def use_verified(operation: str, like: Tensor) -> bool:
    """Whether an operation on tensors such as `like` runs in its GPU form without Triton: as a CUDA graph, or by
    cuDNN."""
    choice, verified = _own.get() or _selected
    return like.is_cuda and not traced() and (choice == "triton" or (choice == "auto" and operation in verified))


def use_native(like: Tensor) -> bool:
    """Whether the C kernels compute on tensors such as `like`: on a CPU, if they could be compiled."""
    return (_own.get() or _selected).choice == "auto" and native.usable(like)


def _cannot_run(like: Tensor) -> str | None:
    if like.dtype not in TRITON_DTYPES:
        return f"there is no kernel for {str(like.dtype).removeprefix('torch.')}"
    if like.is_cuda and torch.cuda.get_device_capability(like.device) < LEAST_CAPABILITY:
        return "the GPU is older than compute capability 8.0"
    return None


@functools.cache
def load(path: str) -> Any:
    """The object of a path "module:name", imported only now because Triton is not installed everywhere."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
