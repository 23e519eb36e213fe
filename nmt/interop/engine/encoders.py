"""Lowering of the recurrent encoders: directions, layers and what the decoder begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from torch import nn

from nmt.cells import Cell
from nmt.interop.engine.layers import check_class, layer_norm, linear, unknown
from nmt.interop.engine.program import Op, Program, Value
from nmt.interop.engine.units import input_products, output, step
from nmt.models.encoder import (
    Alternating,
    Bidirectional,
    ContextAware,
    DeepEncoder,
    Encoder,
    Forward,
    OneToOneRNN,
    ResidualLayer,
)


class Encoded(NamedTuple):
    """What a layer, or a whole encoder, puts out."""

    outputs: Value
    """Of `SOURCE`"""
    last: Callable[[], Value]
    """Emits what computes, in the space `ONE`, what the initial states are made from"""


def lower_encoder(program: Program, encoder: Encoder, x: Value) -> Encoded:
    """An encoder over embedded words `x`, which may be overwritten."""
    if type(encoder) not in _LOWERED:
        raise unknown(encoder, *_LOWERED)
    return _LOWERED[type(encoder)](program, encoder, x)


def _forward(program: Program, layer: Forward, x: Value) -> Encoded:
    (products,) = input_products(program, x, [layer.cell])
    return _one_cell(program, layer.cell, products)


def bidirectional(program: Program, layer: Bidirectional, x: Value) -> Encoded:
    """Both directions, side by side."""
    check_class(layer, Bidirectional)
    cells: list[Cell[Any]] = [layer.forward_rnn, layer.backward_rnn]
    outputs = program.new(layer.output_size)
    halves = outputs.split([cell.hidden_size for cell in cells])
    for place, (cell, products) in enumerate(zip(cells, input_products(program, x, cells), strict=True)):
        _one_cell(program, cell, products, out=halves[place], backward=place == 1)

    def last() -> Value:
        found = program.new_row(layer.last_size)
        for place, (half, part) in enumerate(zip(halves, found.split([half.width for half in halves]), strict=True)):
            program.emit(Op.ROW, part, half, p=1 - place)
        return found

    return Encoded(outputs, last)


def _context_aware(program: Program, layer: ContextAware, x: Value) -> Encoded:
    above = layer.backward_rnn
    check_class(above, OneToOneRNN)
    first, products = input_products(program, x, [layer.forward_rnn, above.lower])
    ahead = _one_cell(program, layer.forward_rnn, first)
    return _two_cells(program, above, products, ahead.outputs, backward=True)


def _alternating(program: Program, encoder: Alternating, x: Value) -> Encoded:
    check_class(encoder.first, Forward)
    above = cast("list[OneToOneRNN]", list(encoder.above))
    for layer in above:
        check_class(layer, OneToOneRNN)
    first, *products = input_products(program, x, [encoder.first.cell, *(layer.lower for layer in above)])
    found = _one_cell(program, encoder.first.cell, first)
    for place, (layer, own) in enumerate(zip(above, products, strict=True)):
        found = _two_cells(program, layer, own, found.outputs, backward=place % 2 == 0)
    return found


def _deep(program: Program, encoder: DeepEncoder, x: Value) -> Encoded:
    found = None
    for layer, branch in zip(encoder.layers, encoder.residuals, strict=True):
        known: Sequence[type] = (Forward,) if found else (Bidirectional, ContextAware)
        check_class(layer, *known)
        found = lower_encoder(program, cast("Encoder", layer), x)
        residual(program, branch, x, found.outputs)
    assert found is not None
    if encoder.widen is not None and encoder.widen_norm is not None:
        x = linear(program, encoder.widen, x)
        layer_norm(program, encoder.widen_norm, x)
    return Encoded(x, found.last)


def residual(program: Program, layer: nn.Module, x: Value, y: Value) -> None:
    """What takes the outputs `y` of a layer into `x`, in its place."""
    check_class(layer, ResidualLayer)
    assert isinstance(layer, ResidualLayer)
    program.add(x, linear(program, layer.branch, y))
    if layer.norm is not None:
        layer_norm(program, layer.norm, x)


def _one_cell(
    program: Program, cell: Cell[Any], products: Value, *, out: Value | None = None, backward: bool = False
) -> Encoded:
    """A cell over its input products from a state of zeros."""
    out = out or program.new(cell.hidden_size)
    state = program.new_row(cell.state_size)
    with program.loop(backward=backward):
        step(program, cell, products, state, state)
        output(program, cell, state, out=out)
    return Encoded(out, lambda: output(program, cell, state))


def _two_cells(program: Program, rnn: OneToOneRNN, products: Value, memory: Value, *, backward: bool) -> Encoded:
    """Two cells per step; the second reads `memory` at the same place."""
    (contexts,) = input_products(program, memory, [rnn.higher])
    out = program.new(rnn.higher.hidden_size)
    state = program.new_row(rnn.lower.state_size)
    with program.loop(backward=backward):
        step(program, rnn.lower, products, state, state)
        step(program, rnn.higher, contexts, state, state)
        output(program, rnn.higher, state, out=out)
    return Encoded(out, lambda: output(program, rnn.higher, state))


_LOWERED: dict[type, Callable[[Program, Any, Value], Encoded]] = {
    Alternating: _alternating,
    Bidirectional: bidirectional,
    ContextAware: _context_aware,
    DeepEncoder: _deep,
    Forward: _forward,
}
"""By exact class, because a subclass may compute something else."""
