"""The two programs of an engine's model file while they are made: tensors, registers, instructions, their emission.

Registers that are needed at different times become one in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import accumulate
from typing import Final, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.errors import ConfigError
from nmt.ops.matrices import quantize_rows
from nmt.ops.unit import Unit

Precision = Literal["int8", "fp32", "bf16"]

NONE: Final = 0xFFFFFFFF
"""A register or tensor that an instruction does not have."""
STRIP: Final = 32
"""Rows of a matrix that are stored together."""
SMALLEST_INT8: Final = 16
"""Columns from which on a matrix is stored in int8 where that is asked for."""


class Kind(IntEnum):
    """Types of tensors by their numbers in the file."""

    VECTOR = 0
    F32 = 1
    BF16 = 2
    INT8 = 3


GROUPS: Final = {Kind.F32: 1, Kind.BF16: 2, Kind.INT8: 4}
"""Neighbouring columns of a matrix that lie together."""


class Stored(NamedTuple):
    """A tensor in the form of the file."""

    kind: Kind
    rows: int
    columns: int
    values: bytes
    scales: bytes = b""
    """f32 of each row; only int8"""
    sums: bytes = b""
    """i32 of each row; only int8"""


class Tensors:
    """The tensors of a model in the order of the file; a tensor used twice is stored once."""

    def __init__(self, precision: Precision, *, scales: Mapping[int, Tensor]) -> None:
        """`scales`: by the id of a matrix, what the whole numbers of each row are multiplied with in int8."""
        self.precision, self._scales = precision, scales
        self._parts: list[tuple[Tensor, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._used = set[int]()

    def __len__(self) -> int:
        return len(self._parts)

    def number(self, *parts: Tensor) -> int:
        """That of the matrix of these parts [M_i, K], one below the other, or of the vector of these [K_i]."""
        key = tuple(map(id, parts))
        if key not in self._numbers:
            self._numbers[key] = len(self._parts)
            self._parts.append(parts)  # kept, so that no other tensor gets its id
            self.use(*parts)
        return self._numbers[key]

    def use(self, *parameters: Tensor) -> None:
        """Note that these are in the file, or that no translation depends on them."""
        self._used.update(map(id, parameters))

    def has(self, parameter: Tensor) -> bool:
        """Whether it, or a tensor that contains it, is in the file."""
        return id(parameter) in self._used

    def values(self, number: int) -> Tensor:
        """The tensor of this number in fp32, a matrix [M, K] or a vector [K]."""
        return torch.cat([part.detach() for part in self._parts[number]]).float().cpu()

    def stored(self) -> Iterator[Stored]:
        """All of them, as they are written, one after the other.

        ConfigError for what the engine refuses: a sum of two finite weights can be infinite.
        """
        for number in range(len(self)):
            values = self.values(number)
            if not bool(values.isfinite().all()):
                raise ConfigError("model: the sum of a bias and an offset of a layer norm is beyond the range of fp32")
            scales = [self._scales.get(id(part)) for part in self._parts[number]]
            known = [part for part in scales if part is not None]
            yield self._stored(values, torch.cat(known).unsqueeze(1) if len(known) == len(scales) else None)

    def size(self) -> int:
        """Bytes of all tensors, without gaps between them; known without their values."""
        total = 0
        for parts in self._parts:
            rows, columns = sum(map(len, parts)), parts[0].shape[-1]
            kind = self._kind(parts[0])
            if kind == Kind.VECTOR:
                total += 4 * rows
            else:
                group = GROUPS[kind]
                total += (rows + -rows % STRIP) * (columns + -columns % group) * 4 // group
                total += 8 * rows if kind == Kind.INT8 else 0
        return total

    def _kind(self, tensor: Tensor) -> Kind:
        if tensor.dim() == 1:
            return Kind.VECTOR
        if self.precision == "int8":
            return Kind.INT8 if tensor.shape[-1] >= SMALLEST_INT8 else Kind.F32
        return Kind.BF16 if self.precision == "bf16" else Kind.F32

    def _stored(self, tensor: Tensor, scales: Tensor | None) -> Stored:
        kind = self._kind(tensor)
        if kind == Kind.VECTOR:
            return Stored(kind, 1, len(tensor), _bytes(tensor))
        rows, columns = tensor.shape
        if kind == Kind.INT8:
            values, scales = quantize_rows(tensor, scales)
            sums = values.sum(1, dtype=torch.int32)
            return Stored(kind, rows, columns, _bytes(_strips(values, kind)), _bytes(scales), _bytes(sums))
        # numpy has no bf16
        values = tensor.to(torch.bfloat16).view(torch.int16) if kind == Kind.BF16 else tensor
        return Stored(kind, rows, columns, _bytes(_strips(values, kind)))


def _strips(matrix: Tensor, kind: Kind) -> Tensor:
    """The values of a matrix [M, K] in the order of the file, [strips, groups, STRIP, size of a group]."""
    rows, columns = matrix.shape
    group = GROUPS[kind]
    padded = F.pad(matrix, (0, -columns % group, 0, -rows % STRIP))
    return padded.view(-1, STRIP, padded.shape[1] // group, group).transpose(1, 2).contiguous()


def _bytes(tensor: Tensor) -> bytes:
    array = tensor.contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


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
    POSITIONS = 18
    ATTEND_EARLIER = 19
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
    SWISH = 3
    GELU = 4


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
        return [self.part(end - width, width) for end, width in zip(accumulate(widths), widths, strict=True)]


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

    @property
    def values(self) -> list[Value]:
        """What it reads or writes."""
        return [value for value in (self.out, *self.operands) if value is not None]


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

    def __init__(self, registers: list[Register], tensors: Tensors, *, space: Space, equations: bool = False) -> None:
        """
        Args:
            space: that of what is computed for all words of the source, or for all hypotheses.
            equations: whether a step of a unit is one instruction, EQUATION.
        """
        self.registers, self.tensors, self.space, self.equations = registers, tensors, space, equations
        self.instructions: list[Instruction] = []

    def new(self, width: int, space: Space | None = None) -> Value:
        """A new register."""
        self.registers.append(Register(self.space if space is None else space, width))
        return Value(len(self.registers) - 1, 0, width)

    def new_row(self, width: int) -> Value:
        """A new register for what a cell carries from step to step."""
        return self.new(width, Space.ONE if self.space == Space.SOURCE else Space.STEP)

    def emit(
        self,
        op: Op,
        out: Value | None,
        *operands: Value | None,
        weights: Sequence[Tensor] = (),
        numbers: Sequence[int] = (),
        n: int | None = None,
        p: int = 0,
        f: float = 0.0,
        unit: Unit | None = None,
    ) -> None:
        """One more instruction; its tensors are `weights`, then `numbers`. n is by default the width of `out`."""
        width = n if n is not None else 0 if out is None else out.width
        tensors = (*map(self.tensors.number, weights), *numbers)
        self.instructions.append(Instruction(op, out, operands, tensors, width, p, f, unit))

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
        out = out or self.new(sum(map(len, weights)))
        numbers = [self.tensors.number(*weights)]
        if any(bias is not None for bias in biases):
            both = zip(weights, biases, strict=True)
            numbers.append(self.tensors.number(*(w.new_zeros(len(w)) if b is None else b for w, b in both)))
        self.emit(Op.LINEAR, out, a, numbers=numbers, p=activation)
        return out

    def norm(
        self, a: Value, scale: Tensor, offset: Tensor | None, *, epsilon: float, out: Value | None = None
    ) -> Value:
        """Layer norm, or RMS norm without an offset; `out` may be `a`."""
        out = out or self.new(a.width)
        if offset is None:
            self.emit(Op.RMS_NORM, out, a, weights=[scale], f=epsilon)
        else:
            self.emit(Op.NORM, out, a, weights=[scale, offset], f=epsilon)
        return out

    def add(self, out: Value, b: Value) -> None:
        """out + b, in the place of `out`."""
        self.emit(Op.ADD, out, out, b)

    @contextlib.contextmanager
    def loop(self, *, backward: bool) -> Iterator[None]:
        """The instructions of the block run for each word of the source, from the first, or from the last."""
        place = len(self.instructions)
        self.emit(Op.LOOP, None, p=int(backward))
        yield
        self.instructions[place] = self.instructions[place]._replace(n=len(self.instructions) - place - 1)


class Lowered(NamedTuple):
    """A model as two programs."""

    registers: list[Register]
    tensors: Tensors
    encode: list[Instruction]
    step: list[Instruction]
    table: int
    """Tensor that features are compared with"""
    bias: int | None
    """Tensor that is added to the logits"""
    features: Value
    states: list[StateRegisters]
    attentions: int
    caches: int


def shared(lowered: Lowered) -> Lowered:
    """The same programs with fewer registers; those that no instruction has are left out.

    Registers that are needed at different times become one, so that the engine needs less memory.
    """
    lives, alone = _lives(lowered), _alone(lowered)
    registers, last = list[Register](), list[int]()
    numbers: dict[int, int] = {}
    for register in sorted(lives, key=lambda register: (lives[register][0], register)):
        own, (first, end) = lowered.registers[register], lives[register]
        free = (number for number, known in enumerate(registers) if known == own and last[number] < first)
        number = None if register in alone else next(free, None)
        if number is None:
            number = len(registers)
            registers.append(own)
            last.append(end)
        last[number] = len(lowered.encode) + len(lowered.step) if register in alone else end
        numbers[register] = number

    def moved(value: Value) -> Value:
        return value._replace(register=numbers[value.register])

    def renumbered(program: Sequence[Instruction]) -> list[Instruction]:
        return [
            one._replace(
                out=None if one.out is None else moved(one.out),
                operands=tuple(None if value is None else moved(value) for value in one.operands),
            )
            for one in program
        ]

    return lowered._replace(
        registers=registers,
        encode=renumbered(lowered.encode),
        step=renumbered(lowered.step),
        states=[StateRegisters(*map(moved, state)) for state in lowered.states],
        features=moved(lowered.features),
    )


def _alone(lowered: Lowered) -> set[int]:
    """Registers that are alone in their place: states, what begins with 0 or outlives its program."""
    found = {value.register for state in lowered.states for value in state}
    found.add(lowered.features.register)
    found |= {number for number, register in enumerate(lowered.registers) if register.space == Space.ONE}
    encoded, stepped = ({value.register for one in part for value in one.values} for part in lowered[2:4])
    return found | (encoded & stepped)


def _lives(lowered: Lowered) -> dict[int, tuple[int, int]]:
    """Where each register is in use, from and until which instruction, counted through `ENCO` and on through `STEP`."""
    found = {value.register: (0, 0) for state in lowered.states for value in state}
    start = 0
    for program in (lowered.encode, lowered.step):
        spans = [(place, place) for place in range(start, start + len(program))]
        for place, one in enumerate(program):
            if one.op == Op.LOOP:  # its instructions may run from its first place until its last
                spans[place : place + one.n + 1] = [(start + place, start + place + one.n)] * (one.n + 1)
        for one, (first, last) in zip(program, spans, strict=True):
            for value in one.values:
                before = found.get(value.register, (first, last))
                found[value.register] = min(first, before[0]), max(last, before[1])
        start += len(program)
    return found
