"""The encoder's program as an ONNX graph: sentences in, all that steps read of them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnx import TensorProto, helper

from nmt.interop.engine.program import Instruction, Lowered, Op, Space, Value
from nmt.onnx_export.attention import placed, rotated, self_attention
from nmt.onnx_export.graph import Graph, Term, op
from nmt.onnx_export.instructions import Emitter
from nmt.onnx_export.loops import Loop
from nmt.onnx_export.registers import Registers
from nmt.onnx_export.weights import OnnxPrecision, Weights

SOURCE, MASK = "source", "source_mask"
SENTENCES, WORDS = "sentences", "words"
"""Names of dimensions."""


def encoder_graph(lowered: Lowered, *, precision: OnnxPrecision) -> Graph:
    """The graph of `ENCO`."""
    graph = Graph()
    whole = EncoderEmitter(graph, lowered, Weights(graph, lowered.tensors, precision))
    whole.run(lowered.encode)
    graph.output(whole.mask, MASK, kind=TensorProto.BOOL, shape=[SENTENCES, WORDS])
    for number, value in enumerate(memories(lowered)):
        graph.output(whole.registers.read(value), f"memory_{number}", shape=[SENTENCES, WORDS, value.width])
    for number, state in enumerate(lowered.states):
        graph.output(whole.registers.read(state.first), f"state_{number}", shape=[SENTENCES, state.first.width])
    for name, width in caches(lowered):
        empty = graph.zeros(whole.count, graph.integers(0), graph.integers(width))
        graph.output(empty, name, shape=[SENTENCES, 0, width])
    return graph


def memories(lowered: Lowered) -> list[Value]:
    """What steps read of the source, in the order in which they do."""
    values = (value for one in lowered.step for value in one.operands if value is not None)
    return list(dict.fromkeys(value for value in values if lowered.registers[value.register].space == Space.SOURCE))


def caches(lowered: Lowered) -> list[tuple[str, int]]:
    """Names and widths of the keys and values of the words so far."""
    widths = {one.tensors[0]: one.n for one in lowered.step if one.op == Op.ATTEND_CACHE}
    return [(f"{what}_cache_{number}", widths[number]) for number in sorted(widths) for what in ("key", "value")]


class EncoderEmitter(Emitter):
    """For all words of all sentences at once."""

    def __init__(self, graph: Graph, lowered: Lowered, weights: Weights) -> None:
        super().__init__(Registers(self._missing), weights)
        self._graph, self._lowered = graph, lowered
        self._tokens = graph.input(SOURCE, kind=TensorProto.INT64, shape=[SENTENCES, WORDS])
        self.count = self._tokens.size(0)
        self.mask = op("Not", op("Equal", self._tokens, graph.integer(0)))  # [B, S]
        self.mask_column = self.mask.unsqueezed(2)

    def run(self, program: Sequence[Instruction]) -> None:
        """The nodes of the whole program."""
        place = 0
        while place < len(program):
            one, place = program[place], place + 1
            if one.op != Op.LOOP:
                self.emit(one)
                continue
            inside, later = program[place : place + one.n], program[place + one.n :]
            loop = Loop(self._graph, self.registers, lowered=self._lowered, weights=self.weights, mask=self.mask_column)
            loop.run(inside, later, backward=bool(one.p))
            place += one.n

    def space(self, value: Value) -> Space:
        """The space of the register of a value."""
        return self._lowered.registers[value.register].space

    def rank(self, value: Value) -> int:
        return 3 if self.space(value) == Space.SOURCE else 2

    def special(self, one: Instruction) -> Term:
        return _SPECIAL[one.op](self, one)

    def embedded(self, one: Instruction) -> Term:
        """[B, S, n]"""
        found = self.weights.rows(self._tokens, one.tensors[0]) + self.weights.vector(one.tensors[1])
        return found if one.f == 1 else found * one.f

    def row(self, one: Instruction) -> Term:
        """The first or the last word of each sentence [B, n]."""
        a = self.operand(one, 0)
        if not one.p:
            return op("Gather", a, self._graph.integer(0), axis=1)
        words = op("Cast", self.mask, to=TensorProto.INT64)
        last = op("ReduceSum", words, self._graph.integers(1), keepdims=1) - self._graph.integer(1)
        return op("GatherND", a, last, batch_dims=1)

    def turned(self, one: Instruction) -> Term:
        """With rotary positions [B, S, n]."""
        return rotated(self.operand(one, 0), self._places().reshape(-1, 1, 1), heads=one.p, width=one.n, rank=3)

    def placed(self, one: Instruction) -> Term:
        """With sinusoids [B, S, n]."""
        return placed(self.operand(one, 0), self._places().reshape(-1, 1), width=one.n, slowest=one.p)

    def _places(self) -> Term:
        """0 to S - 1."""
        ones = op("ConstantOfShape", self._tokens.size(1), value=_ONES)
        return op("CumSum", ones, self._graph.integer(0), exclusive=1)

    def attended(self, one: Instruction) -> Term:
        """Of all words to all, or to those up to them [B, S, n]."""
        query, keys, values = (self.operand(one, place) for place in range(3))
        later = None
        if one.op == Op.ATTEND_EARLIER:
            later = op("Cast", op("Less", self._places().reshape(-1, 1), self._places()), to=TensorProto.FLOAT)
        return self_attention(query, keys, values, mask=self.mask_column, heads=one.p, width=one.n, later=later)

    def _missing(self, value: Value) -> Term:
        """Registers with one row for each sentence begin with zeros."""
        assert self.space(value) == Space.ONE
        return self._graph.zeros(self.count, self._graph.integers(value.width))


_ONES: Final = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
_SPECIAL: Final = {
    Op.EMBED: EncoderEmitter.embedded,
    Op.ROW: EncoderEmitter.row,
    Op.ROTATE: EncoderEmitter.turned,
    Op.POSITIONS: EncoderEmitter.placed,
    Op.ATTEND_SELF: EncoderEmitter.attended,
    Op.ATTEND_EARLIER: EncoderEmitter.attended,
}
