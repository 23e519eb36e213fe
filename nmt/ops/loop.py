"""The loop over time of the units whose steps need a matrix product, as one custom operator.

The whole loop is one CUDA graph (`nmt.ops.graphs`), so that its many small kernels cost little to launch.
Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nmt.ops import graphs
from nmt.ops.dispatch import fall_back
from nmt.ops.recurrence import Recurrent, product_type, time_order
from nmt.ops.steps import States, Steps, as_operands, steps_class, unsupported
from nmt.ops.triton_tools import mask_bytes, or_zeros, with_rows
from nmt.ops.unit import flat


def _steps(unit: str, weights: Sequence[Tensor], options: str, x: Tensor, *, saved: Sequence[Tensor] | None) -> Steps:
    batch, length, width = x.shape
    kind = steps_class(unit)
    hidden = width // kind.products
    return kind(weights, options, length=length, batch=batch, hidden=hidden, like=weights[0], saved=saved)


def _column(mask: Tensor | None, t: int) -> Tensor | None:
    return None if mask is None else mask[:, t]


def run_forward(
    x: Tensor, first: Tensor, mask: Tensor | None, *weights: Tensor, unit: str, options: str, reverse: bool
) -> list[Tensor]:
    """Outputs, last state, then T + 1 states, wide and narrow, and what else the unit saves.

    State t is the one before time step t or, where they run backward, the one after it.
    """
    steps = _steps(unit, weights, options, x, saved=None)
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
    steps = _steps(unit, rest[:weights], options, x, saved=rest[weights:])
    states, gradient, dx = States(parts, narrow), d_last.clone(), x.new_empty(x.shape)
    pending = None
    for t in reversed(time_order(steps.length, reverse=reverse)):
        pending = steps.backward(
            t, x[:, t], _column(mask, t), before=states.at(t + reverse),
            gradient=gradient, pending=pending, d_output=d_outputs[:, t], dx=dx[:, t],
        )  # fmt: skip
    if pending is not None:
        gradient[0] += pending
    by_time, narrow = (_aligned(part, after=False, reverse=reverse) for part in (parts.transpose(0, 1), narrow))
    before = States(by_time.transpose(0, 1), narrow)
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
    inputs = [x.contiguous(), first.contiguous(), mask_bytes(mask), *(weight.contiguous() for weight in weights)]
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
    inputs = [x.contiguous(), d_outputs.contiguous(), d_last.contiguous(), mask_bytes(mask), *saved[:2]]
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


def run_loop(
    unit: str, projected: Tensor, recurrents: Sequence[Recurrent], state: Sequence[Tensor | None],
    mask: Tensor | None, *, reverse: bool, options: str = "", reference: Callable[[], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Outputs [B, T, H] and the last state's tensors [B, H] of `unit`; `reference` runs where its kernels cannot.

    Under autocast products are computed in its type, as those of the references are.
    """
    dtype, hidden = product_type(recurrents[0].weight), recurrents[0].weight.size(-1)
    problem = unsupported(dtype, hidden=hidden)
    if problem or projected.numel() == 0:
        return (fall_back(unit, problem, reference=reference) if problem else reference)()
    weights = as_operands(flat(*recurrents), dtype)
    zeros = projected.new_zeros(len(projected), hidden, dtype=torch.float32)
    first = torch.stack([zeros if part is None else part.float() for part in state])
    batch, rows = len(projected), graphs.filled_up(len(projected))
    projected, first = with_rows(projected, rows), with_rows(first, rows, axis=1)
    mask = None if mask is None else with_rows(mask, rows)
    outputs, last, _ = loop_op(unit, projected, weights, mask, first, reverse, options)
    return outputs[:batch], *last[:, :batch].unbind()
