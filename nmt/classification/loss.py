"""What a classifier minimises: cross entropy of the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from nmt.classification.batches import TextBatch
from nmt.classification.model import FIRST_LABEL, Classifier
from nmt.training.losses import BatchLoss, Loss, cross_entropy


@dataclass(frozen=True)
class ClassifiedBatch:
    """A batch with the model that is trained on it."""

    model: Classifier
    batch: TextBatch
    weights: Tensor
    """[B, 1], what each text counts for in the update"""


class ClassLoss(Loss):
    """Cross entropy with `training.label_smoothing`."""

    smooths = True

    def __call__(self, batch: Any) -> BatchLoss:
        scores, labels = batch.model.scores(batch.batch.source), batch.batch.target[:, 0] - FIRST_LABEL
        losses = cross_entropy(scores, labels, label_smoothing=self.label_smoothing)
        nll = F.cross_entropy(scores.detach(), labels, reduction="none")
        return BatchLoss((losses * batch.weights[:, 0].to(losses.dtype)).sum(), nll)
