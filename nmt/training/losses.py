"""What training minimises: the contract of a loss, what it is given of a batch, and cross entropy, the usual one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.models.base import PAD, Normalization, Seq2Seq, loss_weights
from nmt.ops.dropout import current, masked_by
from nmt.ops.linear_cross_entropy.reference import Loss as Smoothed
from nmt.ops.recurrence import at_least_fp32
from nmt.registry import LOSSES
from nmt.training.distributed import World


class BatchLoss(NamedTuple):
    """What a loss makes of a batch."""

    total: Tensor
    """A scalar, which is differentiated: in proportion to the weights of the batch."""
    nll: Tensor
    """The negative log-likelihoods of the target words in nats, of any shape and without a gradient, for the log."""


@dataclass
class TrainingBatch:
    """B sentence pairs with N target words, and a model in training to be asked about them, under autocast.

    `weights` say what each word counts for in the update: over all batches and processes of the update those of all
    words add up to 1, however `training.normalization` shares them out, times the scale of fp16. A total that is
    a sum of weights times something is therefore right with any accumulation and any number of processes. What is no
    sum over words is multiplied by `sentence_weights`, or by the sum of all weights here.
    """

    model: Seq2Seq
    source: Tensor
    """ids [B, S], padding 0"""
    target: Tensor
    """ids [B, T], with the end symbol, padding 0"""
    places: Tensor
    """Where the words are in the target, counted row by row [N]"""
    weights: Tensor
    """[B, T] fp64, 0 at padding"""
    _passes: int = field(default=0, init=False)

    @classmethod
    def of(
        cls, model: Seq2Seq, source: Tensor, target: Tensor, *, normalization: Normalization = "token"
    ) -> TrainingBatch:
        """A batch that is an update by itself, of ids without a column of padding alone."""
        places = (target != PAD).flatten().nonzero().squeeze(1)
        return cls(model, source, target, places, loss_weights(target, normalization=normalization))

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
        """What the softmax table is compared with to predict each word, the words before it given: [N, E].

        Each call is a pass through the model, with dropout of its own.
        """
        with self._next_masks():
            return self.model.word_features(self.source, self.target, words=self.places)

    def passes(self, count: int) -> Tensor:
        """The features [count, N, E] of so many passes, each with dropout of its own, that the model does together.

        It reads count * B sentences at once, which is faster than `features` so many times and takes as much memory.
        """
        source, target = (ids.repeat(count, 1) for ids in (self.source, self.target))
        places = torch.cat([self.places + number * self.target.numel() for number in range(count)])
        with self._next_masks(together=len(self.source)):
            return self.model.word_features(source, target, words=places).unflatten(0, (count, len(self.places)))

    @contextlib.contextmanager
    def _next_masks(self, *, together: int | None = None) -> Iterator[None]:
        """Those of the next run of the model, if there are any; the first has those of the batch."""
        masks, number = current(), self._passes
        self._passes += 1
        if masks is None:
            yield
            return
        masks = masks if number == 0 else masks.of_pass(number)
        with masked_by(masks._replace(together=together)):
            yield

    def logits(self) -> Tensor:
        """Of each word [N, V], in at least fp32; see `features`. They can be most of the memory of an update."""
        return at_least_fp32(self.model.embeddings.logits(self.features()))

    def weighted(self, losses: Tensor, *, logits: Tensor) -> BatchLoss:
        """The loss that consists of `losses` [N] of the words; `logits` [N, V] are for the log."""
        nll = F.cross_entropy(logits.detach(), self.words, reduction="none")
        return BatchLoss((losses * self.word_weights.to(losses.dtype)).sum(), nll)


def cross_entropy(logits: Tensor, words: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """The cross entropy [N] of logits [N, V] and words [N] in nats, smoothed as nmt does it.

    With smoothing the entropy of the wanted distribution is subtracted: see `nmt.ops.linear_cross_entropy.reference`.
    """
    loss, log_p = Smoothed.smoothed(logits.size(-1), label_smoothing), torch.log_softmax(logits, -1)
    losses = -loss.confidence * log_p.gather(-1, words.unsqueeze(-1)).squeeze(-1) + loss.constant
    return losses - loss.rest * log_p.sum(-1) if loss.rest else losses


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """For losses that have nothing to set."""


class Loss:
    """What an update minimises; one of yours derives from this in a plugin and defines `__call__`."""

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of the loss's options, against which `training.loss_options` is checked."""
    smooths: ClassVar[bool] = False
    """Whether it reads `label_smoothing`; otherwise `training.label_smoothing` must be 0."""
    normalizations: ClassVar[tuple[str, ...]] = ("token", "sentence")
    """The values of `training.normalization` that mean something to it."""

    def __init__(self, *, label_smoothing: float = 0.0, options: Any = None) -> None:
        self.label_smoothing = label_smoothing
        self.options = self.Options() if options is None else options

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        """The loss of a batch; called in training mode, under autocast, and not for all processes of a run alike."""
        raise NotImplementedError

    def state_dict(self, world: World) -> dict[str, Any]:
        """What it carries from update to update, of all processes; loadable with `weights_only=True`."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a `state_dict`."""


@LOSSES.register("cross_entropy")
class CrossEntropy(Loss):
    """Cross entropy with `training.label_smoothing`, fused with the output layer: the logits are never all there."""

    smooths = True

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        found = batch.model.weighted_loss(
            batch.source,
            batch.target,
            weights=batch.weights,
            label_smoothing=self.label_smoothing,
            words=batch.places,
        )
        return BatchLoss(found.total, found.nll)


def build_loss(name: str, *, label_smoothing: float, options: Any = None) -> Loss:
    """Make the loss registered as `name`, with an instance of its `Options`; ConfigError for an unknown name."""
    loss: Loss = LOSSES.get(name)(label_smoothing=label_smoothing, options=options)
    return loss
