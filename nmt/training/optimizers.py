"""Optimizers: Adam and AdamW of PyTorch, and Adam as TensorFlow defines it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from nmt.registry import OPTIMIZERS


@dataclass(frozen=True, kw_only=True)
class AdamOptions:
    """Options of `adam`."""

    beta1: float = 0.9
    """Decay of the mean of the gradients."""
    beta2: float = 0.999
    """Decay of the mean of their squares."""
    epsilon: float = 1e-8
    """Added to the root of the second mean, after bias correction."""

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name}: must be 0 or more and below 1, not {value}")
        if not 0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon: must be 0 or more, not {self.epsilon}")


@dataclass(frozen=True, kw_only=True)
class AdamWOptions(AdamOptions):
    """Options of `adamw`."""

    weight_decay: float = 0.01
    """Share of every weight, times the rate, that each update takes away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay: must be 0 or more, not {self.weight_decay}")


@dataclass(frozen=True, kw_only=True)
class AdamTFOptions(AdamOptions):
    """Options of `adam_tf`."""

    epsilon: float = 1e-9
    """Added to the root of the second mean, before bias correction. Zero: `epsilon`."""


def _can_fuse(parameters: list[Tensor]) -> bool:
    """Whether PyTorch's one-kernel Adam takes these parameters (since 2.4 on CPU as well)."""
    return all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)


def _with_own_choice(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """`state` with the implementation for this device, not for the device where it was saved."""
    groups = [
        {**saved, "fused": own["fused"], "foreach": own["foreach"]}
        for saved, own in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    return {**state, "param_groups": groups}


@OPTIMIZERS.register("adam")
class Adam(torch.optim.Adam):
    """Adam (Kingma and Ba, ICLR 2015): w -= lr * m^ / (sqrt(v^) + epsilon), m^ and v^ bias-corrected."""

    Options: ClassVar[type] = AdamOptions

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: AdamOptions) -> None:
        weights = list(parameters)
        betas = (options.beta1, options.beta2)
        super().__init__(weights, lr=lr, betas=betas, eps=options.epsilon, fused=_can_fuse(weights) or None)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict`, which may come from another kind of device."""
        super().load_state_dict(_with_own_choice(self, state_dict))


@OPTIMIZERS.register("adamw")
class AdamW(torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), of all parameters."""

    Options: ClassVar[type] = AdamWOptions

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: AdamWOptions) -> None:
        weights = list(parameters)
        super().__init__(
            weights,
            lr=lr,
            betas=(options.beta1, options.beta2),
            eps=options.epsilon,
            weight_decay=options.weight_decay,
            fused=_can_fuse(weights) or None,
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict`, which may come from another kind of device."""
        super().load_state_dict(_with_own_choice(self, state_dict))


class OwnOptimizer(torch.optim.Optimizer):
    """Base of the optimizers whose equations stand here, for all weights of a group together."""

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
        raise NotImplementedError

    def _adam(self, group: dict[str, Any], weights: list[Tensor], *, epsilon: float) -> None:
        """Adam with this epsilon, which is added to the root of the second mean before bias correction."""
        beta1, beta2 = group["betas"]
        rate = group["lr"] * math.sqrt(1 - beta2 ** group["updates"]) / (1 - beta1 ** group["updates"])
        grads = gradients_of(weights)
        means, squares = self._kept(weights, "exp_avg"), self._kept(weights, "exp_avg_sq")
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, epsilon)
        torch._foreach_addcdiv_(weights, means, denominators, -rate)

    def _kept(self, weights: list[Tensor], name: str) -> list[Tensor]:
        """What is kept of each weight under a name, at first zeros."""
        for weight in weights:
            if name not in self.state[weight]:
                self.state[weight][name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return [self.state[weight][name] for weight in weights]


def gradients_of(weights: list[Tensor]) -> list[Tensor]:
    """The gradients of weights that all have one."""
    return [weight.grad for weight in weights if weight.grad is not None]


@OPTIMIZERS.register("adam_tf")
class AdamTF(OwnOptimizer):
    """Adam with TensorFlow's epsilon, which bias correction does not scale; what Zero trains with.

        lr_t = lr * sqrt(1 - beta2**t) / (1 - beta1**t)
        w   -= lr_t * m / (sqrt(v) + epsilon)

    t counts the updates of the whole group, as TensorFlow's beta powers do.
    """

    Options: ClassVar[type] = AdamTFOptions

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: AdamTFOptions) -> None:
        defaults = {"lr": lr, "betas": (options.beta1, options.beta2), "eps": options.epsilon, "updates": 0}
        super().__init__(parameters, defaults)

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        self._adam(group, weights, epsilon=group["eps"])


def build_optimizer(name: str, parameters: Iterable[Any], *, lr: float, options: Any = None) -> torch.optim.Optimizer:
    """Make the optimizer registered as `name` for these tensors, or groups of them.

    `options` is an instance of its `Options` (see `nmt.config.component_options`); None takes the defaults.
    Raises ConfigError for an unknown name.
    """
    member = OPTIMIZERS.get(name)
    optimizer: torch.optim.Optimizer = member(
        parameters, lr=lr, options=member.Options() if options is None else options
    )
    return optimizer
