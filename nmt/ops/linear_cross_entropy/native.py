"""Losses and gradient of a chunk of logits with the C kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from nmt.ops.native import kernel

if TYPE_CHECKING:
    from nmt.ops.linear_cross_entropy.chunks import Loss


def linear_cross_entropy_native(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor
) -> None:
    """See `nmt.ops.linear_cross_entropy.chunks.Step`."""
    rows, words = logits.shape
    targets = targets.contiguous()
    if rows and not 0 <= int(targets.min()) <= int(targets.max()) < words:
        raise IndexError(f"targets must be ids from 0 to {words - 1}; found {int(targets.min())}, {int(targets.max())}")
    run = kernel("cross_entropy_step", "pppp iifff", logits.dtype)
    run(logits, targets, weights, losses, rows, words, loss.confidence, loss.rest, loss.constant)
