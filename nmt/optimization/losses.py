"""A sampled softmax, and R-Drop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from nmt.ops.linear_cross_entropy import linear_r_drop
from nmt.registry import LOSSES
from nmt.training.losses import BatchLoss, Loss, TrainingBatch, sampled_losses
from nmt.training.schedules import Amount, allowed


@LOSSES.register("sampled_cross_entropy")
class SampledCrossEntropy(Loss):
    """Cross entropy whose softmax is over the batch's own target words and a sample of the other words.

    As in Jean et al. (ACL 2015), but the sample is drawn uniformly for each batch, and log(others / samples) is added
    to the logit of each sampled word, which represents that many words: the expectation of the softmax's sum is the sum
    over the vocabulary. With at least as many `samples` as other words it is `cross_entropy`. The sample depends on the
    seed and the position of the batch; the batch's own words are those of the process's sentences. Losses of training
    in the log are estimates with these samples; validation's loss is exact.
    """

    smooths = True

    @dataclass(frozen=True, kw_only=True)
    class Options:
        samples: Annotated[int, allowed("1 or more", lambda value: value >= 1)] = 1000
        """Words of the vocabulary besides the batch's own."""

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        found = sampled_losses(
            batch.features(),
            batch.model.embeddings.softmax_table,
            batch.words,
            weights=batch.word_weights,
            samples=self.options.samples,
            label_smoothing=self.label_smoothing,
        )
        return BatchLoss(found.total, found.nll)


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
        """Weight of the divergence."""

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
