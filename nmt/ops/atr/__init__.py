"""The ATR recurrence over a sequence (Zhang et al., EMNLP 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from nmt.ops.atr.reference import Activation, Gates, atr_cell, atr_reference
from nmt.ops.dispatch import choose
from nmt.ops.new_unit import Unit, register
from nmt.ops.recurrence import Recurrent

__all__ = ["ATR", "Activation", "Gates", "atr_cell", "atr_sequence"]


@register("atr")
@dataclass(frozen=True, kw_only=True)
class ATR(Unit):
    """Weights: U, b and, with layer norm, scale and offset."""

    inputs: ClassVar[int] = 1
    matrices: ClassVar[int] = 1
    native: ClassVar[str | None] = "nmt.ops.atr.native:ATRKernel"
    triton: ClassVar[str | None] = "nmt.ops.atr.steps:ATRKernel"

    activation: Activation = "none"
    gates: Gates = "twin"


def atr_sequence(
    projected: Tensor,
    recurrent: Recurrent,
    h: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool = False,
    activation: Activation = "none",
    gates: Gates = "twin",
) -> tuple[Tensor, Tensor]:
    """q = U h' + b, i = sigmoid(p + q), f = sigmoid(p - q), h = i * p + f * h', for each time step.

    projected [B, T, H] is p; recurrent weight [H, H]; h [B, H] or None for zeros; mask [B, T] or None,
    rows keep their state where it is 0; `reverse` runs from the last time step to the first.
    `activation` puts a tanh on the `output` only (h is carried without it), on the new `state`, or on
    the `candidate` p that i gates; `gates="coupled"` has i = 1 - f, `coupled_input` f = 1 - i.
    Returns all outputs [B, T, H] in input order and the last state computed [B, H], in at least fp32
    (kernels: outputs in the type of `projected`, the state in fp32).
    """
    run = choose("atr", atr_reference, like=projected)
    return run(projected, recurrent, h, mask, reverse=reverse, activation=activation, gates=gates)
