"""When finished sentences leave the batch: only at a few batch sizes, which pay for the copying."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.sizes import next_size


def rows_to_keep(active: Tensor) -> Tensor | None:
    """The sentences of a batch to keep, ascending, from `active` [B]; None to keep the batch unchanged.

    The batch shrinks to the sizes 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on, filled up with finished
    sentences: cutting copies all states and memories, and at each new number of rows the matrix library prepares each
    of its products anew, which can take longer than the product.
    """
    left = int(active.sum())
    size = next_size(left, an_octave=4)
    if size >= len(active):
        return None
    return torch.sort(active.to(torch.uint8), descending=True, stable=True).indices[:size].sort().values
