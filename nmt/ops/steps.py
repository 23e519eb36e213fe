"""What a recurrence whose steps need a matrix product gives to the loop over time (`nmt.ops.loop`): one step.

Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from nmt.ops.dispatch import TRITON_DTYPES, load_kernel
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
    needs of the forward pass, beside the states, and `gradients` what the gradients of the weights need of the
    backward pass; without them there is room for them.
    """

    parts: ClassVar[int] = 1
    """P, how many tensors its state has."""
    products: ClassVar[int]
    """k, how many products of the input it takes."""
    matrices: ClassVar[int] = 1
    """How many recurrent matrices it has."""
    saved_widths: ClassVar[tuple[int, ...]]
    """What it saves, the product of each matrix first: tensors [T, B, width * H] in the type of the products."""
    gradient_widths: ClassVar[tuple[int, ...]]
    """Its gradients, that of the product of each matrix first: tensors as those saved."""
    tanh_output: bool = False
    """Whether it puts out tanh(h) and carries h."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        options: str,
        *,
        length: int,
        batch: int,
        hidden: int,
        like: Tensor,
        saved: Sequence[Tensor] | None = None,
        gradients: Callable[[], Sequence[Tensor]] | None = None,
    ) -> None:
        """`like` is any tensor in the type of the products."""
        self.weights, self.words = weights, options.split()
        self.length, self.batch, self.hidden, self.like = length, batch, hidden, like
        self.saved = self._room(self.saved_widths) if saved is None else tuple(saved)
        self._gradients = gradients

    def _room(self, widths: Sequence[int]) -> tuple[Tensor, ...]:
        return tuple(self.like.new_empty(self.length, self.batch, width * self.hidden) for width in widths)

    @functools.cached_property
    def gradients(self) -> tuple[Tensor, ...]:
        """What the backward pass writes, of `gradient_widths`."""
        return self._room(self.gradient_widths) if self._gradients is None else tuple(self._gradients())

    @functools.cached_property
    def recurrents(self) -> list[Recurrent]:
        """The parameters of its matrices."""
        count = len(self.weights) // self.matrices
        return [Recurrent(*self.weights[i : i + count]) for i in range(0, len(self.weights), count)]

    @functools.cached_property
    def launch(self) -> dict[str, Any]:
        """How kernels are launched whose programs have a row of all channels."""
        return row_launch(self.hidden) | {"NORMALIZED": self.recurrents[0].scale is not None}

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
    ) -> Tensor | None:
        """The gradient of `forward`; writes dx [B, kH].

        The gradient of the state after the step is gradient fp32 [P, B, H]; to h's are added pending [B, H], what
        the step after this one returned, and d_output [B, H]. What the state before it gets is left in `gradient`,
        but for a product that is returned, [B, H], if there is one, for the next call to add.
        """
        raise NotImplementedError

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        """The gradients of all weights, from the state before each step and dx of all steps [T, B, kH]."""
        raise NotImplementedError


UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "atr": "nmt.ops.atr.steps:ATRSteps",
        "gru": "nmt.ops.gru.triton:GRUSteps",
        "lrn": "nmt.ops.lrn.steps:LRNSteps",
        "lstm": "nmt.ops.lstm.triton:LSTMSteps",
        "olrn": "nmt.ops.lrn.steps:OLRNSteps",
        "sru": "nmt.ops.sru.steps:SRUSteps",
    }
)
"""The one place that lists them: unit -> "module:class"."""


def steps_class(unit: str) -> type[Steps]:
    """The class listed for a unit."""
    kind: type[Steps] = load_kernel(UNITS[unit])
    return kind


def as_operands(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Parameters as kernels take them: matrices in the type of the products, all else in fp32."""
    return [weight.to(dtype if weight.dim() == 2 else torch.float32).contiguous() for weight in weights]


MOST_CHANNELS: Final = 2048
"""A program has a row of all channels in registers; more are left to the references."""


def unsupported(dtype: torch.dtype, *, hidden: int) -> str | None:
    """Why the kernels cannot run with products of this type and `hidden` channels, None if they can."""
    if dtype not in TRITON_DTYPES:
        return f"there is none for weights of {str(dtype).removeprefix('torch.')}"
    return f"a hidden size of {hidden} is more than {MOST_CHANNELS}" if hidden > MOST_CHANNELS else None


def row_launch(hidden: int) -> dict[str, Any]:
    """How kernels are launched whose programs have a row of `hidden` channels."""
    block = triton.next_power_of_2(hidden)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 128))}


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


def added(d_output: Tensor | None, *, like: Tensor | None = None) -> tuple[Tensor | None, int]:
    """An optional gradient [B, H] and its step from row to row, as kernels take them; zeros `like` where they must."""
    if d_output is None and like is not None:
        d_output = torch.zeros_like(like)
    return d_output, 0 if d_output is None else d_output.stride(0)


def row_mask(mask: Tensor | None) -> tuple[Tensor | None, int]:
    """An optional mask [B] and its step from row to row, as kernels take them."""
    return mask, 0 if mask is None else mask.stride(0)
