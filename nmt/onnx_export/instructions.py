"""The instructions of the engine's programs as ONNX nodes: those that are the same in both programs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from nmt.interop.engine.program import Activation, Instruction, Op, Value
from nmt.onnx_export.graph import Term, op
from nmt.onnx_export.registers import Registers
from nmt.onnx_export.units import stepped
from nmt.onnx_export.weights import Weights


class Emitter(ABC):
    """Makes nodes of what instructions compute, and keeps what is in the registers."""

    def __init__(self, registers: Registers, weights: Weights) -> None:
        self.registers, self.weights = registers, weights

    @abstractmethod
    def rank(self, value: Value) -> int:
        """Rank of the term of a value: 3 if it has all words at once."""

    @abstractmethod
    def special(self, one: Instruction) -> Term:
        """What an instruction computes that is not the same everywhere: embeddings, attention, positions, rows."""

    def emit(self, one: Instruction) -> None:
        """The nodes of an instruction."""
        assert one.out is not None
        if one.op == Op.EQUATION:
            stepped(one, self.registers, self.weights)
            return
        found = _PLAIN[one.op](self, one) if one.op in _PLAIN else self.special(one)
        self.registers.write(one.out, found)

    def operand(self, one: Instruction, place: int) -> Term:
        """Operand a, b or c, whole."""
        value = one.operands[place]
        assert value is not None
        return self.registers.read(value)


def _linear(emitter: Emitter, one: Instruction) -> Term:
    value = one.operands[0]
    assert value is not None
    found = emitter.weights.product(emitter.operand(one, 0), one.tensors[0], rank=emitter.rank(value))
    if len(one.tensors) > 1:
        found = found + emitter.weights.vector(one.tensors[1])
    return _ACTIVATIONS[Activation(one.p)](found)


def _gelu(a: Term) -> Term:
    return a * 0.5 * (op("Erf", a * math.sqrt(0.5)) + 1.0)


_ACTIVATIONS: Final[dict[Activation, Callable[[Term], Term]]] = {
    Activation.NONE: lambda a: a,
    Activation.RELU: lambda a: op("Relu", a),
    Activation.TANH: lambda a: op("Tanh", a),
    Activation.SWISH: lambda a: a * op("Sigmoid", a),
    Activation.GELU: _gelu,
}


def _norm(emitter: Emitter, one: Instruction) -> Term:
    vectors = (emitter.weights.vector(number) for number in one.tensors)
    return op("LayerNormalization", emitter.operand(one, 0), *vectors, axis=-1, epsilon=one.f)


def _rms_norm(emitter: Emitter, one: Instruction) -> Term:
    a = emitter.operand(one, 0)
    mean = op("ReduceMean", a * a, axes=[-1], keepdims=1)
    return a / op("Sqrt", mean + one.f) * emitter.weights.vector(one.tensors[0])


def _swiglu(emitter: Emitter, one: Instruction) -> Term:
    a = emitter.operand(one, 0)
    return a * op("Sigmoid", a) * emitter.operand(one, 1)


_PLAIN: Final[dict[Op, Callable[[Emitter, Instruction], Term]]] = {
    Op.LINEAR: _linear,
    Op.NORM: _norm,
    Op.RMS_NORM: _rms_norm,
    Op.ADD: lambda emitter, one: emitter.operand(one, 0) + emitter.operand(one, 1),
    Op.ADD_VECTOR: lambda emitter, one: emitter.operand(one, 0) + emitter.weights.vector(one.tensors[0]),
    Op.COPY: lambda emitter, one: emitter.operand(one, 0),
    Op.TANH: lambda emitter, one: op("Tanh", emitter.operand(one, 0)),
    Op.SWIGLU: _swiglu,
    # of keys alone, for an attention that the engine computes from powers, and these graphs from the keys
    Op.POWERS: lambda emitter, one: emitter.operand(one, 0),
}
