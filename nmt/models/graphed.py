"""A model as a search sees it whose step is one CUDA graph: rows reordered, decoder, output layer, best words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.models.attention import AttentionMemory
from nmt.models.base import PAD, DecodingState, Seq2Seq
from nmt.models.output import OutputWords
from nmt.ops import graphs
from nmt.ops.best import Best, Choice
from nmt.ops.narrow import plain_parts, rebuilt_matrix

SOURCE_STEP: Final = 16
"""Sources are filled up to a multiple of so many positions, so that few lengths have graphs of their own."""

WORDS_STEP: Final = 256
"""The same of the words of a shortlist."""


class GraphedState(NamedTuple):
    """The model's own state, and the order of its rows that the next step begins with."""

    inner: DecodingState
    rows: Tensor | None
    """[N'] or None for the order they have"""
    session: graphs.Session

    def expand(self, k: int) -> GraphedState:
        """Each row k times, one below the other."""
        return self._replace(inner=self.settled().expand(k), rows=None)

    def reorder(self, rows: Tensor) -> GraphedState:
        """The rows [N'] in this order, each within its sentence."""
        return self._replace(inner=self.settled(), rows=rows)

    def keep(self, sentences: Tensor) -> GraphedState:
        """Only the sentences [B']."""
        return self._replace(inner=self.settled().keep(sentences), rows=None)

    def settled(self) -> DecodingState:
        """The model's own state with its rows in order."""
        return self.inner if self.rows is None else self.inner.reorder(self.rows)


class GraphedModel:
    """Start and step of `model`, which must be in evaluation mode and stay as it is; for inference only.

    Without a GPU its steps are simply computed.
    """

    def __init__(self, model: Seq2Seq) -> None:
        self._model = model
        self._recorder = graphs.new_recorder(next(model.parameters()).device)

    def start(self, source: Tensor) -> GraphedState:
        """The state before the first word, one row for each sentence of source [B, S]."""
        inner = self._model.start(source)
        memories = tuple(None if memory is None else _filled_up(memory) for memory in inner.memories)
        return GraphedState(inner._replace(memories=memories), None, {})

    def among(self, ids: Tensor, forbidden: Tensor) -> OutputWords:
        """As `Seq2Seq.among`, with words that are forbidden to all, up to a multiple of WORDS_STEP."""
        more = -len(ids) % WORDS_STEP
        return self._model.among(F.pad(ids, (0, more), value=PAD), F.pad(forbidden, (0, more), value=True))

    def best(
        self, tokens: Tensor | None, state: GraphedState, choice: Choice, words: OutputWords | None = None
    ) -> tuple[Best, GraphedState]:
        """As `Seq2Seq.best`."""
        if tokens is None:  # the first step has other inputs and comes once
            best, inner = self._model.best(None, state.settled(), choice, words)
            return best, state._replace(inner=inner, rows=None)
        kinds = [type(part) for part in state.inner.states]
        attends = [memory is not None for memory in state.inner.memories]
        listed = [] if words is None else [words.ids, words.forbidden, *plain_parts(words.table)]
        count = len(listed)

        def work(tokens: Tensor, rows: Tensor | None, before: Tensor | None, *tensors: Tensor) -> list[Tensor]:
            inner = _rebuilt(tensors[count:], kinds, attends)
            inner = inner if rows is None else inner.reorder(rows)
            with _without_cache(tokens):
                found, inner = self._model.best(tokens, inner, choice._replace(before=before), own(tensors[:count]))
            return [*found, *_tensors(inner.states)]

        def own(tensors: Sequence[Tensor]) -> OutputWords | None:
            if words is None:
                return None
            return OutputWords(tensors[0], rebuilt_matrix(tensors[2:], like=words.table), tensors[1])

        parts = _tensors(memory[:3] for memory in state.inner.memories if memory is not None)
        inputs = [tokens, state.rows, choice.before, *listed, *_tensors(state.inner.states), *parts]
        key = (torch.is_autocast_enabled(tokens.device.type), choice._replace(before=None), count)
        found = graphs.run(work, inputs, key=key, session=state.session, recorder=self._recorder)
        size = len(Best._fields)
        inner = _rebuilt([*found[size:], *parts], kinds, attends)
        return Best(*found[:size]), state._replace(inner=state.inner._replace(states=inner.states), rows=None)


def _filled_up(memory: AttentionMemory) -> AttentionMemory:
    """With positions that get no attention, up to a multiple of SOURCE_STEP."""
    more = -memory.keys.size(2) % SOURCE_STEP
    keys, values = (F.pad(part, (0, 0, 0, more)) for part in memory[:2])
    return AttentionMemory(keys, values, F.pad(memory.penalty, (0, more), value=float("-inf")))


def _tensors(parts: Any) -> list[Tensor]:
    return [tensor for part in parts for tensor in part]


def _rebuilt(tensors: Sequence[Tensor], kinds: Sequence[Any], attends: Sequence[bool]) -> DecodingState:
    """The state of the tensors of `_tensors`: of states of these kinds, then of the memories of layers that attend."""
    row = iter(tensors)
    states = tuple(kind(*(next(row) for _ in kind._fields)) for kind in kinds)
    memories = tuple(AttentionMemory(next(row), next(row), next(row)) if there else None for there in attends)
    return DecodingState(memories, states)


def _without_cache(x: Tensor) -> torch.autocast:
    """Autocast as it is, but that no weight it casts outlives a recording, in which nothing is computed."""
    device = x.device.type
    enabled = torch.is_autocast_enabled(device)
    return torch.autocast(device, dtype=torch.get_autocast_dtype(device), enabled=enabled, cache_enabled=False)
