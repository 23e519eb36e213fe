"""What a recurrence whose steps need a matrix product gives to the loop over time (`nmt.ops.loop`): one step.

Imported only by kernels, because Triton exists only on Linux.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from nmt.ops.layer_norm import EPSILON
from nmt.ops.recurrence import Recurrent


class States(NamedTuple):
    """States of n time steps."""

    parts: Tensor
    """fp32 [P, n, B, H], h first"""
    narrow: Tensor
    """[n, B, H], h once more in the type of the products"""

    def at(self, t: int) -> States:
        """That of one time step, without n."""
        return States(self.parts[:, t], self.narrow[t])


class Steps:
    """A unit over one batch, one time step at a call.

    B rows, T time steps, H channels; time comes first in all tensors kept here. `saved` is what the backward pass
    needs of the forward pass, beside the states; without it there is room for it.
    """

    parts: ClassVar[int] = 1
    """P, how many tensors its state has."""
    products: ClassVar[int]
    """k, how many products of the input it takes."""
    matrices: ClassVar[int] = 1
    """How many recurrent matrices it has."""
    saved_widths: ClassVar[tuple[int, ...]]
    """What it saves, the product of each matrix first: tensors [T, B, width * H] in the type of the products."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        options: str,
        *,
        length: int,
        batch: int,
        hidden: int,
        saved: Sequence[Tensor] | None = None,
    ) -> None:
        count = len(weights) // self.matrices
        self.recurrents = [Recurrent(*weights[i : i + count]) for i in range(0, len(weights), count)]
        self.length, self.batch, self.hidden = length, batch, hidden
        self.launch = row_launch(hidden) | {"NORMALIZED": self.recurrents[0].scale is not None}
        room = (weights[0].new_empty(length, batch, width * hidden) for width in self.saved_widths)
        self.saved = tuple(room if saved is None else saved)

    @functools.cached_property
    def d_products(self) -> tuple[Tensor, ...]:
        """Room for the gradients of the products."""
        return tuple(torch.empty_like(product) for product in self.saved[: self.matrices])

    def forward(self, t: int, x: Tensor, mask: Tensor | None, *, before: States, after: States) -> None:
        """From x [B, kH] and the state `before` to `after`; rows keep their state where mask [B], bytes, is 0."""
        raise NotImplementedError

    def backward(
        self,
        t: int,
        x: Tensor,
        mask: Tensor | None,
        *,
        before: States,
        gradient: Tensor,
        pending: Tensor | None,
        d_output: Tensor | None,
        dx: Tensor,
    ) -> Tensor:
        """The gradient of `forward`; writes dx [B, kH].

        The gradient of the state after the step is gradient fp32 [P, B, H]; to h's are added pending [B, H], what
        the step after this one returned, and d_output [B, H]. What the state before it gets is left in `gradient`,
        but for a product that is returned, [B, H], for the next call to add.
        """
        raise NotImplementedError

    def weight_gradients(self, before: Tensor, dx: Tensor) -> list[Tensor]:
        """The gradients of all weights, from narrow h before each step [T, B, H] and dx of all steps [T, B, kH]."""
        raise NotImplementedError


def row_launch(hidden: int) -> dict[str, Any]:
    """How kernels are launched whose programs have a row of `hidden` channels."""
    block = triton.next_power_of_2(hidden)
    return {"BLOCK": block, "num_warps": min(8, max(1, block // 128))}


def parameter_gradients(
    parameters: Recurrent, *, operand: Tensor, product: Tensor, d_product: Tensor, d_sum: Tensor, widths: Sequence[int]
) -> list[Tensor]:
    """The gradients of one recurrent product over all steps, one for each parameter that there is.

    product [T, B, kH] is that of operand [T, B, H], d_product its gradient, d_sum [T, B, kH] that of what layer norm
    and bias make of it; layer norm is over parts of `widths`.
    """
    d_weight = torch.mm(d_product.flatten(0, 1).t(), operand.flatten(0, 1))
    d_bias = d_sum.sum((0, 1), dtype=torch.float32)
    if parameters.scale is None:
        return [d_weight, d_bias]
    parts = product.float().split(list(widths), -1)
    normal = torch.cat([F.layer_norm(part, part.shape[-1:], eps=EPSILON) for part in parts], -1)
    return [d_weight, d_bias, (normal * d_sum).sum((0, 1)), d_bias.clone()]


def added(d_output: Tensor | None) -> tuple[Tensor | None, int]:
    """An optional gradient [B, H] and its step from row to row, as kernels take them."""
    return d_output, 0 if d_output is None else d_output.stride(0)


def row_mask(mask: Tensor | None) -> tuple[Tensor | None, int]:
    """An optional mask [B] and its step from row to row, as kernels take them."""
    return mask, 0 if mask is None else mask.stride(0)
