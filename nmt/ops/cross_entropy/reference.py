"""Label-smoothed cross entropy as its definition reads, for tests."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def smoothing_terms(vocab_size: int, label_smoothing: float) -> tuple[float, float, float]:
    """Return (1 - s - q, q, minus the entropy of the smoothed distribution), s = `label_smoothing`."""
    kept = 1.0 - label_smoothing
    rest = label_smoothing / max(vocab_size - 1, 1)
    negative_entropy = kept * math.log(kept) + label_smoothing * math.log(rest + 1e-20)
    return kept - rest, rest, negative_entropy


def reference_cross_entropy(logits: Tensor, targets: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Losses [N] of `logits` [N, V]: the wanted distribution written out, V values for each target."""
    vocab_size = logits.shape[-1]
    rest = label_smoothing / max(vocab_size - 1, 1)
    wanted = torch.full_like(logits, rest)
    wanted.scatter_(1, targets.unsqueeze(1), 1.0 - label_smoothing)
    entropy = -(wanted * (wanted + 1e-20).log()).sum(-1)
    return -(wanted * F.log_softmax(logits, dim=-1)).sum(-1) - entropy
