"""What a tagger minimises: the negative log-likelihood of the labels of each sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nmt.models.tagger import Tagger
from nmt.tasks.tagging.batches import TagBatch
from nmt.training.losses import BatchLoss, Loss


@dataclass(frozen=True)
class LabelledBatch:
    """A batch with the model that is trained on it."""

    model: Tagger
    batch: TagBatch
    weights: Tensor
    """[B, T], what each word counts for in the update"""


class LabelLoss(Loss):
    """Of each sentence the sum over its words, as a random field has one probability for all of them.

    It counts as much as the words of the sentence do on average, so that `training.normalization` has its meaning.
    """

    def __call__(self, batch: Any) -> BatchLoss:
        losses = batch.model.losses(batch.batch.source, batch.batch.target)
        words = (batch.batch.target != 0).sum(1)
        return BatchLoss((losses * (batch.weights.sum(1) / words).to(losses.dtype)).sum(), losses.detach())
