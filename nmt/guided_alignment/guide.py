"""The guide of attention that `training.guided_alignment` names: its data, what it wants of a batch, and its loss."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from nmt.config.schema import Config
from nmt.data.batching import Batch
from nmt.data.corpus import Encoder, LengthRule, corpus_folder
from nmt.data.prepare import PreparedData, generated
from nmt.data.text import find_pairs
from nmt.data.text_facts import file_digest
from nmt.errors import ConfigError, missing
from nmt.guided_alignment.links import Links, store_links, wanted_attention, word_counts, word_starts
from nmt.registry import GUIDES
from nmt.texts import as_list
from nmt.training.distributed import World
from nmt.training.losses import BatchLoss, Loss, TrainingBatch

KEY: Final = "training.guided_alignment"
HEAD: Final = 0
"""The head that learns alignments, as in Marian."""
_SMALLEST: Final = 1e-9
"""Added to attention before the logarithm."""


@dataclass
class GuidedBatch(TrainingBatch):
    """A batch whose attention is kept for the loss: that of one head of the last layer that attends."""

    wanted: Tensor = field(kw_only=True)
    """[B, T, S], see `wanted_attention`"""
    attention: Tensor | None = field(default=None, init=False)
    """[n * B, T, S] of the n passes of the last call"""

    def read(self, source: Tensor, target: Tensor, *, places: Tensor) -> Tensor:
        found, weights = self.model.attending_word_features(source, target, words=places)
        self.attention = weights[-1][:, HEAD]
        return found


class GuidedLoss(Loss):
    """Another loss, and `weight` times the cross entropy of the wanted attention and that of the model.

    For each target token -sum_s wanted_s log(attention_s), 0 without a link, weighted as the words' losses are (Chen et
    al., AMTA 2016).
    """

    def __init__(self, inner: Loss, *, weight: float) -> None:
        super().__init__(label_smoothing=inner.label_smoothing, options=inner.options)
        self.inner, self.weight = inner, weight

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        assert isinstance(batch, GuidedBatch)
        found = self.inner(batch)
        if batch.attention is None:
            raise ConfigError(f"{KEY}: the loss {type(self.inner).__name__} does not call features() of its batch")
        passes = len(batch.attention) // len(batch.wanted)
        log = (batch.attention.unflatten(0, (passes, -1)) + _SMALLEST).log()
        losses = -(batch.wanted.to(log.dtype) * log).sum(-1).mean(0)  # [B, T]
        return BatchLoss(found.total + self.weight * (losses * batch.weights.to(losses.dtype)).sum(), found.nll)

    def state_dict(self, world: World) -> dict[str, Any]:
        return self.inner.state_dict(world)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)


@GUIDES.register("alignment")
class AlignmentGuide:
    """The alignments of a run's training text."""

    def __init__(self, config: Config, data: PreparedData, run: Path) -> None:
        """Read the files, or what they were read into before. Raises ConfigError or DataError."""
        text = generated(config.data, run)
        pairs = find_pairs(text.train, text.source_language, text.target_language, key="data.train")
        files = [Path(name) for name in as_list(config.training.guided_alignment)]
        if len(files) != len(pairs):
            raise ConfigError(
                f"{KEY}: {len(files)} files for the {len(pairs)} prefixes of data.train; give one for each"
            )
        digests = [data.key, *map(file_digest, files)]
        key = hashlib.sha256(json.dumps(digests).encode()).hexdigest()
        folder = corpus_folder(data.train.folder.parent, "alignment", key)
        if not folder.is_dir():
            rule = LengthRule(max_length=text.max_length, truncate=text.too_long == "truncate", skip_empty=True)
            encoder = Encoder(data.tokenizer, rule, (), text.source_language)
            store_links(pairs, files, folder, encoder=encoder, workers=text.workers)
        self._links = Links(folder)
        self._starts = word_starts(data.tokenizer)
        self._text = data.train.sides if config.data.augmentation else None
        self._weight = config.training.guided_alignment_weight
        self.report_lines = [f"train: {self._links.report}"]

    @staticmethod
    def problems(config: Config) -> list[tuple[str, str]]:
        """None: it goes together with all keys."""
        return []

    @staticmethod
    def missing_files(config: Config) -> list[tuple[str, str]]:
        """The key of each file that is not there, with a message."""
        given = config.training.guided_alignment
        return [
            (KEY if isinstance(given, str) else f"{KEY}.{place}", missing(name))
            for place, name in enumerate(as_list(given))
            if not Path(name).is_file()
        ]

    def batch(self, batch: TrainingBatch, given: Batch) -> GuidedBatch:
        """The batch of these rows of the corpus, with what attention is to be."""
        device, rows = batch.source.device, given.rows
        starts = torch.from_numpy(self._starts[0]).to(device), torch.from_numpy(self._starts[1]).to(device)
        wanted = wanted_attention(self._links.of(rows), batch.source, batch.target, starts)
        for side, ids, begins in zip(self._text or (), (batch.source, batch.target), starts, strict=False):
            # The links of a pair that has been changed are those of its words, if it has as many as before.
            own = torch.from_numpy(side.padded(rows)).to(device)
            wanted *= (word_counts(ids, begins) == word_counts(own, begins))[:, None, None]
        return GuidedBatch(batch.model, batch.source, batch.target, batch.places, batch.weights, wanted=wanted)

    def loss(self, inner: Loss) -> Loss:
        """A loss that learns the alignments, too."""
        return GuidedLoss(inner, weight=self._weight)
