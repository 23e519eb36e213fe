"""Label-smoothed cross entropy as its definition reads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def reference_cross_entropy(logits: Tensor, targets: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Losses [N] of `logits` [N, V]: the wanted distribution written out, V values for each target."""
    vocab_size = logits.shape[-1]
    rest = label_smoothing / max(vocab_size - 1, 1)
    wanted = torch.full_like(logits, rest)
    wanted.scatter_(1, targets.unsqueeze(1), 1.0 - label_smoothing)
    entropy = -(wanted * (wanted + 1e-20).log()).sum(-1)
    return -(wanted * F.log_softmax(logits, dim=-1)).sum(-1) - entropy
