"""Training for live translation: when a target word is predicted, only so many source words have been read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.config.schema import Config
from nmt.data.batching import Batch
from nmt.data.prepare import PreparedData
from nmt.data.sampler import seeds
from nmt.data.vocabulary import PAD
from nmt.live.words import Words, words_of
from nmt.registry import GUIDES
from nmt.training.losses import Loss, TrainingBatch


def visible(source: Tensor, target: Tensor, words: tuple[Words, Words], *, wait: Tensor) -> Tensor:
    """Which source tokens have been read when a target token is predicted: [B, T, S] for source [B, S], target [B, T].

    For word j, from 0, `wait` + j words [B] have been read, as wait-k reads (Ma et al., ACL 2019), k counting words;
    the end symbol is read after the last word, by another step.
    """
    of_source, of_target = words[0].numbers(source), words[1].numbers(target)
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
        self._words = words_of(data.tokenizer)
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
        seen = visible(batch.source, batch.target, (self._words[0].on(device), self._words[1].on(device)), wait=wait)
        return WaitingBatch(batch.model, batch.source, batch.target, batch.places, batch.weights, seen=seen)

    def loss(self, inner: Loss) -> Any:
        """The same loss."""
        return inner
