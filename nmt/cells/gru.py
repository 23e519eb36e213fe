"""GRU, the gated recurrent unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nmt import ops
from nmt.cells.base import HiddenState, RecurrentCell, RecurrentInit
from nmt.ops.gru import Reset
from nmt.ops.recurrence import Recurrent
from nmt.ops.unit import flat
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class GRUOptions:
    """Options of GRU."""

    recurrent_init: RecurrentInit = "uniform"
    """Initial values of the recurrent matrices; `uniform`: as for all other weights, see `model.initializer`."""
    reset: Reset = "before"
    """Where the reset gate acts: `before` the product, g = tanh(x_h + V (r * h') + d), or, as in cuDNN, `after` it,
    g = tanh(x_h + r * (V h' + d))."""


@CELLS.register("gru")
class GRU(RecurrentCell[HiddenState]):
    """Gated recurrent unit (Cho et al., EMNLP 2014), in which z keeps the old state.

        z = sigmoid(x_z + U_z h' + b_z)
        r = sigmoid(x_r + U_r h' + b_r)
        g = tanh(x_h + V (r * h') + d)
        h = z * h' + (1 - z) * g

    With `reset: after` g = tanh(x_h + r * (V h' + d)), as in cuDNN and in `torch.nn.GRU`, whose b_in is 0 here.
    The x [H] are products of the input, h' the previous state. U, b: `recurrent_weight` [2H, H] (z, r),
    `recurrent_bias`; V, d: `candidate_weight` [H, H], `candidate_bias`; with layer norm
    `recurrent_scale`, `recurrent_offset`, `candidate_scale`, `candidate_offset`.
    Input products (3H; layer norm over the first 2H and the last H): x_z, x_r, x_h.
    """

    Options = GRUOptions
    options: GRUOptions
    input_parts: ClassVar[tuple[int, ...]] = (2, 1)
    recurrent_parts: ClassVar[tuple[int, ...]] = (2,)

    @property
    def candidate(self) -> Recurrent:
        """The parameters of the candidate's recurrent product, in the form that a `Unit` takes."""
        weight = self.dropped_weight(self.candidate_weight, number=2)
        return Recurrent(weight, self.candidate_bias, self.candidate_scale, self.candidate_offset)

    def _make_recurrent(self) -> None:
        super()._make_recurrent()
        # A separate parameter, because autocast caches the converted copy of a parameter, but not of a slice.
        self.candidate_weight = nn.Parameter(torch.empty(self.hidden_size, self.hidden_size))
        self.candidate_bias = nn.Parameter(torch.empty(self.hidden_size))
        self.candidate_scale = self._normalised(self.hidden_size)
        self.candidate_offset = self._normalised(self.hidden_size)

    def recurrent_matrices(self) -> list[Tensor]:
        return [self.recurrent_weight, self.candidate_weight]

    def unit(self) -> ops.GRU:
        weights = flat(self.recurrent, self.candidate)
        return ops.GRU(weights=weights, normalized=self.layer_norm, reset=self.options.reset)
