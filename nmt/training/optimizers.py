"""Optimizers: Adam and AdamW of PyTorch; further ones are in nmt.optimization."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from nmt.registry import OPTIMIZERS
from nmt.training.schedules import Amount, Share

_TORCH_NAMES: Final = {"epsilon": "eps", "initial_accumulator": "initial_accumulator_value", "clip_threshold": "d"}
_TORCH_PAIRS: Final = {("beta1", "beta2"): "betas", ("epsilon1", "epsilon2"): "eps"}


def in_torch(options: Any, *, lr: float) -> dict[str, Any]:
    """Rate and options by the names that PyTorch's constructors give them."""
    given: dict[str, Any] = {**vars(options), "lr": lr}
    for ours, name in _TORCH_NAMES.items():
        if ours in given:
            given[name] = given.pop(ours)
    for (first, second), name in _TORCH_PAIRS.items():
        if first in given:
            given[name] = (given.pop(first), given.pop(second))
    return given


class _OneKernel(torch.optim.Optimizer):
    """An optimizer of PyTorch with an implementation for each kind of device."""

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: Any) -> None:
        weights = list(parameters)
        # PyTorch's one-kernel Adam (since 2.4 on CPU as well).
        fuses = all(weight.device.type in ("cpu", "cuda") and weight.is_floating_point() for weight in weights)
        super().__init__(weights, **{**in_torch(options, lr=lr), "fused": fuses or None})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict`, which may come from another kind of device, with the implementation for this
        one."""
        groups = [
            {**saved, "fused": own["fused"], "foreach": own["foreach"]}
            for saved, own in zip(state_dict["param_groups"], self.param_groups, strict=True)
        ]
        super().load_state_dict({**state_dict, "param_groups": groups})


@OPTIMIZERS.register("adam")
class Adam(_OneKernel, torch.optim.Adam):
    """Adam (Kingma and Ba, ICLR 2015).

    w -= lr * m^ / (sqrt(v^) + epsilon), m^ and v^ bias-corrected.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options:
        beta1: Share = 0.9
        beta2: Share = 0.999
        """Decay of the mean of the gradients, and of their squares."""
        epsilon: Amount = 1e-8
        """Added to the root of the second mean."""


@OPTIMIZERS.register("adamw")
class AdamW(_OneKernel, torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), of all parameters."""

    @dataclass(frozen=True, kw_only=True)
    class Options(Adam.Options):
        weight_decay: Amount = 0.01
        """Share of every weight, times the rate, that an update takes away."""
