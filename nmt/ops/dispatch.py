"""Which implementation of an operation runs: the plain PyTorch reference or a Triton kernel."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final, TypeVar

from torch import Tensor

from nmt.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

CHOICES: Final = ("auto", "triton", "reference")

TRITON_KERNELS: Final[Mapping[str, str]] = MappingProxyType({})
"""The one place that lists kernels: name of the operation -> "module:function", imported at its first use
because Triton exists only on Linux. The function takes exactly the arguments of the reference."""

_choice: ContextVar[str] = ContextVar("kernels", default="auto")


def set_kernels(choice: str) -> None:
    """Choose the implementations of this run: `auto` (kernels where they exist), `triton` or `reference`.

    Raises ConfigError for another word, and for `triton` where there is no kernel at all.
    """
    if choice not in CHOICES:
        close = difflib.get_close_matches(str(choice), CHOICES, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise ConfigError(f"kernels: {choice!r} is not a known choice.{hint} Allowed: {', '.join(CHOICES)}.")
    if choice == "triton" and not TRITON_KERNELS:
        raise ConfigError("kernels: 'triton' was asked for, but this version has no Triton kernels. Use auto.")
    _choice.set(choice)


def choose(operation: str, reference: F, *, like: Tensor) -> F:
    """Return the function that computes `operation` on tensors such as `like`.

    Raises ConfigError if the user insists on Triton and there is no kernel for it on that device.
    """
    choice = _choice.get()
    if choice == "reference":
        return reference
    if operation in TRITON_KERNELS and like.is_cuda:
        module, _, function = TRITON_KERNELS[operation].partition(":")
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    if choice == "triton":
        raise ConfigError(f"kernels: 'triton' has no kernel for {operation} on {like.device.type}. Use auto.")
    return reference
