"""Which parameter, or block of one, each variable of the original Zero system is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial, singledispatch
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from nmt.cells import ATR, GRU, LRN, LSTM, OLRN, SRU, Cell
from nmt.models import DeepNMT, RNNSearch, RNNSearchDeepAtt
from nmt.models.attention import AdditiveAttention, AttentionQuery
from nmt.models.decoder import (
    AttendingLayer,
    AttentionRNN,
    ConcatenatingLayer,
    ContextLayer,
    DeepAttentionRNN,
    DeepDecoder,
)
from nmt.models.encoder import (
    Alternating,
    Bidirectional,
    ContextAware,
    DeepEncoder,
    Forward,
    OneToOneRNN,
    ResidualLayer,
)
from nmt.models.parts import Embeddings, LayerNorm, Linear, Readout, TanhReadout


class Variable(NamedTuple):
    """A variable of Zero."""

    name: str
    """with its scope, without "var/" unless the scope has it"""
    parameter: nn.Parameter
    """where it lives here"""
    view: Callable[[Tensor], Tensor]
    """from the parameter, or its gradient, to the part that is the variable, in its shape; a view"""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.view(self.parameter.detach()).shape)


class _Block(NamedTuple):
    """A product that is a variable of its own in Zero: rows first * H to last * H of the parameters `prefix`_*."""

    name: str
    prefix: str
    first: int
    last: int


class _Layout(NamedTuple):
    """A unit in Zero."""

    unit: str
    input: tuple[_Block, ...]
    recurrent: tuple[_Block, ...] = ()
    peepholes: tuple[tuple[str, str], ...] = ()
    """names there and here"""


_LAYOUTS: dict[type[Cell[Any]], _Layout] = {
    GRU: _Layout(
        "gru",
        (_Block("gate_x", "input", 0, 2), _Block("hide_x", "input", 2, 3)),
        (_Block("gate_h", "recurrent", 0, 2), _Block("hide_h", "candidate", 0, 1)),
    ),
    LSTM: _Layout(
        "lstm",
        (_Block("gate_x", "input", 0, 3), _Block("hide_x", "input", 3, 4)),
        (_Block("gate_h", "recurrent", 0, 3), _Block("hide_h", "recurrent", 3, 4)),
    ),
    ATR: _Layout("atr", (_Block("hide_x", "input", 0, 1),), (_Block("hide_h", "recurrent", 0, 1),)),
    SRU: _Layout(
        "sru",
        (_Block("hide_x", "input", 0, 4),),
        peepholes=(("v_f", "peephole_forget"), ("v_r", "peephole_reset")),
    ),
    LRN: _Layout("lrn", (_Block("hide_x", "input", 0, 3),)),
    OLRN: _Layout("olrn", (_Block("hide_x", "input", 0, 4),)),
}


@singledispatch
def variables(module: nn.Module, scope: str) -> Iterator[Variable]:
    """The variables of `module`, below `scope`."""
    raise TypeError(f"{type(module).__name__} has no counterpart in Zero")


@variables.register
def cell_variables(module: Cell, scope: str, *, role: str = "") -> Iterator[Variable]:  # type: ignore[type-arg]
    """A cell; `role` is "_lower", "_higher" or "_higher_0" and so on in a network of several cells a step."""
    layout = _layout(module)
    for block in layout.input:
        yield from _block_variables(module, f"{scope}/fetch_state_{layout.unit}{role}", block)
    for block in layout.recurrent:
        yield from _block_variables(module, f"{scope}/cell_{layout.unit}{role}", block)
    for name, ours in layout.peepholes:
        yield Variable(f"{scope}/cell_{layout.unit}{role}/{name}", module.get_parameter(ours), _as_row)


def unit_name(cell: Cell[Any]) -> str:
    """What Zero calls the unit of a cell; TypeError for a unit that it does not have."""
    return _layout(cell).unit


STARTS = ("recurrent_init", "forget_bias")
"""Options of units that say only how their weights start."""


def other_designs(options: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
    """The options that make a unit compute something else than with those by default, which Zero's units have."""
    return [name for name, value in options.items() if name not in STARTS and value != default[name]]


