"""When sentences that are done leave the batch: in few sizes, each of which is worth its cost."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.sizes import next_size


def rows_to_keep(active: Tensor) -> Tensor | None:
    """Which sentences of a batch are to go on, ascending, from `active` [B]; None if it is to stay as it is.

    The batch shrinks to the sizes 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on, filled up with sentences that
    are done: cutting copies all states and memories, and at each new number of rows the matrix library
    prepares each of its products anew, which can take longer than the product.
    """
    left = int(active.sum())
    size = next_size(left, an_octave=4)
    if size >= len(active):
        return None
    return torch.sort(active.to(torch.uint8), descending=True, stable=True).indices[:size].sort().values
