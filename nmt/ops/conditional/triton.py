"""The loops of two cells in Triton; see `nmt.ops.conditional.operator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops import graphs
from nmt.ops.attention.triton import AttentionKernel
from nmt.ops.conditional import Aligned, Attended, Attention
from nmt.ops.conditional.operator import conditional_op
from nmt.ops.dispatch import fall_back
from nmt.ops.recurrence import product_type
from nmt.ops.steps import UNITS, as_operands, unsupported
from nmt.ops.triton_tools import with_rows
from nmt.ops.unit import Projection, Unit

SOURCE_STEP: Final = 16
"""Sources are filled up to a multiple of so many positions, so that few lengths have graphs of their own."""


def conditional_triton(
    lower: Unit,
    higher: Unit,
    projected: Tensor,
    *,
    context: Projection,
    attention: Attention,
    state: tuple[Tensor, ...],
    mask: Tensor | None,
    written_out: Callable[[], Attended],
) -> Attended:
    """See `nmt.ops.conditional.conditional_sequence`. Outputs are in the type of `projected`."""
    keys, values = attention.keys, attention.values
    dtype, hidden = product_type(context.weight), state[0].size(-1)
    if not _known(lower, higher) or projected.numel() == 0 or keys.numel() == 0:
        return written_out()
    problem = unsupported(dtype, hidden=hidden) or AttentionKernel.problem(keys)
    if not problem and {keys.dtype, values.dtype} != {dtype}:
        problem = "the memory is not in the type of the products"
    if problem:
        return fall_back("conditional", problem, reference=written_out)()
    batch, rows, source = len(projected), graphs.filled_up(len(projected)), keys.size(2)
    filled = [0, 0, 0, -source % SOURCE_STEP, 0, 0, 0, rows - batch]
    penalty = F.pad(attention.penalty[:, 0, 0].float(), filled[2:4], value=float("-inf"))
    memory = [F.pad(keys, filled), F.pad(values, filled), with_rows(penalty, rows)]
    memory += [attention.score_weight.float(), attention.score_bias.float()]
    weights = [as_operands(lower.weights, dtype), as_operands(higher.weights, dtype)]
    weights += [_operands(context, dtype), _operands(attention.query, dtype)]
    outputs, last, kept = conditional_op(
        lower.words, higher.words, [len(part) for part in weights], list(context.widths),
        *_with_rows(rows, projected, mask, state), None, memory, [weight for part in weights for weight in part],
    )  # fmt: skip
    contexts, attended = kept[-2].transpose(0, 1), kept[-1].permute(1, 2, 0, 3).detach()
    return Attended(outputs[:batch], contexts[:batch], attended[:batch, ..., :source], last[:, :batch].unbind())


def one_to_one_triton(
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
    """See `nmt.ops.conditional.one_to_one_sequence`. Outputs are in the type of `projected`."""
    if not _known(lower, higher) or projected.numel() == 0:
        return written_out()
    matrix = next((weight for weight in lower.weights if weight.dim() == 2), projected)
    dtype = product_type(matrix)
    problem = unsupported(dtype, hidden=state[0].size(-1))
    if problem:
        return fall_back("one_to_one", problem, reference=written_out)()
    if reverse:
        projected, context = projected.flip(1), context.flip(1)
        mask = None if mask is None else mask.flip(1)
    weights = [as_operands(lower.weights, dtype), as_operands(higher.weights, dtype)]
    batch, rows = len(projected), graphs.filled_up(len(projected))
    outputs, last, _ = conditional_op(
        lower.words, higher.words, [len(weights[0]), len(weights[1]), 0, 0], [],
        *_with_rows(rows, projected, mask, state), with_rows(context, rows), [], [*weights[0], *weights[1]],
    )  # fmt: skip
    outputs = outputs[:batch]
    return Aligned(outputs.flip(1) if reverse else outputs, last[:, :batch].unbind())


def _known(lower: Unit, higher: Unit) -> bool:
    return lower.name == higher.name and lower.name in UNITS


def _with_rows(
    rows: int, projected: Tensor, mask: Tensor | None, state: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Inputs, mask and the state before, fp32 [P, rows, H], of so many rows; those added are zeros."""
    first = torch.stack([part.float() for part in state])
    mask = None if mask is None else with_rows(mask, rows)
    return with_rows(projected, rows), mask, with_rows(first, rows, axis=1)


def _operands(projection: Projection, dtype: torch.dtype) -> list[Tensor]:
    """Matrix, bias and, with layer norm, scale and offset; the bias is fp32 there, else in the type of the product."""
    weight, bias, scale, offset, _ = projection
    if bias is None:
        bias = weight.new_zeros(len(weight))
    if scale is None or offset is None:
        return [weight.to(dtype).contiguous(), bias.to(dtype)]
    return as_operands([weight, bias, scale, offset], dtype)