def _layout(cell: Cell[Any]) -> _Layout:
    layout = _LAYOUTS.get(type(cell))
    if layout is None:
        raise TypeError(f"unit {type(cell).__name__} has no counterpart in Zero")
    options, default = (dataclasses.asdict(chosen) for chosen in (cell.options, cell.Options()))
    if changed := other_designs(options, default):
        described = ", ".join(f"{name}: {options[name]}" for name in changed)
        raise TypeError(f"unit {type(cell).__name__} with {described} has no counterpart in Zero")
    return layout


def _block_variables(module: Cell[Any], scope: str, block: _Block) -> Iterator[Variable]:
    rows = slice(block.first * module.hidden_size, block.last * module.hidden_size)
    parameters = dict(module.named_parameters(recurse=False))
    for kind, name, view in (
        ("weight", "W_0_0", _transposed_rows),
        ("bias", "b_0", _rows),
        ("scale", "ln_0_0/scale", _rows),
        ("offset", "ln_0_0/offset", _rows),
    ):
        parameter = parameters.get(f"{block.prefix}_{kind}")
        if parameter is not None:
            yield Variable(f"{scope}/{block.name}/{name}", parameter, partial(view, rows=rows))


@variables.register
def _(module: Linear, scope: str) -> Iterator[Variable]:
    for j, weight in enumerate(module.weights):
        yield Variable(f"{scope}/W_0_{j}", weight, _transposed_rows)
    for j, norm in enumerate(module.norms):
        yield from variables(norm, f"{scope}/ln_0_{j}")
    if module.bias is not None:
        yield Variable(f"{scope}/b_0", module.bias, _rows)


@variables.register
def _(module: LayerNorm, scope: str) -> Iterator[Variable]:
    yield Variable(f"{scope}/scale", module.scale, _rows)
    yield Variable(f"{scope}/offset", module.offset, _rows)


@variables.register
def _(module: OneToOneRNN, scope: str) -> Iterator[Variable]:
    yield from cell_variables(module.lower, scope, role="_lower")
    yield from cell_variables(module.higher, scope, role="_higher")


@variables.register
def _(module: AttentionRNN, scope: str) -> Iterator[Variable]:
    yield from cell_variables(module.lower, scope, role="_lower")
    yield from cell_variables(module.higher, scope, role="_higher")
    yield from variables(module.attention, scope)


@variables.register
def _(module: DeepAttentionRNN, scope: str) -> Iterator[Variable]:
    yield from cell_variables(module.lower, scope, role="_lower")
    yield from variables(cast("AdditiveAttention", module.attentions[0]).memory, f"{scope}/context_att")
    for level, (attention, higher) in enumerate(module.levels):
        yield from _query_variables(attention, f"{scope}/deep_attention_{level}")
        yield from cell_variables(higher, scope, role=f"_higher_{level}")


@variables.register
def _(module: AdditiveAttention, scope: str) -> Iterator[Variable]:
    yield from variables(module.memory, f"{scope}/context_att")
    yield from _query_variables(module, f"{scope}/attention")


def _query_variables(module: AttentionQuery, scope: str) -> Iterator[Variable]:
    yield from variables(module.query, f"{scope}/feed_query")
    yield Variable(f"{scope}/feed_logits/W_0_0", module.score_weight, _as_column)
    yield Variable(f"{scope}/feed_logits/b_0", module.score_bias, _rows)


@variables.register
def _(module: Forward, scope: str) -> Iterator[Variable]:
    yield from variables(module.cell, f"{scope}/forward")


@variables.register(Bidirectional)
@variables.register(ContextAware)
def _(module: Bidirectional | ContextAware, scope: str) -> Iterator[Variable]:
    yield from variables(module.forward_rnn, f"{scope}/forward")
    yield from variables(module.backward_rnn, f"{scope}/backward")


