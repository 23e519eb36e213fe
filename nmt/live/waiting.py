"""Training for live translation: when a target word is predicted, only so many source words have been read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.config.schema import Config
from nmt.data.batching import Batch
from nmt.data.matching import UNSPACED
from nmt.data.prepare import PreparedData
from nmt.data.sampler import seeds
from nmt.data.sentencepiece import WORD_BEGIN
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, PAD
from nmt.registry import GUIDES
from nmt.training.losses import Loss, TrainingBatch

_BEGINS: Final = re.compile(f"{WORD_BEGIN}|[{UNSPACED}]")


def word_begins(tokenizer: Tokenizer) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For each token of source and target whether a word begins with it; without spaces between words, with each."""
    if tokenizer.splits_at_spaces:
        return np.ones(tokenizer.source_size, bool), np.ones(tokenizer.target_size, bool)
    names = tokenizer.source_tokens(range(tokenizer.source_size)), tokenizer.target_tokens(range(tokenizer.target_size))
    source, target = (np.array([_BEGINS.match(name) is not None for name in side]) for side in names)
    return source, target


def words_of(ids: Tensor, begins: Tensor) -> Tensor:
    """The number of each token's word, from 0: [B, T] for ids [B, T]. The end symbol is a word of its own."""
    begun = begins[ids] | (ids == EOS)
    begun[:, 0] = True
    return begun.cumsum(1) - 1


def visible(source: Tensor, target: Tensor, begins: tuple[Tensor, Tensor], *, wait: Tensor) -> Tensor:
    """Which source tokens have been read when a target token is predicted: [B, T, S] for source [B, S], target [B, T].

    For word j, from 0, `wait` + j words [B] have been read, as wait-k reads (Ma et al., ACL 2019), k counting words;
    the end symbol is read after the last word, by another step.
    """
    of_source, of_target = words_of(source, begins[0]), words_of(target, begins[1])
    read = wait[:, None] + of_target
    return (of_source[:, None, :] < read[:, :, None]) & (source != PAD)[:, None, :]


@dataclass
class WaitingBatch(TrainingBatch):
    """A batch whose target words attend to what has been read."""

    seen: Tensor = field(kw_only=True)
    """[B, T, S], see `visible`"""

    def read(self, source: Tensor, target: Tensor, *, places: Tensor) -> Tensor:
        seen = self.seen.repeat(len(source) // len(self.seen), 1, 1)
        return self.model.word_features(source, target, words=places, visible=seen)


@GUIDES.register("wait")
class WaitingGuide:
    """Words read before the first one is written: for each sentence a number in the range of `training.wait`, drawn
    anew in each epoch, so that one model serves all of them (Elbayad et al., Interspeech 2020)."""

    @staticmethod
    def problems(config: Config) -> list[tuple[str, str]]:
        """What does not fit together, by key."""
        found, wait = [], config.training.wait
        if config.model.encoder_direction != "forward":
            found.append("needs model.encoder_direction: forward, as no word must be read before its time")
        if isinstance(wait, list) and wait[0] > wait[1]:
            found.append(f"{wait} is not a range: the first number must not be above the second")
        if config.training.guided_alignment is not None:
            found.append("not together with training.guided_alignment")
        return [("training.wait", message) for message in found]

    def __init__(self, config: Config, data: PreparedData, run: Path) -> None:
        wait = config.training.wait
        assert wait is not None
        self._least, self._most = (wait, wait) if isinstance(wait, int) else wait
        self._begins = word_begins(data.tokenizer)
        self._seed = config.seed
        self.report_lines = list[str]()

    @staticmethod
    def missing_files(config: Config) -> list[tuple[str, str]]:
        """None: it reads none."""
        return []

    def batch(self, batch: TrainingBatch, given: Batch) -> TrainingBatch:
        """The batch with what each target word has read."""
        device, count = batch.source.device, np.uint64(self._most - self._least + 1)
        drawn = seeds(self._seed, given.epoch, "wait", given.rows) % count
        wait = torch.from_numpy(drawn.astype(np.int64)).to(device) + self._least
        begins = torch.from_numpy(self._begins[0]).to(device), torch.from_numpy(self._begins[1]).to(device)
        seen = visible(batch.source, batch.target, begins, wait=wait)
        return WaitingBatch(batch.model, batch.source, batch.target, batch.places, batch.weights, seen=seen)

    def loss(self, inner: Loss) -> Any:
        """The same loss."""
        return inner
