"""One step of each recurrent unit in ONNX nodes; docs/engine_format.md has the equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from nmt.interop.engine.program import Op
from nmt.onnx_export.graph import Term, op


class Operands(NamedTuple):
    """What an instruction of a unit reads; parts of it, each of the width of a state, are asked for by their places."""

    a: Callable[[int], Term]
    b: Callable[[int], Term]
    c: Callable[[int], Term]
    vector: Callable[[int], Term]
    """A vector of the instruction, as it is"""
    has_vector: Callable[[int], bool]
    n: int
    p: int


def sigmoid(x: Term) -> Term:
    return op("Sigmoid", x)


def tanh(x: Term) -> Term:
    return op("Tanh", x)


def _relu(x: Term) -> Term:
    return op("Relu", x)


def _beside(*parts: Term) -> Term:
    return op("Concat", *parts, axis=-1)


def _positive(x: Term) -> Term:
    """x + 0.5 where x >= 0, else sigmoid(x)."""
    return op("Where", op("GreaterOrEqual", x, x.graph.number(0.0)), x + 0.5, sigmoid(x))


def _lrn(x: Operands) -> Term:
    h = x.b(0)
    found = sigmoid(x.a(0) + h) * x.a(2) + sigmoid(x.a(1) - h) * h
    return tanh(found) if x.p else found


def _olrn(x: Operands) -> Term:
    c = _lrn(x)
    return sigmoid(x.a(3) - c) * c


def _sru(x: Operands) -> Term:
    c = x.b(1)
    f, r = sigmoid(x.a(1) + x.vector(0) * c), sigmoid(x.a(0) + x.vector(1) * c)
    c = f * c + (1.0 - f) * x.a(2)
    return _beside(r * c + (1.0 - r) * x.a(3), c)


def _ssru(x: Operands) -> Term:
    f = sigmoid(x.a(0) + x.vector(0))
    c = f * x.b(1) + (1.0 - f) * x.a(1)
    return _beside(_relu(c), c)


def _min_gru(x: Operands) -> Term:
    h, z, g = x.b(0), sigmoid(x.a(0) + x.vector(0)), x.a(1) + x.vector(1)
    return h + z * ((_positive(g) if x.p else g) - h)


def _min_lstm(x: Operands) -> Term:
    f, i, g = sigmoid(x.a(0) + x.vector(0)), sigmoid(x.a(1) + x.vector(1)), x.a(2) + x.vector(2)
    total = f + i
    return f / total * x.b(0) + i / total * (_positive(g) if x.p else g)


def _atr(x: Operands) -> Term:
    gates, activation = divmod(x.p, 3)
    v, q = x.a(0), x.c(0) + x.vector(0)
    if gates == 1:
        f = sigmoid(v - q)
        i = 1.0 - f
    else:
        i = sigmoid(v + q)
        f = 1.0 - i if gates == 2 else sigmoid(v - q)
    found = i * (tanh(v) if activation == 2 else v) + f * x.b(0)
    return tanh(found) if activation == 1 else found


def _rnn(x: Operands) -> Term:
    total = x.a(0) + x.c(0) + x.vector(0)
    return _relu(total) if x.p else tanh(total)


def _gru_reset(x: Operands) -> Term:
    return sigmoid(x.a(1) + x.c(1) + x.vector(0).part(x.n, x.n)) * x.b(0)


def _gru(x: Operands) -> Term:
    biases = x.vector(0)
    z = sigmoid(x.a(0) + x.c(0) + biases.part(0, x.n))
    v = x.c(2) + x.vector(1)
    if x.p:
        v = sigmoid(x.a(1) + x.c(1) + biases.part(x.n, x.n)) * v
    return z * x.b(0) + (1.0 - z) * tanh(x.a(2) + v)


def _lstm(x: Operands) -> Term:
    before, biases = x.b(1), x.vector(0)
    i, f, o, g = (x.a(k) + x.c(k) + biases.part(k * x.n, x.n) for k in range(4))
    if x.has_vector(1):
        i, f = i + x.vector(1) * before, f + x.vector(2) * before
    c = sigmoid(i) * tanh(g) + sigmoid(f) * before
    if x.has_vector(1):
        o = o + x.vector(3) * c
    return _beside(sigmoid(o) * (c if x.p else tanh(c)), c)


UNITS: Final[dict[Op, Callable[[Operands], Term]]] = {
    Op.LRN: _lrn,
    Op.OLRN: _olrn,
    Op.SRU: _sru,
    Op.SSRU: _ssru,
    Op.MIN_GRU: _min_gru,
    Op.MIN_LSTM: _min_lstm,
    Op.ATR: _atr,
    Op.RNN: _rnn,
    Op.GRU_RESET: _gru_reset,
    Op.GRU: _gru,
    Op.LSTM: _lstm,
}