@variables.register
def _(module: Alternating, scope: str) -> Iterator[Variable]:
    yield from variables(module.first.cell, f"{scope}/layer_0")
    for index, layer in enumerate(module.above, start=1):
        yield from variables(layer, f"{scope}/layer_{index}")


@variables.register(AttendingLayer)
@variables.register(ContextLayer)
def _(module: AttendingLayer | ContextLayer, scope: str) -> Iterator[Variable]:
    yield from variables(module.rnn, scope)


@variables.register
def _(module: ConcatenatingLayer, scope: str) -> Iterator[Variable]:
    yield from variables(module.cell, scope)


@variables.register(DeepEncoder)
@variables.register(DeepDecoder)
def _(module: DeepEncoder | DeepDecoder, scope: str) -> Iterator[Variable]:
    for index, (layer, residual) in enumerate(zip(module.layers, module.residuals, strict=True)):
        yield from variables(layer, f"{scope}/layer_{index}")
        yield from variables(residual, f"{scope}/layer_{index}")


@variables.register
def _(module: ResidualLayer, scope: str) -> Iterator[Variable]:
    yield from variables(module.branch, f"{scope}/ff")
    if module.norm is not None:
        yield from variables(module.norm, f"{scope}/ln")


@variables.register
def _(module: Embeddings, scope: str) -> Iterator[Variable]:
    yield Variable(f"{scope}/bias", module.bias, _rows)
    if module.target is None:
        yield Variable(f"{scope}/embedding", module.source, _rows)
        return
    yield Variable(f"{scope}/src_embedding", module.source, _rows)
    yield Variable(f"{scope}/tgt_embedding", module.target, _rows)
    if module.softmax is not None:
        yield Variable(f"{scope}/softmax_embedding", module.softmax, _rows)


@variables.register
def _(module: Readout, scope: str) -> Iterator[Variable]:
    yield from ()


@variables.register
def _(module: TanhReadout, scope: str) -> Iterator[Variable]:
    yield from variables(module.linear, scope)


@variables.register
def _(module: DeepNMT, scope: str) -> Iterator[Variable]:
    yield from variables(module.embeddings, scope)
    encoder = module.encoder
    yield from variables(encoder, f"{scope}/encoder")
    if encoder.widen is not None and encoder.widen_norm is not None:
        yield from variables(encoder.widen, f"{scope}/x_map")
        yield from variables(encoder.widen_norm, f"{scope}/layer_norm")
    for index, linear in enumerate(module.initial_states.maps):
        yield from variables(linear, f"{scope}/layer_{index}_init")
    yield from variables(module.decoder, f"{scope}/decoder")
    yield from variables(module.readout, f"{scope}/ff")


@variables.register
def _(module: RNNSearch, scope: str) -> Iterator[Variable]:
    yield from variables(module.embeddings, scope)
    yield from variables(module.encoder, f"{scope}/encoder")
    unit = _layout(module.decoder.layer.rnn.lower).unit
    yield from variables(module.initial_states.maps[0], f"{scope}/decoder_initializer/{unit}_init")
    yield from variables(module.decoder.layer, f"{scope}/decoder")
    yield from variables(module.readout, f"{scope}/pre_logits")


@variables.register
def _(module: RNNSearchDeepAtt, scope: str) -> Iterator[Variable]:
    yield from variables(module.embeddings, scope)
    yield from variables(module.encoder, f"{scope}/encoder")
    yield from variables(module.initial_states.maps[0], f"{scope}/decoder_initializer/dec_init_state_init")
    yield from variables(module.decoder.layer, f"{scope}/decoder")
    yield from variables(module.readout, f"{scope}/ff")


def _rows(tensor: Tensor, *, rows: slice = slice(None)) -> Tensor:
    return tensor[rows]


def _transposed_rows(tensor: Tensor, *, rows: slice = slice(None)) -> Tensor:
    return tensor[rows].t()


def _as_row(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(0)


def _as_column(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(1)
