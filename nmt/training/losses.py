"""Losses: their contract, the view of a batch that they get, cross entropy, and what a sampled softmax gives."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.models.base import Seq2Seq
from nmt.ops.dropout import current, masked_by
from nmt.ops.linear_cross_entropy import Loss as Smoothed
from nmt.ops.linear_cross_entropy import Losses, linear_cross_entropy
from nmt.ops.recurrence import at_least_fp32
from nmt.registry import LOSSES, NoOptions
from nmt.training.distributed import World


class BatchLoss(NamedTuple):
    """The result of a loss for a batch."""

    total: Tensor
    """A scalar, which is differentiated: in proportion to the weights of the batch."""
    nll: Tensor
    """The negative log-likelihoods of the target words in nats, of any shape and without a gradient, for the log."""


@dataclass
class TrainingBatch:
    """B sentence pairs with N target words, and the model in training, queried under autocast.

    `weights` are the words' weights in the update: over all batches and processes of the update they add up to 1
    (however `training.normalization` distributes them), times the scale of fp16. A total that is a sum of weights times
    values is therefore correct with any accumulation and any number of processes. Values that are not sums over words
    are multiplied by `sentence_weights`, or by the sum of all weights here.
    """

    model: Seq2Seq
    source: Tensor
    """ids [B, S], padding 0"""
    target: Tensor
    """ids [B, T], with the end symbol, padding 0"""
    places: Tensor
    """Where the words are in the target, counted row by row [N]"""
    weights: Tensor  # [B, T] fp64, 0 at padding
    _passes: int = field(default=0, init=False)

    @property
    def words(self) -> Tensor:
        """The target words [N], row by row."""
        return self.target.flatten().index_select(0, self.places)

    @property
    def sentences(self) -> Tensor:
        """The row of each of these words [N]."""
        return torch.div(self.places, self.target.size(1), rounding_mode="floor")

    @property
    def word_weights(self) -> Tensor:
        """The weights of these words [N]."""
        return self.weights.flatten().index_select(0, self.places)

    @property
    def sentence_weights(self) -> Tensor:
        """The weights [B] of whole sentences."""
        return self.weights.sum(1)

    def features(self) -> Tensor:
        """The vectors that are multiplied with the softmax table to predict each word from the words before it: [N, E].

        Each call is a pass through the model, with its own dropout.
        """
        with self._next_masks():
            return self.read(self.source, self.target, places=self.places)

    def read(self, source: Tensor, target: Tensor, *, places: Tensor) -> Tensor:
        """The same of these ids and places; all passes call it."""
        return self.model.word_features(source, target, words=places)

    def passes(self, count: int) -> Tensor:
        """The features [count, N, E] of `count` passes, each with its own dropout, computed together.

        It reads count * B sentences at once, which is faster than `count` calls of `features` and takes the same
        memory.
        """
        source, target = (ids.repeat(count, 1) for ids in (self.source, self.target))
        places = torch.cat([self.places + number * self.target.numel() for number in range(count)])
        with self._next_masks(together=len(self.source)):
            return self.read(source, target, places=places).unflatten(0, (count, len(self.places)))

    @contextlib.contextmanager
    def _next_masks(self, *, together: int | None = None) -> Iterator[None]:
        """The tensors of the model's next pass, if there are any; the first pass has those of the batch."""
        masks, number = current(), self._passes
        self._passes += 1
        if masks is None:
            yield
            return
        masks = masks if number == 0 else masks.of_pass(number)
        with masked_by(masks._replace(together=together)):
            yield

    def logits(self) -> Tensor:
        """Logits of each word [N, V], in at least fp32; see `features`. They can be most of the memory of an update."""
        return at_least_fp32(self.model.embeddings.logits(self.features()))

    def weighted(self, losses: Tensor, *, logits: Tensor) -> BatchLoss:
        """The loss that consists of `losses` [N] of the words; `logits` [N, V] are for the log."""
        nll = F.cross_entropy(logits.detach(), self.words, reduction="none")
        return BatchLoss((losses * self.word_weights.to(losses.dtype)).sum(), nll)


def cross_entropy(logits: Tensor, words: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """The cross entropy [N] of logits [N, V] and words [N] in nats, smoothed as nmt does it.

    With smoothing the entropy of the wanted distribution is subtracted: see `nmt.ops.linear_cross_entropy`.
    """
    loss, log_p = Smoothed.smoothed(logits.size(-1), label_smoothing), torch.log_softmax(logits, -1)
    losses = -loss.confidence * log_p.gather(-1, words.unsqueeze(-1)).squeeze(-1) + loss.constant
    return losses - loss.rest * log_p.sum(-1) if loss.rest else losses


class Loss:
    """What an update minimises; one of yours derives from this in a plugin and defines `__call__`."""

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of the loss's options, against which `training.loss_options` is checked."""
    smooths: ClassVar[bool] = False
    """Whether it reads `label_smoothing`; otherwise `training.label_smoothing` must be 0."""
    normalizations: ClassVar[tuple[str, ...]] = ("token", "sentence", "batch")
    """The values of `training.normalization` that mean something to it."""

    def __init__(self, *, label_smoothing: float = 0.0, options: Any = None) -> None:
        self.label_smoothing = label_smoothing
        self.options = self.Options() if options is None else options

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        """The loss of a batch; called in training mode, under autocast, and not equally often in all processes of a
        run."""
        raise NotImplementedError

    def state_dict(self, world: World) -> dict[str, Any]:
        """What it carries from update to update, of all processes; loadable with `weights_only=True`."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a `state_dict`."""


@LOSSES.register("cross_entropy")
class CrossEntropy(Loss):
    """Cross entropy with `training.label_smoothing`, fused with the output layer.

    The logits are never all there.
    """

    smooths = True

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        found = linear_cross_entropy(
            batch.features(),
            batch.model.embeddings.softmax_table,
            targets=batch.words,
            weights=batch.word_weights,
            label_smoothing=self.label_smoothing,
        )
        return BatchLoss(found.total, found.nll)


PADDING = 8
"""Columns added to the table, only one of which is used: matrix products are slower with odd widths."""


def sampled_losses(
    features: Tensor, table: Tensor, words: Tensor, *, weights: Tensor, samples: int, label_smoothing: float = 0.0
) -> Losses:
    """As `linear_cross_entropy` of `words` [N] by `features` [N, E] and `table` [V, E], but over these words and
    `samples` of the others; see `nmt.optimization.losses.SampledCrossEntropy`."""
    size, masks = len(table), current()
    # The order is that of the batch's place in training, else of torch's generator.
    generator = None if masks is None else torch.Generator().manual_seed(masks.key)
    order = torch.randperm(size, generator=generator).to(words.device)
    own = torch.zeros(size, dtype=torch.bool, device=words.device)
    own[words] = True
    mine, others = own.nonzero().squeeze(1), order[~own[order]]
    chosen = torch.cat([mine, others[:samples]])  # [C]
    place = torch.zeros(size, dtype=torch.int64, device=words.device)  # of each id among those chosen
    place[chosen] = torch.arange(len(chosen), device=words.device)
    correction = torch.zeros(len(chosen), device=words.device)
    if len(others) > samples:
        correction[len(mine) :] = math.log(len(others) / samples)
    rest = (0, PADDING - 1)  # columns of zeros
    return linear_cross_entropy(
        torch.cat([features, F.pad(features.new_ones(len(features), 1), rest)], 1),
        torch.cat([table.index_select(0, chosen), F.pad(correction.to(table.dtype).unsqueeze(1), rest)], 1),
        targets=place.index_select(0, words),
        weights=weights,
        label_smoothing=label_smoothing,
    )
