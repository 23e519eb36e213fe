"""What every recurrent unit offers to the models; a unit of yours needs only __init__, project and step."""

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
    """Options of a unit that has none."""


class Cell(nn.Module, Generic[S]):
    """A recurrent unit from width D to width H.

    Its input products are computed once for a whole sequence (`project`), then it runs over time:
    one step (`step`, what conditional RNNs and the search call) or all at once (`sequence`).
    Letters in shapes: N rows, B batch, T time, k products of the unit.
    """

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of the unit's options, against which `model.cell_options` is checked."""
    State: ClassVar[type[Any]] = HiddenState
    """NamedTuple of tensors [N, H] that is carried; `h` first."""
    recurrent_dropout: float = 0.0
    """Share of the state that products and gates do not see in training; see `DroppedCell`. Set by who makes it."""
    recurrent_weights: ClassVar[bool] = False
    """Whether it has recurrent matrices, which can have `weight_dropout`."""
    weight_dropout: float = 0.0
    """Share of the values of its recurrent matrices that are 0 in a batch of a training (Merity et al., ICLR 2018); set
    by who makes it."""
    without_dropout: ClassVar[str] = "it does not define dropped_step"
    """Why a unit whose `dropped_step` is that of this class has no recurrent dropout, as a message says it."""
    layer_number: int = 0
    """By which its masks differ from those of other layers of the model; set by `nmt.models.dropout.number_layers`."""

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
        """Start again as Zero does: weights by an `Initializer`, biases and offsets 0, layer-norm scales 1.

        Told apart by the last word of their names: bias, offset and scale; all others are weights. A plain number in
        place of an initializer means uniform in +-init_range.
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
        """By name the weights that are several matrices below each other, with the heights of these.

        An initializer that follows the size of a matrix takes each of them for itself.
        """
        return {}

    def initial_state(self, batch_size: int, *, like: Tensor) -> S:
        """Zeros for `batch_size` rows, on the device of `like` and in its type, but fp32 at least."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        return self.unpack_state(like.new_zeros(batch_size, self.state_size, dtype=dtype))

    def unpack_state(self, packed: Tensor) -> S:
        """Split packed [..., state_size], its parts side by side with h first, into a state."""
        parts = torch.split(at_least_fp32(packed), self.hidden_size, -1)
        return self.State(*parts)

    def project(self, x: Tensor) -> Tensor:
        """All input products of x [..., D] in one GEMM: [..., kH]."""
        raise NotImplementedError

    def step(self, projected: Tensor, state: S) -> S:
        """One time step of N rows, from projected [N, kH]."""
        raise NotImplementedError

    def dropped_step(self, projected: Tensor, state: S, keep: Tensor) -> S:
        """As `step`, but products and gates see the state before times `keep` [N, H]; what is carried on stays whole.

        A unit that does not define it has no recurrent dropout.
        """
        raise NotImplementedError

    def search_step(self, projected: Tensor, state: S) -> S:
        """As `step`, by the unit's C kernel where there is one and no gradient is wanted."""
        return self.step(projected, state)

    def output(self, state: S) -> Tensor:
        """What the unit puts out in this state [N, H]."""
        return state.h

    def gate_values(self, projected: Tensor, state: S) -> GateValues:
        """The gates of the time step that `step` computes from the same projected [N, kH] and state before.

        A unit that does not define it has none to show; see `nmt.cells.trace`.
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
        """`sequence` of the products of x [B, T, D]; a unit may have a faster way to both at once."""
        return self.sequence(self.project(x), state, mask, reverse=reverse)

    def unit(self) -> Unit | None:
        """What kernels run, with the weights as they are now; None where others must call `step`."""
        return None

    def projection(self) -> Projection | None:
        """What `project` does, where that is a product with a matrix; else None."""
        return None

    def for_batch(self, x: Tensor) -> Cell[S] | DroppedCell[S]:
        """What runs over the sentences x [B, ...]: this cell, or in training with recurrent dropout what drops.

        Steps of a search do without.
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
    and in gates that look at a memory through vectors c' times it. What is carried on, as f * h' and c', stays whole,
    so that nothing is forgotten for it. No kernel knows it.
    """

    def __init__(self, cell: Cell[S], keep: Tensor) -> None:
        self._cell, self._keep = cell, keep
        self.project, self.projection = cell.project, cell.projection
        self.output, self.State = cell.output, cell.State

    def step(self, projected: Tensor, state: S) -> S:
        """As `Cell.step`, of the rows of the batch."""
        return self._cell.dropped_step(projected, state, self._keep)

    def sequence(
        self, projected: Tensor, state: S | None = None, mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, S]:
        """As `Cell.sequence`."""
        if state is None:
            state = self._cell.initial_state(projected.size(0), like=projected)
        return run_steps(self.step, self.output, projected, state, mask, reverse=reverse)

    def layer(
        self, x: Tensor, state: S | None = None, mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, S]:
        """As `Cell.layer`."""
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
    """`Cell.sequence` by one call of `step` for each time step."""
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
