"""A model as a search sees it whose step is one CUDA graph: rows reordered, decoder, output layer, best words."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.models.attention import AttentionMemory
from nmt.models.base import PAD, DecodingState, Seq2Seq
from nmt.models.parts import OutputWords
from nmt.ops import graphs
from nmt.ops.matrices import plain_parts, rebuilt_matrix
from nmt.ops.matrices.best_words import BestWords, Choice

WORDS_STEP: Final = 256
"""The same of the words of a shortlist."""

Step = Callable[..., tuple[Any, ...]]
"""From tokens, a state whose rows are in order, and other tensors: what is found, tensors, and then the state after."""


class GraphedState(NamedTuple):
    """The model's own state, and the order of its rows that the next step begins with."""

    inner: DecodingState
    rows: Tensor | None  # [N'] or None for the order they have
    session: graphs.Session | None
    """None for a model whose steps cannot be recorded; they are simply computed."""
    positions: int | None
    """S', positions of the source, if the memories are filled up to more"""
    words: int = 0
    """How many words the decoder has read, the start of the sentences among them."""

    def expand(self, k: int) -> GraphedState:
        """Each row k times, one below the other."""
        return self._replace(inner=self.settled().expand(k), rows=None)

    def reorder(self, rows: Tensor) -> GraphedState:
        """The rows [N'] in this order, each within its sentence."""
        return self._replace(inner=self.settled(), rows=rows)

    def keep(self, sentences: Tensor) -> GraphedState:
        """Only the sentences [B']."""
        return self._replace(inner=self.settled().keep(sentences), rows=None)

    def after_step(self, inner: DecodingState) -> GraphedState:
        """What stands after the decoder has read one word more."""
        return self._replace(inner=inner, rows=None, words=self.words + 1)

    def settled(self) -> DecodingState:
        """The model's own state with its rows in order."""
        return self.inner if self.rows is None else self.inner.reorder(self.rows)


class GraphedModel:
    """Start and step of `model`, which must be in evaluation mode and stay as it is; for inference only.

    Without a GPU its steps are computed directly, and also with a plugin's decoder or readout, whose operations are
    unknown.
    """

    def __init__(self, model: Seq2Seq) -> None:
        self._model = model
        parts = model.decoder, model.readout
        self._recorded = all(type(part).__module__.partition(".")[0] == "nmt" for part in parts)
        self._recorder = graphs.new_recorder(next(model.parameters()).device)

    def start(self, source: Tensor) -> GraphedState:
        """The state before the first word, one row for each sentence of source [B, S]."""
        inner = self._model.start(source)
        if not self._recorded:
            return GraphedState(inner, None, None, None)
        memories = tuple(None if memory is None else _filled_up(memory) for memory in inner.memories)
        first = inner.memories[0]
        assert first is not None
        return GraphedState(inner._replace(memories=memories), None, {}, first.keys.size(2))

    def among(self, ids: Tensor, forbidden: Tensor) -> OutputWords:
        """As `Seq2Seq.among`, with words that are forbidden to all, up to a multiple of WORDS_STEP."""
        more = -len(ids) % WORDS_STEP
        return self._model.among(F.pad(ids, (0, more), value=PAD), F.pad(forbidden, (0, more), value=True))

    def best(
        self, tokens: Tensor | None, state: GraphedState, choice: Choice, words: OutputWords | None = None
    ) -> tuple[BestWords, GraphedState]:
        """As `Seq2Seq.best`."""
        if tokens is None or state.session is None:  # the first step has other inputs and comes once
            best, inner = self._model.best(tokens, state.settled(), choice, words)
            return best, state.after_step(inner)
        listed = [] if words is None else [words.ids, words.forbidden, *plain_parts(words.table)]

        def find(tokens: Tensor, inner: DecodingState, before: Tensor | None, *tensors: Tensor) -> tuple[Any, ...]:
            own = None
            if words is not None:
                own = OutputWords(tensors[0], rebuilt_matrix(tensors[2:], like=words.table), tensors[1])
            best, inner = self._model.best(tokens, inner, choice._replace(before=before), own)
            return *best, inner

        key = (choice._replace(before=None), len(listed))
        found, state = self._run(find, tokens, state, [choice.before, *listed], key=key)
        return BestWords(*found), state

    def step(
        self, tokens: Tensor | None, state: GraphedState, words: OutputWords | None = None
    ) -> tuple[Tensor, GraphedState]:
        """As `Seq2Seq.step`. The output layer is no part of the graph: its results are too large to be copied."""
        if tokens is None or state.session is None:
            logits, inner = self._model.step(tokens, state.settled(), words)
            return logits, state.after_step(inner)
        ids = tokens if words is None else words.ids[tokens]
        (found,), state = self._run(self._model.features, ids, state, [], key="features")
        return self._model.logits(found, words), state

    def attending_step(
        self, tokens: Tensor | None, state: GraphedState, words: OutputWords | None = None
    ) -> tuple[Tensor, Tensor, GraphedState]:
        """As `Seq2Seq.attending_step`."""
        if tokens is None or state.session is None:
            logits, weights, inner = self._model.attending_step(tokens, state.settled(), words)
            return logits, weights[:, : state.positions], state.after_step(inner)
        ids = tokens if words is None else words.ids[tokens]
        attending = self._model.attending_features
        (found, weights), state = self._run(attending, ids, state, [], key="attending features")
        return self._model.logits(found, words), weights[:, : state.positions], state

    def _run(
        self, step: Step, tokens: Tensor, state: GraphedState, others: Sequence[Tensor | None], *, key: Hashable
    ) -> tuple[Sequence[Tensor], GraphedState]:
        """The result of `step` for tokens, the model's own state and other tensors, by a graph; `key` identifies the
        step."""
        assert state.session is not None
        given = self._model.decoder.with_room(state.inner.states, state.words)
        kinds = [type(part) for part in given]
        attends = [memory is not None for memory in state.inner.memories]
        count = len(others)

        def work(tokens: Tensor, rows: Tensor | None, *tensors: Tensor) -> list[Tensor]:
            inner = _rebuilt(tensors[count:], kinds, attends)
            inner = inner if rows is None else inner.reorder(rows)
            # Autocast as it is, but that no weight it casts outlives a recording, in which nothing is computed.
            kind, autocast = tokens.device.type, torch.is_autocast_enabled(tokens.device.type)
            dtype = torch.get_autocast_dtype(kind)
            with torch.autocast(kind, dtype=dtype, enabled=autocast, cache_enabled=False):
                *found, inner = step(tokens, inner, *tensors[:count])
            return [*found, *_tensors(inner.states)]

        parts = _tensors(memory[:3] for memory in state.inner.memories if memory is not None)
        states = _tensors(given)
        found = graphs.run(
            work,
            [tokens, state.rows, *others, *states, *parts],
            key=(torch.is_autocast_enabled(tokens.device.type), key),
            session=state.session,
            recorder=self._recorder,
        )
        size = len(found) - len(states)
        inner = _rebuilt([*found[size:], *parts], kinds, attends)
        return found[:size], state.after_step(state.inner._replace(states=inner.states))


def _filled_up(memory: AttentionMemory) -> AttentionMemory:
    """With positions that get no attention, up to a multiple of graphs.SOURCE_STEP."""
    more = -memory.keys.size(2) % graphs.SOURCE_STEP
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
