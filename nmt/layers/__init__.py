"""Recurrent layers for your own networks, used like `torch.nn.GRU`: see docs/layers.md."""

from __future__ import annotations

import contextlib
import inspect
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from nmt import cells
from nmt.cells.base import Cell, both_directions
from nmt.errors import near_miss, shown
from nmt.kernel_check import recurrences, verify_operations
from nmt.models.parts import Dropout
from nmt.ops.recurrence import product_type
from nmt.registry import field_docstrings

__all__ = ["ATR", "GRU", "LRN", "LSTM", "OLRN", "SRU", "SSRU", "MinGRU", "MinLSTM", "RecurrentLayers"]

S = TypeVar("S")
"""The state of a unit: h, Tensor, or h and c, tuple[Tensor, Tensor]."""

Sequences = Tensor | PackedSequence


class RecurrentLayers(nn.Module, Generic[S]):
    """Stacked layers of one unit, in one direction or in both; a subclass defines the unit.

    Letters: L layers, R directions (2 where `bidirectional`, else 1), B batch, T time steps, D input_size,
    H hidden_size.

    Args:
        input_size: D, channels of the input.
        hidden_size: H, channels of the state of each direction.
        num_layers: L; each layer reads the outputs of the layer below.
        batch_first: input and output are [B, T, channels], not [T, B, channels]; states are [L R, B, H] in both cases.
        dropout: probability that a value between two layers is set to 0 in training.
        bidirectional: a second direction runs from the end; outputs are [..., 2H], the first direction first.
        layer_norm: normalise the products of the input and of the state, see the unit.
        device, dtype: device and type of the parameters.
        options: those of the unit, by name, as in `model.cell_options` (docs/units.md).

    Parameters have the names `cells.K.NAME`; K is the index in the states: R times the layer, plus the direction.
    """

    cell: ClassVar[type[Cell[Any]]]
    """The unit."""

    def __init_subclass__(cls) -> None:
        """The signature names the unit's options; the help has its equations and, where there is source code, what the
        options mean."""
        if "cell" not in vars(cls):
            return
        usual = list(inspect.signature(RecurrentLayers.__init__).parameters.values())[1:-1]  # without self, options
        own = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for field in fields(cls.cell.Options)
        ]
        cls.__signature__ = inspect.Signature([*usual, *own])  # type: ignore[attr-defined]
        options: list[str] = []
        with contextlib.suppress(OSError, TypeError):  # a class of a notebook, or of a package without its sources
            options = [f"    {name}: {' '.join(text.split())}" for name, text in field_docstrings(cls.cell.Options)]
        about = [inspect.getdoc(cls.cell), cls.__doc__, "\n".join(["Options:", *options]) if options else None]
        cls.__doc__ = "\n\n".join(filter(None, about))

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        layer_norm: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        for key, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if isinstance(size, bool) or not isinstance(size, int):
                raise TypeError(f"{name}: {key}: must be a whole number, not {shown(size)}")
            if size < 1:
                raise ValueError(f"{name}: {key}: must be at least 1, not {size}")
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError(f"{name}: dropout: must be a number from 0 to 1, not {shown(dropout)}")
        if dropout and num_layers == 1:
            warnings.warn(f"{name}: dropout is between layers, of which there is only one", stacklevel=3)
        _check_options(options, self.cell.Options, name=name)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.layer_norm, self.options = layer_norm, self.cell.Options(**options)
        directions = 2 if bidirectional else 1
        widths = [input_size] * directions + [directions * hidden_size] * directions * (num_layers - 1)
        made = [self.cell(width, hidden_size, layer_norm=layer_norm, options=self.options) for width in widths]
        self.cells = cast("Sequence[Cell[Any]]", nn.ModuleList(made))
        self.dropouts = nn.ModuleList(Dropout(dropout) for _ in range(num_layers - 1))
        alone = tuple(dict.fromkeys(recurrences(self)))
        both = [key.replace("sequence", "bidirectional") for key in alone if key.startswith("sequence")]
        self._operations = (*both, *alone) if bidirectional else alone
        """Those whose checks must pass on a GPU before kernels run there."""
        self.reset_parameters()
        self.to(device=device, dtype=dtype)

    def reset_parameters(self, init_range: float | None = None) -> None:
        """Set initial values: weights uniform in +-init_range, by default 1 / sqrt(hidden_size) as in `torch.nn.GRU`.

        Biases and offsets start at 0, unlike in `torch.nn.GRU`, and the scales of layer norm at 1.
        """
        chosen = 1 / math.sqrt(self.hidden_size) if init_range is None else init_range
        for cell in self.cells:
            cell.reset_parameters(chosen)

    def forward(self, input: Sequences, hx: S | None = None, *, mask: Tensor | None = None) -> tuple[Sequences, S]:
        """Run over sequences.

        Args:
            input: [T, B, D], or [B, T, D] with `batch_first`, or one sequence [T, D], or a PackedSequence.
            hx: the initial states, [L R, B, H], or [L R, H] for one sequence; by default zeros. For units with a
                memory a pair (h, c) of such tensors.
            mask: [T, B] or [B, T], like the input, or [T]; true at values, false at padding, in any pattern. A row
                keeps its state at padding, whatever values the padding has.

        Returns:
            The outputs [..., R H] in the form of the input, 0 at padding, and the states at the ends of the sequences
            (for the second direction, at their beginnings) in the form of `hx`. Both have the type of the input or,
            under autocast, the type of autocast.

        Raises:
            ValueError, TypeError: shapes or types do not fit; the message is one line.
        """
        weight = next(self.parameters())
        try:
            batch = read_batch(input, mask, width=self.input_size, batch_first=self.batch_first)
            x, dtype = batch.x, product_type(batch.x)
            if x.device != weight.device:
                raise ValueError(f"input: is on {x.device}, but the weights are on {weight.device}")
            if x.dtype != weight.dtype and dtype != product_type(weight):
                names = [str(kind).removeprefix("torch.") for kind in (x.dtype, weight.dtype)]
                raise ValueError(f"input: is {names[0]}, but the weights are {names[1]}; convert one of them")
            first = None if hx is None else self._first_states(hx, batch)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{type(self).__name__}: {error}") from None
        if x.is_cuda:
            verify_operations(self._operations, device=x.device)
        last: list[Any] = []
        for layer in range(self.num_layers):
            if layer:
                x = self.dropouts[layer - 1](x)
            if not self.bidirectional:
                x, one = self.cells[layer].layer(x, first and first[layer], batch.mask)
                states = [one]
            else:
                ahead, back = self.cells[2 * layer : 2 * layer + 2]
                both = first and first[2 * layer : 2 * layer + 2]
                x, states = both_directions(ahead, back, x, batch.mask, first=both)
            x = x.to(dtype)  # for fp16 and with layer norm the output of a cell may be fp32
            last += states
        outputs, parts = batch.restored(x, list(map(torch.stack, zip(*last, strict=True))))
        state = parts[0].to(dtype) if len(parts) == 1 else tuple(part.to(dtype) for part in parts)
        return outputs, cast("S", state)

    def _first_states(self, hx: S, batch: Batch) -> list[Any]:
        """The initial state of each cell."""
        names = self.cell.State._fields
        given: Any = (hx,) if len(names) == 1 else hx
        if not isinstance(given, (tuple, list)) or len(given) != len(names):
            raise TypeError(f"hx: must be a tuple ({', '.join(names)}) of tensors, not {type(hx).__name__}")
        shape = [len(self.cells), batch.x.size(0), self.hidden_size]
        wanted = shape if batch.is_batched else [shape[0], shape[2]]
        for name, part in zip(names, given, strict=True):
            if not isinstance(part, Tensor):
                raise TypeError(f"hx: {name} must be a tensor, not {type(part).__name__}")
            if list(part.shape) != wanted:
                raise ValueError(f"hx: {name} is {list(part.shape)}, but must be {wanted} for this input")
        rows = [batch.state_rows(part).unbind() for part in given]
        return [self.cell.State(*parts) for parts in zip(*rows, strict=True)]

    def extra_repr(self) -> str:
        said = {"num_layers": 1, "batch_first": False, "dropout": 0.0, "bidirectional": False, "layer_norm": False}
        changed = [f"{key}={getattr(self, key)}" for key, usual in said.items() if getattr(self, key) != usual]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])


