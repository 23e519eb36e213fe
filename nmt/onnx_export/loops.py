"""Loops of the encoder's program as ONNX's Scan: one word of each sentence after the other."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from nmt.interop.engine.program import Instruction, Lowered, Space, Value
from nmt.onnx_export.graph import Graph, Term, op
from nmt.onnx_export.instructions import Emitter
from nmt.onnx_export.registers import Registers
from nmt.onnx_export.weights import Weights


class Loop(Emitter):
    """A loop, in which a register of `SOURCE` has the row of one word of each sentence."""

    def __init__(self, graph: Graph, outside: Registers, *, lowered: Lowered, weights: Weights, mask: Term) -> None:
        """
        Args:
            graph: that the loop is in, and `outside` what is in the registers there.
            mask: False for padding [B, S, 1].
        """
        super().__init__(Registers(self._missing), weights)
        self._graph, self._outside, self._lowered, self._mask = graph, outside, lowered, mask
        self._body = Graph(graph)
        self._scanned: list[Term] = []

    def run(self, inside: Sequence[Instruction], later: Sequence[Instruction], *, backward: bool) -> None:
        """The Scan of the instructions `inside` it; `later` are all that follow it."""
        carried = self._carried(inside, later)
        before = {value: self._body.input() for value in carried}
        for value, term in before.items():
            self.registers.write(value, term)
        is_word = self._scan(self._mask, kind=TensorProto.BOOL)
        for one in inside:
            self.emit(one)
        for value, term in before.items():  # padding leaves a state as it is
            self._body.output(op("Where", is_word, self.registers.read(value), term))
        written = [value for value in _written(inside) if self._space(value) == Space.SOURCE]
        for value in written:
            self._body.output(self.registers.read(value))
        first = [self._outside.read(value) for value in carried]
        ways = int(backward)
        found = self._graph.node(
            "Scan",
            [*first, *self._scanned],
            outputs=len(carried) + len(written),
            body=self._body.proto("loop"),
            num_scan_inputs=len(self._scanned),
            scan_input_axes=[1] * len(self._scanned),
            scan_input_directions=[ways] * len(self._scanned),
            scan_output_axes=[1] * len(written),
            scan_output_directions=[ways] * len(written),
        )
        for value, term in zip([*carried, *written], found, strict=True):
            self._outside.write(value, term)

    def rank(self, value: Value) -> int:
        return 2

    def special(self, one: Instruction) -> Term:
        raise AssertionError(f"{one.op.name} in a loop")

    def _space(self, value: Value) -> Space:
        return self._lowered.registers[value.register].space

    def _scan(self, term: Term, *, kind: int = TensorProto.FLOAT) -> Term:
        """The present word's row of a value that has one for each word."""
        self._scanned.append(term)
        return self._body.input(kind=kind)

    def _missing(self, value: Value) -> Term:
        term = self._outside.read(value)
        return self._scan(term) if self._space(value) == Space.SOURCE else term

    def _carried(self, inside: Sequence[Instruction], later: Sequence[Instruction]) -> list[Value]:
        """Whole registers of `ONE` that keep their values from one round to the next, or to what follows the loop."""
        known, found = set[tuple[int, int]](), set[int]()
        for one in inside:
            for value in one.operands:
                if value is not None and not _columns(value) <= known:
                    found.add(value.register)
            if one.out is not None:
                known |= _columns(one.out)
        after = {value.register for one in later for value in one.operands if value is not None}
        found |= after | {state.first.register for state in self._lowered.states}
        written = dict.fromkeys(value.register for value in _written(inside) if self._space(value) == Space.ONE)
        return [
            Value(register, 0, self._lowered.registers[register].width) for register in written if register in found
        ]


def _written(program: Sequence[Instruction]) -> list[Value]:
    return list(dict.fromkeys(one.out for one in program if one.out is not None))


def _columns(value: Value) -> set[tuple[int, int]]:
    return {(value.register, column) for column in range(value.column, value.column + value.width)}
