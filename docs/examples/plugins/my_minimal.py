"""A cell (plugins.md)."""

from dataclasses import dataclass

import torch
from torch import nn

from nmt.cells import Cell, HiddenState
from nmt.registry import CELLS


@CELLS.register("minimal")
class Minimal(Cell):
    """f = sigmoid(x_f + U_f h' + b);  h = (1 - f) * h' + f * tanh(x_h + U_h (f * h')) (Zhou et al., 2016)"""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        forget: float = 1.0
        """b, which the gate starts with."""

    def __init__(self, input_size, hidden_size, *, layer_norm=False, options=None):
        super().__init__(input_size, hidden_size, layer_norm=layer_norm, options=options)
        self.input = nn.Linear(input_size, 2 * hidden_size)
        self.gate = nn.Linear(hidden_size, hidden_size, bias=False)
        self.candidate = nn.Linear(hidden_size, hidden_size, bias=False)

    def project(self, x):  # [B, T, D] -> [B, T, 2H]
        return self.input(x)

    def step(self, projected, state):  # [N, 2H] and h' -> h
        return self.dropped_step(projected, state, torch.ones_like(state.h))

    def dropped_step(self, projected, state, keep):  # gates see h' * keep, for model.recurrent_dropout
        x_f, x_h = projected.chunk(2, -1)
        seen = state.h * keep
        f = torch.sigmoid(x_f + self.gate(seen) + self.options.forget)
        new = torch.tanh(x_h + self.candidate(f * seen))
        return HiddenState((1 - f) * state.h + f * new)
