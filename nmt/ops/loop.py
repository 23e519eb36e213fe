"""The loop over time of the units whose steps need a matrix product, as one custom operator.

The whole loop is one CUDA graph (`nmt.ops.graphs`), so that its many small kernels cost little to launch.
Imported only by kernels, because Triton exists only on Linux.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from nmt.ops import graphs
from nmt.ops.dispatch import TRITON_DTYPES, fall_back
from nmt.ops.kernels import mask_bytes, or_zeros
from nmt.ops.recurrence import Recurrent, time_order
from nmt.ops.steps import States, Steps

UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "atr": "nmt.ops.atr.steps:ATRSteps",
        "gru": "nmt.ops.gru.triton:GRUSteps",
        "lstm": "nmt.ops.lstm.triton:LSTMSteps",
    }
)
"""The one place that lists them: unit -> "module:class"."""

MOST_CHANNELS: Final = 2048
"""A program has a row of all channels in registers; more are left to the references."""


def steps_class(unit: str) -> type[Steps]:
    """The class listed for a unit."""
    module, _, member = UNITS[unit].partition(":")
    kind: type[Steps] = getattr(importlib.import_module(module), member)
    return kind


def _sizes(unit: str, x: Tensor) -> dict[str, Any]:
    batch, length, width = x.shape
    return {"length": length, "batch": batch, "hidden": width // steps_class(unit).products}


def _column(mask: Tensor | None, t: int) -> Tensor | None:
    return None if mask is None else mask[:, t]


def run_forward(
    x: Tensor, first: Tensor, mask: Tensor | None, *weights: Tensor, unit: str, options: str, reverse: bool
) -> list[Tensor]:
    """Outputs, last state, then T + 1 states, wide and narrow, and what else the unit saves.

    State t is the one before time step t or, where they run backward, the one after it.
    """
    steps = steps_class(unit)(weights, options, **_sizes(unit, x))
    length = steps.length
    start, end = (length, 0) if reverse else (0, length)
    parts = first.new_empty(steps.parts, length + 1, steps.batch, steps.hidden)
    states = States(parts, weights[0].new_empty(length + 1, steps.batch, steps.hidden))
    parts[:, start] = first
    states.narrow[start] = first[0]
    for t in time_order(length, reverse=reverse):
        before, after = states.at(t + reverse), states.at(t + 1 - reverse)
        steps.forward(t, x[:, t], _column(mask, t), before=before, after=after)
    h = states.narrow if states.narrow.dtype == x.dtype else parts[0]
    outputs = _aligned(h, after=True, reverse=reverse).transpose(0, 1)
    outputs = outputs.to(x.dtype, memory_format=torch.contiguous_format, copy=True)
    return [outputs, parts[:, end].clone(), *states, *steps.saved]


def _aligned(states: Tensor, *, after: bool, reverse: bool) -> Tensor:
    """Of T + 1 states the T before, or after, each time step."""
    return states[1:] if after != reverse else states[:-1]


def run_backward(
    x: Tensor, d_outputs: Tensor, d_last: Tensor, mask: Tensor | None, parts: Tensor, narrow: Tensor, *rest: Tensor,
    unit: str, options: str, reverse: bool, weights: int,
) -> list[Tensor]:  # fmt: skip
    """Gradients of x and of the first state, then of the weights; `rest` are the weights and what was saved."""
    steps = steps_class(unit)(rest[:weights], options, saved=rest[weights:], **_sizes(unit, x))
    states, gradient, dx = States(parts, narrow), d_last.clone(), x.new_empty(x.shape)
    pending = None
    for t in reversed(time_order(steps.length, reverse=reverse)):
        pending = steps.backward(
            t, x[:, t], _column(mask, t), before=states.at(t + reverse),
            gradient=gradient, pending=pending, d_output=d_outputs[:, t], dx=dx[:, t],
        )  # fmt: skip
    if pending is not None:
        gradient[0] += pending
    before = _aligned(narrow, after=False, reverse=reverse)
    return [dx, gradient, *steps.weight_gradients(before, dx.transpose(0, 1))]


def _replayed(work: Callable[..., list[Tensor]], inputs: graphs.Inputs, **options: Any) -> list[Tensor]:
    def bound(*tensors: Tensor) -> list[Tensor]:
        with torch.autocast(tensors[0].device.type, enabled=False), torch.cuda.device_of(tensors[0]):
            return work(*tensors, **options)

    return graphs.run(bound, inputs, key=(work.__name__, *options.values()))


@torch.library.custom_op(
    "nmt::loop",
    mutates_args=(),
    schema="(str unit, Tensor x, Tensor[] weights, Tensor? mask, Tensor first, bool reverse, str options)"
    " -> (Tensor, Tensor, Tensor[])",
)
def loop_op(
    unit: str,
    x: Tensor,
    weights: Sequence[Tensor],
    mask: Tensor | None,
    first: Tensor,
    reverse: bool,
    options: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Outputs [B, T, H] in the type of x, the last state fp32 [P, B, H], and what the gradient needs.

    x [B, T, kH]; weights: for each recurrent matrix itself, in the type of the products, its bias and, with layer
    norm, scale and offset, all fp32; mask [B, T] or None; first fp32 [P, B, H]; options as the unit says.
    """
    inputs = [x.contiguous(), first, mask_bytes(mask), *(weight.contiguous() for weight in weights)]
    outputs, last, *saved = _replayed(run_forward, inputs, unit=unit, options=options, reverse=reverse)
    return outputs, last, saved