def _check_options(given: dict[str, Any], kind: type[Any], *, name: str) -> None:
    """Raise TypeError for an unknown option or a value that must be a boolean, ValueError for a word not allowed."""
    hints = get_type_hints(kind)
    for key, value in given.items():
        if key not in hints:
            raise TypeError(f"{name}: {key}: is not an option.{near_miss(key, list(hints))}")
        if get_origin(hints[key]) is Literal and value not in get_args(hints[key]):
            allowed = get_args(hints[key])
            raise ValueError(
                f"{name}: {key}: {shown(value)}.{near_miss(str(value), allowed)} Allowed: {', '.join(allowed)}."
            )
        if hints[key] is bool and not isinstance(value, bool):
            raise TypeError(f"{name}: {key}: must be True or False, not {shown(value)}")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Sequences in the form that cells take, and the conversion back to the form of the input."""

    x: Tensor
    """[B, T, D], 0 at padding"""
    mask: Tensor | None
    """bool [B, T], true where a sequence has a value"""
    batch_first: bool = True
    """Whether the input was [B, T, D]; else it was [T, B, D]."""
    is_batched: bool = True
    """False for one sequence [T, D]."""
    packed: PackedSequence | None = None
    """The packed input, whose sequences are sorted by length."""
    places: Tensor | None = None
    """[N], the indices of its values among the T * B positions of a time-major batch"""

    def restored(self, outputs: Tensor, states: list[Tensor]) -> tuple[Sequences, list[Tensor]]:
        """Outputs [B, T, W], 0 at padding, and states [L, B, H] in the form of the input; see `state_rows`."""
        if self.packed is not None and self.places is not None:
            data = outputs.transpose(0, 1).flatten(0, 1).index_select(0, self.places)
            order = self.packed.unsorted_indices
            ordered = states if order is None else [state.index_select(1, order) for state in states]
            return PackedSequence(data, *self.packed[1:]), ordered
        if self.mask is not None:
            outputs = outputs.masked_fill(~self.mask.unsqueeze(-1), 0)
        if not self.is_batched:
            return outputs[0], [state.squeeze(1) for state in states]
        return outputs if self.batch_first else outputs.transpose(0, 1), states

    def state_rows(self, state: Tensor) -> Tensor:
        """Convert a state of the input form, [L, B, H] or [L, H], to [L, B, H] in the order of the rows of x."""
        if not self.is_batched:
            return state.unsqueeze(1)
        order = None if self.packed is None else self.packed.sorted_indices
        return state if order is None else state.index_select(1, order)


def read_batch(given: Sequences, mask: Tensor | None, *, width: int, batch_first: bool) -> Batch:
    """The sequences `given`, whose values have `width` channels; `mask` has the shape of the input without channels.

    Raises:
        ValueError: shapes do not fit, or there is a mask for a packed sequence.
        TypeError: an argument is not a tensor.
    """
    if isinstance(given, PackedSequence):
        if mask is not None:
            raise ValueError("mask: a packed sequence has its lengths; give one of both")
        if given.data.dim() != 2 or given.data.size(-1) != width:
            wanted = f"packed data [N, D] with D = input_size = {width}"
            raise ValueError(f"input: {list(given.data.shape)}, but must be {wanted}")
        return _unpacked(given)
    if not isinstance(given, Tensor):
        raise TypeError(f"input: must be a tensor or a PackedSequence, not {type(given).__name__}")
    form = "[B, T, D] or [T, D]" if batch_first else "[T, B, D] or [T, D]"
    if given.dim() not in (2, 3) or given.size(-1) != width:
        raise ValueError(f"input: {list(given.shape)}, but must be {form} with D = input_size = {width}")
    is_batched = given.dim() == 3
    if mask is not None:
        if not isinstance(mask, Tensor):
            raise TypeError(f"mask: must be a tensor, not {type(mask).__name__}")
        if mask.shape != given.shape[:-1]:
            wanted = f"must be {list(given.shape[:-1])}, true at values, for input {list(given.shape)}"
            raise ValueError(f"mask: {list(mask.shape)}, but {wanted}")
        mask = mask.to(given.device).bool()
    if not is_batched:
        x, mask = given.unsqueeze(0), None if mask is None else mask.unsqueeze(0)
    elif batch_first:
        x = given
    else:
        x, mask = given.transpose(0, 1), None if mask is None else mask.transpose(0, 1).contiguous()
    if x.size(1) == 0:
        raise ValueError(f"input: {list(given.shape)} has no time step")
    if mask is not None:
        x = x.masked_fill(~mask.unsqueeze(-1), 0)  # a NaN in padding would reach the gradients of weights
    return Batch(x=x, mask=mask, batch_first=batch_first, is_batched=is_batched)


def _unpacked(given: PackedSequence) -> Batch:
    """The batch of a packed sequence; rows are in packed order, the longest first."""
    sizes = given.batch_sizes  # on the CPU, [T]: how many sequences have a value at each time step
    length, rows = len(sizes), int(sizes[0])
    has_value = torch.arange(rows) < sizes.unsqueeze(1)  # [T, B]
    places = has_value.flatten().nonzero().squeeze(1).to(given.data.device)
    flat = given.data.new_zeros(length * rows, given.data.size(1)).index_copy(0, places, given.data)
    x = flat.view(length, rows, -1).transpose(0, 1)
    mask = None if bool(has_value.all()) else has_value.t().contiguous().to(given.data.device)
    return Batch(x=x, mask=mask, packed=given, places=places)


class ATR(RecurrentLayers[Tensor]):
    """With the activation `output` the last state, h, differs from the last output, tanh(h)."""

    cell = cells.ATR


class GRU(RecurrentLayers[Tensor]):
    """With `reset="after"` its equations are those of `torch.nn.GRU`. No kernel supports this."""

    cell = cells.GRU

    @classmethod
    def from_torch(cls, other: nn.GRU) -> GRU:
        """A GRU with `reset="after"` that computes the same as `other`, with copies of its weights.

        Raises ValueError if b_in of `other`, the bias of the input product in g, is not 0: this GRU has no such bias.
        """
        same = cls(**_sizes(other), reset="after")
        for cell, parts in zip(same.cells, _parts_of(other, gates=3), strict=True):
            (r, z, g), (u_r, u_z, v), (b_ir, b_iz, b_in), (b_hr, b_hz, d) = parts
            if bool(b_in.any()):
                raise ValueError(
                    "GRU: from_torch: bias b_in is not 0 in this nn.GRU; the products of the input have no bias here"
                )
            _set(
                cell,
                input_weight=(z, r, g),
                recurrent_weight=(u_z, u_r),
                recurrent_bias=(b_iz + b_hz, b_ir + b_hr),
                candidate_weight=(v,),
                candidate_bias=(d,),
            )
        return same


class LRN(RecurrentLayers[Tensor]):
    """No bias and no product of the state: the products of the input are computed at once for the whole sequence."""

    cell = cells.LRN


class LSTM(RecurrentLayers[tuple[Tensor, Tensor]]):
    """The equations of `torch.nn.LSTM`, whose two biases are one here; see `from_torch`. States are pairs (h, c).

    No kernel supports `peepholes`, nor an `output_activation` other than "tanh".
    """

    cell = cells.LSTM

    @classmethod
    def from_torch(cls, other: nn.LSTM) -> LSTM:
        """An LSTM that computes the same as `other`, with copies of its weights.

        Raises ValueError if `other` has projections (proj_size), which this LSTM does not support.
        """
        if other.proj_size:
            raise ValueError(
                f"LSTM: from_torch: proj_size is {other.proj_size} in this nn.LSTM; there are no projections here"
            )
        same = cls(**_sizes(other))
        for cell, (inputs, recurrent, *both) in zip(same.cells, _parts_of(other, gates=4), strict=True):
            biases = tuple(a + b for a, b in zip(*both, strict=True))
            gates = {"input_weight": inputs, "recurrent_weight": recurrent, "recurrent_bias": biases}
            _set(cell, **{name: (i, f, o, g) for name, (i, f, g, o) in gates.items()})  # torch has i, f, g, o
        return same


class MinGRU(RecurrentLayers[Tensor]):
    """No product of the state: the products of the input are computed at once for the whole sequence."""

    cell = cells.MinGRU


class MinLSTM(RecurrentLayers[Tensor]):
    """No product of the state, which is one tensor, h: the products of the input are computed at once."""

    cell = cells.MinLSTM


class OLRN(RecurrentLayers[Tensor]):
    """No product of the state: the products of the input are computed at once for the whole sequence."""

    cell = cells.OLRN


class SRU(RecurrentLayers[tuple[Tensor, Tensor]]):
    """States are pairs (h, c), as for an LSTM; of the initial states only c is read."""

    cell = cells.SRU


class SSRU(RecurrentLayers[tuple[Tensor, Tensor]]):
    """States are pairs (h, c), as for an LSTM; of the initial states only c is read."""

    cell = cells.SSRU


def _parts_of(other: nn.RNNBase, *, gates: int) -> Iterator[list[tuple[Tensor, ...]]]:
    """For each layer and direction, in the order of the states: input matrix, recurrent matrix and the biases of both
    products, each split by gates."""
    zeros = next(other.parameters()).new_zeros(gates * other.hidden_size)
    for layer in range(other.num_layers):
        for end in ("", "_reverse")[: 1 + other.bidirectional]:
            weights = [getattr(other, f"weight_{kind}_l{layer}{end}") for kind in ("ih", "hh")]
            biases = [getattr(other, f"bias_{kind}_l{layer}{end}") if other.bias else zeros for kind in ("ih", "hh")]
            yield [tensor.chunk(gates) for tensor in (*weights, *biases)]


def _sizes(other: nn.RNNBase) -> dict[str, Any]:
    """The arguments with which layers here have the sizes, device and type of `other`."""
    names = ("input_size", "hidden_size", "num_layers", "batch_first", "dropout", "bidirectional")
    weight = next(other.parameters())
    return {**{name: getattr(other, name) for name in names}, "device": weight.device, "dtype": weight.dtype}


@torch.no_grad()
def _set(cell: nn.Module, **parts: tuple[Tensor, ...]) -> None:
    """Copy parts, one above the other, into the parameters of these names."""
    for name, tensors in parts.items():
        cell.get_parameter(name).copy_(torch.cat(tensors))
