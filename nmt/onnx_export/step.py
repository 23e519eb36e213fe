"""The program of a step as an ONNX graph: last words and states in, logits, attention and new states out."""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import TensorProto

from nmt.interop.engine.program import Instruction, Lowered, Op, Value
from nmt.onnx_export.attention import additive, dot, placed, rotated
from nmt.onnx_export.encoder import MASK, WORDS, caches, memories
from nmt.onnx_export.graph import Graph, Term, op
from nmt.onnx_export.instructions import Emitter
from nmt.onnx_export.registers import Registers
from nmt.onnx_export.weights import OnnxPrecision, Weights

TOKENS, LOGITS, ATTENTION, NEXT = "tokens", "logits", "attention", "next_"
ROWS, SENTENCES, BEFORE, AFTER = "rows", "rows_or_1", "words_before", "words_after"
"""Names of dimensions."""


def step_graph(lowered: Lowered, *, precision: OnnxPrecision, vocabulary: int) -> Graph:
    """The graph of `STEP`, for a vocabulary of so many words."""
    graph = Graph()
    step = StepEmitter(graph, lowered, Weights(graph, lowered.tensors, precision))
    for one in lowered.step:
        step.emit(one)
    features = step.registers.read(lowered.features)
    logits = step.weights.product(features, lowered.table, rank=2)
    if lowered.bias is not None:
        logits = logits + step.weights.vector(lowered.bias)
    graph.output(logits, LOGITS, shape=[ROWS, vocabulary])
    graph.output(step.attention(), ATTENTION, shape=[ROWS, WORDS])
    for number, state in enumerate(lowered.states):
        new = step.registers.read(state.written)
        graph.output(new, f"{NEXT}state_{number}", shape=[ROWS, state.written.width])
    for name, width in caches(lowered):
        graph.output(step.caches[name], NEXT + name, shape=[ROWS, AFTER, width])
    return graph


class StepEmitter(Emitter):
    """For one hypothesis in each row."""

    def __init__(self, graph: Graph, lowered: Lowered, weights: Weights) -> None:
        super().__init__(Registers(self._missing), weights)
        self._graph = graph
        self._tokens = graph.input(TOKENS, kind=TensorProto.INT64, shape=[ROWS])
        self._mask = graph.input(MASK, kind=TensorProto.BOOL, shape=[SENTENCES, WORDS]).unsqueezed(2)
        for number, value in enumerate(memories(lowered)):
            term = graph.input(f"memory_{number}", shape=[SENTENCES, WORDS, value.width])
            self.registers.write(value, term)
        for number, state in enumerate(lowered.states):
            term = graph.input(f"state_{number}", shape=[ROWS, state.read.width])
            self.registers.write(state.read, term)
        self.caches = {name: graph.input(name, shape=[ROWS, BEFORE, width]) for name, width in caches(lowered)}
        """With the word of this step, once it is known."""
        self._before = {name: term.size(1) for name, term in self.caches.items()}
        self._weights_of: dict[int, Term] = {}
        self._heads = 0  # of all attentions

    def rank(self, value: Value) -> int:
        return 2

    def special(self, one: Instruction) -> Term:
        return _SPECIAL[one.op](self, one)

    def attention(self) -> Term:
        """The mean over all attentions and heads [N, S]."""
        every = [self._weights_of[number] for number in sorted(self._weights_of)]
        both = op("Concat", *every, axis=1)  # [N, attentions * heads, S]
        share = self._graph.stored(np.full((2, self._heads), 1 / self._heads, np.float32))
        # a product with two equal rows, as in the attention itself, so that no row depends on the others
        return op("Gather", op("MatMul", share, both), self._graph.integer(0), axis=1)

    def embedded(self, one: Instruction) -> Term:
        """[N, n], 0 where there is no word yet."""
        found = self.weights.rows(self._tokens, one.tensors[0]) + self.weights.vector(one.tensors[1])
        found = found if one.f == 1 else found * one.f
        is_word = op("Not", op("Equal", self._tokens, self._graph.integer(0))).unsqueezed(1)
        return op("Where", is_word, found, self._graph.number(0.0))

    def turned(self, one: Instruction) -> Term:
        """With rotary positions [N, n]; the position is the number of words that the caches have."""
        position = op("Cast", next(iter(self._before.values())), to=TensorProto.FLOAT).reshape(1, 1)
        return rotated(self.operand(one, 0), position, heads=one.p, width=one.n, rank=2)

    def placed(self, one: Instruction) -> Term:
        """With sinusoids [N, n]; the position is the number of words before."""
        return placed(self.operand(one, 0), self.operand(one, 1), width=one.n, slowest=one.p)

    def additive(self, one: Instruction) -> Term:
        """[N, n]"""
        score = self.weights.vector(one.tensors[0])
        query, keys, values = (self.operand(one, place) for place in range(3))
        return self._noted(one, additive(query, keys, values, score, mask=self._mask, heads=one.p))

    def dot(self, one: Instruction) -> Term:
        """[N, n]"""
        query, keys, values = (self.operand(one, place) for place in range(3))
        return self._noted(one, dot(query, keys, values, mask=self._mask, heads=one.p, width=one.n))

    def cached(self, one: Instruction) -> Term:
        """[N, n]"""
        query, *new = (self.operand(one, place) for place in range(3))
        names = [f"{what}_cache_{one.tensors[0]}" for what in ("key", "value")]
        for name, term in zip(names, new, strict=True):
            self.caches[name] = op("Concat", self.caches[name], term.unsqueezed(1), axis=1)
        keys, values = (self.caches[name] for name in names)
        return dot(query, keys, values, mask=None, heads=one.p, width=one.n)[0]

    def _noted(self, one: Instruction, found: tuple[Term, Term]) -> Term:
        self._weights_of[one.tensors[1]] = found[1]
        self._heads += one.p
        return found[0]

    def _missing(self, value: Value) -> Term:
        raise AssertionError(f"{value} is read before it is written")


_SPECIAL: Final = {
    Op.EMBED: StepEmitter.embedded,
    Op.ROTATE: StepEmitter.turned,
    Op.POSITIONS: StepEmitter.placed,
    Op.ATTEND_ADDITIVE: StepEmitter.additive,
    Op.ATTEND_DOT: StepEmitter.dot,
    Op.ATTEND_CACHE: StepEmitter.cached,
}
