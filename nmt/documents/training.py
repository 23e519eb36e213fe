"""Training on windows of documents: sentence by sentence, each from the decoder's states after the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt.config.schema import Config
from nmt.data.batching import Batch
from nmt.data.corpus import Corpus
from nmt.data.prepare import PreparedData
from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError, counted
from nmt.models.base import Seq2Seq
from nmt.models.blocks import WordCount
from nmt.models.decoder import States
from nmt.ops.dropout import current, masked_by
from nmt.registry import GUIDES
from nmt.system import is_one_of_several
from nmt.training.losses import CrossEntropy, Loss, TrainingBatch

_CHUNK = 1 << 24
"""Tokens read at once."""


class Sentences(NamedTuple):
    """The sentences of one number in their windows, of the B' rows that have so many."""

    rows: Tensor  # [B'] of these windows, ascending
    source: Tensor  # [B', S']
    target: Tensor  # [B', T']
    places: Tensor  # [N'] of the target's words in the windows, counted row by row of [B, T]


def sentences(source: Tensor, target: Tensor) -> Iterator[Sentences]:
    """The first sentences of windows source [B, S] and target [B, T], the second ones, and so on."""
    numbers = [(ids == EOS).cumsum(1) - (ids == EOS).long() for ids in (source, target)]
    for number in range(int((target == EOS).sum(1).max())):
        inside = [(own == number) & (ids != PAD) for own, ids in zip(numbers, (source, target), strict=True)]
        rows = inside[1].any(1).nonzero().squeeze(1)
        cut = []
        for ids, chosen in zip((source, target), inside, strict=True):
            lengths = chosen.index_select(0, rows).sum(1)
            columns = torch.arange(int(lengths.max()), device=ids.device)
            own = ids.new_full((len(rows), len(columns)), PAD)
            own[columns < lengths[:, None]] = ids[chosen]
            cut.append(own)
        yield Sentences(rows, cut[0], cut[1], inside[1].flatten().nonzero().squeeze(1))


def added(initial: States, before: States) -> States:
    """The sum of the states of each layer, tensor by tensor; a count of words begins anew."""
    return tuple(
        own
        if isinstance(own, WordCount)
        else type(own)(*(mine + other for mine, other in zip(own, carried, strict=True)))
        for own, carried in zip(initial, before, strict=True)
    )


def rows_of(states: States, rows: Tensor) -> States:
    """The states of some rows."""
    return tuple(type(state)(*(tensor.index_select(0, rows) for tensor in state)) for state in states)


def window_features(model: Seq2Seq, source: Tensor, target: Tensor) -> Tensor:
    """What the softmax table is compared with for each target word of windows [B, S] and [B, T], row by row: [N, E].

    h_0 of sentence i is the model's own first state plus the last of sentence i - 1, of each layer of the decoder.
    Gradients go through all of a window.
    """
    masks = current()
    found, places = list[Tensor](), list[Tensor]()
    before: States | None = None
    earlier = source[:0, 0]  # rows of the sentences before
    for number, one in enumerate(sentences(source, target)):
        # Negative: another pass over the batch has a positive number.
        with masked_by(masks and (masks.of_pass(-number) if number else masks)):
            x, memories, initial, mask = model.decoder_inputs(one.source, one.target, tight=True)
            if before is not None:
                initial = added(initial, rows_of(before, torch.searchsorted(earlier, one.rows)))
            pieces, before, _ = model.decoder.whole_sequence(x, memories, initial, mask, tells=False)
            words = mask.flatten().nonzero().squeeze(1)
            found.append(model.read_words(pieces, words, length=mask.size(1)))
        earlier = one.rows
        places.append(one.places)
    return torch.cat(found).index_select(0, torch.cat(places).argsort())


@dataclass
class WindowBatch(TrainingBatch):
    """A batch of windows."""

    def read(self, source: Tensor, target: Tensor, *, places: Tensor) -> Tensor:
        return window_features(self.model, source, target)


class Reader:
    """A model that is asked for the losses of windows."""

    def __init__(self, model: Seq2Seq) -> None:
        self._model = model

    def token_losses(self, source: Tensor, target: Tensor, *, words: Tensor) -> Tensor:
        """Losses [N] of the target words at the places `words` [N], all of them, in nats and without a gradient."""
        weights = torch.ones(target.shape, dtype=torch.float64, device=target.device)
        return CrossEntropy()(WindowBatch(self._model, source, target, words, weights)).nll


def longest_sentence(corpus: Corpus) -> int:
    """Tokens of the longest source sentence of windows, the end symbol not counted; reads all ids, some at a time."""
    ids, longest, last = corpus.sides[0].ids, 0, -1
    for start in range(0, len(ids), _CHUNK):
        ends = np.flatnonzero(ids[start : start + _CHUNK] == EOS) + start
        if len(ends):
            longest = max(longest, int(np.diff(ends, prepend=last).max()) - 1)
            last = int(ends[-1])
    return longest


def check_one_process() -> None:
    """Raise ConfigError in one of several processes, each of which would have only a part of a document's sentences."""
    if is_one_of_several():
        raise ConfigError("WORLD_SIZE: several processes share out sentences, which data.context: state does not allow")


@GUIDES.register("context")
class ContextGuide:
    """Windows of documents, as `data.context` wants them."""

    @staticmethod
    def problems(config: Config) -> list[tuple[str, str]]:
        """What does not fit together, by key."""
        found = []
        if config.model.architecture_options.get("decoder_mixing") == "attention":
            found.append(
                ("data.context", "'state' needs a recurrent decoder; self-attention (decoder_mixing) has no state")
            )
        training = config.training
        given = {
            "data.augmentation": config.data.augmentation,
            "training.guided_alignment": training.guided_alignment,
            "training.sample_every": training.sample_every,
            "training.wait": training.wait,
        }
        return found + [(key, "not together with data.context: state") for key, value in given.items() if value]

    @staticmethod
    def missing_files(config: Config) -> list[tuple[str, str]]:
        """None: it reads none."""
        return []

    read_by = Reader

    def __init__(self, config: Config, data: PreparedData, run: Path) -> None:
        """Raises ConfigError for subwords that are drawn anew, of sentences alone, and in one of several processes."""
        check_one_process()
        if any(data.sides):
            raise ConfigError("data.tokenizer_options: subwords drawn anew do not go together with data.context: state")
        train, report = data.train, data.train.report
        train.longest_source = longest_sentence(train)  # of a window would be no source of a translation
        lines = counted(report.read - report.kept - report.empty - report.too_long, "blank line")
        windows = f"{counted(len(train), 'window')} of {report.kept / len(train):.2f} sentences on average"
        self.report_lines = [f"train: {windows}, at most {config.data.context_sentences}; {lines} between documents"]

    def batch(self, batch: TrainingBatch, given: Batch) -> TrainingBatch:
        """The batch as windows."""
        return WindowBatch(batch.model, batch.source, batch.target, batch.places, batch.weights)

    def loss(self, inner: Loss) -> Loss:
        """The same loss."""
        return inner
