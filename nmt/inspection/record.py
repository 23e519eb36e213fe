"""Records the inner values of a model that reads a sentence and its translation: steps of every unit, and every
attention.

In a copy of the model that shares its weights, cells and attentions are replaced by ones that record their values. They
compute by the equations, without kernels; the model itself is not changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from nmt.cells import Cell
from nmt.inspection.traces import memory_weights
from nmt.models.attention import AttentionQuery
from nmt.models.base import Seq2Seq
from nmt.models.blocks import SelfAttention, SourceAttention
from nmt.ops.unit import GateValues, Update
from nmt.registry import CELLS
from nmt.search.reading import attention_names, layer_names


class UnitRecord(NamedTuple):
    """What a recurrent unit did in N time steps, in the order of what it read."""

    unit: str
    """What it is registered as, or the name of its class."""
    reverse: bool
    """Whether it ran from the last time step to the first."""
    states: Any
    """What it carried after each step: a state of the unit whose tensors are [N, H]."""
    gates: dict[str, Tensor]  # [N, H] each, by the names in its equation
    memory: Tensor | None
    """[N, N], see `memory_weights`. Where several cells change one state in turn, what the others forget
    counts, too. None where one of them does not change its memory element by element."""


@dataclass(frozen=True, eq=False)
class Step:
    """One time step of a cell, for one sentence."""

    place: int | None
    """Which one it is in the input of the cell; None where that cannot be told."""
    after: Any
    """The state after it."""
    gates: GateValues
    before: Step | None
    """The step, of this cell or another one, whose state it began with."""


class RecordedCell(Cell[Any]):
    """A cell of which nothing is known but its steps, as of one of a plugin, so that every loop calls them."""

    inner: Cell[Any]

    def __init__(self, inner: Cell[Any], *, others: Mapping[str, RecordedCell]) -> None:
        """`others` are all cells of the model, this one among them, by their paths."""
        super().__init__(inner.input_size, inner.hidden_size, layer_norm=inner.layer_norm, options=inner.options)
        self.inner, self.training = inner, inner.training
        vars(self)["State"] = inner.State
        self.steps: list[Step] = []
        self._others = others
        self._products: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_modules"]["inner"], name)

    def initial_state(self, batch_size: int, *, like: Tensor) -> Any:
        return self.inner.initial_state(batch_size, like=like)

    def unpack_state(self, packed: Tensor) -> Any:
        return self.inner.unpack_state(packed)

    def project(self, x: Tensor) -> Tensor:
        self._products = self.inner.project(x)
        return self._products

    def step(self, projected: Tensor, state: Any) -> Any:
        after = self.inner.step(projected, state)
        gates = self.inner.gate_values(projected, state)
        self.steps.append(Step(self._place(projected), after, gates, self._step_before(state)))
        return after

    def output(self, state: Any) -> Tensor:
        return self.inner.output(state)

    def record(self) -> UnitRecord | None:
        """What it did; None of a cell that has not run, or that several sentences have gone through."""
        if not self.steps or any(len(step.after[0]) != 1 for step in self.steps):
            return None
        places = [step.place for step in self.steps]
        count = range(len(places))
        order = list(count)
        if None not in places and sorted(places) == order:  # type: ignore[type-var]
            order = [places.index(place) for place in count]
        steps = [self.steps[i] for i in order]
        memory = self._memory()
        return UnitRecord(
            next((name for name in CELLS.names() if CELLS.get(name) is type(self.inner)), type(self.inner).__name__),
            order != list(count),
            self.State(*(torch.cat(parts) for parts in zip(*(step.after for step in steps), strict=True))),
            {name: torch.cat([step.gates.named[name] for step in steps]) for name in steps[0].gates.named},
            None if memory is None else memory[order][:, order],
        )

    def _place(self, projected: Tensor) -> int | None:
        """Time steps are views of the products of the whole input, [1, T, kH]."""
        whole = self._products
        if whole is None or whole.dim() != 3:
            return None
        if whole.untyped_storage().data_ptr() != projected.untyped_storage().data_ptr():
            return None
        return (projected.storage_offset() - whole.storage_offset()) // whole.stride(1)

    def _step_before(self, state: Any) -> Step | None:
        """A loop may have copied the state that a step has left."""
        last = [cell.steps[-1] for cell in self._others.values() if cell.steps]
        for step in last:
            if step.after is state:
                return step
        alike = (step for step in last if type(step.after) is type(state))
        return next((step for step in alike if all(map(torch.equal, step.after, state))), None)

    def _memory(self) -> Tensor | None:
        """The memory weights [N, N] in the order of the run."""
        inputs, forgets = [], []
        for before, step in zip([None, *self.steps], self.steps, strict=False):
            update = step.gates.update
            forget = None if update is None else _forget_since(before, step, update)
            if update is None or forget is None:
                return None
            inputs.append(update.input)
            forgets.append(forget)
        return memory_weights(torch.stack(inputs, 1), torch.stack(forgets, 1))[0]


def _forget_since(before: Step | None, step: Step, update: Update) -> Tensor | None:
    """What of the state after `before` stays after `step` [1, H], by all steps between; None if one does not tell."""
    forget, one = update.forget, step.before
    while before is not None and one is not before:
        if one is None:  # it began anew
            return torch.zeros_like(forget)
        if one.gates.update is None:
            return None
        forget, one = forget * one.gates.update.forget, one.before
    return forget


Module = TypeVar("Module", bound=nn.Module)


def recording(inner: Module, method: str, seen: list[Tensor], **given: bool) -> Module:
    """A copy of an attention that shares all it has; the weights that `method` returns, second, are added to `seen`.

    `given`: arguments of `method` whatever its caller says.
    """
    copied, call = copy.copy(inner), getattr(inner, method)

    def recorded(*arguments: Any, **options: Any) -> Any:
        found = call(*arguments, **{**options, **given})
        seen.append(found[1])
        return found

    vars(copied)[method] = recorded
    return copied


OF_ITSELF = ".self"
"""What the names of self-attention end with."""


class Record(NamedTuple):
    """What a model did with one sentence pair of S and T words, end symbols counted."""

    logits: Tensor  # [T, V], of each target word given those before it
    attention: dict[str, Tensor]
    """[G, T, S] of each attention to the source, by its layer: `decoder.0`, ...; of self-attention, `encoder.0.self` or
    `decoder.0.self`, [G, S, S] or [G, T, T]; in the order of the model"""
    units: dict[str, UnitRecord]
    """By layer and direction: `encoder.0.forward`, `decoder.0`, ...; of a layer of two cells `decoder.0.lower`, which
    reads words, and `decoder.0.higher`, which reads the context"""


@torch.no_grad()
def record(model: Seq2Seq, source: Tensor, target: Tensor) -> Record:
    """Run `model`, in evaluation mode, over one sentence pair in ids, source [S] and target [T].

    For parts of plugins it has the visible values: each `Cell`, attention by modules of nmt, and attention that a
    decoder reports by `attending_sequence`.
    """
    source, target = source.unsqueeze(0), target.unsqueeze(0)
    cells, seen = dict[str, RecordedCell](), dict[str, list[Tensor]]()
    # deepcopy takes from here what it would copy: all tensors are the model's own.
    memo: dict[int, object] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    memo[id(model.stored)] = model.stored
    for path, module in model.named_modules():
        if isinstance(module, Cell):
            cells[path] = memo[id(module)] = RecordedCell(module, others=cells)
        elif isinstance(module, AttentionQuery):
            memo[id(module)] = recording(module, "attend", seen.setdefault(path, []))
        elif isinstance(module, SourceAttention | SelfAttention):
            place = path + OF_ITSELF if isinstance(module, SelfAttention) else path
            inner = module.attention
            memo[id(inner)] = recording(inner, "forward", seen.setdefault(place, []), weights=True)
    logits = copy.deepcopy(model, memo)(source, target)[0]
    units = {path: found for path, cell in cells.items() if (found := cell.record()) is not None}
    attention = {path: torch.cat(weights, 2)[0] for path, weights in seen.items() if weights}
    attention = dict(zip(layer_names(list(attention)), attention.values(), strict=True))
    if model.tells_attention and all(name.endswith(OF_ITSELF) for name in attention):
        layers = model.attention(source, target).layers
        attention |= {name: layer[0] for name, layer in zip(attention_names(model, len(layers)), layers, strict=True)}
    return Record(logits, attention, dict(zip(layer_names(list(units)), units.values(), strict=True)))
