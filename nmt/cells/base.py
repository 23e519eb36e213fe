"""Recurrent units as the models see them: states, the interface of a cell, and cells of a `nmt.ops.unit.Unit`.

A unit of your own needs only __init__, project and step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from nmt.cells.initializers import INIT_RANGE, as_initializer
from nmt.ops.dispatch import no_kernel, use_native
from nmt.ops.dropout import layer_dropout, of_parameters
from nmt.ops.matrices import linear
from nmt.ops.product import normalized
from nmt.ops.recurrence import Projection, Recurrent, at_least_fp32, live_rows, time_order
from nmt.ops.sequence import bidirectional, sequence, step
from nmt.ops.unit import GateValues, Unit
from nmt.registry import NoOptions


class CellState(Protocol):
    """A NamedTuple of tensors [N, H]; `h` is the first."""

    def __init__(self, *tensors: Tensor) -> None: ...

    @property
    def h(self) -> Tensor: ...

    def __iter__(self) -> Iterator[Tensor]: ...


S = TypeVar("S", bound=CellState)


def reorder_state(state: S, rows: Tensor) -> S:
    """The state whose row n is row rows[n] of `state`; rows [M] int64, repetitions allowed."""
    return type(state)(*(tensor.index_select(0, rows) for tensor in state))


def select_state(mask: Tensor, new: S, old: S) -> S:
    """Rows of `new` where mask [N] or [N, 1] is true or 1, rows of `old` elsewhere."""
    live = mask.bool().reshape(-1, 1)
    return type(new)(*(torch.where(live, after, before) for after, before in zip(new, old, strict=True)))


class HiddenState(NamedTuple):
    """The state of units whose only memory is their output."""

    h: Tensor  # [N, H]


class MemoryState(NamedTuple):
    """The state of units with a memory cell besides their output."""

    h: Tensor  # [N, H]
    c: Tensor  # [N, H]


class Cell(nn.Module, Generic[S]):
    """A recurrent unit from width D to width H.

    Its input products are computed once for a whole sequence (`project`), then it runs over time:
    one step at a time (`step`, called by conditional RNNs and the search) or all steps at once (`sequence`).
    Letters in shapes: N rows, B batch, T time, k input products of the unit.
    """

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of the unit's options; `model.cell_options` is checked against it."""
    State: ClassVar[type[Any]] = HiddenState
    """NamedTuple of the tensors [N, H] that are carried from step to step; `h` is the first."""
    recurrent_dropout: float = 0.0
    """Share of the state that products and gates do not see in training; see `DroppedCell`. Set by the code that makes
    the cell."""
    recurrent_weights: ClassVar[bool] = False
    """Whether it has recurrent matrices, which can have `weight_dropout`."""
    weight_dropout: float = 0.0
    """Share of the values of its recurrent matrices that are 0 in a batch of a training (Merity et al., ICLR 2018); set
    by the code that makes the cell."""
    without_dropout: ClassVar[str] = "it does not define dropped_step"
    """The reason, for messages, why a unit that does not define `dropped_step` has no recurrent dropout."""
    layer_number: int = 0
    """Gives each layer of a model different masks; set by `nmt.models.parts.number_layers`."""

    def __init__(
        self, input_size: int, hidden_size: int, *, layer_norm: bool = False, options: Any | None = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.layer_norm = input_size, hidden_size, layer_norm
        self.options = self.Options() if options is None else options
        self.state_size = hidden_size * len(self.State._fields)
        """Width of the packed state: H times the number of tensors in the state."""
        self.heights: dict[str, list[int]] = {}
        """Of the weights that consist of several stacked matrices, name -> heights of the matrices: an initializer that
        depends on the size of a matrix treats each of them separately."""

    @torch.no_grad()
    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        """Set initial values as in Zero: weights from an `Initializer`, biases and offsets 0, layer-norm scales 1.

        The last word of a parameter's name tells its kind: bias, offset or scale; all others are weights. A plain
        number instead of an initializer means uniform in +-init_range. A vector counts as a matrix from width 1, as
        Zero treats the peepholes of the SRU.
        """
        initializer = as_initializer(init_range)
        for name, parameter in self.named_parameters():
            kind = name.rpartition(".")[2].rpartition("_")[2]
            if kind in ("bias", "offset"):
                nn.init.zeros_(parameter)
            elif kind == "scale":
                nn.init.ones_(parameter)
            else:
                for block in parameter.split(self.heights[name]) if name in self.heights else [parameter]:
                    fan_out = block.size(0) if block.dim() > 1 else block.numel()
                    initializer.weight_(block, fan_in=block.numel() // max(fan_out, 1), fan_out=fan_out)

    def initial_state(self, batch_size: int, *, like: Tensor) -> S:
        """Zeros for `batch_size` rows, on the device of `like` and in its type, but in at least fp32."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        return self.unpack_state(like.new_zeros(batch_size, self.state_size, dtype=dtype))

    def unpack_state(self, packed: Tensor) -> S:
        """Split packed [..., state_size], which has the parts side by side, h first, into a state."""
        return self.State(*torch.split(at_least_fp32(packed), self.hidden_size, -1))

    def project(self, x: Tensor) -> Tensor:
        """All input products of x [..., D] in one GEMM: [..., kH]."""
        raise NotImplementedError

    def step(self, projected: Tensor, state: S) -> S:
        """One time step of N rows, from projected [N, kH]."""
        raise NotImplementedError

    def dropped_step(self, projected: Tensor, state: S, keep: Tensor) -> S:
        """Like `step`, but products and gates see the previous state times `keep` [N, H]; the carried state is not
        dropped.

        A unit that does not define this method has no recurrent dropout.
        """
        raise NotImplementedError

    def search_step(self, projected: Tensor, state: S) -> S:
        """Like `step`, but with the unit's C kernel if there is one and no gradient is needed."""
        return self.step(projected, state)

    def output(self, state: S) -> Tensor:
        """The unit's output in this state, [N, H]."""
        return state.h

    def gate_values(self, projected: Tensor, state: S) -> GateValues:
        """The gates of the time step that `step` computes from the same projected [N, kH] and previous state.

        A unit that does not define this method has no gates to show; see `nmt.cells.trace`.
        """
        return GateValues()

    def sequence(
        self: Cell[S] | DroppedCell[S],
        projected: Tensor,
        state: S | None = None,
        mask: Tensor | None = None,
        *,
        reverse: bool = False,
    ) -> tuple[Tensor, S]:
        """Run over projected [B, T, kH], T > 0, from `state` (None: zeros).

        Rows keep their state where mask [B, T] is 0; any pattern is allowed. `reverse` runs from the
        last time step to the first. Returns the outputs [B, T, H] in input order and the last state
        computed: with padding at the right, that of the last real word (`reverse`: of the first).
        """
        state = self.initial_state(projected.size(0), like=projected) if state is None else state
        inputs = projected.unbind(1)
        live = live_rows(mask, length=len(inputs))
        outputs: list[Tensor] = []
        for t in time_order(len(inputs), reverse=reverse):
            new, rows = self.step(inputs[t], state), live[t]
            state = new if rows is None else select_state(rows, new, state)
            outputs.append(self.output(state))
        if reverse:
            outputs.reverse()
        return torch.stack(outputs, 1), state

    def layer(
        self: Cell[S] | DroppedCell[S],
        x: Tensor,
        state: S | None = None,
        mask: Tensor | None = None,
        *,
        reverse: bool = False,
    ) -> tuple[Tensor, S]:
        """`sequence` of the input products of x [B, T, D]; a unit may have a faster way to compute both together."""
        return self.sequence(self.project(x), state, mask, reverse=reverse)

    def unit(self) -> Unit | None:
        """The unit that kernels run, with the current weights; None if callers must use `step` instead."""
        return None

    def projection(self) -> Projection | None:
        """The computation of `project` if it is a product with a matrix; else None."""
        return None

    def for_batch(self, x: Tensor) -> Cell[S] | DroppedCell[S]:
        """The object that runs over the sentences x [B, ...]: this cell, or a `DroppedCell` in training with recurrent
        dropout.

        The steps of a search use no dropout.
        """
        if not self.training or self.recurrent_dropout == 0:
            return self
        no_kernel("recurrent dropout", like=x)
        ones = x.new_ones(len(x), self.hidden_size, dtype=torch.promote_types(x.dtype, torch.float32))
        return DroppedCell(self, layer_dropout(ones, self.recurrent_dropout, layer=self.layer_number))

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, layer_norm={self.layer_norm}, options={self.options}"


class DroppedCell(Generic[S]):
    """A cell in training over one batch of sentences, with recurrent dropout (Gal and Ghahramani, NIPS 2016). Its
    methods are those of `Cell`.

    In all steps of a sentence recurrent products and gates see the same part of the state: h' times `keep` [B, H],
    and, in gates that read a memory through vectors, c' times `keep`. The carried values, such as f * h' and c', are
    not dropped, so that dropout does not make the unit forget. No kernel supports this.
    """

    def __init__(self, cell: Cell[S], keep: Tensor) -> None:
        self._cell, self._keep = cell, keep
        self.project, self.projection, self.output = cell.project, cell.projection, cell.output
        self.State, self.initial_state = cell.State, cell.initial_state

    sequence, layer = Cell.sequence, Cell.layer

    def step(self, projected: Tensor, state: S) -> S:
        return self._cell.dropped_step(projected, state, self._keep)

    def unit(self) -> Unit | None:
        """None: loops over cells must call `step`."""
        return None


_OF_WEIGHTS: Final = 2**20
"""Added to the number of a layer for the masks of its weights, so that they differ from the masks of its states."""


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
        self.heights["input_weight"] = [part * hidden_size for part in self.input_parts]
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

    def _vector(self) -> nn.Parameter:
        return nn.Parameter(torch.empty(self.hidden_size))

    def unit(self) -> Unit:
        raise NotImplementedError

    def project(self, x: Tensor) -> Tensor:
        products = linear(x, self.input_weight)
        if self.input_scale is None or self.input_offset is None:
            return products
        return normalized(products, self.input_scale, self.input_offset, widths=self.heights["input_weight"])

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

    def projection(self) -> Projection:
        widths = tuple(self.heights["input_weight"])
        return Projection(self.input_weight, None, self.input_scale, self.input_offset, widths)


class InputGatedCell(UnitCell[S]):
    """A cell whose gates depend on the input only, with biases [H] for some of its products, added after layer norm.

    It has no recurrent dropout, which would hide a part of the state from gates and products.
    """

    without_dropout: ClassVar[str] = "its gates do not look at the state"
    dropped_step = Cell.dropped_step


class RecurrentCell(UnitCell[S]):
    """A cell that also multiplies its state: `recurrent_weight` [jH, H] with `recurrent_bias` [jH].

    With layer norm also `recurrent_scale` and `recurrent_offset` [jH].
    """

    recurrent_weights: ClassVar[bool] = True
    recurrent_parts: ClassVar[tuple[int, ...]]
    """Widths, in H, of the matrices into which Zero splits the recurrent matrix; j is their sum."""

    def _make_recurrent(self) -> None:
        self.heights["recurrent_weight"] = [part * self.hidden_size for part in self.recurrent_parts]
        width = sum(self.recurrent_parts) * self.hidden_size
        self.recurrent_weight = nn.Parameter(torch.empty(width, self.hidden_size))
        self.recurrent_bias = nn.Parameter(torch.empty(width))
        self.recurrent_scale = self._normalised(width)
        self.recurrent_offset = self._normalised(width)

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        if self.options.recurrent_init == "orthogonal":  # Saxe et al., ICLR 2014
            for name, weight in self.named_parameters():
                if name.endswith("_weight") and name != "input_weight":
                    for block in weight.detach().split(self.hidden_size):
                        nn.init.orthogonal_(block)

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


AnyCell = Cell[Any] | DroppedCell[Any]


def both_directions(
    ahead: AnyCell, back: AnyCell, x: Tensor, mask: Tensor | None, *, first: Sequence[Any] | None = None
) -> tuple[Tensor, list[Any]]:
    """`ahead` over x [B, T, D] from the first time step to the last and `back` the other way, from the states `first`
    of both, or from zeros.

    Rows keep their state where mask [B, T] is false. Returns the outputs [B, T, 2H] in input order, those of `ahead`
    first, and the last state computed of each.
    """
    if first is None and not use_native(x):  # on a GPU both may be one launch
        directions = [
            (unit, projection)
            for cell in (ahead, back)
            if (unit := cell.unit()) is not None and (projection := cell.projection()) is not None
        ]
        found = bidirectional(directions[0], directions[1], x, mask=mask) if len(directions) == 2 else None
        if found is not None:
            return found[0], [ahead.State(*found[1][0]), back.State(*found[1][1])]
    outputs, last = ahead.layer(x, first and first[0], mask)
    back_outputs, back_last = back.layer(x, first and first[1], mask, reverse=True)
    return torch.cat([outputs, back_outputs], -1), [last, back_last]
