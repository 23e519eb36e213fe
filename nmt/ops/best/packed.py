"""The best words by the product with a packed int8 matrix: one C kernel, in which no logit leaves the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.int8 import Int8Matrix
from nmt.ops.int8.native import ROWS, quantized
from nmt.ops.native import kernel


def best_packed(
    features: Tensor,
    *,
    table: Int8Matrix,
    k: int,
    before: Tensor | None,
    normalize: bool,
    banned: int | None,
    penalised: int | None,
    penalty: float,
) -> tuple[Tensor, Tensor]:
    """As `best_native` of the logits `F.linear(features, table)`; features fp32 or bf16 on a CPU."""
    parts = 1 if before is None else before.shape[1]
    groups, words, packed = len(features) // parts, len(table), table.packed()
    before = None if before is None else before.float().contiguous()
    rows = quantized(features, packed.shape[1] * 4)
    together = max(1, ROWS // parts)
    threads = torch.get_num_threads()
    shared = groups < 8 * together * threads
    room = torch.empty(groups if shared else threads * together, parts * words, dtype=torch.float32)
    values, places = torch.empty(groups, k, dtype=torch.float32), torch.empty(groups, k, dtype=torch.int64)
    run = kernel("int8_best", "pppp pp ii p iiiii iii f pp", torch.float32)
    run(
        *(rows.values, rows.excess, rows.scales, packed, table.scales.contiguous(), room, shared, together),
        *(before, groups, parts, words, rows.values.shape[1], k, normalize),
        *(-1 if word is None else word for word in (banned, penalised)),
        *(penalty, values, places),
    )
    return values, places
