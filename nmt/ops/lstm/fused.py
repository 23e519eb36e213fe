"""The LSTM layer of PyTorch, on a GPU that of cuDNN, which multiplies its input itself: for LSTM without layer norm.

Its gates stand in another order (i, f, g, o), its bias is the sum of two, and it knows no mask: steps of a sequence
that keep their state are moved behind all others, where a column of the input that is 1 only there shuts the input
gate and opens the forget gate. So c stays to the last bit, h is read where the last real step left it, and nobody has
to wait for the GPU to know lengths. Unlike in the other implementations the state is in the type of the products.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import use_verified
from nmt.ops.lstm import LSTM
from nmt.ops.recurrence import Recurrent, State, at_least_fp32, product_type

SHUT: Final = 1e4
"""Added to a gate it makes it exactly 0 or 1, in any type."""
COLUMNS: Final = 8
"""Columns added to the input for one: matrix units want widths that are multiples of 8."""


BF16_CUDNN: Final = 91300
"""The oldest cuDNN whose recurrent layers take bf16. With an older one, and before PyTorch 2.10, the same call runs
PyTorch's own loop over time, without a word and slower than ours."""


def lstm_layer(
    unit: LSTM, x: Tensor, input_weight: Tensor, state: State | None, mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, State] | None:
    """`nmt.ops.sequence.sequence` of the products of x [B, T, D] with input_weight [4H, D], by cuDNN where that is
    verified; None elsewhere. Outputs are in the type of the products."""
    if not unit.usual or unit.normalized or not use_verified("lstm_layer", x) or not can_run(x, unit.recurrents[0]):
        return None
    return lstm_layer_fused(x, input_weight, unit.recurrents[0], state, mask, reverse=reverse)


def can_run(x: Tensor, recurrent: Recurrent) -> bool:
    """Whether cuDNN computes what `lstm_layer` promises: not if it rounded fp32 to TF32."""
    if recurrent.scale is not None or x.numel() == 0:
        return False
    dtype = product_type(recurrent.weight)
    return cudnn_takes(dtype, device=x.device) and (dtype != torch.float32 or not torch.backends.cudnn.allow_tf32)


def cudnn_takes(dtype: torch.dtype, *, device: torch.device) -> bool:
    """Whether PyTorch has cuDNN run recurrent layers of this type on `device`.

    Asked of the type of the products: that of the input, which is converted, says nothing.
    """
    if device.type != "cuda" or not torch.cudnn_is_acceptable(torch.empty(1, dtype=dtype, device=device)):
        return False
    if dtype != torch.bfloat16:
        return True
    return (torch.backends.cudnn.version() or 0) >= BF16_CUDNN and torch.cuda.get_device_capability(device) >= (8, 0)


def lstm_layer_fused(
    x: Tensor,
    input_weight: Tensor,
    recurrent: Recurrent,
    state: State | None,
    mask: Tensor | None,
    *,
    reverse: bool,
) -> tuple[Tensor, State]:
    """See `lstm_layer`; T > 0, no layer norm, no peepholes."""
    dtype = product_type(recurrent.weight)
    zeros = x.new_zeros(len(x), recurrent.weight.size(1), dtype=dtype)
    first = [(zeros if part is None else part.to(dtype).contiguous()).unsqueeze(0) for part in state or (None, None)]
    if reverse:
        x, mask = x.flip(1), None if mask is None else mask.flip(1)
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(dtype)
        if mask is None:
            outputs, last, c_last = _run(x, first, _weights(input_weight, recurrent, dtype))
            h_last = last[0]
        else:
            live = mask.bool()
            behind = torch.sort((~live).to(torch.uint8), dim=1, stable=True).indices  # [B, T]
            marked = torch.cat([x.masked_fill(~live[..., None], 0), _marks(live, dtype)], -1)
            states, _, c_last = _run(_taken(marked, behind), first, _weights(_shutting(input_weight), recurrent, dtype))
            outputs = _taken(torch.cat([first[0].transpose(0, 1), states], 1), live.cumsum(1))
            h_last = outputs[:, -1]
    return outputs.flip(1) if reverse else outputs, (at_least_fp32(h_last), at_least_fp32(c_last[0]))


def _run(x: Tensor, first: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """One layer in one direction; cuDNN keeps what a gradient needs only in training."""
    result: tuple[Tensor, Tensor, Tensor] = torch._VF.lstm(
        x, first, weights, True, 1, 0.0, torch.is_grad_enabled(), False, True
    )
    return result


def _weights(input_weight: Tensor, recurrent: Recurrent, dtype: torch.dtype) -> list[Tensor]:
    """Input and recurrent matrix and the two biases, the gates as PyTorch has them; in one piece, as cuDNN wants."""
    parts = []
    for ours in (input_weight, recurrent.weight, recurrent.bias):
        i, f, o, g = ours.to(dtype).chunk(4)
        parts += [i, f, g, o]
    bias = torch.zeros_like(recurrent.bias, dtype=dtype)
    flat = torch.cat([*(part.flatten() for part in parts), bias])
    shapes = [input_weight.shape, recurrent.weight.shape, bias.shape, bias.shape]
    pieces = flat.split([shape.numel() for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _shutting(input_weight: Tensor) -> Tensor:
    """The input matrix [4H, D] with columns for the marks."""
    columns = input_weight.new_zeros(len(input_weight), COLUMNS)
    i, f, _, _ = columns[:, 0].chunk(4)
    i.fill_(-SHUT)
    f.fill_(SHUT)
    return torch.cat([input_weight, columns], 1)


def _marks(live: Tensor, dtype: torch.dtype) -> Tensor:
    """Of the steps that keep their state, as columns [B, T, COLUMNS] of which the first says it."""
    return F.pad((~live).to(dtype).unsqueeze(-1), (0, COLUMNS - 1))


def _taken(x: Tensor, places: Tensor) -> Tensor:
    """x [B, N, W] at places [B, T] of its second axis."""
    return x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.size(-1)))
