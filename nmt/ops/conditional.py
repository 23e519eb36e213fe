"""Layers with two or more cells per step, which read contexts: from attention, or aligned with the input.

Each function returns None if there are no kernels for the loop; the model then runs the steps itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from nmt.ops.dispatch import load, no_kernel
from nmt.ops.loop import Attention, Given, Memory, run_loop
from nmt.ops.recurrence import State, product_type
from nmt.ops.scan import pair_of
from nmt.ops.sequence import first_state, kernels_of, product_dtype, sequence
from nmt.ops.unit import Unit

ATTENTIONS: Final = {
    False: "nmt.ops.attention:AttentionKernel",
    True: "nmt.ops.attention.triton:AttentionKernel",
}
"""The attention classes, by whether the kernels' loops are recorded: in C (False) and in Triton (True)."""


class Attended(NamedTuple):
    """The result of `attended_sequence`, with shapes for one level; several levels are side by side."""

    outputs: Tensor
    """[B, T, H]"""
    contexts: Tensor
    """[B, T, M]"""
    weights: Tensor
    """[B, G, T, S] of attention, in at least fp32; kernels give them no gradient"""
    last: State
    """[B, H] each, in at least fp32"""


class Aligned(NamedTuple):
    """The result of `one_to_one_sequence`."""

    outputs: Tensor
    """[B, T, H], in input order"""
    last: State
    """[B, H] each, in at least fp32"""


class Level(NamedTuple):
    """An attention, and the cell that reads its context."""

    attention: Attention
    higher: Unit


def attended_sequence(
    lower: Unit, levels: Sequence[Level], projected: Tensor, *, memory: Memory, state: State, mask: Tensor | None
) -> Attended | None:
    """s = lower(h', x_t); in each level c = attention(s), s = higher(s, context(c)); h = s for each time step.

    projected [B, T, kH] are the input products of the lower cell, `state` tensors [B, H]. Rows keep their state where
    mask [B, T] is false. With one level this is the conditional RNN, with several levels deep attention. Outputs have
    the type of `projected`.
    """
    cells = [lower, *(level.higher for level in levels)]
    kinds = kernels_of("conditional", *cells, like=projected) if projected.numel() and memory.keys.numel() else []
    if not kinds:
        return None
    recorded = kinds[0].recorded
    dtype = product_type(levels[0].attention.context.weight) if recorded else projected.dtype
    attention = load(ATTENTIONS[recorded])
    problem = attention.problem(memory.keys)
    if {memory.keys.dtype, memory.values.dtype} != {dtype}:
        problem = "the memory is not in the type of the products"
    if problem:
        no_kernel("conditional", like=projected, problem=problem)
        return None
    first, attentions = first_state(lower, projected, state), [level.attention for level in levels]
    given = Given(projected, mask, first, cells, (), memory, attentions)
    outputs, last, contexts, weights = run_loop(given, kinds, dtype=dtype, attention=attention)
    assert contexts is not None
    assert weights is not None
    return Attended(lower.output(outputs), contexts, weights, tuple(last.unbind()))


def one_to_one_sequence(
    lower: Unit, higher: Unit, projected: Tensor, *, context: Tensor, state: State, mask: Tensor | None, reverse: bool
) -> Aligned | None:
    """s = lower(h', x_t); h = higher(s, context_t) for each time step; `reverse` runs from the last step to the first.

    projected [B, T, kH] and context [B, T, k'H] are the input products of the cells; the other arguments are as for
    `attended_sequence`.
    """
    if not projected.numel() or projected.dtype != context.dtype:
        return None
    pair = pair_of(lower, higher)
    if pair is not None:  # without matrices, the steps of both cells are steps of one unit
        return Aligned(*sequence(pair, torch.cat([projected, context], -1), state, mask, reverse=reverse))
    kinds = kernels_of("one_to_one", lower, higher, like=projected)
    if not kinds:
        return None
    given = Given(projected, mask, first_state(lower, projected, state), [lower, higher], [context])
    outputs, last, *_ = run_loop(given, kinds, dtype=product_dtype(lower, projected), reverse=reverse)
    return Aligned(higher.output(outputs), tuple(last.unbind()))
