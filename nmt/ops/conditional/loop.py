"""Time steps of a loop over two cells, with kernels for each step, forward and backward.

Imported only by kernels, because Triton is not installed everywhere.

Letters as in `nmt.ops.conditional.plan`. Time comes first in all that is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nmt.ops.attention.triton import AttentionKernel
from nmt.ops.conditional.plan import Given, Plan
from nmt.ops.conditional.product import Product
from nmt.ops.steps import States, Steps, steps_class

Shapes = Mapping[str, tuple[tuple[int, ...], torch.dtype]]
"""Of tensors by name: shape without T, and type."""


class Loop:
    """A loop over all time steps of what is given."""

    def __init__(
        self,
        plan: Plan,
        given: Given,
        weights: Sequence[Tensor],
        *,
        kept: Sequence[Tensor] | None = None,
        gradients: Sequence[Tensor] | None = None,
    ) -> None:
        """`kept` and `gradients` are what its passes have kept or written before; else there is room for that."""
        self.given = given
        lower, higher, self._context, self._query = plan.cut(weights)
        (name, *options), (higher_name, *higher_options) = plan.lower.split(), plan.higher.split()
        self.kinds = steps_class(name), steps_class(higher_name)
        self.batch, self.length, width = given.x.shape
        self.hidden = width // self.kinds[0].products
        self.like = next((weight for weight in weights if weight.dim() == 2), given.x)
        self.kept = self._named(self._kept_shapes(), kept)
        self._given_gradients = gradients
        self.lower, self.higher = (
            self._cell(i, cell, " ".join(words))
            for i, (cell, words) in enumerate([(lower, options), (higher, higher_options)])
        )
        self.attends = bool(self._query)
        if self.attends:
            self.attention = self._attention(given.values if given.multiplied is None else given.multiplied)
            self.context = Product(self._context, plan.widths, saved=self.kept.get("context product"))
            self.query = Product(self._query, (), saved=self.kept.get("query product"))
        self.after, self.between = (
            States(self.kept[name].transpose(0, 1), self.kept[f"{name} narrow"]) for name in ("after", "between")
        )
        self.first = States(given.first, given.first[0].to(self.like.dtype))

    def _named(self, shapes: Shapes, tensors: Sequence[Tensor] | None) -> dict[str, Tensor]:
        if tensors is not None:
            return dict(zip(shapes, tensors, strict=True))
        return {name: self.like.new_empty(self.length, *shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}

    def _kept_shapes(self) -> Shapes:
        batch, hidden, dtype = self.batch, self.hidden, self.like.dtype
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        for name in ("after", "between"):
            shapes[name] = (self.kinds[0].parts, batch, hidden), torch.float32
            shapes[f"{name} narrow"] = (batch, hidden), dtype
        for i, kind in enumerate(self.kinds):
            shapes |= {f"saved {i} {j}": ((batch, w * hidden), dtype) for j, w in enumerate(kind.saved_widths)}
        if self._query:
            assert self.given.keys is not None
            memory, inputs = len(self._query[0]), len(self._context[0])
            shapes["queries"] = (batch, memory), dtype
            shapes["inputs"] = (batch, inputs), torch.float32 if len(self._context) > 2 else dtype
            shapes |= {"context product": ((batch, inputs), dtype)} if len(self._context) > 2 else {}
            shapes |= {"query product": ((batch, memory), dtype)} if len(self._query) > 2 else {}
            shapes["contexts"] = (batch, memory), dtype
            shapes["weights"] = (batch, *self.given.keys.shape[1:3]), torch.float32
        return shapes

    @functools.cached_property
    def gradients(self) -> dict[str, Tensor]:
        """What the backward pass writes: the gradients of the inputs of both cells first."""
        inputs = self.kept["inputs"] if self.given.aligned is None else self.given.aligned.transpose(0, 1)
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "x": ((self.batch, self.given.x.size(-1)), self.given.x.dtype),
            "inputs": (tuple(inputs.shape[1:]), inputs.dtype),
        }
        for i, kind in enumerate(self.kinds):
            widths = enumerate(kind.gradient_widths)
            shapes |= {f"saved {i} {j}": ((self.batch, w * self.hidden), self.like.dtype) for j, w in widths}
        names = {"queries", "contexts", "weights", "context product", "query product"} & self.kept.keys()
        shapes |= {name: (tuple(self.kept[name].shape[1:]), self.kept[name].dtype) for name in sorted(names)}
        return self._named(shapes, self._given_gradients)

    def _cell(self, i: int, weights: Sequence[Tensor], options: str) -> Steps:
        kind = self.kinds[i]
        saved = [self.kept[f"saved {i} {j}"] for j in range(len(kind.saved_widths))]
        sizes = {"length": self.length, "batch": self.batch, "hidden": self.hidden}
        return kind(weights, options, **sizes, like=self.like, saved=saved, gradients=lambda: self._written(i))

    def _written(self, i: int) -> list[Tensor]:
        return [self.gradients[f"saved {i} {j}"] for j in range(len(self.kinds[i].gradient_widths))]

    def _attention(self, values: Tensor | None) -> AttentionKernel:
        _, _, _, _, keys, _, penalty, score_weight, _ = self.given
        assert keys is not None
        assert values is not None
        assert penalty is not None
        assert score_weight is not None
        return AttentionKernel(keys, values, penalty=penalty, weight=score_weight)

    def _live(self, t: int) -> Tensor | None:
        return None if self.given.mask is None else self.given.mask[:, t]

    def _higher_input(self, t: int) -> Tensor:
        return self.kept["inputs"][t] if self.given.aligned is None else self.given.aligned[:, t]

    def _output(self, between: States) -> Tensor:
        """What the lower cell puts out, in the type of the products."""
        return torch.tanh(between.parts[0]).to(self.like.dtype) if self.lower.tanh_output else between.narrow

    def forward(self) -> list[Tensor]:
        """Run all steps; returns what is kept."""
        before = self.first
        for t in range(self.length):
            between, after = self.between.at(t), self.after.at(t)
            self.lower.forward(t, self.given.x[:, t], self._live(t), before=before, after=between)
            if self.attends:
                self._attend(t, between)
            self.higher.forward(t, self._higher_input(t), self._live(t), before=between, after=after)
            before = after
        return self.in_loop(self.kept)

    def in_loop(self, tensors: Mapping[str, Tensor]) -> list[Tensor]:
        """Of the tensors kept or written, those that the steps themselves write."""
        late = {"contexts"} if self.given.multiplied is not None else set()
        return [x for name, x in tensors.items() if name not in late]

    def _attend(self, t: int, between: States) -> None:
        """From the state between the cells to the input of the higher one."""
        queries, weights, inputs = (self.kept[name][t] for name in ("queries", "weights", "inputs"))
        self.query.forward(t, self._output(between), out=queries)
        if self.given.multiplied is None:
            contexts = self.kept["contexts"][t]
            self.attention.forward(queries, weights=weights, context=contexts)
            self.context.forward(t, contexts, out=inputs)
        else:
            self.attention.forward(queries, weights=weights, context=self.context.product(t, out=inputs))
            self.context.finish(t, out=inputs)

    def backward(self, d_outputs: Tensor, d_contexts: Tensor | None, d_last: Tensor) -> list[Tensor]:
        """From the gradients of h after each step [B, T, H], of the contexts [T, B, M] and of the last state
        [P, B, H] to all that the backward pass writes and, at the end, the gradient of the first state.

        Where the memory is multiplied, what the gradients of the contexts say of the attention weights [T, B, 1, S]
        comes in their place."""
        gradient, pending = d_last.clone(), None
        for t in reversed(range(self.length)):
            between, before = self.between.at(t), self.after.at(t - 1) if t else self.first
            pending = self.higher.backward(
                t, self._higher_input(t), self._live(t), before=between, gradient=gradient, pending=pending,
                d_output=d_outputs[:, t], dx=self.gradients["inputs"][t],
            )  # fmt: skip
            pending = self.lower.backward(
                t, self.given.x[:, t], self._live(t), before=before, gradient=gradient, pending=pending,
                d_output=None if d_contexts is None else self._attention_backward(t, d_contexts[t], between),
                dx=self.gradients["x"][t],
            )  # fmt: skip
        if pending is not None:
            gradient[0] += pending
        return [*self.in_loop(self.gradients), gradient]

    def _attention_backward(self, t: int, d_context: Tensor, between: States) -> Tensor:
        """The gradient of what the lower cell puts out, through the query of time step t."""
        d_product = self.context.backward(t, self.gradients["inputs"][t], self.gradients.get("context product"))
        d_query, d_weights = self.gradients["queries"][t], None
        if self.given.multiplied is None:
            d_all = self.gradients["contexts"][t]
            torch.addmm(d_context, d_product, self.context.parameters.weight, out=d_all)
        else:
            d_all, d_weights = d_product, d_context
        self.attention.query_gradient(
            self.kept["queries"][t], weights=self.kept["weights"][t], d_context=d_all, d_weights=d_weights,
            d_scores=self.gradients["weights"][t], d_query=d_query,
        )  # fmt: skip
        d_product = self.query.backward(t, d_query, self.gradients.get("query product"))
        d_output = torch.mm(d_product, self.query.parameters.weight)
        return d_output * (1 - torch.tanh(between.parts[0]).square()) if self.lower.tanh_output else d_output

    def weight_gradients(self) -> list[Tensor]:
        """After all steps: the gradients of all weights, each a single product."""
        (parts, narrow), first, gradients = self.after, self.first, self.gradients
        parts = torch.cat([first.parts.unsqueeze(1), parts[:, :-1]], 1)
        before = States(parts, torch.cat([first.narrow.unsqueeze(0), narrow[:-1]]))
        weights = self.lower.weight_gradients(before, gradients["x"])
        weights += self.higher.weight_gradients(self.between, gradients["inputs"])
        if self.attends:
            weights += self.context.weight_gradients(
                self.kept["contexts"], gradients["inputs"], gradients.get("context product")
            )
            weights += self.query.weight_gradients(
                self._output(self.between), gradients["queries"], gradients.get("query product")
            )
        return weights

    def memory_gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """After all steps: the gradients of keys, values and score weight."""
        return self._attention(self.given.values).memory_gradients(
            self.kept["queries"], weights=self.kept["weights"],
            d_scores=self.gradients["weights"], d_contexts=self.gradients["contexts"],
        )  # fmt: skip
