"""The two programs of an engine's model file while they are made: registers, instructions, and what emits them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from torch import Tensor

from nmt.interop.engine.tensors import Tensors
from nmt.ops.unit import Unit

NONE: Final = 0xFFFFFFFF
"""A register or tensor that an instruction does not have."""


class Space(IntEnum):
    """How many rows a register has; see docs/engine_format.md."""

    SOURCE = 0
    ONE = 1
    STEP = 2


class Op(IntEnum):
    """Instructions by their numbers in the file."""

    EQUATION = 0
    """A step of a unit, as its equation has it, for exports without an instruction for each unit; not in files."""
    EMBED = 1
    LINEAR = 2
    NORM = 3
    RMS_NORM = 4
    ADD = 5
    ADD_VECTOR = 6
    COPY = 7
    TANH = 8
    SWIGLU = 9
    ROW = 10
    LOOP = 11
    ROTATE = 12
    POWERS = 13
    ATTEND_ADDITIVE = 14
    ATTEND_DOT = 15
    ATTEND_SELF = 16
    ATTEND_CACHE = 17
    LRN = 20
    OLRN = 21
    SRU = 22
    SSRU = 23
    MIN_GRU = 24
    MIN_LSTM = 25
    ATR = 26
    RNN = 27
    GRU_RESET = 28
    GRU = 29
    LSTM = 30


class Activation(IntEnum):
    """What LINEAR applies to its result."""

    NONE = 0
    RELU = 1
    TANH = 2


class Value(NamedTuple):
    """Some columns of a register."""

    register: int
    column: int
    width: int

    def part(self, start: int, width: int) -> Value:
        """`width` of its columns from `start` on."""
        assert start + width <= self.width
        return Value(self.register, self.column + start, width)

    def split(self, widths: Sequence[int]) -> list[Value]:
        """Its parts of these widths, side by side."""
        starts = [sum(widths[:i]) for i in range(len(widths))]
        return [self.part(start, width) for start, width in zip(starts, widths, strict=True)]


class Instruction(NamedTuple):
    """One instruction, as it is written."""

    op: Op
    out: Value | None
    operands: tuple[Value | None, ...]
    """a, b, c; fewer where it has fewer"""
    tensors: tuple[int, ...]
    """t0 to t3, fewer where it has fewer; also the numbers of caches and attentions"""
    n: int
    p: int
    f: float
    unit: Unit | None = None
    """Of EQUATION"""


class Register(NamedTuple):
    """Space and width of a register."""

    space: Space
    width: int


class StateRegisters(NamedTuple):
    """The registers of a state of the decoder, each of the same width."""

    read: Value
    written: Value
    first: Value
    """Of `ONE`; zeros unless the encoder's program writes it"""


class Program:
    """Instructions of `ENCO` or `STEP`, with the registers and tensors that both share.

    Emitting functions return where the result is: in `out`, or in a new register of the program's `space`.
    """

    def __init__(
        self, registers: list[Register], tensors: Tensors, *, space: Space, row: Space, equations: bool = False
    ) -> None:
        """
        Args:
            space: that of what is computed for all words of the source, or for all hypotheses.
            row: that of what a cell carries from step to step.
            equations: whether a step of a unit is one instruction, EQUATION.
        """
        self.registers, self.tensors, self.space, self.row = registers, tensors, space, row
        self.equations = equations
        self.instructions: list[Instruction] = []

    def new(self, width: int, space: Space | None = None) -> Value:
        """A new register."""
        self.registers.append(Register(self.space if space is None else space, width))
        return Value(len(self.registers) - 1, 0, width)

    def new_row(self, width: int) -> Value:
        """A new register of the space of states."""
        return self.new(width, self.row)

    def emit(
        self,
        op: Op,
        out: Value | None,
        *operands: Value | None,
        tensors: Sequence[int] = (),
        n: int | None = None,
        p: int = 0,
        f: float = 0.0,
        unit: Unit | None = None,
    ) -> None:
        """One more instruction; n is by default the width of `out`."""
        width = n if n is not None else 0 if out is None else out.width
        self.instructions.append(Instruction(op, out, operands, tuple(tensors), width, p, f, unit))

    def apply(self, op: Op, out: Value, *operands: Value | None, vectors: Sequence[Tensor] = (), p: int = 0) -> None:
        """An instruction with these vectors, whose n is the width of `out`."""
        self.emit(op, out, *operands, tensors=[self.tensors.vector([vector]) for vector in vectors], p=p)

    def linear(
        self,
        a: Value,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor | None] = (),
        *,
        out: Value | None = None,
        activation: Activation = Activation.NONE,
    ) -> Value:
        """The products of `a` with weights [M_i, K], side by side, each plus its bias [M_i] where there is one."""
        out = out or self.new(sum(len(weight) for weight in weights))
        tensors = [self.tensors.matrix(weights)]
        if any(bias is not None for bias in biases):
            both = zip(weights, biases, strict=True)
            tensors.append(self.tensors.vector([w.new_zeros(len(w)) if b is None else b for w, b in both]))
        self.emit(Op.LINEAR, out, a, tensors=tensors, p=activation)
        return out

    def norm(
        self, a: Value, scale: Tensor, offset: Tensor | None, *, epsilon: float, out: Value | None = None
    ) -> Value:
        """Layer norm, or RMS norm without an offset; `out` may be `a`."""
        out = out or self.new(a.width)
        vectors = [scale] if offset is None else [scale, offset]
        op = Op.RMS_NORM if offset is None else Op.NORM
        self.emit(op, out, a, tensors=[self.tensors.vector([vector]) for vector in vectors], f=epsilon)
        return out

    def add(self, out: Value, b: Value) -> None:
        """out + b, in the place of `out`."""
        self.emit(Op.ADD, out, out, b)

    @contextlib.contextmanager
    def loop(self, *, backward: bool) -> Iterator[None]:
        """The instructions of the block run for each word of the source, from the first, or from the last."""
        place = len(self.instructions)
        self.emit(Op.LOOP, None)
        yield
        inside = len(self.instructions) - place - 1
        self.instructions[place] = Instruction(Op.LOOP, None, (), (), inside, int(backward), 0.0)


class Lowered(NamedTuple):
    """A model as two programs."""

    registers: list[Register]
    tensors: Tensors
    encode: list[Instruction]
    step: list[Instruction]
    states: list[StateRegisters]
    table: int
    """Tensor that features are compared with"""
    features: Value
    attentions: int
    caches: int
