"""How the parameters of a new model start."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.errors import ConfigError

_SHOWN = 3
"""Parameters named in a message."""


@torch.no_grad()
def initialize(module: nn.Module, init_range: float) -> None:
    """Let each part below `module` that has parameters of its own start them, in order of registration.

    A part with `reset_parameters(init_range)` (a cell, a linear map, an attention, ...) takes care of everything inside
    it. `init_range` is an `Initializer` or a plain number, the range of `uniform`. A module of torch.nn stays as its
    constructor, or whoever made it, has started it. Of any other module with a `reset_parameters()` that takes no
    argument the parts start first, and it has the last word.
    """
    reset: Callable[..., Any] | None = getattr(module, "reset_parameters", None)
    if reset is not None and _takes_argument(reset):
        reset(init_range)
        return
    for child in module.children():
        initialize(child, init_range)
    if reset is not None and not _is_torchs(reset):
        reset()


def _takes_argument(method: Callable[..., Any]) -> bool:
    """Whether a value can be given to it by its position."""
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        return False
    return True


def _is_torchs(method: Callable[..., Any]) -> bool:
    """Whether PyTorch wrote it: then the constructor has called it, and who derives from its class may have gone on."""
    return method.__module__.startswith("torch.")


class Unfilled(TorchDispatchMode):
    """In its block memory that has not been written yet holds NaN, so that `check_started` finds it.

    Of this thread alone, and of floating-point tensors.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket in _EMPTY and isinstance(made, Tensor) and made.is_floating_point():
            made.fill_(torch.nan)
        return made


_EMPTY = frozenset(
    (torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided, torch.ops.aten.new_empty)
)


def check_started(model: nn.Module) -> None:
    """Raise ConfigError, which names them, if parameters of a model that was made in `Unfilled` have no value yet."""
    names = [name for name, parameter in model.named_parameters() if _is_unfilled(parameter)]
    if names:
        rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise ConfigError(
            f"model.architecture: parameters without a value to start from: {', '.join(names[:_SHOWN])}{rest}; give "
            "each one where it is made, or in reset_parameters of the module that has it"
        )


def _is_unfilled(parameter: Tensor) -> bool:
    if isinstance(parameter, UninitializedParameter):  # of a lazy module, whose size is not known
        return True
    return not parameter.is_meta and bool(parameter.detach().sum().isnan())  # one pass, which makes nothing
