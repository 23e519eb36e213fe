"""Records the inner values of a model that reads a sentence and its translation: steps of every unit, and every
attention.

In a copy of the model that shares its weights, cells and attentions are replaced by ones that record their values. They
compute by the equations, without kernels; the model itself is not changed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.cells import Cell
from nmt.models.attention import AttentionQuery
from nmt.models.base import Seq2Seq
from nmt.models.layer_names import layer_names
from nmt.models.recorded import RecordedAttention, RecordedCell, RecordedDots, UnitRecord
from nmt.models.transformer.heads import SelfAttention, SourceAttention

OF_ITSELF = ".self"
"""What the names of self-attention end with."""


class Record(NamedTuple):
    """What a model did with one sentence pair of S and T words, end symbols counted."""

    logits: Tensor
    """[T, V], of each target word given those before it"""
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
    cells: list[RecordedCell] = []
    watched = list(_watched(model, cells))
    logits = _with_parts(model, {id(part): stand_in for _, part, stand_in in watched})(source, target)[0]
    units, attention = dict[str, UnitRecord](), dict[str, Tensor]()
    for path, _, one in watched:
        if not isinstance(one, RecordedCell):
            attention |= {path: torch.cat(one.seen, 2)[0]} if one.seen else {}
        elif (found := one.record()) is not None:
            units[path] = found
    attention = dict(zip(layer_names(list(attention)), attention.values(), strict=True))
    if model.tells_attention and all(name.endswith(OF_ITSELF) for name in attention):
        layers = model.attention(source, target).layers
        attention |= {name: layer[0] for name, layer in zip(attention_names(model, len(layers)), layers, strict=True)}
    return Record(logits, attention, dict(zip(layer_names(list(units)), units.values(), strict=True)))


def attention_names(model: Seq2Seq, count: int) -> list[str]:
    """Names of the `count` attentions to the source that the decoder of `model` tells, in its order."""
    known = [path for path, module in model.named_modules() if isinstance(module, AttentionQuery | SourceAttention)]
    return layer_names(known) if len(known) == count else [f"decoder.{place}" for place in range(count)]


Watched = tuple[str, nn.Module, RecordedCell | RecordedAttention | RecordedDots]
"""A path, the module there, and what stands in its place."""


def _watched(model: Seq2Seq, cells: list[RecordedCell]) -> Iterator[Watched]:
    for path, module in model.named_modules():
        if isinstance(module, Cell):
            yield path, module, RecordedCell(module, others=cells)
        elif isinstance(module, AttentionQuery):
            yield path, module, RecordedAttention(module)
        elif isinstance(module, SourceAttention):
            yield path, module.attention, RecordedDots(module.attention)
        elif isinstance(module, SelfAttention):
            yield path + OF_ITSELF, module.attention, RecordedDots(module.attention)


def _with_parts(model: Seq2Seq, parts: dict[int, nn.Module]) -> Seq2Seq:
    """A copy with other modules in place of those with these ids; all tensors are the model's own."""
    # deepcopy takes from here what it would copy.
    memo: dict[int, object] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    memo |= {id(model.stored): model.stored, **parts}
    return copy.deepcopy(model, memo)
