"""What a loss is given of a batch that makes a whole update."""

from __future__ import annotations

from torch import Tensor

from nmt.models.base import PAD, Normalization, Seq2Seq, loss_weights
from nmt.training.losses import TrainingBatch


def whole_batch(
    model: Seq2Seq, source: Tensor, target: Tensor, *, normalization: Normalization = "token"
) -> TrainingBatch:
    """A batch of ids without a column of only padding."""
    places = (target != PAD).flatten().nonzero().squeeze(1)
    return TrainingBatch(model, source, target, places, loss_weights(target, normalization=normalization))
