"""The best words by their logits with the C kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.native import kernel


def best_native(
    logits: Tensor,
    k: int,
    *,
    before: Tensor | None,
    normalize: bool,
    banned: int | None,
    penalised: int | None,
    penalty: float,
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.best.best_words`; logits fp32 or bf16 on a CPU."""
    logits = logits.contiguous()
    parts = 1 if before is None else before.shape[1]
    rows, words = len(logits) // parts, logits.shape[1]
    before = None if before is None else before.float().contiguous()
    values = torch.empty(rows, k, dtype=torch.float32)
    places = torch.empty(rows, k, dtype=torch.int64)
    run = kernel("best", logits.dtype)
    ids = (-1 if word is None else word for word in (banned, penalised))
    run(logits, before, rows, parts, words, k, normalize, *ids, penalty, values, places)
    return values, places
