"""A loss (plugins.md)."""

from dataclasses import dataclass

import torch

from nmt.registry import LOSSES
from nmt.training.losses import Loss


@LOSSES.register("focal")
class Focal(Loss):
    """-(1 - p)^gamma ln p: words that are predicted well already count less (Lin et al., ICCV 2017)."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        gamma: float = 2.0
        """How much less."""

    def __call__(self, batch):
        logits = batch.logits()  # [N, V], of the N target words of the batch
        log_p = torch.log_softmax(logits, -1).gather(1, batch.words.unsqueeze(1)).squeeze(1)
        return batch.weighted(-((1 - log_p.exp()) ** self.options.gamma) * log_p, logits=logits)
