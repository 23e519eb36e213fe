"""ATR, the addition-subtraction twin-gated recurrent unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt import ops
from nmt.cells.base import HiddenState, RecurrentCell, RecurrentInit
from nmt.ops.atr import Activation, Gates
from nmt.ops.unit import flat
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class ATROptions:
    """Options of ATR."""

    activation: Activation = "none"
    """Where a tanh is applied: `output` (the output is tanh(h), the carried state h), `state`
    (h = tanh(i * p + f * h')) or `candidate` (h = i * tanh(p) + f * h')."""
    gates: Gates = "twin"
    """`twin`: i = sigmoid(p + q), f = sigmoid(p - q); `coupled`: the same f, and i = 1 - f, as in the authors' code;
    `coupled_input`: the same i, and f = 1 - i."""
    recurrent_init: RecurrentInit = "uniform"
    """Initial values of the recurrent matrix; `uniform`: as for all other weights, see `model.initializer`."""


@CELLS.register("atr")
class ATR(RecurrentCell[HiddenState]):
    """Addition-subtraction twin-gated recurrent network (Zhang et al., EMNLP 2018).

        q = U h' + b
        i = sigmoid(p + q)
        f = sigmoid(p - q)
        h = i * p + f * h'

    p [H] is the product of the input, h' the previous state. U, b: `recurrent_weight` [H, H],
    `recurrent_bias` [H]. Input products (H): p.
    """

    Options = ATROptions
    options: ATROptions
    input_parts: ClassVar[tuple[int, ...]] = (1,)
    recurrent_parts: ClassVar[tuple[int, ...]] = (1,)

    def unit(self) -> ops.ATR:
        activation, gates = self.options.activation, self.options.gates
        return ops.ATR(weights=flat(self.recurrent), normalized=self.layer_norm, activation=activation, gates=gates)
