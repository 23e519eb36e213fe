"""The sentences whose logits are computed at a time."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from nmt.search.protocol import S, SearchModel

CACHED_LOGITS = 1 << 17
"""Logits of a block on a CPU, 2 MiB in fp32: what is done with them one after the other finds them in the cache."""


def logits_by_block(
    model: SearchModel[S], features: Tensor, state: S, *, sentences: int
) -> Iterator[tuple[slice, Tensor]]:
    """Which sentences, and the logits of their rows [n, V], until all have been; `features` [N, E] has all rows."""
    rows = len(features) // sentences
    size = sentences if features.is_cuda else max(1, CACHED_LOGITS // (rows * model.target_vocab_size))
    for start in range(0, sentences, size):
        block = slice(start, min(start + size, sentences))
        yield block, model.logits(features[block.start * rows : block.stop * rows], state, block)
