"""Losses and gradient of a chunk of logits with the C kernel."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from nmt.ops.linear_cross_entropy.reference import Loss, linear_cross_entropy_reference
from nmt.ops.native import kernel

MOST_WORDS: Final = 1 << 18
"""Each thread of the kernel has a row of floats on its stack: with this many words 1 MiB."""


def linear_cross_entropy_native(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor, nll: Tensor | None = None
) -> None:
    """See `linear_cross_entropy_reference`."""
    rows, words = logits.shape
    targets = targets.contiguous()
    if rows and not 0 <= int(targets.min()) <= int(targets.max()) < words:
        raise IndexError(f"targets must be ids from 0 to {words - 1}; found {int(targets.min())}, {int(targets.max())}")
    if words > MOST_WORDS:
        linear_cross_entropy_reference(logits, targets, weights=weights, loss=loss, losses=losses, nll=nll)
        return
    run = kernel("cross_entropy_step", logits.dtype)
    run(logits, logits.stride(0), targets, weights, losses, nll, rows, words, *loss)
