"""The decoder's loop with C kernels and a hand-written gradient, whose weight gradients are one product each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.attention.native import AttentionKernel, powers_of
from nmt.ops.conditional import Attended, Attention, Level
from nmt.ops.matrices.training import matrix_of
from nmt.ops.native import column_sums, in_one_team
from nmt.ops.native.unit import Kernel, States, kernel_class, make_kernel, supported
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
    """See `nmt.ops.conditional.conditional_sequence`; the loop of a single level."""
    levels = [Level(attention, higher, context)]
    return deep_attention_native(lower, levels, projected, state=state, mask=mask, written_out=written_out)


def deep_attention_native(
    lower: Unit,
    levels: Sequence[Level],
    projected: Tensor,
    *,
    state: tuple[Tensor, ...],
    mask: Tensor | None,
    written_out: Callable[[], Attended],
) -> Attended:
    """See `nmt.ops.conditional.deep_attention_sequence`. Layer norm is left to the loop written out.

    Outputs and contexts are in the type of `projected`.
    """
    memory = levels[0].attention[:3]
    products = [product for level in levels for product in (level.context, level.attention.query)]
    possible = supported(lower) and all(supported(level.higher) for level in levels)
    possible = possible and all(product.scale is None for product in products)
    if not possible or projected.dtype != memory[0].dtype:
        return written_out()
    projected = projected if projected.stride(-1) == 1 else projected.contiguous()
    mask = None if mask is None else mask.bool()
    plan = _Plan(lower, tuple(level.higher for level in levels), len(state))
    own = [tensor for level in levels for tensor in _of_level(level)]
    units = [weight for unit in plan.units for weight in unit.weights]
    outputs, contexts, weights, *last = _Loop.apply(plan, mask, projected, *memory, *own, *state, *units)
    return Attended(outputs, contexts, weights, tuple(last))


class _Plan(NamedTuple):
    """What the loop is; its units come with the weights they had."""

    lower: Unit
    higher: tuple[Unit, ...]
    parts: int
    """tensors of the state"""

    @property
    def units(self) -> tuple[Unit, ...]:
        return self.lower, *self.higher


class _OfLevel(NamedTuple):
    """The tensors of a level besides those of its cell."""

    context_weight: Tensor
    score_weight: Tensor
    score_bias: Tensor
    query_weight: Tensor
    query_bias: Tensor


def _of_level(level: Level) -> _OfLevel:
    query = level.attention.query
    assert query.bias is not None
    attention = level.attention
    return _OfLevel(level.context.weight, attention.score_weight, attention.score_bias, query.weight, query.bias)


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, mask: Tensor | None, *tensors: Tensor) -> Any:
        run = _Run(plan, mask, tensors)
        with in_one_team(possible=run.kernels_alone):
            for t, step in enumerate(run.steps()):
                run.forward(t, step)
        ctx.run = run
        outputs, contexts = (_batch_first(x) for x in (run.after.narrow[1:], run.contexts))
        by_level = [level.weights for level in run.levels]
        weights = (by_level[0] if len(by_level) == 1 else torch.cat(by_level, 2)).permute(1, 2, 0, 3)
        ctx.mark_non_differentiable(weights)
        return (outputs, contexts, weights, *run.after.parts[:, -1].clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        d_outputs, d_contexts, _, *d_last = gradients
        return (None, None, *ctx.run.gradients(_rows(d_outputs), _rows(d_contexts), d_last))


class _LevelStep(NamedTuple):
    """What belongs to one time step of a level, [B, ...]."""

    before: States
    """between the cell below and this one"""
    after: States
    query: Tensor
    weights: Tensor
    context: Tensor
    inputs: Tensor
    """of the cell"""


class _LevelGradients(NamedTuple):
    """What the backward pass of a level writes, of all time steps or of one; `d_context` it reads."""

    d_query: Tensor
    d_weights: Tensor
    """of the scores, see `AttentionKernel.query_gradient`"""
    d_all: Tensor
    """of the context, in all"""
    d_inputs: Tensor
    d_context: Tensor
    """what comes from outside of the loop"""


class _Step(NamedTuple):
    """What belongs to one time step, [B, 1, ...] as units take it or [B, ...]."""

    x: Tensor
    live: Tensor | None
    before: States
    between: States
    levels: tuple[_LevelStep, ...]


class _LevelRun:
    """An attention and the cell above it over one batch: what both passes keep."""

    written: _LevelGradients
    """set by the backward pass"""

    def __init__(self, tensors: _OfLevel, cell: Kernel, attention: AttentionKernel, contexts: Tensor) -> None:
        """`contexts` [T, B, M] is the room for the contexts, whose rows may stand apart."""
        self.cell, self.attention, self.contexts = cell, attention, contexts
        length, batch, dtype = *contexts.shape[:2], contexts.dtype
        self.context, self.query = matrix_of(tensors.context_weight, dtype), matrix_of(tensors.query_weight, dtype)
        self.query_bias = tensors.query_bias.detach().to(dtype)
        self.kernels_alone = cell.kernels_alone and self.context.packed and self.query.packed
        self.queries = torch.empty(length, batch, tensors.query_weight.size(0), dtype=dtype)
        self.inputs = torch.empty(length, batch, tensors.context_weight.size(0), dtype=dtype)
        self.weights = torch.empty(length, batch, attention.heads, attention.positions, dtype=torch.float32)

    def steps(self, before: list[States], after: list[States]) -> list[_LevelStep]:
        """All time steps."""
        own = (x.unbind() for x in (self.queries, self.weights, self.contexts, self.inputs))
        return [_LevelStep(*step) for step in zip(before, after, *own, strict=True)]

    def forward(self, t: int, step: _LevelStep, live: Tensor | None) -> None:
        """Time step t."""
        self.query.forward(step.before.narrow[0], out=step.query, bias=self.query_bias)
        self.attention.forward(step.query, weights=step.weights, context=step.context)
        self.context.forward(step.context, out=step.inputs)
        self.cell.forward(step.inputs.unsqueeze(1), step.before, step.after, live, start=t, reverse=False)

    def start_backward(self, d_contexts: Tensor) -> list[_LevelGradients]:
        """Room for the gradients, for all time steps; d_contexts [B, T, M]."""
        like = self.queries, self.weights, self.queries, self.inputs
        d_query, d_weights, d_all, d_inputs = (torch.empty_like(x) for x in like)
        self.written = _LevelGradients(d_query, d_weights, d_all, d_inputs, d_contexts.transpose(0, 1))
        return [_LevelGradients(*step) for step in zip(*(x.unbind() for x in self.written), strict=True)]

    def backward(
        self, t: int, step: _LevelStep, live: Tensor | None, *,
        gradient: Tensor, outputs: Tensor, written: _LevelGradients, d_between: Tensor,
    ) -> None:  # fmt: skip
        """Time step t, as `Kernel.backward`; what the query says of the output of the cell below goes to d_between."""
        d_query, d_weights, d_all, d_inputs, d_context = written
        self.cell.backward(
            *(step.inputs.unsqueeze(1), step.before, step.after, live),
            start=t,
            reverse=False,
            gradient=gradient,
            outputs=outputs,
            dx=d_inputs.unsqueeze(1),
        )
        self.context.backward(d_inputs, out=d_all, added=d_context)
        self.attention.query_gradient(
            step.query, weights=step.weights, d_context=d_all, d_scores=d_weights, d_query=d_query
        )
        self.query.backward(d_query, out=d_between)

    def gradients(self, before: Tensor) -> tuple[Tensor, Tensor, _OfLevel]:
        """Of keys and values, then of its own tensors, from the outputs of the cell below [T, B, H]."""
        d_queries, d_weights, d_contexts, d_inputs, _ = self.written
        d_keys, d_values, d_score_weight = self.attention.memory_gradients(
            self.queries, weights=self.weights, d_scores=d_weights, d_contexts=d_contexts
        )
        d_queries = d_queries.flatten(0, 1)
        own = _OfLevel(
            self.context.weight_gradient(d_inputs.flatten(0, 1), self.contexts.flatten(0, 1)),
            d_score_weight,
            torch.zeros(1),
            self.query.weight_gradient(d_queries, before.flatten(0, 1)),
            column_sums(d_queries),
        )
        return d_keys, d_values, own


class _Run:
    """One batch: what the forward pass computed, and the backward pass over it.

    Letters: B sentences, T target positions, M = G * D width of the memory, P parts of the state.
    """

    def __init__(self, plan: _Plan, mask: Tensor | None, tensors: tuple[Tensor, ...]) -> None:
        self.mask, self.projected = mask, tensors[0]
        dtype, count, size = self.projected.dtype, len(plan.higher), len(_OfLevel._fields)
        end = 4 + size * count
        own = [_OfLevel(*tensors[start : start + size]) for start in range(4, end, size)]
        state, weights = tensors[end : end + plan.parts], tensors[end + plan.parts :]
        self.batch, self.length = self.projected.shape[:2]
        self.hidden = self.projected.size(-1) // kernel_class(plan.lower.name).products
        self.lower, *cells = self._cells(plan, weights)
        self.contexts = torch.empty(self.length, self.batch, count * own[0].query_weight.size(0), dtype=dtype)
        attentions = _attentions(tensors[1:4], own)
        parts = zip(own, cells, attentions, self.contexts.chunk(count, -1), strict=True)
        self.levels = [_LevelRun(*part) for part in parts]
        self.kernels_alone = self.lower.kernels_alone and all(level.kernels_alone for level in self.levels)
        self.after, *self.between = (
            States.empty(plan.parts, length, self.batch, self.hidden, dtype=dtype)
            for length in (self.length + 1, *[self.length] * count)
        )
        self.after.put(0, tuple(state))

    def _cells(self, plan: _Plan, weights: tuple[Tensor, ...]) -> list[Kernel]:
        """The kernels of all units, to which `weights` belong in turn."""
        cells, start = [], 0
        for unit in plan.units:
            own = unit._replace(weights=weights[start : start + len(unit.weights)])
            start += len(unit.weights)
            dtype = self.projected.dtype
            cells.append(make_kernel(own, length=self.length, batch=self.batch, hidden=self.hidden, dtype=dtype))
        return cells

    def steps(self) -> list[_Step]:
        """All time steps: cutting tensors once is faster than anew in each of them."""
        masks = [None] * self.length if self.mask is None else self.mask.split(1, 1)
        after, between = self.after.split(1), [states.split(1) for states in self.between]
        pairs = zip(self.levels, between, [*between[1:], after[1:]], strict=True)
        levels = zip(*(level.steps(*states) for level, *states in pairs), strict=True)
        parts = self.projected.split(1, 1), masks, after[:-1], between[0], levels
        return [_Step(*step) for step in zip(*parts, strict=True)]

    def forward(self, t: int, step: _Step) -> None:
        """Time step t."""
        self.lower.forward(step.x, step.before, step.between, step.live, start=t, reverse=False)
        for level, own in zip(self.levels, step.levels, strict=True):
            level.forward(t, own, step.live)

    def gradients(self, d_outputs: Tensor, d_contexts: Tensor, d_last: list[Tensor]) -> tuple[Tensor | None, ...]:
        """The gradients of all tensors of the loop, in their order."""
        d_state = torch.stack([part.float() for part in d_last])
        dx = torch.empty_like(self.projected, memory_format=torch.contiguous_format)
        d_between = torch.empty_like(self.between[0].narrow[0])
        each = zip(self.levels, d_contexts.chunk(len(self.levels), -1), strict=True)
        written = zip(*(level.start_backward(d_own) for level, d_own in each), strict=True)
        pieces = list(zip(self.steps(), d_outputs.split(1, 1), dx.split(1, 1), written, strict=True))
        downward = list(reversed(range(len(self.levels))))
        with in_one_team(possible=self.kernels_alone):
            for t in reversed(range(self.length)):
                step, outputs, d_x, of_levels = pieces[t]
                for i in downward:
                    self.levels[i].backward(
                        *(t, step.levels[i], step.live),
                        gradient=d_state,
                        outputs=outputs,
                        written=of_levels[i],
                        d_between=d_between,
                    )
                    outputs = d_between.unsqueeze(1)
                self.lower.backward(
                    *(step.x, step.before, step.between, step.live),
                    start=t,
                    reverse=False,
                    gradient=d_state,
                    outputs=outputs,
                    dx=d_x,
                )
        return dx, *self._weight_gradients(d_state)

    def _weight_gradients(self, d_state: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all but the inputs, after all time steps."""
        befores = [between.narrow for between in self.between]
        found = [level.gradients(before) for level, before in zip(self.levels, befores, strict=True)]
        d_keys, d_values, own = zip(*found, strict=True)
        cells = zip(self.levels, befores, strict=True)
        return (
            *(_sum(d_keys), _sum(d_values), None),
            *(gradient for of_level in own for gradient in of_level),
            *d_state,
            *self.lower.weight_gradients(self.after.narrow[:-1]),
            *(gradient for level, before in cells for gradient in level.cell.weight_gradients(before)),
        )


def _attentions(memory: Sequence[Tensor], own: Sequence[_OfLevel]) -> list[AttentionKernel]:
    """One for each level over the same keys, values and penalty."""
    keys, values, penalty = (tensor.detach() for tensor in memory)
    powers, penalty = powers_of(keys), penalty[:, 0, 0].float()
    weights = [tensors.score_weight.detach().float() for tensors in own]
    return [AttentionKernel(keys, values, powers=powers, penalty=penalty, weight=weight) for weight in weights]


def _sum(gradients: Sequence[Tensor]) -> Tensor:
    """Of one tensor, of which each level has a gradient; the first of them is overwritten."""
    total = gradients[0]
    for gradient in gradients[1:]:
        total += gradient
    return total


def _batch_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
