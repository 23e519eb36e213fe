"""The best words by the product with a packed matrix: one C kernel, in which no logit leaves the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.narrow import NarrowMatrix
from nmt.ops.narrow.native import KINDS, ROWS, arguments
from nmt.ops.native import kernel


def best_packed(
    features: Tensor,
    k: int,
    *,
    table: NarrowMatrix,
    before: Tensor | None,
    normalize: bool,
    banned: int | None,
    penalised: int | None,
    penalty: float,
) -> tuple[Tensor, Tensor]:
    """As `best_native` of the logits `F.linear(features, table)`; features fp32 or bf16 on a CPU."""
    parts = 1 if before is None else before.shape[1]
    groups, words = len(features) // parts, len(table)
    before = None if before is None else before.float().contiguous()
    rows = table.operand(features)
    at_once = max(1, ROWS // parts)
    threads = torch.get_num_threads()
    shared = groups < 8 * at_once * threads
    room = torch.empty(groups if shared else threads * at_once, parts * words, dtype=torch.float32)
    values, places = torch.empty(groups, k, dtype=torch.float32), torch.empty(groups, k, dtype=torch.int64)
    run = kernel(f"{KINDS[rows.values.dtype]}_best", torch.float32)
    run(
        *arguments(rows, table.packed(), table.scales, None, outputs=words),
        *(room, shared, at_once, before, parts, k, normalize),
        *(-1 if word is None else word for word in (banned, penalised)),
        *(penalty, values, places),
    )
    return values, places
