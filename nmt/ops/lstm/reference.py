"""LSTM in plain PyTorch: the equation and the loop over time."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.recurrence import Recurrent, at_least_fp32, initial, recurrent_product, scan, steps


def lstm_cell(x: Tensor, h: Tensor, c: Tensor, *, recurrent: Recurrent) -> tuple[Tensor, Tensor]:
    """One time step, (h, c), from x [N, 4H], h and c [N, H]."""
    hidden = h.size(-1)
    i, f, o, g = (x + recurrent_product(h, recurrent, widths=(3 * hidden, hidden))).chunk(4, -1)
    new = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
    return torch.sigmoid(o) * torch.tanh(new), new


def lstm_reference(
    projected: Tensor, recurrent: Recurrent, h: Tensor | None, c: Tensor | None, mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `nmt.ops.lstm.lstm_sequence`."""
    hidden = projected.size(-1) // 4
    state = (initial(h, projected, hidden=hidden), initial(c, projected, hidden=hidden))
    inputs = steps(at_least_fp32(projected), parts=1)
    outputs, (h, c) = scan(lambda x, s: lstm_cell(*x, *s, recurrent=recurrent), inputs, state, mask, reverse=reverse)
    return outputs, h, c
