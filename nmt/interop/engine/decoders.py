"""Lowering of the recurrent decoders: what they attend to, their states, and one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from torch import nn

from nmt.cells import Cell
from nmt.interop.engine.encoders import Encoded, residual
from nmt.interop.engine.layers import check_class, embed, layer_norm, linear
from nmt.interop.engine.program import Activation, Op, Program, StateRegisters, Value
from nmt.interop.engine.units import input_products, output, step
from nmt.models.attention import AdditiveAttention, AttentionQuery
from nmt.models.base import Seq2Seq
from nmt.models.decoder import (
    AttendingLayer,
    AttendingRNN,
    AttentionRNN,
    ConcatenatingLayer,
    ContextLayer,
    DecoderLayer,
    DeepAttentionRNN,
    DeepDecoder,
    ShallowDecoder,
)
from nmt.models.encoder import OneToOneRNN
from nmt.models.parts import InitialStates, Linear, Readout, TanhReadout


class Memory(NamedTuple):
    """What an attention reads of the source."""

    powers: Value
    values: Value


class Decoded(NamedTuple):
    """What the step of a decoder needs from a search, and what it hands back."""

    features: Value
    states: list[StateRegisters]
    attentions: int
    caches: int = 0


def lower_deep(encode: Program, program: Program, model: Seq2Seq, encoded: Encoded) -> Decoded:
    """Residual layers over the words so far; the first one attends."""
    decoder = cast("DeepDecoder", model.decoder)
    layers = cast("list[DecoderLayer]", list(decoder.layers))
    memories = iter(_memories(encode, [_attention_of(layer) for layer in layers], encoded.outputs))
    states = initial_states(encode, program, model, encoded)
    width, memory_size = model.embeddings.bias.numel(), encoded.outputs.width
    # side by side, as layers and readouts that read both take them
    both = program.new(width + memory_size)
    x, context = both.split([width, memory_size])
    embed(program, model.embeddings.target_table, model.embeddings.bias, factor=1.0, out=x)
    contexts: dict[int, Value] = {}
    attentions = 0
    for place, (layer, state) in enumerate(zip(layers, states, strict=True)):
        first, last = _cells(layer)
        (products,) = input_products(program, both if isinstance(layer, ConcatenatingLayer) else x, [first])
        step(program, first, products, state.read, state.written)
        if isinstance(layer, AttendingLayer):
            query = output(program, first, state.written)
            attention = cast("AttentionRNN", layer.rnn).attention
            _attend(program, attention, query, next(memories), out=context, number=attentions)
            attentions += 1
            readers = [place, *_readers(layers, place)]
            found = input_products(program, context, [_cells(layers[reader])[1] for reader in readers])
            contexts = dict(zip(readers, found, strict=True))
        if place in contexts:
            step(program, last, contexts[place], state.written, state.written)
        residual(program, decoder.residuals[place], x, output(program, last, state.written))
    return Decoded(_readout(program, model.readout, both, [x, context]), states, attentions)


def lower_shallow(encode: Program, program: Program, model: Seq2Seq, encoded: Encoded) -> Decoded:
    """One layer that attends, once or in several levels."""
    decoder = cast("ShallowDecoder", model.decoder)
    (layer,) = decoder.layers
    check_class(layer, AttendingLayer)
    rnn = cast("AttendingRNN", layer.rnn)
    check_class(rnn, AttentionRNN, DeepAttentionRNN)
    levels = rnn.levels
    (memory,) = _memories(encode, [levels[0][0]], encoded.outputs)
    (state,) = initial_states(encode, program, model, encoded)
    widths = [rnn.lower.hidden_size, len(levels) * memory.values.width, model.embeddings.bias.numel()]
    all_pieces = program.new(sum(widths))
    hidden, contexts, x = pieces = all_pieces.split(widths)
    embed(program, model.embeddings.target_table, model.embeddings.bias, factor=1.0, out=x)
    (products,) = input_products(program, x, [rnn.lower])
    step(program, rnn.lower, products, state.read, state.written)
    cell = rnn.lower
    each = contexts.split([memory.values.width] * len(levels))
    for number, ((attention, higher), context) in enumerate(zip(levels, each, strict=True)):
        query = output(program, cell, state.written)
        _attend(program, attention, query, memory, out=context, number=number)
        (products,) = input_products(program, context, [higher])
        step(program, higher, products, state.written, state.written)
        cell = higher
    output(program, cell, state.written, out=hidden)
    return Decoded(_readout(program, model.readout, all_pieces, pieces), [state], len(levels))


def initial_states(encode: Program, program: Program, model: Seq2Seq, encoded: Encoded) -> list[StateRegisters]:
    """The states of the layers of a decoder, from what the encoder read last."""
    module = model.initial_states
    check_class(module, InitialStates)
    last, states = encoded.last(), []
    activation = Activation.TANH if module.tanh else Activation.NONE
    for each in cast("list[Linear]", list(module.maps)):
        first = linear(encode, each, last, activation=activation, out=encode.new_row(len(each.weights[0])))
        states.append(state_registers(program, first))
    return states


def state_registers(program: Program, first: Value) -> StateRegisters:
    """The registers of a state of the decoder that begins as `first`, a register of `ONE`."""
    return StateRegisters(program.new(first.width), program.new(first.width), first)


def _attention_of(layer: DecoderLayer) -> AttentionQuery | None:
    """The attention of a layer of a deep decoder, None if it has none."""
    check_class(layer, AttendingLayer, ContextLayer, ConcatenatingLayer)
    if isinstance(layer, ContextLayer):
        check_class(layer.rnn, OneToOneRNN)
    if not isinstance(layer, AttendingLayer):
        return None
    check_class(layer.rnn, AttentionRNN)
    return layer.rnn.attention if isinstance(layer.rnn, AttentionRNN) else None


def _readers(layers: Sequence[DecoderLayer], place: int) -> list[int]:
    """The places of the layers that read the context of the layer at `place` in a second cell."""
    found = []
    for later in range(place + 1, len(layers)):
        if isinstance(layers[later], AttendingLayer):
            break
        if isinstance(layers[later], ContextLayer):
            found.append(later)
    return found


def _cells(layer: Any) -> tuple[Cell[Any], Cell[Any]]:
    """The cells that a layer begins and ends with; where it has one they are the same."""
    return (layer.cell, layer.cell) if isinstance(layer, ConcatenatingLayer) else (layer.rnn.lower, layer.rnn.higher)


def _memories(encode: Program, attentions: Sequence[AttentionQuery | None], values: Value) -> list[Memory]:
    """What each of these attentions reads: one product for the keys of all of them."""
    own = [attention for attention in attentions if attention is not None]
    for attention in own:
        check_class(attention, AdditiveAttention)
    maps = [cast("AdditiveAttention", attention).memory for attention in own]
    for each in maps:
        check_class(each, Linear)
    keys = encode.linear(values, [each.weights[0] for each in maps])
    parts = keys.split([values.width] * len(own))
    for each, part in zip(maps, parts, strict=True):
        for norm in each.norms:
            layer_norm(encode, norm, part)
    encode.emit(Op.POWERS, keys, keys)
    return [Memory(part, values) for part in parts]


def _attend(
    program: Program, attention: AttentionQuery, query: Value, memory: Memory, *, out: Value, number: int
) -> None:
    check_class(attention, AdditiveAttention, AttentionQuery)
    asked = linear(program, attention.query, query)
    program.tensors.use(attention.score_bias)  # the same at all positions, so it does not change the weights
    tensors = [program.tensors.vector([attention.score_weight]), number]
    program.emit(Op.ATTEND_ADDITIVE, out, asked, memory.powers, memory.values, tensors=tensors, p=attention.heads)


def _readout(program: Program, readout: nn.Module, joined: Value, pieces: Sequence[Value]) -> Value:
    """The features, from pieces that stand side by side in `joined`."""
    check_class(readout, Readout, TanhReadout)
    if not isinstance(readout, TanhReadout):
        features = program.new(pieces[0].width)
        program.emit(Op.COPY, features, pieces[0])
        return features
    one_product = readout.joined or not readout.linear.norms
    inputs = [joined] if one_product else pieces
    return linear(program, readout.linear, *inputs, activation=Activation.TANH)
