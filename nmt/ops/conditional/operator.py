"""The loop over two cells as one operator with a hand-written gradient; a few steps at a time are a CUDA graph.

Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import torch
from torch import Tensor

from nmt.ops import graphs
from nmt.ops.conditional import memory as once
from nmt.ops.conditional.loop import Loop
from nmt.ops.conditional.plan import Given, Plan
from nmt.ops.triton_tools import mask_bytes, or_zeros, readable_rows

MOST_STEPS: Final = 8
"""Time steps of a graph. The rest of a sequence runs in graphs of 4, 2 and 1, so its length is free."""

_GIVEN: Final = len(Given._fields)


def parts(length: int) -> Iterator[tuple[int, int]]:
    """Cut `length` time steps into those of graphs: start and end of each."""
    start, size = 0, MOST_STEPS
    while start < length:
        while start + size > length:
            size //= 2
        yield start, start + size
        start += size


def _plainly(x: Tensor) -> AbstractContextManager[Any]:
    """Without autocast: the types of all tensors are as they should be."""
    return torch.autocast(x.device.type, enabled=False)


def run_forward(plan: Plan, given: Given, weights: Sequence[Tensor]) -> Loop:
    """The loop with all that it keeps."""

    def work(*tensors: Any) -> list[Tensor]:
        return Loop(plan, Given(*tensors[:_GIVEN]), tensors[_GIVEN:]).forward()

    given = _multiplied(plan, given, weights)
    loop, first, session = Loop(plan, given, weights), given.first, graphs.Session()
    for start, end in parts(loop.length):
        out = [x[start:end] for x in loop.in_loop(loop.kept)]
        inputs = [*given.part(start, end, first=first), *weights]
        graphs.run(work, inputs, key=("conditional", plan), out=out, session=session)
        first = loop.kept["after"][end - 1]
    if given.values is not None and given.multiplied is not None:
        once.write_contexts(loop.kept["weights"], given.values, out=loop.kept["contexts"])
    return loop


def _multiplied(plan: Plan, given: Given, weights: Sequence[Tensor]) -> Given:
    """With the product of memory and matrix, if it is to be formed once."""
    context = plan.cut(weights)[2]
    if given.values is None or not once.worth_it(given.values, context[0]):
        return given
    return given._replace(multiplied=once.multiplied(given.values, context))


def run_backward(
    plan: Plan, given: Given, weights: Sequence[Tensor], kept: Sequence[Tensor], *,
    d_outputs: Tensor, d_contexts: Tensor | None, d_last: Tensor,
) -> tuple[Loop, Tensor]:  # fmt: skip
    """The loop with its gradients, and the gradient of the first state."""
    count = len(weights)

    def work(d_outputs: Tensor, d_contexts: Tensor | None, d_last: Tensor, *tensors: Any) -> list[Tensor]:
        rest = tensors[_GIVEN:]
        loop = Loop(plan, Given(*tensors[:_GIVEN]), rest[:count], kept=rest[count:])
        return loop.backward(d_outputs, d_contexts, d_last)

    given = _multiplied(plan, given, weights)
    loop, session = Loop(plan, given, weights, kept=kept), graphs.Session()
    d_read = d_contexts
    if d_contexts is not None and given.values is not None and given.multiplied is not None:
        d_read = once.weights_gradient(d_contexts, given.values)
    for start, end in reversed(list(parts(loop.length))):
        first = loop.kept["after"][start - 1] if start else given.first
        d_part = None if d_read is None else d_read[start:end]
        inputs = [d_outputs[:, start:end], d_part, d_last, *given.part(start, end, first=first), *weights]
        inputs += [x[start:end] for x in kept]
        d_last = torch.empty_like(d_last)
        out = [*(x[start:end] for x in loop.in_loop(loop.gradients)), d_last]
        graphs.run(work, inputs, key=("conditional backward", plan), out=out, session=session)
    if d_contexts is not None and given.multiplied is not None:
        gradients, matrix = loop.gradients, plan.cut(weights)[2][0]
        d_product = gradients.get("context product", gradients["inputs"])
        once.write_contexts_gradient(d_contexts, d_product, matrix, out=gradients["contexts"])
    return loop, d_last


def _given(x: Tensor, mask: Tensor | None, first: Tensor, aligned: Tensor | None, memory: Sequence[Tensor]) -> Given:
    aligned = None if aligned is None else readable_rows(aligned)
    return Given(readable_rows(x), mask_bytes(mask), first.contiguous(), aligned, *memory[:4])


@torch.library.custom_op(
    "nmt::conditional",
    mutates_args=(),
    schema="(str lower, str higher, int[] counts, int[] widths, Tensor x, Tensor? mask, Tensor first,"
    " Tensor? aligned, Tensor[] memory, Tensor[] weights) -> (Tensor, Tensor, Tensor[])",
)
def conditional_op(
    lower: str,
    higher: str,
    counts: Sequence[int],
    widths: Sequence[int],
    x: Tensor,
    mask: Tensor | None,
    first: Tensor,
    aligned: Tensor | None,
    memory: Sequence[Tensor],
    weights: Sequence[Tensor],
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Outputs [B, T, H] in the type of x, the last state fp32 [P, B, H], and what the gradient needs.

    The first four say what the loop is, see `Plan`. memory: keys, values, penalty, weight and bias of the scores, or
    nothing, and then `aligned` [B, T, k'H]. Of what is kept, with attention, the last two are the contexts [T, B, M],
    which are differentiable, and the attention weights [T, B, G, S], which are not.
    """
    plan = Plan(lower, higher, tuple(counts), tuple(widths))
    with _plainly(x):
        loop = run_forward(plan, _given(x, mask, first, aligned, memory), weights)
        return *_results(loop), list(loop.kept.values())


