"""The LSTM recurrence over a sequence (Hochreiter and Schmidhuber 1997, with forget gate)."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.dispatch import choose, no_kernel, use_verified
from nmt.ops.lstm.fused import can_run, lstm_layer_fused
from nmt.ops.lstm.reference import USUAL, Design, OutputActivation, Peepholes, lstm_cell, lstm_reference
from nmt.ops.matrices.training import linear
from nmt.ops.recurrence import Recurrent

__all__ = ["Design", "OutputActivation", "Peepholes", "lstm_cell", "lstm_layer", "lstm_sequence"]


def lstm_sequence(
    projected: Tensor,
    recurrent: Recurrent,
    h: Tensor | None,
    c: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool = False,
    design: Design = USUAL,
) -> tuple[Tensor, Tensor, Tensor]:
    """i, f, o = sigmoid(x_ifo + U h' + b), g = tanh(x_g + V h' + d), c = i * g + f * c', h = o * tanh(c).

    projected [B, T, 4H] holds x_i, x_f, x_o, x_g; recurrent weight [4H, H] is U (3H rows) above V (H
    rows), which layer norm normalises apart; h, c [B, H] or None for zeros; mask [B, T] or None, rows
    keep their state where it is 0; `reverse` runs from the last time step to the first. A `design` may add peepholes,
    w * c' to what i and f, and w * c to what o is the sigmoid of, and have h = o * c.
    Returns all h [B, T, H] in input order and the last h and c computed [B, H], in at least fp32.
    """
    if not design.is_usual:
        no_kernel("lstm with peepholes or the identity as output activation", like=projected)
        return lstm_reference(projected, recurrent, h, c, mask, reverse=reverse, design=design)
    run = choose("lstm", lstm_reference, like=projected)
    return run(projected, recurrent, h, c, mask, reverse=reverse)


def lstm_layer(
    x: Tensor,
    input_weight: Tensor,
    recurrent: Recurrent,
    h: Tensor | None,
    c: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """`lstm_sequence` of the products of x [B, T, D] with input_weight [4H, D], by cuDNN where that is verified."""
    if use_verified("lstm_layer", x) and can_run(x, recurrent):
        return lstm_layer_fused(x, input_weight, recurrent, h, c, mask, reverse=reverse)
    return lstm_sequence(linear(x, input_weight), recurrent, h, c, mask, reverse=reverse)
