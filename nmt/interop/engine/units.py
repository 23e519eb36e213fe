"""Lowering of the recurrent units: their input products, and one step of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nmt.cells import ATR, GRU, LRN, LSTM, OLRN, RNN, SRU, SSRU, Cell, MinGRU, MinLSTM
from nmt.cells.base import UnitCell
from nmt.interop.engine.layers import unknown
from nmt.interop.engine.program import Op, Program, Value
from nmt.ops.recurrence import EPSILON, Recurrent
from nmt.ops.unit import Unit
from nmt.registry import CELLS


def input_products(program: Program, x: Value, cells: Sequence[Cell[Any]]) -> list[Value]:
    """The input products of each of these cells, which read the same, by one matrix."""
    known = [_known(program, cell) for cell in cells]
    heights = [len(cell.input_weight) for cell in known]
    products = program.linear(x, [cell.input_weight for cell in known]).split(heights)
    for cell, own in zip(known, products, strict=True):
        if cell.input_scale is not None:
            scale, offset = cell.input_scale, cell.input_offset
            _norm_parts(program, own, scale, offset, widths=[part * cell.hidden_size for part in cell.input_parts])
    return products


def step(program: Program, cell: Cell[Any], x: Value, before: Value, after: Value) -> None:
    """One step of a cell from its input products `x`: the state `before` it gives the one `after`, or in its place."""
    known = _known(program, cell)
    if not program.equations:
        _STEPS[type(known)](program, cell, x, before, after)
        return
    unit = known.unit()
    numbers = [program.tensors.vector([weight]) for weight in unit.weights]
    program.emit(Op.EQUATION, after, x, before, tensors=numbers, n=cell.hidden_size, unit=unit)


def output(program: Program, cell: Cell[Any], state: Value, *, out: Value | None = None) -> Value:
    """What a cell puts out in a state; without `out` where it already is, if it is there."""
    h = state.part(0, cell.hidden_size)
    unit = cell.unit()
    if unit is not None and unit.tanh_output:
        out = out or program.new_row(cell.hidden_size)
        program.emit(Op.TANH, out, h)
        return out
    if out is None:
        return h
    program.emit(Op.COPY, out, h)
    return out


def _known(program: Program, cell: Cell[Any]) -> UnitCell[Any]:
    """A cell that has instructions or, where equations are enough, computes nothing but that of its unit."""
    if isinstance(cell, UnitCell) and (type(cell) in _STEPS or (program.equations and _is_its_unit(cell))):
        return cell
    raise unknown(cell, *_STEPS, key="cell", registry=CELLS)


def _is_its_unit(cell: UnitCell[Any]) -> bool:
    methods = ("project", "step", "search_step", "sequence", "output")
    own = [getattr(type(cell), name) is getattr(UnitCell, name) for name in methods]
    return all(own) and type(cell.unit()).output is Unit.output


def _recurrent(program: Program, h: Value, recurrent: Recurrent, out: Value, *, widths: Sequence[int]) -> None:
    """The product of a state with a recurrent matrix, normalised in parts of `widths`, without the bias."""
    program.linear(h, [recurrent.weight], out=out)
    if recurrent.scale is not None:
        _norm_parts(program, out, recurrent.scale, recurrent.offset, widths=widths)


def _norm_parts(program: Program, a: Value, scale: Any, offset: Any, *, widths: Sequence[int]) -> None:
    program.tensors.use(scale, offset)
    scales, offsets = ([scale], [offset]) if len(widths) == 1 else (scale.split(widths), offset.split(widths))
    for part, own_scale, own_offset in zip(a.split(widths), scales, offsets, strict=True):
        program.norm(part, own_scale, own_offset, epsilon=EPSILON, out=part)


def _without_matrices(program: Program, cell: UnitCell[Any], x: Value, before: Value, after: Value) -> None:
    """A step of a unit that has vectors alone, in their order, and at most one option, a boolean."""
    op, option = _WITHOUT_MATRICES[type(cell)]
    p = 0 if option is None else int(getattr(cell.options, option))
    _memory(program, op, cell, x, before, after, vectors=cell.unit().vectors, p=p)


def _atr(program: Program, cell: ATR, x: Value, before: Value, after: Value) -> None:
    u = program.new_row(cell.hidden_size)
    _recurrent(program, before, cell.recurrent, u, widths=[u.width])
    activation, gates = cell.unit().numbers
    program.apply(Op.ATR, after, x, before, u, vectors=[cell.recurrent_bias], p=activation + 3 * gates)


def _rnn(program: Program, cell: RNN, x: Value, before: Value, after: Value) -> None:
    u = program.new_row(cell.hidden_size)
    _recurrent(program, before, cell.recurrent, u, widths=[u.width])
    p = {"tanh": 0, "relu": 1}[cell.options.activation]
    program.apply(Op.RNN, after, x, None, u, vectors=[cell.recurrent_bias], p=p)


def _gru(program: Program, cell: GRU, x: Value, before: Value, after: Value) -> None:
    width = cell.hidden_size
    products = program.new_row(3 * width)
    gates, candidate = products.split([2 * width, width])
    biases = [cell.recurrent_bias, cell.candidate_bias]
    if cell.options.reset == "before":
        _recurrent(program, before, cell.recurrent, gates, widths=[2 * width])
        seen = program.new_row(width)
        program.apply(Op.GRU_RESET, seen, x, before, products, vectors=biases[:1])
        _recurrent(program, seen, cell.candidate, candidate, widths=[width])
        program.apply(Op.GRU, after, x, before, products, vectors=biases, p=0)
        return
    assert cell.options.reset == "after"
    program.linear(before, [cell.recurrent_weight, cell.candidate_weight], out=products)
    for part, recurrent in ((gates, cell.recurrent), (candidate, cell.candidate)):
        if recurrent.scale is not None:
            _norm_parts(program, part, recurrent.scale, recurrent.offset, widths=[part.width])
    program.apply(Op.GRU, after, x, before, products, vectors=biases, p=1)


def _lstm(program: Program, cell: LSTM, x: Value, before: Value, after: Value) -> None:
    width = cell.hidden_size
    u = program.new_row(4 * width)
    _recurrent(program, before.part(0, width), cell.recurrent, u, widths=[3 * width, width])
    peepholes = [cell.peephole_input, cell.peephole_forget, cell.peephole_output]
    vectors = [cell.recurrent_bias, *(vector for vector in peepholes if vector is not None)]
    p = {"tanh": 0, "identity": 1}[cell.options.output_activation]
    _memory(program, Op.LSTM, cell, x, before, after, u, vectors=vectors, p=p)


def _memory(
    program: Program, op: Op, cell: Any, x: Value, before: Value, after: Value, *more: Value, vectors: Any, p: int = 0
) -> None:
    """A step whose state may have two parts; n is the width of one."""
    numbers = [program.tensors.vector([vector]) for vector in vectors]
    program.emit(op, after, x, before, *more, tensors=numbers, n=cell.hidden_size, p=p)


_WITHOUT_MATRICES: Final[dict[type, tuple[Op, str | None]]] = {
    LRN: (Op.LRN, "tanh"),
    MinGRU: (Op.MIN_GRU, "positive"),
    MinLSTM: (Op.MIN_LSTM, "positive"),
    OLRN: (Op.OLRN, "tanh"),  # of c, not of h
    SRU: (Op.SRU, None),
    SSRU: (Op.SSRU, None),
}
"""For each cell its instruction, and the option that is p."""

_STEPS: Final[dict[type, Callable[[Program, Any, Value, Value, Value], None]]] = {
    **dict.fromkeys(_WITHOUT_MATRICES, _without_matrices),
    ATR: _atr,
    GRU: _gru,
    LSTM: _lstm,
    RNN: _rnn,
}
"""By exact class, because a subclass may compute something else."""