@loop_op.register_fake
def _(
    unit: str,
    x: Tensor,
    weights: Sequence[Tensor],
    mask: Tensor | None,
    first: Tensor,
    reverse: bool,
    options: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    batch, length, hidden = x.size(0), x.size(1), first.size(-1)
    states = first.new_empty(first.size(0), length + 1, batch, hidden)
    narrow = weights[0].new_empty(length + 1, batch, hidden)
    saved = [narrow.new_empty(length, batch, width * hidden) for width in steps_class(unit).saved_widths]
    return x.new_empty(batch, length, hidden), first.new_empty(first.shape), [states, narrow, *saved]


@torch.library.custom_op(
    "nmt::loop_backward",
    mutates_args=(),
    schema="(str unit, Tensor x, Tensor[] weights, Tensor? mask, Tensor[] saved, Tensor d_outputs, Tensor d_last,"
    " bool reverse, str options) -> (Tensor, Tensor, Tensor[])",
)
def loop_backward_op(
    unit: str,
    x: Tensor,
    weights: Sequence[Tensor],
    mask: Tensor | None,
    saved: Sequence[Tensor],
    d_outputs: Tensor,
    d_last: Tensor,
    reverse: bool,
    options: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Gradients of x, of the first state, and of the weights."""
    inputs = [x.contiguous(), d_outputs.contiguous(), d_last, mask_bytes(mask), *saved[:2]]
    inputs += [*(weight.contiguous() for weight in weights), *saved[2:]]
    dx, d_first, *d_weights = _replayed(
        run_backward, inputs, unit=unit, options=options, reverse=reverse, weights=len(weights)
    )
    return dx, d_first, d_weights


@loop_backward_op.register_fake
def _(
    unit: str,
    x: Tensor,
    weights: Sequence[Tensor],
    mask: Tensor | None,
    saved: Sequence[Tensor],
    d_outputs: Tensor,
    d_last: Tensor,
    reverse: bool,
    options: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    d_weights = [weight.new_empty(weight.shape) for weight in weights]
    return x.new_empty(x.shape), d_last.new_empty(d_last.shape), d_weights


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    ctx.unit, x, weights, mask, _, ctx.reverse, ctx.options = inputs
    outputs, last, saved = output
    ctx.set_materialize_grads(False)
    ctx.weights = len(weights)
    ctx.save_for_backward(x, mask, outputs, last, *weights, *saved)


def _backward(ctx: Any, d_outputs: Tensor | None, d_last: Tensor | None, d_saved: Any) -> tuple[Any, ...]:
    x, mask, outputs, last, *rest = ctx.saved_tensors
    weights, saved = rest[: ctx.weights], rest[ctx.weights :]
    d_outputs, d_last = or_zeros(d_outputs, like=outputs), or_zeros(d_last, like=last)
    dx, d_first, d_weights = loop_backward_op(
        ctx.unit, x, weights, mask, saved, d_outputs, d_last, ctx.reverse, ctx.options
    )
    return None, dx, d_weights, None, d_first, None, None


loop_op.register_autograd(_backward, setup_context=_setup_context)


def unsupported(weight: Tensor) -> str | None:
    """Why the kernels cannot run with a recurrent matrix [kH, H], None if they can."""
    if weight.dtype not in TRITON_DTYPES:
        return f"there is none for weights of {str(weight.dtype).removeprefix('torch.')}"
    hidden = weight.size(-1)
    return f"a hidden size of {hidden} is more than {MOST_CHANNELS}" if hidden > MOST_CHANNELS else None


def run_loop(
    unit: str, projected: Tensor, recurrents: Sequence[Recurrent], state: Sequence[Tensor | None],
    mask: Tensor | None, *, reverse: bool, options: str = "", reference: Callable[[], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Outputs [B, T, H] and the last state's tensors [B, H] of `unit`; `reference` runs where its kernels cannot.

    Under autocast products are computed in its type, as those of the references are.
    """
    device = projected.device.type
    product_type = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else recurrents[0].weight.dtype
    matrices = [parameters.weight.to(product_type) for parameters in recurrents]
    problem = unsupported(matrices[0])
    if problem or projected.numel() == 0:
        return (fall_back(unit, problem, reference=reference) if problem else reference)()
    weights = []
    for matrix, parameters in zip(matrices, recurrents, strict=True):
        weights += [matrix, *(part.float() for part in parameters[1:] if part is not None)]
    zeros = projected.new_zeros(len(projected), matrices[0].size(-1), dtype=torch.float32)
    first = torch.stack([zeros if part is None else part.float() for part in state])
    outputs, last, _ = loop_op(unit, projected, weights, mask, first, reverse, options)
    return outputs, *last.unbind()
