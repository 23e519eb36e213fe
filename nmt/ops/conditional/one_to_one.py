"""The loop of a layer that reads a context aligned with its input, with C kernels and a hand-written gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.conditional import Aligned
from nmt.ops.native import in_one_team
from nmt.ops.native.unit import States, kernel_class, make_pair, supported
from nmt.ops.unit import Unit


def one_to_one_native(
    lower: Unit,
    higher: Unit,
    projected: Tensor,
    *,
    context: Tensor,
    state: tuple[Tensor, ...],
    mask: Tensor | None,
    reverse: bool,
    written_out: Callable[[], Aligned],
) -> Aligned:
    """See `nmt.ops.conditional.one_to_one_sequence`. Layer norm in the cells is left to the loop written out."""
    if not (supported(lower) and supported(higher)) or projected.dtype != context.dtype:
        return written_out()
    tensors = (_rows(projected), _rows(context), *state, *lower.weights, *higher.weights)
    mask = None if mask is None else mask.bool()
    outputs, *last = _Pairs.apply(lower, higher, mask, reverse, *tensors)
    return Aligned(outputs, tuple(last))


class _Pairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lower: Unit, higher: Unit, mask: Tensor | None, reverse: bool, *tensors: Tensor) -> Any:
        ctx.run = run = _Run(lower, higher, mask, reverse, tensors)
        run.forward()
        outputs = run.after.narrow.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        return (outputs, *run.states.parts[:, run.last].clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        d_outputs, *d_last = gradients
        return (None, None, None, None, *ctx.run.gradients(_rows(d_outputs), d_last))


class _Run:
    """One batch: what the forward pass computed, and the backward pass over it."""

    def __init__(
        self, lower: Unit, higher: Unit, mask: Tensor | None, reverse: bool, tensors: tuple[Tensor, ...]
    ) -> None:
        parts, dtype = kernel_class(lower.name).parts, tensors[0].dtype
        self.inputs, self.context, *rest = tensors
        state, weights = rest[:parts], rest[parts:]
        batch, length = self.inputs.shape[:2]
        hidden = self.inputs.size(-1) // kernel_class(lower.name).products
        self.lower, self.higher = make_pair(
            lower, higher, weights, length=length, batch=batch, hidden=hidden, dtype=dtype
        )
        self.kernels_alone = self.lower.kernels_alone and self.higher.kernels_alone
        self.mask, self.reverse = mask, reverse
        self.states = States.empty(parts, length + 1, batch, hidden, dtype=dtype)
        self.between = States.empty(parts, length, batch, hidden, dtype=dtype)
        early, late = self.states.at(0, length), self.states.at(1, length + 1)
        self.before, self.after = (late, early) if reverse else (early, late)
        first, self.last = (length, 0) if reverse else (0, length)
        self.states.put(first, tuple(state))
        self.order = list(range(length - 1, -1, -1) if reverse else range(length))

    def forward(self) -> None:
        """All time steps."""
        with in_one_team(possible=self.kernels_alone):
            for t in self.order:
                before, between, after = (states.at(t, t + 1) for states in (self.before, self.between, self.after))
                live = None if self.mask is None else self.mask[:, t : t + 1]
                self.lower.forward(self.inputs[:, t : t + 1], before, between, live, start=t, reverse=self.reverse)
                self.higher.forward(self.context[:, t : t + 1], between, after, live, start=t, reverse=self.reverse)

    def gradients(self, d_outputs: Tensor, d_last: list[Tensor]) -> tuple[Tensor, ...]:
        """The gradients of all tensors of the loop, in their order."""
        d_state = torch.stack([part.float() for part in d_last])
        d_inputs, d_context = (
            torch.empty_like(x, memory_format=torch.contiguous_format) for x in (self.inputs, self.context)
        )
        with in_one_team(possible=self.kernels_alone):
            for t in reversed(self.order):
                before, between, after = (states.at(t, t + 1) for states in (self.before, self.between, self.after))
                live = None if self.mask is None else self.mask[:, t : t + 1]
                self.higher.backward(
                    *(self.context[:, t : t + 1], between, after, live),
                    start=t,
                    reverse=self.reverse,
                    gradient=d_state,
                    outputs=d_outputs[:, t : t + 1],
                    dx=d_context[:, t : t + 1],
                )
                self.lower.backward(
                    *(self.inputs[:, t : t + 1], before, between, live),
                    start=t,
                    reverse=self.reverse,
                    gradient=d_state,
                    outputs=None,
                    dx=d_inputs[:, t : t + 1],
                )
        return (
            *(d_inputs, d_context, *d_state),
            *self.lower.weight_gradients(self.before.narrow),
            *self.higher.weight_gradients(self.between.narrow),
        )


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
