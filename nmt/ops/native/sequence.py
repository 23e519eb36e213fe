"""A unit over whole sequences with its C kernels: outputs, last state and all gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.native import in_one_team
from nmt.ops.native.unit import Kernel, States, kernel_class, make_kernel
from nmt.ops.unit import Unit


def native_sequence(
    unit: Unit, projected: Tensor, state: tuple[Tensor | None, ...], mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, ...]:
    """Outputs [B, T, H] in the type of `projected` [B, T, kH], and the tensors [B, H] of the last state in fp32.

    `state` holds tensors [B, H] or None for zeros; mask [B, T] or None.
    """
    projected = projected if projected.stride(-1) == 1 else projected.contiguous()
    mask = None if mask is None else mask.bool()
    result: tuple[Tensor, ...] = _Sequence.apply(unit, mask, reverse, len(state), projected, *state, *unit.weights)
    return result


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, unit: Unit, mask: Tensor | None, reverse: bool, parts: int, *tensors: Any) -> Any:
        projected, state, weights = tensors[0], tensors[1 : 1 + parts], tensors[1 + parts :]
        batch, length, hidden = projected.size(0), projected.size(1), unit_width(unit, projected)
        unit = unit._replace(weights=weights)
        kernel = make_kernel(unit, length=length, batch=batch, hidden=hidden, dtype=projected.dtype)
        states = States.empty(parts, length + 1, batch, hidden, dtype=projected.dtype)
        first, last = (length, 0) if reverse else (0, length)
        zeros = projected.new_zeros(batch, hidden, dtype=torch.float32)
        states.put(first, tuple(zeros if part is None else part for part in state))
        with in_one_team(possible=kernel.kernels_alone):
            for start, x, live, before, after in _pieces(kernel, projected, mask, states, reverse=reverse):
                kernel.forward(x, before, after, live, start=start, reverse=reverse)
        ctx.save_for_backward(projected, mask, *states, *kernel.kept)
        kernel.kept = ()
        ctx.kernel, ctx.reverse = kernel, reverse
        ctx.given = [part is not None for part in state]
        ctx.set_materialize_grads(False)
        outputs = _shifted(states, reverse=reverse)[1].narrow.transpose(0, 1)
        return (outputs.clone(memory_format=torch.contiguous_format), *states.parts[:, last].clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        outputs, *last = gradients
        projected, mask, parts, narrow, *kept = ctx.saved_tensors
        kernel, states, reverse = ctx.kernel, States(parts, narrow), ctx.reverse
        zeros = parts.new_zeros(parts.shape[2:])
        gradient = torch.stack([zeros if part is None else part.float() for part in last])
        if outputs is not None and outputs.stride(-1) != 1:
            outputs = outputs.contiguous()
        dx = torch.empty_like(projected, memory_format=torch.contiguous_format)
        kernel.kept = tuple(kept)
        pieces = _pieces(kernel, projected, mask, states, reverse=reverse)
        added, written = _split(outputs, kernel, reverse=reverse), _split(dx, kernel, reverse=reverse)
        with in_one_team(possible=kernel.kernels_alone):
            for index in range(len(pieces) - 1, -1, -1):
                start, x, live, before, after = pieces[index]
                kernel.backward(
                    *(x, before, after, live),
                    **{"start": start, "reverse": reverse, "gradient": gradient},
                    outputs=added[index],
                    dx=written[index],
                )
        state = [part if given else None for part, given in zip(gradient, ctx.given, strict=True)]
        weights = kernel.weight_gradients(_shifted(states, reverse=reverse)[0].narrow)
        kernel.kept = ()
        return (None, None, None, None, dx, *state, *weights)


def unit_width(unit: Unit, projected: Tensor) -> int:
    """H of a unit, from the width kH of its inputs."""
    return projected.size(-1) // kernel_class(unit.name).products


def _shifted(states: States, *, reverse: bool) -> tuple[States, States]:
    """Of length + 1 states those before and those after each time step, in the order of the input."""
    length = states.narrow.size(0) - 1
    early, late = states.at(0, length), states.at(1, length + 1)
    return (late, early) if reverse else (early, late)


_Piece = tuple[int, Tensor, Tensor | None, States, States]


def _pieces(
    kernel: Kernel, projected: Tensor, mask: Tensor | None, states: States, *, reverse: bool
) -> Sequence[_Piece]:
    """What the kernel runs over, in this order: first time step, inputs, mask, states before and after."""
    if kernel.whole:
        return [(0, projected, mask, *_shifted(states, reverse=reverse))]
    if kernel.length == 0:
        return []
    each = states.split(1)
    before, after = (each[1:], each[:-1]) if reverse else (each[:-1], each[1:])
    order = range(kernel.length)
    masks = [None] * kernel.length if mask is None else mask.split(1, 1)
    pieces = list(zip(order, projected.split(1, 1), masks, before, after, strict=True))
    return pieces[::-1] if reverse else pieces


def _split(sequence: Tensor | None, kernel: Kernel, *, reverse: bool) -> Sequence[Tensor | None]:
    """The parts of a sequence [B, T, ...] that belong to `_pieces`."""
    if kernel.whole:
        return [sequence]
    if sequence is None:
        return [None] * kernel.length
    steps = sequence.split(1, 1)
    return steps[::-1] if reverse else steps
