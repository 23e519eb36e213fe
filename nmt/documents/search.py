"""Translation of documents: line by line, each from the decoder's states after the translation of the line before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from nmt.data.batching import batch_lines, pad
from nmt.documents.training import added, check_one_process, rows_of
from nmt.errors import SettingError
from nmt.models.base import DecodingState
from nmt.models.decoder import States
from nmt.models.graphed import GraphedState
from nmt.registry import CONTEXTS
from nmt.search.constraints import FREE, Constraints
from nmt.search.reading import Reading
from nmt.search.source import Source
from nmt.search.translator import Translator, flat
from nmt.search.values import Details, Hypothesis, Request, Translation


class Continuing:
    """A model as a search sees it, whose first states are its own plus others, for the rows of one batch."""

    def __init__(self, model: Any, before: States) -> None:
        self._model, self._before = model, before

    def start(self, source: Tensor) -> Any:
        """The state before the first word, one row for each sentence of source [B, S]."""
        state = self._model.start(source)
        if isinstance(state, GraphedState):
            return state._replace(inner=self._continued(state.inner))
        return self._continued(state)

    def _continued(self, state: DecodingState) -> DecodingState:
        return state._replace(states=added(state.states, self._before))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def states_after(model: Any, source: Tensor, targets: Sequence[Sequence[int]]) -> States:
    """The decoder's states when it has read the words of each target, without the end symbol, of source [B, S].

    By steps, which every number format has. `model` has `start` and `features`.
    """
    state, tokens = model.start(source), None
    after, target = state.states, pad(targets).to(source.device)
    ends = torch.tensor([len(ids) for ids in targets], device=source.device)
    for place in range(target.size(1) + 1):
        _, state = model.features(tokens, state)
        is_last = (ends == place).unsqueeze(1)
        after = tuple(
            type(now)(*(torch.where(is_last, new, old) for new, old in zip(now, kept, strict=True)))
            for now, kept in zip(state.states, after, strict=True)
        )
        tokens = target[:, place : place + 1].squeeze(1)
    return after


def stacked(rows: Sequence[States | None]) -> States | None:
    """Rows of states one below the other, zeros where there is none; None if there are none at all."""
    known = next((one for one in rows if one is not None), None)
    if known is None:
        return None
    zeros = tuple(type(state)(*map(torch.zeros_like, state)) for state in known)
    layers = zip(*(zeros if one is None else one for one in rows), strict=True)
    return tuple(type(own[0])(*map(torch.cat, zip(*own, strict=True))) for own in layers)


@CONTEXTS.register("state")
class DocumentTranslator(Translator):
    """A translator of documents, each of which ends at a line without text.

    The first sentences of all documents of a window are translated together, then the second ones, and so on, each as
    other models translate it. The last document of a window continues in the next, except after `calling`. A part of a
    line counts as a sentence. What follows a sentence without a finite translation begins anew.
    """

    context = "state"

    def __init__(self, *models: Any, **settings: Any) -> None:
        """As of `Translator`; ConfigError for an ensemble, and in one of several processes."""
        super().__init__(*models, **settings)
        check_one_process()
        if len(self.prepared.models) > 1:
            raise SettingError(("data.context", "'state' is for one model, not for an ensemble"))
        self._lines = 0
        """Of the window at hand."""
        self._before: list[States | None] = []
        """What each part of the window begins with, a row of states, or None for its own states alone."""
        self._open: States | None = None
        """The same of the next window."""
        self._batch: States | None = None
        """The same of the rows of the batch at hand."""

    def calling(
        self, *, before_batch: Callable[[], object] | None, before_step: Callable[[], object] | None
    ) -> Translator:
        other = super().calling(before_batch=before_batch, before_step=before_step)
        assert isinstance(other, DocumentTranslator)
        other._open = other._batch = None
        return other

    def translate_window(self, lines: Sequence[str | Request], *, details: Details = ()) -> list[Translation]:
        self._lines = len(lines)
        return super().translate_window(lines, details=details)

    def search_lines(
        self, sources: Mapping[int, Source], constraints: Sequence[Constraints] | None
    ) -> list[list[Hypothesis]]:
        parts = flat(sources)
        wanted = [FREE] * len(parts) if constraints is None else constraints
        documents, numbers = list[list[int]](), itertools.count()  # of which the parts have these numbers
        for place, source in sources.items():
            if place - 1 not in sources:
                documents.append([])
            documents[-1] += itertools.islice(numbers, len(source.parts))
        firsts = {document[0] for document in documents}
        self._before = [self._open if 0 in sources else None] + [None] * len(parts)
        found: dict[int, list[Hypothesis]] = {}
        for number in range(max(map(len, documents), default=0)):
            here = [document[number] for document in documents if number < len(document)]
            for batch in self._batches(here, parts, wanted):
                self._batch = stacked([self._before[place] for place in batch])
                some = self.search([parts[place] for place in batch], [wanted[place] for place in batch])
                after = self._after([parts[place] for place in batch], some)
                for place, own, states in zip(batch, some, after, strict=True):
                    found[place] = own
                    if place + 1 not in firsts:
                        self._before[place + 1] = states
        self._batch = None
        self._open = self._before.pop() if self._lines - 1 in sources else None
        return [found[place] for place in range(len(parts))]

    def _batches(
        self, here: Sequence[int], parts: Sequence[Sequence[int]], wanted: Sequence[Constraints]
    ) -> Iterator[list[int]]:
        """The parts `here` in batches that `search` makes no more than one of, in this order."""
        free = [place for place in here if wanted[place] is FREE]
        tokens, rows = self._limits
        lengths = [len(parts[place]) for place in free]
        for batch in batch_lines(lengths, batch_tokens=tokens, copies=self.hypotheses, batch_rows=rows):
            yield [free[i] for i in batch]
        yield from ([place] for place in here if wanted[place] is not FREE)

    @torch.inference_mode()
    def _after(
        self, sources: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> Iterator[States | None]:
        """The states after the best translation of each source of a batch, a row each."""
        device = self.precision.device
        model = self._model if self._batch is None else Continuing(self._model, self._batch)
        with self.precision.autocast():
            after = states_after(model, pad(sources).to(device), [own[0].ids for own in found])
        for row, own in enumerate(found):
            yield rows_of(after, torch.tensor([row], device=device)) if own[0].is_finite else None

    def _model_for(self, source: Tensor, constraints: Sequence[Constraints]) -> tuple[Any, Tensor | None]:
        model, words = super()._model_for(source, constraints)
        return model if self._batch is None else Continuing(model, self._batch), words

    def _readings(
        self, sources: Mapping[int, Source], found: Mapping[int, list[list[Hypothesis]]], details: Details
    ) -> dict[int, list[list[Reading]]]:
        before, device = iter(self._before), self.precision.device
        readings: dict[int, list[list[Reading]]] = {}
        for place, source in sources.items():
            needed = self._texts.needs_reading(source, found[place], details)
            for ids, hypotheses in zip(flat({place: source}), found[place], strict=True):
                states = next(before)
                if not needed:
                    continue
                alone = copy(self)
                alone._batch = states
                if states is not None:  # also of the heads, which are asked of the model itself
                    models: list[Any] = [Continuing(self.prepared.models[0], states)]
                    alone.prepared = self.prepared._replace(models=models)
                with self.precision.autocast():
                    read = alone._read_batch(pad([ids]).to(device), [hypotheses], details)
                readings.setdefault(place, []).extend(read)
        return readings
