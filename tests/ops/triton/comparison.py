"""Kernels against their references: all outputs and all gradients, the reference in fp64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nmt.kernel_check.cases import TOLERANCES

Function = Callable[..., tuple[Tensor, ...]]

MASKS = ("none", "padding", "holes")


def make_mask(kind: str, batch: int, length: int, device: torch.device) -> Tensor | None:
    """No mask, padding at the right (one row all real), or any pattern (one row all dead, one dead at first)."""
    if kind == "none":
        return None
    if kind == "padding":
        lengths = torch.arange(length, length - batch, -1, device=device).clamp_min(1)
        return torch.arange(length, device=device) < lengths[:, None]
    mask = torch.rand(batch, length, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[0] = False
    mask[1, :2] = False
    mask[1, 2:] = True
    mask[1, -2] = False
    return mask.to(device)


def outputs_and_gradients(function: Function, inputs: Sequence[Tensor | None]) -> list[Tensor]:
    """The outputs for `inputs`, then the gradient of each input that is not None under random ones of the outputs."""
    leaves = [None if x is None else x.detach().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    generator = torch.Generator().manual_seed(7)
    gradients = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y) for y in outputs]
    wanted = [leaf for leaf in leaves if leaf is not None]
    return [*outputs, *torch.autograd.grad(outputs, wanted, gradients, materialize_grads=True)]


def assert_equal(
    kernel: Function,
    reference: Function,
    inputs: Sequence[Tensor | None],
    *,
    storage: torch.dtype = torch.float32,
    slack: float = 1,
) -> None:
    """Both functions of `inputs` give the same outputs and gradients, within `slack` times what `storage` allows."""
    ours = outputs_and_gradients(kernel, inputs)
    right = outputs_and_gradients(reference, [None if x is None else x.double() for x in inputs])
    for index, (ours_one, right_one) in enumerate(zip(ours, right, strict=True)):
        assert ours_one.shape == right_one.shape
        error = (ours_one.double() - right_one).norm() / right_one.norm().clamp_min(1e-3)
        assert error < slack * TOLERANCES[storage], f"result {index} is off by {error:.1e}"  # false for NaN, too


def randn(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """The same values on each device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)
