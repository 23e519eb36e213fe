"""The units as layers: what each has besides its cell, whose equations and options its help and signature show."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmt import cells
from nmt.layers.base import RecurrentLayers


class ATR(RecurrentLayers[Tensor]):
    """With the activation `output` the last state, h, differs from the last output, tanh(h)."""

    cell = cells.ATR


class GRU(RecurrentLayers[Tensor]):
    """With `reset="after"` its equations are those of `torch.nn.GRU`. No kernel supports this."""

    cell = cells.GRU

    @classmethod
    def from_torch(cls, other: nn.GRU) -> GRU:
        """A GRU with `reset="after"` that computes the same as `other`, with copies of its weights.

        Raises ValueError if b_in of `other`, the bias of the input product in g, is not 0: this GRU has no such bias.
        """
        same = cls(**_sizes(other), reset="after")
        for cell, parts in zip(same._cells(), _all_parts(other, gates=3), strict=True):
            (r, z, g), (u_r, u_z, v) = parts.input, parts.recurrent
            (b_ir, b_iz, b_in), (b_hr, b_hz, d) = parts.input_bias, parts.recurrent_bias
            if bool(b_in.any()):
                raise ValueError(
                    "GRU: from_torch: bias b_in is not 0 in this nn.GRU; the products of the input have no bias here"
                )
            _set(
                cell,
                input_weight=(z, r, g),
                recurrent_weight=(u_z, u_r),
                recurrent_bias=(b_iz + b_hz, b_ir + b_hr),
                candidate_weight=(v,),
                candidate_bias=(d,),
            )
        return same


class LRN(RecurrentLayers[Tensor]):
    """No bias and no product of the state: the products of the input are computed at once for the whole sequence."""

    cell = cells.LRN


class LSTM(RecurrentLayers[tuple[Tensor, Tensor]]):
    """The equations of `torch.nn.LSTM`, whose two biases are one here; see `from_torch`. States are pairs (h, c).

    No kernel supports `peepholes`, nor `output_activation="identity"`.
    """

    cell = cells.LSTM

    @classmethod
    def from_torch(cls, other: nn.LSTM) -> LSTM:
        """An LSTM that computes the same as `other`, with copies of its weights.

        Raises ValueError if `other` has projections (proj_size), which this LSTM does not support.
        """
        if other.proj_size:
            raise ValueError(
                f"LSTM: from_torch: proj_size is {other.proj_size} in this nn.LSTM; there are no projections here"
            )
        same = cls(**_sizes(other))
        for cell, parts in zip(same._cells(), _all_parts(other, gates=4), strict=True):
            biases = tuple(a + b for a, b in zip(parts.input_bias, parts.recurrent_bias, strict=True))
            gates = {"input_weight": parts.input, "recurrent_weight": parts.recurrent, "recurrent_bias": biases}
            _set(cell, **{name: (i, f, o, g) for name, (i, f, g, o) in gates.items()})  # torch has i, f, g, o
        return same


class MinGRU(RecurrentLayers[Tensor]):
    """No product of the state: the products of the input are computed at once for the whole sequence."""

    cell = cells.MinGRU


class MinLSTM(RecurrentLayers[Tensor]):
    """No product of the state, which is one tensor, h: the products of the input are computed at once."""

    cell = cells.MinLSTM


class OLRN(RecurrentLayers[Tensor]):
    """No product of the state: the products of the input are computed at once for the whole sequence."""

    cell = cells.OLRN


class SRU(RecurrentLayers[tuple[Tensor, Tensor]]):
    """States are pairs (h, c), as for an LSTM; of the initial states only c is read."""

    cell = cells.SRU


class SSRU(RecurrentLayers[tuple[Tensor, Tensor]]):
    """States are pairs (h, c), as for an LSTM; of the initial states only c is read."""

    cell = cells.SSRU


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


def _sizes(other: nn.RNNBase) -> dict[str, Any]:
    """The arguments with which layers here have the sizes, device and type of `other`."""
    names = ("input_size", "hidden_size", "num_layers", "batch_first", "dropout", "bidirectional")
    weight = next(other.parameters())
    return {**{name: getattr(other, name) for name in names}, "device": weight.device, "dtype": weight.dtype}


@torch.no_grad()
def _set(cell: nn.Module, **parts: tuple[Tensor, ...]) -> None:
    """Copy parts, one above the other, into the parameters of these names."""
    for name, tensors in parts.items():
        cell.get_parameter(name).copy_(torch.cat(tensors))
