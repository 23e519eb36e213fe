"""The decoder's loop with C kernels and a hand-written gradient, whose weight gradients are one product each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.attention.native import AttentionKernel, powers_of
from nmt.ops.conditional import Attended, Attention
from nmt.ops.linear.matrix import matrix_of
from nmt.ops.native import column_sums, together
from nmt.ops.native.unit import States, kernel_class, make_pair, supported
from nmt.ops.unit import Projection, Unit


def conditional_native(
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
    """See `nmt.ops.conditional.conditional_sequence`. Layer norm is left to the loop written out.

    Outputs and contexts are in the type of `projected`.
    """
    query = attention.query
    normalized = context.scale is not None or query.scale is not None
    if normalized or not (supported(lower) and supported(higher)) or projected.dtype != attention.keys.dtype:
        return written_out()
    projected = projected if projected.stride(-1) == 1 else projected.contiguous()
    mask = None if mask is None else mask.bool()
    tensors = (projected, context.weight, *attention[:5], query.weight, query.bias)
    outputs, contexts, weights, *last = _Loop.apply(
        lower, higher, mask, *tensors, *state, *lower.weights, *higher.weights
    )
    return Attended(outputs, contexts, weights, tuple(last))


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lower: Unit, higher: Unit, mask: Tensor | None, *tensors: Tensor) -> Any:
        run = _Run(lower, higher, mask, tensors)
        with together(possible=run.kernels_alone):
            for t, step in enumerate(run.steps()):
                run.forward(t, step)
        ctx.run = run
        outputs, contexts = (_batch_first(x) for x in (run.after.narrow[1:], run.contexts))
        weights = run.weights.permute(1, 2, 0, 3)
        ctx.mark_non_differentiable(weights)
        return (outputs, contexts, weights, *run.after.parts[:, -1].clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        d_outputs, d_contexts, _, *d_last = gradients
        return (None, None, None, *ctx.run.gradients(_rows(d_outputs), _rows(d_contexts), d_last))


class _Step(NamedTuple):
    """What belongs to one time step, [B, 1, ...] as units take it or [B, ...]."""

    x: Tensor
    live: Tensor | None
    before: States
    between: States
    after: States
    query: Tensor
    weights: Tensor
    context: Tensor
    inputs: Tensor
    """Of the higher cell."""


class _Run:
    """One batch: what the forward pass computed, and the backward pass over it.

    Letters: B sentences, T target positions, M = G * D width of the memory, P parts of the state.
    """

    def __init__(self, lower: Unit, higher: Unit, mask: Tensor | None, tensors: tuple[Tensor, ...]) -> None:
        parts, dtype = kernel_class(lower.name).parts, tensors[0].dtype
        self.projected, context_weight, keys, values, penalty, score_weight, _, query_weight, query_bias = tensors[:9]
        state, weights = tensors[9 : 9 + parts], tensors[9 + parts :]
        self.batch, self.length = self.projected.shape[:2]
        self.hidden = self.projected.size(-1) // kernel_class(lower.name).products
        self.mask = mask
        self.lower, self.higher = make_pair(
            lower, higher, weights, length=self.length, batch=self.batch, hidden=self.hidden, dtype=dtype
        )
        self.context, self.query = matrix_of(context_weight, dtype), matrix_of(query_weight, dtype)
        self.query_bias = query_bias.detach().to(dtype)
        cells = self.lower.kernels_alone and self.higher.kernels_alone
        self.kernels_alone = cells and self.context.packed and self.query.packed
        penalty, score_weight = penalty[:, 0, 0].float(), score_weight.detach().float()
        keys, values = keys.detach(), values.detach()
        self.attention = AttentionKernel(keys, values, powers=powers_of(keys), penalty=penalty, weight=score_weight)
        heads, positions, memory = self.attention.heads, self.attention.positions, query_weight.size(0)

        def room(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.empty(self.length, self.batch, *shape, dtype=dtype)

        self.queries, self.contexts = room(memory), room(memory)
        self.higher_inputs = room(context_weight.size(0))
        self.weights = room(heads, positions, dtype=torch.float32)
        self.after = States.empty(parts, self.length + 1, self.batch, self.hidden, dtype=dtype)
        self.between = States.empty(parts, self.length, self.batch, self.hidden, dtype=dtype)
        self.after.put(0, tuple(state))

    def steps(self) -> list[_Step]:
        """All time steps: cutting tensors once is faster than anew in each of them."""
        masks = [None] * self.length if self.mask is None else self.mask.split(1, 1)
        after = self.after.split(1)
        states = after[:-1], self.between.split(1), after[1:]
        single = self.queries, self.weights, self.contexts, self.higher_inputs
        parts = self.projected.split(1, 1), masks, *states, *(x.unbind() for x in single)
        return [_Step(*step) for step in zip(*parts, strict=True)]

    def forward(self, t: int, step: _Step) -> None:
        """Time step t."""
        self.lower.forward(step.x, step.before, step.between, step.live, start=t, reverse=False)
        self.query.forward(step.between.narrow[0], out=step.query, bias=self.query_bias)
        self.attention.forward(step.query, weights=step.weights, context=step.context)
        self.context.forward(step.context, out=step.inputs)
        self.higher.forward(step.inputs.unsqueeze(1), step.between, step.after, step.live, start=t, reverse=False)

    def gradients(self, d_outputs: Tensor, d_contexts: Tensor, d_last: list[Tensor]) -> tuple[Tensor | None, ...]:
        """The gradients of all tensors of the loop, in their order."""
        d_state = torch.stack([part.float() for part in d_last])
        dx = torch.empty_like(self.projected, memory_format=torch.contiguous_format)
        d_higher, d_queries = torch.empty_like(self.higher_inputs), torch.empty_like(self.queries)
        d_all_contexts, d_scores = torch.empty_like(self.contexts), torch.empty_like(self.weights)
        d_between = torch.empty_like(self.between.narrow[0])
        written = dx.split(1, 1), *(x.unbind() for x in (d_higher, d_queries, d_all_contexts, d_scores))
        pieces = list(zip(self.steps(), d_outputs.split(1, 1), d_contexts.unbind(1), *written, strict=True))
        with together(possible=self.kernels_alone):
            for t in reversed(range(self.length)):
                step, d_output, d_context, d_x, d_inputs, d_query, d_all, d_score = pieces[t]
                self.higher.backward(
                    *(step.inputs.unsqueeze(1), step.between, step.after, step.live),
                    start=t,
                    reverse=False,
                    gradient=d_state,
                    outputs=d_output,
                    dx=d_inputs.unsqueeze(1),
                )
                self.context.backward(d_inputs, out=d_all, added=d_context)
                self.attention.query_gradient(
                    step.query, weights=step.weights, d_context=d_all, d_scores=d_score, d_query=d_query
                )
                self.query.backward(d_query, out=d_between)
                self.lower.backward(
                    *(step.x, step.before, step.between, step.live),
                    start=t,
                    reverse=False,
                    gradient=d_state,
                    outputs=d_between.unsqueeze(1),
                    dx=d_x,
                )
        d_keys, d_values, d_weight = self.attention.memory_gradients(
            self.queries, weights=self.weights, d_scores=d_scores, d_contexts=d_all_contexts
        )
        return (
            dx,
            self.context.weight_gradient(d_higher.flatten(0, 1), self.contexts.flatten(0, 1)),
            *(d_keys, d_values, None, d_weight, torch.zeros(1)),
            self.query.weight_gradient(d_queries.flatten(0, 1), self.between.narrow.flatten(0, 1)),
            column_sums(d_queries.flatten(0, 1)),
            *d_state,
            *self.lower.weight_gradients(self.after.narrow[:-1]),
            *self.higher.weight_gradients(self.between.narrow),
        )


def _batch_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
