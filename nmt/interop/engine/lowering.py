"""A model as the two programs of the engine, by a walk through its modules; then registers are shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.errors import ConfigError
from nmt.interop.engine.decoders import lower_deep, lower_shallow
from nmt.interop.engine.encoders import lower_encoder
from nmt.interop.engine.layers import check_class, embed, unknown
from nmt.interop.engine.program import Instruction, Lowered, Op, Program, Register, Space, StateRegisters, Value
from nmt.interop.engine.tensors import Precision, Tensors
from nmt.interop.engine.transformer import lower_block_decoder, lower_blocks
from nmt.models.base import Seq2Seq
from nmt.models.blocks import BlockDecoder, BlockEncoder
from nmt.models.decoder import DeepDecoder, ShallowDecoder
from nmt.models.parts import Embeddings
from nmt.models.recurrent import DeepNMT, RNNSearch, RNNSearchDeepAtt
from nmt.models.transformer import Transformer
from nmt.registry import MODELS

_ARCHITECTURES = (DeepNMT, RNNSearch, RNNSearchDeepAtt, Transformer)
_DECODERS = {BlockDecoder: lower_block_decoder, DeepDecoder: lower_deep, ShallowDecoder: lower_shallow}


def lower(model: Seq2Seq, *, precision: Precision, equations: bool = False) -> Lowered:
    """The programs and tensors of a model as a search runs it.

    With `equations` a step of any unit is one instruction that has its equation, which the engine cannot run.

    Raises ConfigError for a class that the engine does not know, as one of a plugin.
    """
    if type(model) not in _ARCHITECTURES:
        raise unknown(model, *_ARCHITECTURES, registry=MODELS)
    check_class(model.embeddings, Embeddings)
    registers, tensors, tables = list[Register](), Tensors(precision), model.embeddings
    encode = Program(registers, tensors, space=Space.SOURCE, row=Space.ONE, equations=equations)
    step = Program(registers, tensors, space=Space.STEP, row=Space.STEP, equations=equations)
    if type(model.encoder) is BlockEncoder:
        encoded = lower_blocks(encode, model)
    else:
        x = embed(encode, tables.source, tables.bias, factor=1.0)
        encoded = lower_encoder(encode, model.encoder, x)
    if type(model.decoder) not in _DECODERS:
        raise unknown(model.decoder, *_DECODERS)
    decoded = _DECODERS[type(model.decoder)](encode, step, model, encoded)
    table = tensors.matrix([tables.softmax_table])
    _check_complete(model, tensors)
    lowered = Lowered(
        registers,
        tensors,
        encode.instructions,
        step.instructions,
        decoded.states,
        table,
        decoded.features,
        decoded.attentions,
        decoded.caches,
    )
    return shared(lowered)


def _check_complete(model: Seq2Seq, tensors: Tensors) -> None:
    """Raise ConfigError if the model has weights that no program reads: then something of it is not understood."""
    missing = [name for name, parameter in model.named_parameters() if not tensors.has(parameter)]
    if missing:
        raise ConfigError(f"model.architecture: the engine does not know what the weight {missing[0]} is for")


@dataclass
class _Life:
    """Where a register is in use: positions of instructions, counted through `ENCO` and on through `STEP`."""

    first: int
    last: int


@dataclass
class _Slot:
    """A register of the file, and the last place at which it is in use."""

    number: int
    register: Register
    last: int


def shared(lowered: Lowered) -> Lowered:
    """The same programs with fewer registers; those that no instruction has are left out.

    Registers that are needed at different times become one, so that the engine needs less memory.
    """
    lives = _lives(lowered)
    kept = _kept(lowered)
    slots: list[_Slot] = []
    numbers: dict[int, int] = {}
    for register in sorted(lives, key=lambda register: (lives[register].first, register)):
        life, own = lives[register], lowered.registers[register]
        free = (slot for slot in slots if slot.register == own and slot.last < life.first)
        slot = None if register in kept else next(free, None)
        if slot is None:
            slot = _Slot(len(slots), own, life.last)
            slots.append(slot)
        slot.last = len(lowered.encode) + len(lowered.step) if register in kept else life.last
        numbers[register] = slot.number
    return lowered._replace(
        registers=[slot.register for slot in slots],
        encode=_renumbered(lowered.encode, numbers),
        step=_renumbered(lowered.step, numbers),
        states=[StateRegisters(*(_moved(value, numbers) for value in state)) for state in lowered.states],
        features=_moved(lowered.features, numbers),
    )


def _kept(lowered: Lowered) -> set[int]:
    """Registers that are alone in their place: states, what begins with 0 or outlives its program."""
    found = {value.register for state in lowered.states for value in state}
    found.add(lowered.features.register)
    found |= {number for number, register in enumerate(lowered.registers) if register.space == Space.ONE}
    encoded = {value.register for one in lowered.encode for value in _values(one)}
    return found | {value.register for one in lowered.step for value in _values(one) if value.register in encoded}


def _lives(lowered: Lowered) -> dict[int, _Life]:
    found: dict[int, _Life] = {}
    for state in lowered.states:
        for value in state:
            found.setdefault(value.register, _Life(0, 0))
    start = 0
    for program in (lowered.encode, lowered.step):
        for place, (one, span) in enumerate(zip(program, _spans(program), strict=True)):
            for value in _values(one):
                life = found.setdefault(value.register, _Life(start + place, start + place))
                life.first, life.last = min(life.first, start + span[0]), max(life.last, start + span[1])
        start += len(program)
    return found


def _spans(program: Sequence[Instruction]) -> list[tuple[int, int]]:
    """For each instruction the places from which and until which it may run: those of its loop."""
    spans = [(place, place) for place in range(len(program))]
    for place, one in enumerate(program):
        if one.op == Op.LOOP:
            for inside in range(place, place + one.n + 1):
                spans[inside] = (place, place + one.n)
    return spans


def _values(one: Instruction) -> list[Value]:
    return [value for value in (one.out, *one.operands) if value is not None]


def _renumbered(program: Sequence[Instruction], numbers: dict[int, int]) -> list[Instruction]:
    return [
        one._replace(
            out=None if one.out is None else _moved(one.out, numbers),
            operands=tuple(None if value is None else _moved(value, numbers) for value in one.operands),
        )
        for one in program
    ]


def _moved(value: Value, numbers: dict[int, int]) -> Value:
    return value._replace(register=numbers[value.register])
