"""The plain recurrent unit, for comparison with the gated units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt import ops
from nmt.cells.base import HiddenState, RecurrentCell, RecurrentInit
from nmt.ops.rnn import Activation
from nmt.ops.unit import flat
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class RNNOptions:
    """Options of the plain unit."""

    activation: Activation = "tanh"
    """The function applied to the sum."""
    recurrent_init: RecurrentInit = "uniform"
    """Initial values of the recurrent matrix; `uniform`: as for all other weights, see `model.initializer`."""


@CELLS.register("rnn")
class RNN(RecurrentCell[HiddenState]):
    """Plain recurrent unit without gates (Elman 1990), for comparison with the others.

        h = tanh(x + U h' + b)

    x [H] is the product of the input, h' the previous state. U, b: `recurrent_weight` [H, H], `recurrent_bias` [H].
    Input products (H): x.
    """

    Options = RNNOptions
    options: RNNOptions
    input_parts: ClassVar[tuple[int, ...]] = (1,)
    recurrent_parts: ClassVar[tuple[int, ...]] = (1,)

    def unit(self) -> ops.RNN:
        return ops.RNN(weights=flat(self.recurrent), normalized=self.layer_norm, activation=self.options.activation)