def _results(loop: Loop) -> tuple[Tensor, Tensor]:
    parts, narrow = loop.after
    h = torch.tanh(parts[0]) if loop.higher.tanh_output else parts[0]
    h = narrow if narrow.dtype == loop.given.x.dtype and not loop.higher.tanh_output else h
    outputs = h.transpose(0, 1).to(loop.given.x.dtype, memory_format=torch.contiguous_format, copy=True)
    return outputs, parts[:, -1].clone(memory_format=torch.contiguous_format)


@conditional_op.register_fake
def _(
    lower: str,
    higher: str,
    counts: Sequence[int],
    widths: Sequence[int],
    x: Tensor,
    mask: Tensor | None,
    first: Tensor,
    aligned: Tensor | None,
    memory: Sequence[Tensor],
    weights: Sequence[Tensor],
) -> tuple[Tensor, Tensor, list[Tensor]]:
    plan = Plan(lower, higher, tuple(counts), tuple(widths))
    loop = Loop(plan, _given(x, mask, first, aligned, memory), weights)
    return x.new_empty(*x.shape[:2], loop.hidden), first.new_empty(first.shape), list(loop.kept.values())


@torch.library.custom_op(
    "nmt::conditional_backward",
    mutates_args=(),
    schema="(str lower, str higher, int[] counts, int[] widths, Tensor x, Tensor? mask, Tensor first,"
    " Tensor? aligned, Tensor[] memory, Tensor[] weights, Tensor[] kept, Tensor d_outputs, Tensor? d_contexts,"
    " Tensor d_last) -> (Tensor, Tensor, Tensor, Tensor[], Tensor[])",
)
def conditional_backward_op(
    lower: str,
    higher: str,
    counts: Sequence[int],
    widths: Sequence[int],
    x: Tensor,
    mask: Tensor | None,
    first: Tensor,
    aligned: Tensor | None,
    memory: Sequence[Tensor],
    weights: Sequence[Tensor],
    kept: Sequence[Tensor],
    d_outputs: Tensor,
    d_contexts: Tensor | None,
    d_last: Tensor,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Gradients, time first, of x and of the inputs of the higher cell, of the first state, of keys, values and score
    weight, and of the weights."""
    plan = Plan(lower, higher, tuple(counts), tuple(widths))
    with _plainly(x):
        given = _given(x, mask, first, aligned, memory)
        if Loop(plan, given, weights, kept=kept).higher.tanh_output:
            d_outputs = d_outputs * (1 - torch.tanh(kept[0][:, 0]).square()).transpose(0, 1)
        loop, d_first = run_backward(
            plan, given, weights, kept,
            d_outputs=readable_rows(d_outputs), d_contexts=d_contexts, d_last=d_last.contiguous(),
        )  # fmt: skip
        d_memory = list(loop.memory_gradients()) if loop.attends else []
        dx, d_inputs = loop.gradients["x"], loop.gradients["inputs"]
        return dx, d_inputs, d_first, d_memory, loop.weight_gradients()


@conditional_backward_op.register_fake
def _(
    lower: str,
    higher: str,
    counts: Sequence[int],
    widths: Sequence[int],
    x: Tensor,
    mask: Tensor | None,
    first: Tensor,
    aligned: Tensor | None,
    memory: Sequence[Tensor],
    weights: Sequence[Tensor],
    kept: Sequence[Tensor],
    d_outputs: Tensor,
    d_contexts: Tensor | None,
    d_last: Tensor,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    plan = Plan(lower, higher, tuple(counts), tuple(widths))
    loop = Loop(plan, _given(x, mask, first, aligned, memory), weights, kept=kept)
    d_memory = [part.new_empty(part.shape) for i, part in enumerate(memory) if i in (0, 1, 3)]
    d_weights = [weight.new_empty(weight.shape) for weight in weights]
    return loop.gradients["x"], loop.gradients["inputs"], first.new_empty(first.shape), d_memory, d_weights


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    *ctx.plan, x, mask, first, aligned, memory, weights = inputs
    outputs, _, kept = output
    ctx.set_materialize_grads(False)
    ctx.counts = len(memory), len(weights)
    ctx.save_for_backward(x, mask, first, aligned, outputs, *memory, *weights, *kept)


def _backward(ctx: Any, d_outputs: Tensor | None, d_last: Tensor | None, d_kept: Any) -> tuple[Any, ...]:
    x, mask, first, aligned, outputs, *rest = ctx.saved_tensors
    attended, count = ctx.counts
    memory, weights, kept = rest[:attended], rest[attended : attended + count], rest[attended + count :]
    d_contexts = or_zeros(d_kept[-2] if d_kept else None, like=kept[-2]) if memory else None
    dx, d_inputs, d_first, d_memory, d_weights = conditional_backward_op(
        *ctx.plan, x, mask, first, aligned, memory, weights, kept,
        or_zeros(d_outputs, like=outputs), d_contexts, or_zeros(d_last, like=first),
    )  # fmt: skip
    d_aligned = None if aligned is None else d_inputs.transpose(0, 1)
    if memory:
        keys, values, weight = d_memory
        d_memory = [keys, values, None, weight, torch.zeros_like(memory[4])]
    # torch wants lists for lists; one of numbers is one to it only where it is empty
    no_numbers: list[list[None] | None] = [None if numbers else [] for numbers in ctx.plan[2:]]
    return None, None, *no_numbers, dx.transpose(0, 1), None, d_first, d_aligned, d_memory, d_weights


conditional_op.register_autograd(_backward, setup_context=_setup_context)
