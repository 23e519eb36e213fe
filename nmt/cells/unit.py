"""What the units have in common: how their weights are named, laid out, started and normalised."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from nmt.cells.base import Cell
from nmt.cells.state import CellState
from nmt.ops.layer_norm import layer_norm_parts
from nmt.ops.matrices.training import linear
from nmt.ops.recurrence import Recurrent
from nmt.ops.unit import Projection

S = TypeVar("S", bound=CellState)

RecurrentInit = Literal["uniform", "orthogonal"]
"""`uniform` means as all other weights, which once were always uniform."""


class Unit(Cell[S]):
    """A cell whose input products are one matrix without bias: `input_weight` [kH, D].

    With layer norm there are `input_scale` and `input_offset` [kH]; `input_parts` says which products
    are normalised together, as widths in H. The order of the products is that of Zero's variables, so
    that each of its variables is a block of rows.
    """

    input_parts: ClassVar[tuple[int, ...]]

    def __init__(
        self, input_size: int, hidden_size: int, *, layer_norm: bool = False, options: Any | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, layer_norm=layer_norm, options=options)
        width = sum(self.input_parts) * hidden_size
        self.input_weight = nn.Parameter(torch.empty(width, input_size))
        self.input_scale = self._normalised(width)
        self.input_offset = self._normalised(width)

    def _normalised(self, width: int) -> nn.Parameter | None:
        """A scale or offset, if there is layer norm."""
        return nn.Parameter(torch.empty(width)) if self.layer_norm else None

    def project(self, x: Tensor) -> Tensor:
        products = linear(x, self.input_weight)
        if self.input_scale is None or self.input_offset is None:
            return products
        widths = [part * self.hidden_size for part in self.input_parts]
        return layer_norm_parts(products, self.input_scale, self.input_offset, widths=widths)

    def step(self, projected: Tensor, state: S, keep: Tensor | None = None) -> S:
        """One time step of N rows; products and gates see the state before times `keep` [N, H], if there is one."""
        raise NotImplementedError

    def dropped_step(self, projected: Tensor, state: S, keep: Tensor) -> S:
        return self.step(projected, state, keep)

    def stacked_weights(self) -> dict[str, list[int]]:
        return {"input_weight": [part * self.hidden_size for part in self.input_parts]}

    def projection(self) -> Projection:
        widths = tuple(part * self.hidden_size for part in self.input_parts)
        return Projection(self.input_weight, None, self.input_scale, self.input_offset, widths)


class RecurrentUnit(Unit[S]):
    """A unit that also multiplies its state: `recurrent_weight` [jH, H] with `recurrent_bias` [jH].

    With layer norm also `recurrent_scale` and `recurrent_offset` [jH].
    """

    recurrent_parts: ClassVar[tuple[int, ...]]
    """Widths, in H, of the matrices that Zero has in place of the recurrent one; j is their sum."""

    def __init__(
        self, input_size: int, hidden_size: int, *, layer_norm: bool = False, options: Any | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, layer_norm=layer_norm, options=options)
        width = sum(self.recurrent_parts) * hidden_size
        self.recurrent_weight = nn.Parameter(torch.empty(width, hidden_size))
        self.recurrent_bias = nn.Parameter(torch.empty(width))
        self.recurrent_scale = self._normalised(width)
        self.recurrent_offset = self._normalised(width)

    def stacked_weights(self) -> dict[str, list[int]]:
        heights = [part * self.hidden_size for part in self.recurrent_parts]
        return {**super().stacked_weights(), "recurrent_weight": heights}

    @property
    def recurrent(self) -> Recurrent:
        """The recurrent parameters as nmt.ops takes them."""
        return Recurrent(self.recurrent_weight, self.recurrent_bias, self.recurrent_scale, self.recurrent_offset)


def orthogonal_blocks_(weight: Tensor) -> None:
    """Fill weight [jH, H] with j random orthogonal matrices (Saxe et al., ICLR 2014)."""
    with torch.no_grad():
        for block in torch.split(weight, weight.size(1)):
            nn.init.orthogonal_(block)


def seen_of(state: Tensor, keep: Tensor | None) -> Tensor:
    """What products and gates see of a state [N, H]."""
    return state if keep is None else state * keep
