"""The interface of recurrent units to the models; a unit of your own needs only __init__, project and step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from nmt.cells.initializers import INIT_RANGE, as_initializer, reset_weight_
from nmt.cells.state import CellState, HiddenState, select_state
from nmt.ops.dispatch import no_kernel
from nmt.ops.dropout import layer_dropout
from nmt.ops.recurrence import at_least_fp32, live_rows, time_order
from nmt.ops.unit import GateValues, Projection, Unit

S = TypeVar("S", bound=CellState)


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """The options of a unit without options."""


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
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.layer_norm = layer_norm
        self.options = self.Options() if options is None else options

    @property
    def state_size(self) -> int:
        """Width of the packed state: H times the number of tensors in the state."""
        return self.hidden_size * len(self.State._fields)

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        """Set initial values as in Zero: weights from an `Initializer`, biases and offsets 0, layer-norm scales 1.

        The last word of a parameter's name tells its kind: bias, offset or scale; all others are weights. A plain
        number instead of an initializer means uniform in +-init_range.
        """
        initializer, heights = as_initializer(init_range), self.stacked_weights()
        for name, parameter in self.named_parameters():
            kind = name.rpartition(".")[2].rpartition("_")[2]
            if kind in ("bias", "offset"):
                nn.init.zeros_(parameter)
            elif kind == "scale":
                nn.init.ones_(parameter)
            else:
                reset_weight_(parameter, initializer, heights=heights.get(name))

    def stacked_weights(self) -> dict[str, list[int]]:
        """The weights that consist of several stacked matrices: name -> heights of the matrices.

        An initializer that depends on the size of a matrix treats each of them separately.
        """
        return {}

    def initial_state(self, batch_size: int, *, like: Tensor) -> S:
        """Zeros for `batch_size` rows, on the device of `like` and in its type, but in at least fp32."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        return self.unpack_state(like.new_zeros(batch_size, self.state_size, dtype=dtype))

    def unpack_state(self, packed: Tensor) -> S:
        """Split packed [..., state_size], which has the parts side by side, h first, into a state."""
        parts = torch.split(at_least_fp32(packed), self.hidden_size, -1)
        return self.State(*parts)

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
        self, projected: Tensor, state: S | None = None, mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, S]:
        """Run over projected [B, T, kH], T > 0, from `state` (None: zeros).

        Rows keep their state where mask [B, T] is 0; any pattern is allowed. `reverse` runs from the
        last time step to the first. Returns the outputs [B, T, H] in input order and the last state
        computed: with padding at the right, that of the last real word (`reverse`: of the first).
        """
        if state is None:
            state = self.initial_state(projected.size(0), like=projected)
        return run_steps(self.step, self.output, projected, state, mask, reverse=reverse)

    def layer(
        self, x: Tensor, state: S | None = None, mask: Tensor | None = None, *, reverse: bool = False
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
    """A cell in training over one batch of sentences, with recurrent dropout (Gal and Ghahramani, NIPS 2016).

    In all steps of a sentence recurrent products and gates see the same part of the state: h' times `keep` [B, H],
    and, in gates that read a memory through vectors, c' times `keep`. The carried values, such as f * h' and c', are
    not dropped, so that dropout does not make the unit forget. No kernel supports this.
    """

    def __init__(self, cell: Cell[S], keep: Tensor) -> None:
        self._cell, self._keep = cell, keep
        self.project, self.projection = cell.project, cell.projection
        self.output, self.State = cell.output, cell.State

    def step(self, projected: Tensor, state: S) -> S:
        """Like `Cell.step`, for the rows of the batch."""
        return self._cell.dropped_step(projected, state, self._keep)

    def sequence(
        self, projected: Tensor, state: S | None = None, mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, S]:
        """Like `Cell.sequence`."""
        if state is None:
            state = self._cell.initial_state(projected.size(0), like=projected)
        return run_steps(self.step, self.output, projected, state, mask, reverse=reverse)

    def layer(
        self, x: Tensor, state: S | None = None, mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, S]:
        """Like `Cell.layer`."""
        return self.sequence(self.project(x), state, mask, reverse=reverse)

    def unit(self) -> Unit | None:
        """None: loops over cells must call `step`."""
        return None


def run_steps(
    step: Callable[[Tensor, S], S],
    output: Callable[[S], Tensor],
    projected: Tensor,
    state: S,
    mask: Tensor | None,
    *,
    reverse: bool,
) -> tuple[Tensor, S]:
    """`Cell.sequence` computed with one call of `step` for each time step."""
    inputs = projected.unbind(1)
    live = live_rows(mask, length=len(inputs))
    outputs: list[Tensor] = []
    for t in time_order(len(inputs), reverse=reverse):
        new, rows = step(inputs[t], state), live[t]
        state = new if rows is None else select_state(rows, new, state)
        outputs.append(output(state))
    if reverse:
        outputs.reverse()
    return torch.stack(outputs, 1), state
