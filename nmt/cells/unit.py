"""Cells of a `nmt.ops.unit.Unit`: names, layout, initial values and normalisation of their weights."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from nmt.cells.base import Cell
from nmt.cells.initializers import INIT_RANGE
from nmt.cells.state import CellState
from nmt.ops.dropout import layer_dropout, of_parameters
from nmt.ops.matrices.training import linear
from nmt.ops.recurrence import Recurrent, at_least_fp32, layer_norm
from nmt.ops.sequence import sequence, step
from nmt.ops.unit import GateValues, Projection, Unit

S = TypeVar("S", bound=CellState)

_OF_WEIGHTS = 2**20
"""Added to the number of a layer for the masks of its weights, so that they differ from the masks of its states."""

RecurrentInit = Literal["uniform", "orthogonal"]
"""`uniform` means: as for all other weights, which in earlier versions were always uniform."""


class UnitCell(Cell[S]):
    """A cell whose steps are those of a `Unit`, and whose input products are one matrix: `input_weight` [kH, D].

    It has no bias; a unit that needs one adds it. With layer norm there are `input_scale` and `input_offset` [kH];
    `input_parts` says which products are normalised together, as widths in H. The products have the order of Zero's
    variables, so that each of Zero's variables is a block of rows.
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
        self._make_recurrent()
        self.reset_parameters()

    def _make_recurrent(self) -> None:
        """Make the parameters other than those of the input."""

    def _normalised(self, width: int) -> nn.Parameter | None:
        """A scale or offset with layer norm, else None."""
        return nn.Parameter(torch.empty(width)) if self.layer_norm else None

    def unit(self) -> Unit:
        raise NotImplementedError

    def project(self, x: Tensor) -> Tensor:
        products = linear(x, self.input_weight)
        if self.input_scale is None or self.input_offset is None:
            return products
        return layer_norm(products, self.input_scale, self.input_offset, widths=self._heights(self.input_parts))

    def _heights(self, parts: tuple[int, ...]) -> list[int]:
        return [part * self.hidden_size for part in parts]

    def step(self, projected: Tensor, state: S, keep: Tensor | None = None) -> S:
        """One time step of N rows; products and gates see the previous state, times `keep` [N, H] if given."""
        now = tuple(state)
        seen = now if keep is None else tuple(part * keep for part in now)
        return cast("S", self.State(*self.unit().equation(at_least_fp32(projected), now, seen)))

    def dropped_step(self, projected: Tensor, state: S, keep: Tensor) -> S:
        return self.step(projected, state, keep)

    def search_step(self, projected: Tensor, state: S) -> S:
        found = None if torch.is_grad_enabled() else step(self.unit(), projected, tuple(state))
        return self.step(projected, state) if found is None else cast("S", self.State(*found))

    def output(self, state: S) -> Tensor:
        return self.unit().output(state.h)

    def gate_values(self, projected: Tensor, state: S) -> GateValues:
        return self.unit().gate_values(at_least_fp32(projected), tuple(state))

    def sequence(
        self, projected: Tensor, state: S | None = None, mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, S]:
        before = None if state is None else tuple(state)
        outputs, last = sequence(self.unit(), projected, before, mask, reverse=reverse)
        return outputs, cast("S", self.State(*last))

    def stacked_weights(self) -> dict[str, list[int]]:
        return {"input_weight": self._heights(self.input_parts)}

    def projection(self) -> Projection:
        widths = tuple(self._heights(self.input_parts))
        return Projection(self.input_weight, None, self.input_scale, self.input_offset, widths)


class InputGatedCell(UnitCell[S]):
    """A cell whose gates depend on the input only, with biases [H] for some of its products, added after layer norm.

    It has no recurrent dropout, which would hide a part of the state from gates and products.
    """

    without_dropout: ClassVar[str] = "its gates do not look at the state"
    dropped_step = Cell.dropped_step

    def _bias(self) -> nn.Parameter:
        return nn.Parameter(torch.empty(self.hidden_size))


class RecurrentCell(UnitCell[S]):
    """A cell that also multiplies its state: `recurrent_weight` [jH, H] with `recurrent_bias` [jH].

    With layer norm also `recurrent_scale` and `recurrent_offset` [jH].
    """

    recurrent_weights: ClassVar[bool] = True
    recurrent_parts: ClassVar[tuple[int, ...]]
    """Widths, in H, of the matrices into which Zero splits the recurrent matrix; j is their sum."""

    def _make_recurrent(self) -> None:
        width = sum(self.recurrent_parts) * self.hidden_size
        self.recurrent_weight = nn.Parameter(torch.empty(width, self.hidden_size))
        self.recurrent_bias = nn.Parameter(torch.empty(width))
        self.recurrent_scale = self._normalised(width)
        self.recurrent_offset = self._normalised(width)

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        if self.options.recurrent_init == "orthogonal":
            for weight in self.recurrent_matrices():
                orthogonal_blocks_(weight)

    def recurrent_matrices(self) -> list[Tensor]:
        """All recurrent matrices of the cell."""
        return [self.recurrent_weight]

    def stacked_weights(self) -> dict[str, list[int]]:
        return {**super().stacked_weights(), "recurrent_weight": self._heights(self.recurrent_parts)}

    @property
    def recurrent(self) -> Recurrent:
        """The recurrent parameters in the form that a `Unit` takes."""
        weight = self.dropped_weight(self.recurrent_weight)
        return Recurrent(weight, self.recurrent_bias, self.recurrent_scale, self.recurrent_offset)

    def dropped_weight(self, weight: Tensor, *, number: int = 1) -> Tensor:
        """Recurrent matrix `number` of the cell with `weight_dropout`, the same in all steps of a batch."""
        if not self.training or self.weight_dropout == 0:
            return weight
        with of_parameters():
            return layer_dropout(weight, self.weight_dropout, layer=self.layer_number + number * _OF_WEIGHTS)


def orthogonal_blocks_(weight: Tensor) -> None:
    """Fill weight [jH, H] with j random orthogonal matrices (Saxe et al., ICLR 2014)."""
    with torch.no_grad():
        for block in torch.split(weight, weight.size(1)):
            nn.init.orthogonal_(block)
