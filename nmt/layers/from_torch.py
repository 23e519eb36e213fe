"""Weights of `torch.nn.GRU` and `torch.nn.LSTM` in the layout of the units here."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class _Parts(NamedTuple):
    """The parameters of one direction of a layer, split by gates."""

    input: tuple[Tensor, ...]
    """[H, D] each"""
    recurrent: tuple[Tensor, ...]
    """[H, H] each"""
    input_bias: tuple[Tensor, ...]
    """[H] each, biases of the input products"""
    recurrent_bias: tuple[Tensor, ...]
    """[H] each, biases of the recurrent products"""


@torch.no_grad()
def gru_from_torch(layers: nn.Module, other: nn.GRU) -> None:
    """Give `layers`, `nmt.layers.GRU` of the same sizes, the weights of `other`; see `GRU.from_torch`."""
    for cell, parts in zip(layers.cells, _all_parts(other, gates=3), strict=True):  # type: ignore[arg-type]
        (r, z, g), (u_r, u_z, v) = parts.input, parts.recurrent
        (b_ir, b_iz, b_in), (b_hr, b_hz, d) = parts.input_bias, parts.recurrent_bias
        if bool(b_in.any()):
            raise ValueError(
                "GRU: from_torch: bias b_in is not 0 in this nn.GRU; the products of the input have no bias here"
            )
        cell.input_weight.copy_(torch.cat([z, r, g]))
        cell.recurrent_weight.copy_(torch.cat([u_z, u_r]))
        cell.recurrent_bias.copy_(torch.cat([b_iz + b_hz, b_ir + b_hr]))
        cell.candidate_weight.copy_(v)
        cell.candidate_bias.copy_(d)


@torch.no_grad()
def lstm_from_torch(layers: nn.Module, other: nn.LSTM) -> None:
    """Give `layers`, `nmt.layers.LSTM` of the same sizes, the weights of `other`; see `LSTM.from_torch`."""
    if other.proj_size:
        raise ValueError(
            f"LSTM: from_torch: proj_size is {other.proj_size} in this nn.LSTM; there are no projections here"
        )
    for cell, parts in zip(layers.cells, _all_parts(other, gates=4), strict=True):  # type: ignore[arg-type]
        sums = [a + b for a, b in zip(parts.input_bias, parts.recurrent_bias, strict=True)]
        cell.input_weight.copy_(_output_gate_third(parts.input))
        cell.recurrent_weight.copy_(_output_gate_third(parts.recurrent))
        cell.recurrent_bias.copy_(_output_gate_third(sums))


def _output_gate_third(gates: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """Reorder the gates from PyTorch's i, f, g, o to i, f, o, g."""
    i, f, g, o = gates
    return torch.cat([i, f, o, g])


def _all_parts(other: nn.RNNBase, *, gates: int) -> list[_Parts]:
    """The parameters of each layer and direction, in the order of the states."""
    names = [
        f"_l{layer}{end}" for layer in range(other.num_layers) for end in ("", "_reverse")[: 1 + other.bidirectional]
    ]
    zeros = next(other.parameters()).new_zeros(gates * other.hidden_size)
    found = []
    for name in names:
        biases = [getattr(other, f"bias_{kind}{name}") if other.bias else zeros for kind in ("ih", "hh")]
        tensors = [getattr(other, f"weight_ih{name}"), getattr(other, f"weight_hh{name}"), *biases]
        found.append(_Parts(*(tensor.chunk(gates) for tensor in tensors)))
    return found
