"""A recurrent unit in one class; the configuration names this file under `plugins`."""

import torch
from torch import nn

from nmt.cells import Cell, HiddenState
from nmt.registry import CELLS


@CELLS.register("leaky")
class Leaky(Cell):
    """f = sigmoid(x_f + U_f h');  h = f * h' + (1 - f) * tanh(x_g + U_g h')"""

    def __init__(self, input_size, hidden_size, *, layer_norm=False, options=None):
        super().__init__(input_size, hidden_size, layer_norm=layer_norm, options=options)
        self.input = nn.Linear(input_size, 2 * hidden_size)
        self.recurrent = nn.Linear(hidden_size, 2 * hidden_size, bias=False)

    def project(self, x):  # all input products of a sequence at once, [B, T, D] -> [B, T, 2H]
        return self.input(x)

    def step(self, projected, state):  # one time step, [B, 2H] and h' -> h
        f, g = (projected + self.recurrent(state.h)).chunk(2, -1)
        f = torch.sigmoid(f)
        return HiddenState(f * state.h + (1 - f) * torch.tanh(g))
