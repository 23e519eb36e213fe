"""Label-smoothed cross entropy of logits, with one temporary of their size in the backward pass."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.cross_entropy.fused import SmoothedCrossEntropy
from nmt.ops.cross_entropy.reference import reference_cross_entropy, smoothing_terms

__all__ = ["cross_entropy", "reference_cross_entropy"]


def cross_entropy(logits: Tensor, targets: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Losses [N], in nats, of `logits` [N, V] against the ids `targets` [N].

    With s = `label_smoothing` the wanted distribution gives 1 - s to the target and q = s / (V - 1)
    to each other id; its own entropy is subtracted, so that a perfect fit costs nothing:

        loss = lse(x) - (1 - s - q) x_target - q sum(x) + (1 - s) ln(1 - s) + s ln(q + 1e-20)

    Computed in fp32 (fp64 for fp64 logits) whatever the type of the logits.
    """
    confidence, rest, constant = smoothing_terms(logits.shape[-1], label_smoothing)
    losses: Tensor = SmoothedCrossEntropy.apply(logits, targets, confidence, rest)
    return losses + constant
