"""An optimizer (plugins.md)."""

from dataclasses import dataclass

import torch

from nmt.registry import OPTIMIZERS


@OPTIMIZERS.register("signs")
class Signs(torch.optim.Optimizer):
    """w -= lr * sign(m), m the moving mean of the gradients (Bernstein et al., ICML 2018)."""

    moments = staticmethod(lambda options: 1)  # numbers kept for each weight, for the estimate of memory

    @dataclass(frozen=True, kw_only=True)
    class Options:
        momentum: float = 0.9
        """Decay of the mean."""

    def __init__(self, parameters, *, lr, options):
        super().__init__(parameters, {"lr": lr, "momentum": options.momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                    mean.lerp_(weight.grad, 1 - group["momentum"])
                    weight.sub_(group["lr"] * mean.sign())
