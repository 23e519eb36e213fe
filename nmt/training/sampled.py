"""Cross entropy with a sampled softmax, for when the output layer is most of the work of an update."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.ops.dropout import current
from nmt.ops.linear_cross_entropy import Losses, linear_cross_entropy
from nmt.registry import LOSSES
from nmt.training.losses import BatchLoss, Loss, TrainingBatch
from nmt.training.schedules import require

PADDING = 8
"""Columns added to the table, only one of which is used: matrix products are slower with odd widths."""


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
        """Options of `sampled_cross_entropy`."""

        samples: int = 1000
        """Words of the vocabulary besides the batch's own."""

        def __post_init__(self) -> None:
            require(self.samples >= 1, f"samples: must be 1 or more, not {self.samples}")

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


def sampled_losses(
    features: Tensor, table: Tensor, words: Tensor, *, weights: Tensor, samples: int, label_smoothing: float = 0.0
) -> Losses:
    """As `linear_cross_entropy` of `words` [N] by `features` [N, E] and `table` [V, E], but over these words and
    `samples` of the others; see `SampledCrossEntropy`."""
    chosen, place, correction = _candidates(words, len(table), samples=samples)
    return linear_cross_entropy(
        torch.cat([features, _first_column(features.new_ones(len(features)))], 1),
        torch.cat([table.index_select(0, chosen), _first_column(correction.to(table.dtype))], 1),
        targets=place.index_select(0, words),
        weights=weights,
        label_smoothing=label_smoothing,
    )


def _candidates(words: Tensor, size: int, *, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of a vocabulary of `size`, for target words [N]: ids [C] to compare with, where each id is there, corrections.

    Places [size] are 0 for words that are not chosen; corrections [C] are fp32.
    """
    order = _order(size).to(words.device)
    own = torch.zeros(size, dtype=torch.bool, device=words.device)
    own[words] = True
    mine, others = own.nonzero().squeeze(1), order[~own[order]]
    chosen = torch.cat([mine, others[:samples]])
    place = torch.zeros(size, dtype=torch.int64, device=words.device)
    place[chosen] = torch.arange(len(chosen), device=words.device)
    correction = torch.zeros(len(chosen), device=words.device)
    if len(others) > samples:
        correction[len(mine) :] = math.log(len(others) / samples)
    return chosen, place, correction


def _order(size: int) -> Tensor:
    """A random order [size] of the vocabulary: of the batch's place in training, else by torch's generator."""
    masks = current()
    generator = None if masks is None else torch.Generator().manual_seed(masks.key)
    return torch.randperm(size, generator=generator)


def _first_column(values: Tensor) -> Tensor:
    """Values [N] as the first of some columns of zeros [N, PADDING]."""
    return torch.nn.functional.pad(values.unsqueeze(1), (0, PADDING - 1))
