"""What a tagger minimises: the negative log-likelihood of the labels of each sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nmt.tagging.batches import TagBatch
from nmt.tagging.model import Tagger
from nmt.training.losses import BatchLoss, Loss


@dataclass(frozen=True)
class LabelledBatch:
    """A batch with the model that is trained on it."""

    model: Tagger
    batch: TagBatch
    weights: Tensor
    """[B, T], what each word counts for in the update"""


class LabelLoss(Loss):
    """The sum over the words of each sentence, because a random field gives one probability to all of them.

    Its weight is the average weight of the sentence's words, so that `training.normalization` keeps its meaning.
    """

    def __call__(self, batch: Any) -> BatchLoss:
        losses = batch.model.losses(batch.batch.source, batch.batch.target)
        words = (batch.batch.target != 0).sum(1)
        return BatchLoss((losses * (batch.weights.sum(1) / words).to(losses.dtype)).sum(), losses.detach())
