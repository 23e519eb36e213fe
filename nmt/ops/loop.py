"""The loop over time of one or more cells, forward and backward, by kernels in C or in Triton.

    s_0 = cell_0(h', x_t);  s_i = cell_i(s_(i-1), input_i);  h = the last s

The input of a cell above the lowest is either aligned with x, or a product of the context of an attention, whose query
comes from the cell below. So this loop covers the sequence of a single unit, the two cells of a one-to-one layer, the
decoder's conditional RNN and deep attention, on a CPU and on a GPU. No step uses autograd, and the gradient of each
weight is one product after the loop. On a GPU a pass is a CUDA graph for each shape (`nmt.ops.graphs`); on a CPU the
bf16 C kernels of a whole pass run in one team of threads (`nmt.ops.native.in_one_team`).

Letters: B sentences, T time steps, P parts of the state, H channels, k products of the input, M = G * D width of the
memory in G heads, S source positions. All kept tensors have time as their first axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops import graphs, product
from nmt.ops.native import in_one_team
from nmt.ops.product import Product
from nmt.ops.recurrence import Projection, readable_rows, time_order
from nmt.ops.unit import Kernel, Sizes, States, Unit, steps_of


class Attention(NamedTuple):
    """The weights of an attention: from the cell below to the query, and from the context to the cell above."""

    query: Projection  # [M, H] with bias
    score_weight: Tensor  # [D]
    score_bias: Tensor  # [1]; it does not change the softmax, so its gradient is zero
    context: Projection  # [k'H, M], the input product of the cell above


class Memory(NamedTuple):
    """The memory that is attended to; see `nmt.ops.attention`."""

    keys: Tensor  # [B, G, S, D], twice the projected memory
    values: Tensor  # [B, G, S, D]
    penalty: Tensor  # [B, 1, 1, S]


class Given(NamedTuple):
    """The tensors and cells that a loop reads."""

    x: Tensor  # [B, T, kH]
    mask: Tensor | None  # [B, T] bytes; rows keep their state where it is 0
    first: Tensor  # the initial state, fp32 [P, B, H]
    cells: Sequence[Unit]  # lowest first
    aligned: Sequence[Tensor] = ()
    """[B, T, k'H], the inputs of the cells above the lowest where there is no attention"""
    memory: Memory | None = None
    attentions: Sequence[Attention] = ()  # one for each cell above the lowest

    def tensors(self) -> list[Tensor | None]:
        """All tensors in one list."""
        row: list[Tensor | None] = [self.x, self.mask, self.first, *self.aligned, *(self.memory or ())]
        row += [weight for cell in self.cells for weight in cell.weights]
        for level in self.attentions:
            row += [*level.query[:4], level.score_weight, level.score_bias, *level.context[:4]]
        return row


class Plan(NamedTuple):
    """The design of a loop: with the shapes and types of its tensors, everything that its work depends on."""

    kernels: tuple[type[Kernel], ...]
    attention: Any  # Class of the attentions, None without attention
    dtype: torch.dtype  # type of the products
    reverse: bool
    cells: tuple[Unit, ...]  # designs
    counts: tuple[int, ...]  # the number of weights of each cell
    widths: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """for each attention: the parts in which the products of query and context are normalised"""

    @property
    def shared(self) -> bool:
        """Whether h in the type of the products and h in fp32 are the same memory. Triton kernels need both."""
        return self.dtype == torch.float32 and not self.kernels[0].recorded

    def given(self, tensors: Sequence[Any]) -> Given:
        """The inverse of `Given.tensors`."""
        row = iter(tensors)

        def take(count: int) -> Iterator[Any]:
            return itertools.islice(row, count)

        x, mask, first = take(3)
        aligned = [] if self.attention else [*take(len(self.cells) - 1)]
        memory = Memory(*take(3)) if self.attention else None
        cells = [cell.with_weights([*take(count)]) for cell, count in zip(self.cells, self.counts, strict=True)]
        attentions = []
        for query, context in self.widths:
            asking = Projection(*take(4))._replace(widths=query)
            score = next(row), next(row)
            attentions.append(Attention(asking, *score, Projection(*take(4))._replace(widths=context)))
        return Given(x, mask, first, cells, aligned, memory, attentions)


def plan_of(
    given: Given, kernels: Sequence[type[Kernel]], *, attention: Any, dtype: torch.dtype, reverse: bool
) -> Plan:
    """The plan for these inputs and kernels."""
    cells, counts = zip(*((cell.design, len(cell.weights)) for cell in given.cells), strict=True)
    widths = tuple((level.query.widths, level.context.widths) for level in given.attentions)
    return Plan(tuple(kernels), attention, dtype, reverse, cells, counts, widths)


class Aligned:
    """The input of a cell that is computed before the loop: x [B, T, kH]."""

    deferrable = True

    def __init__(self, x: Tensor) -> None:
        self.x, self.inputs = x, x.split(1, 1)
        """`inputs`: one for each time step, [B, 1, kH]"""

    def forward(self, t: int, below: States) -> None:
        """Write the input of time step t, if it is computed in the loop; `below` is the state before the cell."""

    def start_backward(self) -> None:
        """Allocate the tensors that the backward pass writes: `d_inputs` of each time step."""
        self.dx = torch.empty_like(self.x, memory_format=torch.contiguous_format)
        self.d_inputs = self.dx.split(1, 1)

    def backward(self, t: int, below: States) -> Tensor | None:
        """The gradient [B, 1, H] of the output of the cell below, from the gradient of the input."""
        return None

    def gradients(self) -> Tensor:
        """The gradients of all inputs, [T, B, kH]."""
        return self.dx.transpose(0, 1)


class Attended:
    """The input of a cell that is a product of an attention's context; the query comes from the cell below."""

    def __init__(
        self, attention: Any, own: Attention, below: Unit, loop: Loop, *, weights: Tensor, contexts: Tensor
    ) -> None:
        """`weights` [T, B, G, S] and `contexts` [T, B, M] are written."""
        self.attention, self._below, self._multiplied = attention, below, loop.multiplied is not None
        self.weights, self.contexts = weights, contexts
        length, batch = contexts.shape[:2]
        self.query, self.context = (Product(part, loop.sizes, loop.take) for part in (own.query, own.context))
        self.queries = loop.take(length, batch, len(own.query.weight))
        self.products = loop.take(length, batch, len(own.context.weight), dtype=self.context.dtype)
        self._steps = _split(self.queries, self.weights, self.contexts, self.products)
        self.inputs = self.products.unsqueeze(2).unbind()

    @property
    def deferrable(self) -> bool:
        """See `Kernel.deferrable`."""
        return self.query.deferrable and self.context.deferrable and not self._below.tanh_output

    def _output(self, below: States) -> Tensor:
        """The output of the cell below [n, B, H], from which the query is computed."""
        return torch.tanh(below.parts[0]).to(below.operand.dtype) if self._below.tanh_output else below.operand

    def forward(self, t: int, below: States) -> None:
        """See `Aligned.forward`."""
        query, weights, context, product = self._steps[t]
        self.query.forward(t, self._output(below)[0], out=query)
        if self._multiplied:
            self.attention.forward(query, weights=weights, context=self.context.place(t, out=product))
            self.context.finish(t, out=product)
        else:
            self.attention.forward(query, weights=weights, context=context)
            self.context.forward(t, context, out=product)

    def start_backward(self, d_scores: Tensor, d_contexts: Tensor | None, d_weights: Tensor | None) -> None:
        """`d_scores` has the shape of the weights and is written; `d_contexts` [T, ...], not with a multiplied memory,
        and `d_weights` [T, B, G, S] are gradients from outside the loop."""
        self.d_scores, self.d_queries = d_scores, torch.empty_like(self.queries)
        self.d_contexts = torch.empty_like(self.contexts, memory_format=torch.contiguous_format)
        self.d_products = torch.empty_like(self.products)
        self._d_steps = _split(self.d_queries, d_scores, self.d_contexts, self.d_products)
        self.d_inputs = self.d_products.unsqueeze(2).unbind()
        self._outer = [[None] * len(self._d_steps) if x is None else x.unbind() for x in (d_contexts, d_weights)]
        self._d_below = self.queries.new_empty(self.queries.size(1), 1, self.query.inputs)
        self.query.start_backward()
        self.context.start_backward()

    def backward(self, t: int, below: States) -> Tensor | None:
        """See `Aligned.backward`."""
        (query, weights, _, _), (d_query, d_scores, d_context, d_input) = self._steps[t], self._d_steps[t]
        d_product, (added, d_weights) = self.context.product_gradient(t, d_input), (x[t] for x in self._outer)
        if self._multiplied:
            d_context = d_product
        else:
            self.context.backward(d_product, out=d_context, added=added)
        self.attention.query_gradient(
            query, weights=weights, d_context=d_context, d_scores=d_scores, d_query=d_query, d_weights=d_weights
        )
        self.query.backward(self.query.product_gradient(t, d_query), out=self._d_below[:, 0])
        if self._below.tanh_output:
            slope = 1 - torch.tanh(below.parts[0]).square()
            return (self._d_below * slope.transpose(0, 1)).to(self._d_below.dtype)
        return self._d_below

    def finish_contexts(self, d_contexts: Tensor | None, attention: Any) -> None:
        """With a multiplied memory, after all steps: compute the gradients of the contexts; `attention` is over the
        memory itself."""
        outer = None if d_contexts is None else d_contexts.transpose(0, 1).flatten(0, 1)
        d_product = self.context.product_gradients(self.d_products).flatten(0, 1)
        self.context.backward(d_product, out=self.d_contexts.flatten(0, 1), added=outer)
        self.attention = attention

    def gradients(self) -> Tensor:
        """See `Aligned.gradients`."""
        return self.d_products

    def weight_gradients(self, below: States) -> list[Tensor | None]:
        """The gradients of the tensors of its `Attention`, from the states before the cell at all steps."""
        return [
            *self.query.weight_gradients(self._output(below), self.d_queries),
            *(self.d_score_weight, torch.zeros(1, device=self.weights.device)),
            *self.context.weight_gradients(self.contexts, self.d_products),
        ]

    def memory_gradients(self) -> tuple[Tensor, Tensor]:
        """The gradients of keys and values."""
        d_keys, d_values, self.d_score_weight = self.attention.memory_gradients(
            self.queries, weights=self.weights, d_scores=self.d_scores, d_contexts=self.d_contexts
        )
        return d_keys, d_values


def _split(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """The tensors of each time step of an attention: query, weights, context and the input of the cell above."""
    return list(zip(*(x.unbind() for x in tensors), strict=True))


class Loop:
    """A loop over one batch; with the tensors `kept` by a forward pass, it is for the backward pass."""

    def __init__(self, plan: Plan, given: Given, *, kept: Sequence[Tensor] | None = None) -> None:
        self.plan, self.given = plan, given
        self.kept, self._earlier = list[Tensor](), None if kept is None else iter(kept)
        """`kept`: the tensors that the forward pass keeps; in the backward pass the same, in the same order."""
        self.multiplied: Tensor | None = None
        """See `nmt.ops.product`."""
        batch, length = given.x.shape[:2]
        self.sizes = Sizes(length, batch, given.first.size(-1), plan.dtype, given.x.device)
        self.states = self._states(length + 1)
        early, late = self.states.at(0, length), self.states.at(1, length + 1)
        self.before, self.after = (late, early) if plan.reverse else (early, late)
        self.start, self.end = (length, 0) if plan.reverse else (0, length)
        self.attended = [*self._attended()]
        """The inputs that use attention."""
        self.aligned = [Aligned(x) for x in (given.x, *given.aligned)]
        """The inputs that are computed before the loop, starting with the lowest cell."""
        between = [self._states(length) for _ in given.cells[1:]]
        live = [None] * length if given.mask is None else given.mask.split(1, 1)
        sources: list[Aligned | Attended] = [*self.aligned, *self.attended]
        units = zip(plan.kernels, given.cells, sources, strict=True)
        states = zip([self.before, *between], [*between, self.after], strict=True)
        self.cells = [
            (self._kernel(kind, unit), source, before, steps_of(source.inputs, before, after, live))
            for (kind, unit, source), (before, after) in zip(units, states, strict=True)
        ]
        """Each with the input that it reads, the states before all T time steps, and these steps."""

    def take(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """New memory that is kept or, in the backward pass, the next kept tensor."""
        self.kept.append(self.sizes.empty(*shape, dtype=dtype) if self._earlier is None else next(self._earlier))
        return self.kept[-1]

    def _states(self, length: int) -> States:
        shape = length, self.sizes.batch, self.sizes.hidden
        wide = self.take(len(self.given.first), *shape, dtype=torch.float32)
        return States(wide, wide[0] if self.plan.shared else self.take(*shape))

    def _kernel(self, kind: type[Kernel], unit: Unit) -> Kernel:
        length, batch, hidden = self.sizes[:3]
        saved = [self.take(length, batch, width * hidden) for width in kind.saved_widths]
        return kind(unit, self.sizes, saved=saved)

    def _attended(self) -> Iterator[Attended]:
        """The inputs of the cells above the lowest if they use attention; weights and contexts are side by side."""
        _, _, _, cells, _, memory, levels = self.given
        if memory is None:
            return
        count, (_, heads, source, width), (length, batch) = len(levels), memory.keys.shape, self.sizes[:2]
        self.weights = self.take(length, batch, count * heads, source, dtype=torch.float32)
        self.contexts = self.take(length, batch, count * heads * width)
        if self.plan.attention.takes_wide_values and count == 1:
            self.multiplied = product.multiplied(memory.values, levels[0].context)
        attentions = self._attentions(memory.values if self.multiplied is None else self.multiplied)
        parts = self.weights.chunk(count, 2), self.contexts.chunk(count, 2)
        for level, attention, below, weights, contexts in zip(levels, attentions, cells, *parts, strict=False):
            yield Attended(attention, level, below, self, weights=weights, contexts=contexts)

    def _attentions(self, values: Tensor) -> list[Any]:
        """One attention for each level, over the same keys and these values."""
        _, _, _, _, _, memory, levels = self.given
        assert memory is not None
        weights = [level.score_weight.detach().float() for level in levels]
        found: list[Any] = self.plan.attention.for_levels(
            memory.keys, values, penalty=memory.penalty[:, 0, 0].float(), weights=weights
        )
        return found

    @property
    def deferrable(self) -> bool:
        """Whether all work of the steps consists of C kernels for bf16; see `nmt.ops.native.in_one_team`."""
        return all(kernel.deferrable and source.deferrable for kernel, source, _, _ in self.cells)

    def forward(self) -> list[Tensor]:
        """h after each step [B, T, H] in the type of x, the last state fp32 [P, B, H], the contexts [B, T, M'] if any,
        then all kept tensors."""
        self.states.put(self.start, self.given.first)
        with in_one_team(possible=self.deferrable):
            for t in time_order(self.sizes.length, reverse=self.plan.reverse):
                for kernel, source, _, steps in self.cells:
                    source.forward(t, steps[t].before)
                    kernel.forward(steps[t])
        h = self.after.operand if self.sizes.dtype == self.given.x.dtype else self.after.parts[0]
        results = [_batch_first(h, self.given.x.dtype), self.states.parts[:, self.end].clone()]
        if self.given.memory is not None:
            if self.multiplied is not None:
                values = self.given.memory.values
                weights = self.weights[:, :, 0].transpose(0, 1).to(values.dtype)  # [B, T, S]
                self.contexts.copy_(torch.bmm(weights, values[:, 0]).transpose(0, 1))
            results.append(_batch_first(self.contexts, self.contexts.dtype))
        return [*results, *self.kept]

    def backward(
        self, d_outputs: Tensor | None, d_last: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None
    ) -> list[Tensor | None]:
        """The gradients of all tensors of `Given.tensors`, from the gradients of the first results of `forward`."""
        gradient = torch.zeros_like(self.given.first)
        if d_last is not None:
            gradient.copy_(d_last)
        self._start_backward(d_contexts, d_weights)
        added = [None] * self.sizes.length if d_outputs is None else readable_rows(d_outputs).split(1, 1)
        pending = None
        with in_one_team(possible=self.deferrable):
            for t in reversed(time_order(self.sizes.length, reverse=self.plan.reverse)):
                d_output = added[t]
                for kernel, source, _, steps in reversed(self.cells):
                    dx = source.d_inputs[t]
                    pending = kernel.backward(steps[t], gradient, pending=pending, d_output=d_output, dx=dx)
                    d_output = source.backward(t, steps[t].before)
        if pending is not None:
            gradient[0] += pending
        return self._gradients(gradient, d_contexts)

    def _start_backward(self, d_contexts: Tensor | None, d_weights: Tensor | None) -> None:
        for aligned in self.aligned:
            aligned.start_backward()
        memory, count = self.given.memory, len(self.attended)
        if memory is None:
            return
        outer: Sequence[Tensor | None] = [None] * count
        of_weights = outer
        if d_contexts is not None and self.multiplied is not None:
            through = torch.bmm(d_contexts, memory.values[:, 0].transpose(1, 2)).unsqueeze(1)  # [B, 1, T, S]
            d_weights = through if d_weights is None else through + d_weights
        elif d_contexts is not None:
            outer = d_contexts.transpose(0, 1).chunk(count, -1)
        if d_weights is not None:
            by_time = d_weights.permute(2, 0, 1, 3).float()  # [T, B, G, S]
            of_weights = [part.contiguous() for part in by_time.chunk(count, 2)]
        d_scores = torch.empty_like(self.weights).chunk(count, 2)
        for source, scores, *gradients in zip(self.attended, d_scores, outer, of_weights, strict=True):
            source.start_backward(scores, *gradients)

    def _gradients(self, d_first: Tensor, d_contexts: Tensor | None) -> list[Tensor | None]:
        """The gradients of all tensors, after all time steps."""
        attended, (x, *aligned) = self.attended, self.aligned
        gradients: list[Tensor | None] = [x.dx, None, d_first]
        if attended:
            if self.multiplied is not None and self.given.memory is not None:
                attended[0].finish_contexts(d_contexts, self._attentions(self.given.memory.values)[0])
            d_keys, d_values = zip(*(source.memory_gradients() for source in attended), strict=True)
            gradients += [sum(d_keys[1:], d_keys[0]), sum(d_values[1:], d_values[0]), None]
        else:
            gradients += [source.dx for source in aligned]
        for kernel, source, before, _ in self.cells:
            gradients += kernel.weight_gradients(before, source.gradients())
        for own, (_, _, before, _) in zip(attended, self.cells[1:], strict=False):
            gradients += own.weight_gradients(before)
        return gradients


def _batch_first(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x [T, B, W] as a copy [B, T, W]."""
    return x.transpose(0, 1).to(dtype, memory_format=torch.contiguous_format, copy=True)


class _Pass(torch.autograd.Function):
    """Both passes over a loop."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, *tensors: Any) -> Any:
        def work(*tensors: Any) -> list[Tensor]:
            return Loop(plan, plan.given(tensors)).forward()

        results = _run(work, tensors, plan, name="forward")
        count = 3 if plan.attention else 2
        results, kept = results[:count], results[count:]
        ctx.plan, ctx.given = plan, len(tensors)
        ctx.save_for_backward(*tensors, *kept)
        ctx.set_materialize_grads(False)
        if not plan.attention:
            return tuple(results)
        return (*results, kept[1 if plan.shared else 2].permute(1, 2, 0, 3))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        plan, count = ctx.plan, ctx.given
        outer = (*gradients, None, None)[:4]  # of outputs, last state, contexts, weights
        tensors, kept = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        without = {1, 5} if plan.attention else {1}  # mask and penalty
        wanted = [tensor is not None and i not in without for i, tensor in enumerate(tensors)]
        lasting = sum(wanted[6 if plan.attention else 2 + len(plan.cells) :])  # gradients of weights, which add up

        def work(*given: Any) -> list[Tensor]:
            loop = Loop(plan, plan.given(given[4 : 4 + count]), kept=given[4 + count :])
            found = loop.backward(*given[:4])
            return [gradient for gradient, here in zip(found, wanted, strict=True) if here and gradient is not None]

        found = iter(_run(work, [*outer, *tensors, *kept], plan, name="backward", lasting=lasting))
        return (None, *(next(found) if here else None for here in wanted))


def _run(work: graphs.Work, tensors: Sequence[Any], plan: Plan, *, name: str, lasting: int = 0) -> Sequence[Tensor]:
    """The results of a pass, without autocast, because all tensors already have the right types.

    `lasting`: see `nmt.ops.graphs.run`.
    """
    one = next(x for x in tensors if x is not None)

    def plainly(*tensors: Any) -> Sequence[Tensor]:
        with torch.autocast(one.device.type, enabled=False), torch.cuda.device_of(one):
            return work(*tensors)

    if not plan.kernels[0].recorded:
        return plainly(*tensors)
    return graphs.run(plainly, tensors, key=(name, plan), lasting=lasting)


def run_loop(
    given: Given, kernels: Sequence[type[Kernel]], *, dtype: torch.dtype, reverse: bool = False, attention: Any = None
) -> tuple[Tensor, ...]:
    """Run the loop over `given` with these kernels, products in `dtype`; `attention` is the class of the attentions.

    Returns h after each step [B, T, H] in the type of x, and the last state fp32 [P, B, H]; with attentions, which are
    side by side, also the contexts [B, T, M] and the weights [B, G, T, S], fp32.
    """
    batch, source = len(given.x), given.memory.keys.size(2) if given.memory else 0
    if kernels[0].recorded:
        given = _filled_up(given)
    mask = None if given.mask is None else given.mask.bool().view(torch.uint8)
    given = given._replace(x=readable_rows(given.x), mask=mask, first=given.first.contiguous())
    plan = plan_of(given, kernels, attention=attention, dtype=dtype, reverse=reverse)
    outputs, last, *attended = _Pass.apply(plan, *given.tensors())
    if kernels[0].recorded:  # without the padding
        outputs, last = outputs[:batch], last[:, :batch]
        attended = [part[:batch, ..., :width] for part, width in zip(attended, (None, source), strict=False)]
    return outputs, last, *attended


def _filled_up(given: Given) -> Given:
    """Pad sentences and source positions: with few different shapes, most batches have the shape of an existing graph.

    The padding is all zeros and gets no attention.
    """
    more = graphs.filled_up(len(given.x)) - len(given.x)

    def filled(x: Tensor) -> Tensor:
        return F.pad(x, [0, 0] * (x.dim() - 1) + [0, more]) if more else x

    memory = given.memory
    if memory is not None:
        longer = -memory.keys.size(2) % graphs.SOURCE_STEP
        keys, values = (filled(F.pad(x, (0, 0, 0, longer))) for x in memory[:2])
        memory = Memory(keys, values, filled(F.pad(memory.penalty, (0, longer), value=float("-inf"))))
    mask, first = None if given.mask is None else filled(given.mask), filled(given.first.transpose(0, 1))
    aligned = [filled(x) for x in given.aligned]
    return given._replace(x=filled(given.x), mask=mask, first=first.transpose(0, 1), aligned=aligned, memory=memory)
