"""Optimizers: Adam and AdamW of PyTorch, Adam as TensorFlow defines it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from nmt.registry import OPTIMIZERS
from nmt.training.schedules import Amount, Share

if TYPE_CHECKING:
    pass

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
    """Adam (Kingma and Ba, ICLR 2015): w -= lr * m^ / (sqrt(v^) + epsilon), m^ and v^ bias-corrected."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        beta1: Share = 0.9
        """Decay of the mean of the gradients."""
        beta2: Share = 0.999
        """Decay of the mean of their squares."""
        epsilon: Amount = 1e-8
        """Added to the root of the second mean, after bias correction."""


@OPTIMIZERS.register("adamw")
class AdamW(_OneKernel, torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), of all parameters."""

    @dataclass(frozen=True, kw_only=True)
    class Options(Adam.Options):
        weight_decay: Amount = 0.01
        """Share of every weight, times the rate, that each update takes away."""


@OPTIMIZERS.register("adam_tf")
class AdamTF(torch.optim.Optimizer):
    """Adam with TensorFlow's epsilon, which bias correction does not scale; what Zero trains with.

        lr_t = lr * sqrt(1 - beta2**t) / (1 - beta1**t)
        w   -= lr_t * m / (sqrt(v) + epsilon)

    t counts the updates of the whole group, as TensorFlow's beta powers do.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(Adam.Options):
        epsilon: Amount = 1e-9
        """Added to the root of the second mean, before bias correction. Zero: `epsilon`."""

    def __init__(self, parameters: Iterable[Any], *, lr: float, options: Any) -> None:
        """`parameters`: tensors, or groups of them."""
        super().__init__(parameters, {**in_torch(options, lr=lr), "updates": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Do one update with the present gradients; return the value of `closure`, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                group["updates"] += 1
                self._update(group, weights)
        return loss

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """Do update number `group["updates"]`, from 1, of those weights of a group that have gradients."""
        beta1, beta2 = group["betas"]
        rate = group["lr"] * math.sqrt(1 - beta2 ** group["updates"]) / (1 - beta1 ** group["updates"])
        grads = [weight.grad for weight in weights if weight.grad is not None]
        means, squares = self._kept(weights, "exp_avg"), self._kept(weights, "exp_avg_sq")
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, group["eps"])
        torch._foreach_addcdiv_(weights, means, denominators, -rate)

    def _kept(self, weights: list[Tensor], name: str) -> list[Tensor]:
        """What is kept of each weight under a name, at first zeros."""
        for weight in weights:
            if name not in self.state[weight]:
                self.state[weight][name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return [self.state[weight][name] for weight in weights]
