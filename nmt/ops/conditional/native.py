"""The decoder's loop with C kernels and a hand-written gradient, whose weight gradients are one product each."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.attention.native import AttentionKernel
from nmt.ops.native.unit import States, Unit, kernel_class, make_pair


class AttentionParameters(NamedTuple):
    """The attention of a conditional RNN; see `nmt.ops.attention`."""

    keys: Tensor
    """[B, G, S, D], twice the projected memory"""
    values: Tensor
    """[B, G, S, D]"""
    penalty: Tensor
    """[B, 1, 1, S]"""
    query_weight: Tensor
    """[M, H], of the query projection"""
    query_bias: Tensor
    """[M]"""
    score_weight: Tensor
    """[D]"""
    score_bias: Tensor
    """[1]; changes no softmax, so its gradient is zero"""


class Result(NamedTuple):
    """What the loop yields, in the type of its inputs but for the state."""

    outputs: Tensor
    """[B, T, H]"""
    contexts: Tensor
    """[B, T, M]"""
    weights: Tensor
    """[B, G, T, S] fp32; not differentiable"""
    last: tuple[Tensor, ...]
    """[B, H] fp32 each"""


def conditional_native(
    lower: Unit,
    higher: Unit,
    projected: Tensor,
    *,
    context_weight: Tensor,
    attention: AttentionParameters,
    state: tuple[Tensor, ...],
    mask: Tensor | None,
) -> Result:
    """s = lower(h', x_t); c_t = attention(s); h = higher(s, context_weight c_t) for each time step.

    projected [B, T, kH] are the input products of the lower cell, context_weight [k'H, M] is the input matrix of the
    higher one. `state`: tensors [B, H]. Rows keep their state where mask [B, T] is false.
    """
    projected = projected if projected.stride(-1) == 1 else projected.contiguous()
    mask = None if mask is None else mask.bool()
    tensors = (projected, context_weight, *attention, *state, *lower.weights, *higher.weights)
    outputs, contexts, weights, *last = _Loop.apply(lower, higher, mask, *tensors)
    return Result(outputs, contexts, weights, tuple(last))


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lower: Unit, higher: Unit, mask: Tensor | None, *tensors: Tensor) -> Any:
        run = _Run(lower, higher, mask, tensors)
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
        self.projected, context_weight, *rest = tensors
        attention, state, weights = AttentionParameters(*rest[:7]), rest[7 : 7 + parts], rest[7 + parts :]
        self.batch, self.length = self.projected.shape[:2]
        self.hidden = self.projected.size(-1) // kernel_class(lower.name).products
        self.mask = mask
        self.lower, self.higher = make_pair(
            lower, higher, weights, length=self.length, batch=self.batch, hidden=self.hidden, dtype=dtype
        )
        self.context_weight = context_weight.detach().to(dtype)
        self.query_weight, self.query_bias = (
            x.detach().to(dtype) for x in (attention.query_weight, attention.query_bias)
        )
        penalty, score_weight = attention.penalty[:, 0, 0].float(), attention.score_weight.detach().float()
        self.attention = AttentionKernel(
            attention.keys.detach(), attention.values.detach(), penalty=penalty, weight=score_weight
        )
        heads, positions, memory = self.attention.heads, self.attention.positions, self.query_weight.size(0)

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
        torch.addmm(self.query_bias, self.between.narrow[t], self.query_weight.t(), out=self.queries[t])
        self.attention.forward(self.queries[t], weights=self.weights[t], context=self.contexts[t])
        torch.mm(self.contexts[t], self.context_weight.t(), out=self.higher_inputs[t])
        x = self.higher_inputs[t].unsqueeze(1)
        self.higher.forward(x, between, self.after.at(t + 1, t + 2), live, start=t, reverse=False)

    def gradients(self, d_outputs: Tensor, d_contexts: Tensor, d_last: list[Tensor]) -> tuple[Tensor | None, ...]:
        """The gradients of all tensors of the loop, in their order."""
        d_state = torch.stack([part.float() for part in d_last])
        dx = torch.empty_like(self.projected, memory_format=torch.contiguous_format)
        d_higher, d_queries = torch.empty_like(self.higher_inputs), torch.empty_like(self.queries)
        d_all_contexts, d_scores = torch.empty_like(self.contexts), torch.empty_like(self.weights)
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
            torch.addmm(d_contexts[:, t], d_higher[t], self.context_weight, out=d_all_contexts[t])
            self.attention.query_gradient(
                self.queries[t],
                weights=self.weights[t],
                d_context=d_all_contexts[t],
                d_scores=d_scores[t],
                d_query=d_queries[t],
            )
            d_between = torch.mm(d_queries[t], self.query_weight)
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
            _product(d_higher, self.contexts),
            *(d_keys, d_values, None),
            *(_product(d_queries, self.between.narrow), d_queries.sum((0, 1), dtype=torch.float32)),
            *(d_weight, torch.zeros(1)),
            *d_state,
            *self.lower.weight_gradients(self.after.narrow[:-1]),
            *self.higher.weight_gradients(self.between.narrow),
        )


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The gradient of a matrix: left [T, B, m] and right [T, B, n] -> [m, n], summed over all rows."""
    return torch.mm(left.flatten(0, 1).t(), right.flatten(0, 1))


def _batch_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
