"""A unit over whole sequences with its C kernels: outputs, last state and all gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.native.unit import States, Unit, kernel_class, make_kernel


def native_sequence(
    unit: Unit, projected: Tensor, state: tuple[Tensor | None, ...], mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, ...]:
    """Outputs [B, T, H] in the type of `projected` [B, T, kH], and the tensors [B, H] of the last state in fp32.

    `state` holds fp32 tensors [B, H] or None for zeros; mask [B, T] or None.
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
        before, after = _shifted(states, reverse=reverse)
        for t, end in _spans(length, whole=kernel.whole, reverse=reverse):
            kernel.forward(
                projected[:, t:end],
                before.at(t, end),
                after.at(t, end),
                None if mask is None else mask[:, t:end],
                start=t,
                reverse=reverse,
            )
        ctx.save_for_backward(projected)
        ctx.kernel, ctx.states, ctx.mask, ctx.reverse = kernel, states, mask, reverse
        ctx.given = [part is not None for part in state]
        outputs = after.narrow.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        return (outputs, *states.parts[:, last].clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        outputs, *last = gradients
        (projected,) = ctx.saved_tensors
        kernel, states, mask, reverse = ctx.kernel, ctx.states, ctx.mask, ctx.reverse
        gradient = torch.stack([part.float() for part in last])
        outputs = outputs if outputs.stride(-1) == 1 else outputs.contiguous()
        dx = torch.empty_like(projected, memory_format=torch.contiguous_format)
        before, after = _shifted(states, reverse=reverse)
        for t, end in reversed(_spans(kernel.length, whole=kernel.whole, reverse=reverse)):
            kernel.backward(
                projected[:, t:end],
                before.at(t, end),
                after.at(t, end),
                None if mask is None else mask[:, t:end],
                start=t,
                reverse=reverse,
                gradient=gradient,
                outputs=outputs[:, t:end],
                dx=dx[:, t:end],
            )
        state = [part if given else None for part, given in zip(gradient, ctx.given, strict=True)]
        return (None, None, None, None, dx, *state, *kernel.weight_gradients(before.narrow))


def unit_width(unit: Unit, projected: Tensor) -> int:
    """H of a unit, from the width kH of its inputs."""
    return projected.size(-1) // kernel_class(unit.name).products


def _shifted(states: States, *, reverse: bool) -> tuple[States, States]:
    """Of length + 1 states those before and those after each time step, in the order of the input."""
    length = states.narrow.size(0) - 1
    early, late = states.at(0, length), states.at(1, length + 1)
    return (late, early) if reverse else (early, late)


def _spans(length: int, *, whole: bool, reverse: bool) -> list[tuple[int, int]]:
    """Which time steps to run at once, in the order to run them."""
    if whole:
        return [(0, length)]
    order = range(length - 1, -1, -1) if reverse else range(length)
    return [(t, t + 1) for t in order]
