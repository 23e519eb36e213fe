"""R-Drop."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.ops.linear_cross_entropy import linear_r_drop
from nmt.registry import LOSSES
from nmt.training.losses import BatchLoss, Loss, TrainingBatch
from nmt.training.schedules import Amount


@LOSSES.register("r_drop")
class RDrop(Loss):
    """Cross entropy of two passes with different dropout, and the distance of their distributions (R-Drop).

    For each word (CE(p) + CE(q)) / 2 + alpha / 2 * (KL(p || q) + KL(q || p)) / 2, which is half of what Liang et al.
    (NeurIPS 2021, eq. 4) minimise, so that `alpha: 0` gives cross entropy. CE has `training.label_smoothing`. An update
    takes slightly more than twice the time; the logits are never all in memory. Without dropout it has no effect.
    """

    smooths = True

    @dataclass(frozen=True, kw_only=True)
    class Options:
        alpha: Amount = 5.0
        """Weight of the divergence, as in the paper, which takes 5 for translation."""

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        found = linear_r_drop(
            batch.passes(2),
            batch.model.embeddings.softmax_table,
            targets=batch.words,
            weights=batch.word_weights,
            alpha=self.options.alpha,
            label_smoothing=self.label_smoothing,
        )
        return BatchLoss(found.total, found.nll)
