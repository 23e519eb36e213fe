"""The decoder's loop with C kernels and a hand-written gradient, whose weight gradients are one product each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.attention.native import AttentionKernel, powers_of
from nmt.ops.conditional import Attended, Attention
from nmt.ops.linear.matrix import matrix_of
from nmt.ops.native import together
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
            for t in range(run.length):
                run.forward(t)
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

    def _live(self, t: int) -> Tensor | None:
        return None if self.mask is None else self.mask[:, t : t + 1]

    def forward(self, t: int) -> None:
        """Time step t."""
        between, live = self.between.at(t, t + 1), self._live(t)
        x = self.projected[:, t : t + 1]
        self.lower.forward(x, self.after.at(t, t + 1), between, live, start=t, reverse=False)
        self.query.forward(self.between.narrow[t], out=self.queries[t], bias=self.query_bias)
        self.attention.forward(self.queries[t], weights=self.weights[t], context=self.contexts[t])
        self.context.forward(self.contexts[t], out=self.higher_inputs[t])
        x = self.higher_inputs[t].unsqueeze(1)
        self.higher.forward(x, between, self.after.at(t + 1, t + 2), live, start=t, reverse=False)

    def gradients(self, d_outputs: Tensor, d_contexts: Tensor, d_last: list[Tensor]) -> tuple[Tensor | None, ...]:
        """The gradients of all tensors of the loop, in their order."""
        d_state = torch.stack([part.float() for part in d_last])
        dx = torch.empty_like(self.projected, memory_format=torch.contiguous_format)
        d_higher, d_queries = torch.empty_like(self.higher_inputs), torch.empty_like(self.queries)
        d_all_contexts, d_scores = torch.empty_like(self.contexts), torch.empty_like(self.weights)
        d_between = torch.empty_like(self.between.narrow[0])
        with together(possible=self.kernels_alone):
            for t in reversed(range(self.length)):
                between, live = self.between.at(t, t + 1), self._live(t)
                self.higher.backward(
                    *(self.higher_inputs[t].unsqueeze(1), between, self.after.at(t + 1, t + 2), live),
                    start=t,
                    reverse=False,
                    gradient=d_state,
                    outputs=d_outputs[:, t : t + 1],
                    dx=d_higher[t].unsqueeze(1),
                )
                self.context.backward(d_higher[t], out=d_all_contexts[t], added=d_contexts[:, t])
                self.attention.query_gradient(
                    self.queries[t],
                    weights=self.weights[t],
                    d_context=d_all_contexts[t],
                    d_scores=d_scores[t],
                    d_query=d_queries[t],
                )
                self.query.backward(d_queries[t], out=d_between)
                self.lower.backward(
                    *(self.projected[:, t : t + 1], self.after.at(t, t + 1), between, live),
                    start=t,
                    reverse=False,
                    gradient=d_state,
                    outputs=d_between.unsqueeze(1),
                    dx=dx[:, t : t + 1],
                )
        d_keys, d_values, d_weight = self.attention.memory_gradients(
            self.queries, weights=self.weights, d_scores=d_scores, d_contexts=d_all_contexts
        )
        return (
            dx,
            self.context.weight_gradient(d_higher.flatten(0, 1), self.contexts.flatten(0, 1)),
            *(d_keys, d_values, None, d_weight, torch.zeros(1)),
            self.query.weight_gradient(d_queries.flatten(0, 1), self.between.narrow.flatten(0, 1)),
            d_queries.sum((0, 1), dtype=torch.float32),
            *d_state,
            *self.lower.weight_gradients(self.after.narrow[:-1]),
            *self.higher.weight_gradients(self.between.narrow),
        )


def _batch_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
