"""The loss of a chunk of logits and its gradient: the definition, and an implementation in plain PyTorch.

With s = `label_smoothing` and V words the wanted distribution gives 1 - s to the target and q = s / (V - 1) to each
other word; its own entropy is subtracted, so that the loss of a perfect fit is 0:

    loss = lse(x) - (1 - s - q) x_target - q sum(x) + (1 - s) ln(1 - s) + s ln(q + 1e-20)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.ops.recurrence import at_least_fp32


class Loss(NamedTuple):
    """loss = lse(x) - confidence * x_target - rest * sum(x) + constant, for each row x of the logits."""

    confidence: float
    rest: float
    constant: float

    @property
    def is_nll(self) -> bool:
        """Whether it is the negative log-likelihood lse(x) - x_target itself."""
        return self == (1.0, 0.0, 0.0)

    @classmethod
    def smoothed(cls, words: int, label_smoothing: float) -> Loss:
        """The loss of logits over this many words."""
        kept = 1.0 - label_smoothing
        rest = label_smoothing / max(words - 1, 1)
        return cls(kept - rest, rest, kept * math.log(kept) + label_smoothing * math.log(rest + 1e-20))


def linear_cross_entropy_reference(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor, nll: Tensor | None = None
) -> None:
    """Write the losses [n], in at least fp32, of `logits` [n, V] against the ids `targets` [n].

    If `nll` [n], of the same type, is given, the negative log-likelihoods lse(x) - x_target are written to it.

    The values of a row are side by side; memory between two rows may be overwritten.

    With `weights` [n], in the type of the losses, the logits become the gradient of the weighted sum of the losses:
    weight * (softmax(x) - rest), minus weight * confidence at the target. Without, they may be overwritten.
    Computed in at least fp32.
    """
    gold = targets.unsqueeze(1)
    log_p = torch.log_softmax(at_least_fp32(logits), -1)
    log_p_gold = log_p.gather(1, gold).squeeze(1)
    torch.mul(log_p_gold, -loss.confidence, out=losses)
    if nll is not None:
        torch.neg(log_p_gold, out=nll)
    if loss.rest:
        losses.sub_(log_p.sum(-1), alpha=loss.rest)
    losses.add_(loss.constant)
    if weights is None:
        return
    gradient = log_p.exp_()
    if loss.rest:
        gradient.sub_(loss.rest)
    gradient.scatter_add_(1, gold, gradient.new_full((len(gold), 1), -loss.confidence))
    torch.mul(gradient, weights.unsqueeze(1), out=gradient)
    logits.copy_(gradient)
