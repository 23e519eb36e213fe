"""Losses and gradient of a chunk of logits in plain PyTorch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.linear_cross_entropy.step import Loss
from nmt.ops.recurrence import at_least_fp32


def linear_cross_entropy_reference(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor
) -> None:
    """See `nmt.ops.linear_cross_entropy.chunks.Step`."""
    gold = targets.unsqueeze(1)
    log_p = torch.log_softmax(at_least_fp32(logits), -1)
    torch.mul(log_p.gather(1, gold).squeeze(1), -loss.confidence, out=losses)
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
