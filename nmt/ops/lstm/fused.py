"""The LSTM layer of PyTorch; on a GPU it is cuDNN's persistent form, which keeps the weights on the chip.

It also computes the input products. Without the persistent form, cuDNN launches kernels for each step like the loop of
this toolkit, and is not used. PyTorch requests the persistent form only in fp16, for few sentences, in multiples of 8,
and for widths that are multiples of 128; therefore sentences and inputs are padded with zeros.

Its gates have another order (i, f, g, o), its bias is the sum of two, and it does not support masks: steps of a
sequence that keep their state are moved behind all others. A column of the input that is 1 only at these steps closes
the input gate and opens the forget gate. So c stays the same to the last bit, h is read at the last real step, and the
host does not have to wait for the GPU to know lengths. Unlike in the other implementations, the state is in the type of
the products.
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
"""Added to the input of a gate (or subtracted), it makes the gate exactly 1 (or 0), in any type."""
STEP_OF_WIDTHS: Final = 128
STEP_OF_SENTENCES: Final = 8
MOST_SENTENCES: Final = 128
MOST_CHANNELS: Final = 1024
LEAST_PROCESSORS: Final = 98
"""PyTorch requires this many for cuDNN's persistent form (aten/src/ATen/native/cudnn/RNN.cpp, 2.6 to 2.13)."""


def lstm_layer(
    unit: LSTM, x: Tensor, input_weight: Tensor, state: State | None, mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, State] | None:
    """`nmt.ops.sequence.sequence` of the products of x [B, T, D] with input_weight [4H, D], computed by cuDNN if its
    check passes; else None. Outputs have the type of the products."""
    if not unit.usual or unit.normalized or not use_verified("lstm_layer", x) or not can_run(x, unit.recurrents[0]):
        return None
    return lstm_layer_fused(x, input_weight, unit.recurrents[0], state, mask, reverse=reverse)


def can_run(x: Tensor, recurrent: Recurrent) -> bool:
    """Whether PyTorch computes `lstm_layer` with cuDNN's persistent form."""
    hidden = recurrent.weight.size(1)
    if recurrent.scale is not None or x.numel() == 0 or product_type(recurrent.weight) != torch.float16:
        return False
    if hidden % STEP_OF_WIDTHS or hidden > MOST_CHANNELS or len(x) > MOST_SENTENCES or x.device.type != "cuda":
        return False
    gpu = torch.cuda.get_device_properties(x.device)
    suits = gpu.major >= 8 and gpu.minor != 6 and gpu.multi_processor_count >= LEAST_PROCESSORS
    return suits and torch.cudnn_is_acceptable(torch.empty(1, dtype=torch.float16, device=x.device))


def lstm_layer_fused(
    x: Tensor, input_weight: Tensor, recurrent: Recurrent, state: State | None, mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, State]:
    """See `lstm_layer`; T > 0, no layer norm, no peepholes."""
    dtype, sentences, hidden = product_type(recurrent.weight), len(x), recurrent.weight.size(1)
    more = -sentences % STEP_OF_SENTENCES
    x, mask = F.pad(x, (0, 0, 0, 0, 0, more)), None if mask is None else F.pad(mask, (0, 0, 0, more))
    zeros = x.new_zeros(len(x), hidden, dtype=dtype)
    first = [
        (zeros if part is None else F.pad(part.to(dtype), (0, 0, 0, more)).contiguous()).unsqueeze(0)
        for part in state or (None, None)
    ]
    if reverse:
        x, mask = x.flip(1), None if mask is None else mask.flip(1)
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(dtype)
        if mask is None:
            columns = -x.size(-1) % STEP_OF_WIDTHS
            outputs, h_last, c_last = _run(F.pad(x, (0, columns)), first, F.pad(input_weight, (0, columns)), recurrent)
            h_last = h_last[0]
        else:
            live, columns = mask.bool(), 1 + (-x.size(-1) - 1) % STEP_OF_WIDTHS
            behind = torch.sort((~live).to(torch.uint8), dim=1, stable=True).indices  # [B, T]
            # The first of the added columns is 1 at the steps that keep their state.
            marks = F.pad((~live).to(dtype).unsqueeze(-1), (0, columns - 1))
            marked = torch.cat([x.masked_fill(~live[..., None], 0), marks], -1)
            shut = input_weight.new_zeros(len(input_weight), columns)
            shut[:hidden, 0], shut[hidden : 2 * hidden, 0] = -SHUT, SHUT
            shutting = torch.cat([input_weight, shut], 1)
            states, _, c_last = _run(_taken(marked, behind), first, shutting, recurrent)
            outputs = _taken(torch.cat([first[0].transpose(0, 1), states], 1), live.cumsum(1))
            h_last = outputs[:, -1]
    outputs = (outputs.flip(1) if reverse else outputs)[:sentences]
    return outputs, (at_least_fp32(h_last[:sentences]), at_least_fp32(c_last[0, :sentences]))


def _run(x: Tensor, first: list[Tensor], input_weight: Tensor, recurrent: Recurrent) -> tuple[Tensor, Tensor, Tensor]:
    """One layer in one direction; cuDNN keeps the values for a gradient only in training.

    The matrices and the two biases get PyTorch's order of gates, and are contiguous, as cuDNN requires.
    """
    parts = []
    for ours in (input_weight, recurrent.weight, recurrent.bias):
        i, f, o, g = ours.to(x.dtype).chunk(4)
        parts += [i, f, g, o]
    bias = torch.zeros_like(recurrent.bias, dtype=x.dtype)
    flat = torch.cat([*(part.flatten() for part in parts), bias])
    shapes = [input_weight.shape, recurrent.weight.shape, bias.shape, bias.shape]
    pieces = flat.split([shape.numel() for shape in shapes])
    weights = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
    result: tuple[Tensor, Tensor, Tensor] = torch._VF.lstm(
        x, first, weights, True, 1, 0.0, torch.is_grad_enabled(), False, True
    )
    return result


def _taken(x: Tensor, places: Tensor) -> Tensor:
    """x [B, N, W] at places [B, T] of its second axis."""
    return x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.size(-1)))
