"""Lowering of the architecture `transformer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import nn

from nmt.interop.engine.decoders import Decoded, state_registers
from nmt.interop.engine.encoders import Encoded, bidirectional
from nmt.interop.engine.layers import block_norm, check_class, embed, linear
from nmt.interop.engine.program import NONE, Activation, Op, Program, StateRegisters, Value
from nmt.interop.engine.units import input_products, output, step
from nmt.models.base import Seq2Seq
from nmt.models.blocks import (
    AttentionMixing,
    BlockDecoder,
    BlockEncoder,
    BothWays,
    DecoderBlock,
    DotAttention,
    EncoderBlock,
    FeedForward,
    NormReadout,
    SelfAttention,
    SourceAttention,
    TargetWords,
    UnitMixing,
    Words,
    ZeroStates,
)
from nmt.models.parts import Linear


def lower_blocks(program: Program, model: Seq2Seq) -> Encoded:
    """The encoder, from the words on."""
    encoder = cast("BlockEncoder", model.encoder)
    check_class(encoder.words, Words)
    tables = model.embeddings
    x = embed(program, tables.source, tables.bias, factor=encoder.words.scale)
    for block in cast("list[EncoderBlock]", list(encoder.blocks)):
        check_class(block, EncoderBlock)
        program.add(x, _source_mixing(program, block.mixing, block_norm(program, block.norm, x)))
        _feed_forward(program, block.feed_forward, x)
    return Encoded(block_norm(program, encoder.norm, x), lambda: x)


def lower_block_decoder(encode: Program, program: Program, model: Seq2Seq, encoded: Encoded) -> Decoded:
    """Blocks over the words so far."""
    decoder = cast("BlockDecoder", model.decoder)
    check_class(model.initial_states, ZeroStates)
    check_class(decoder.words, TargetWords)
    check_class(model.readout, NormReadout)
    blocks = cast("list[DecoderBlock]", list(decoder.blocks))
    memories = _memories(encode, blocks, encoded.outputs)
    tables = model.embeddings
    x = embed(program, tables.target_table, tables.bias, factor=decoder.words.scale)
    program.apply(Op.ADD_VECTOR, x, x, vectors=[decoder.words.start])
    states, caches = list[StateRegisters](), 0
    for number, (block, (keys, values)) in enumerate(zip(blocks, memories, strict=True)):
        normed = block_norm(program, block.norm, x)
        check_class(block.mixing, UnitMixing, AttentionMixing)
        if isinstance(block.mixing, UnitMixing):
            states.append(state_registers(program, encode.new_row(block.mixing.cell.state_size)))
            mixed = _unit(program, block.mixing, normed, states[-1])
        else:
            mixed = _cached(program, cast("AttentionMixing", block.mixing).attention, normed, cache=caches)
            caches += 1
        program.add(x, mixed)
        query = linear(program, block.attention.query, block_norm(program, block.query_norm, x))
        found, heads = program.new(x.width), _heads(block.attention.attention)
        program.emit(Op.ATTEND_DOT, found, query, keys, values, tensors=[NONE, number], p=heads)
        program.add(x, linear(program, block.attention.out, found))
        if block.feed_forward is not None:
            _feed_forward(program, block.feed_forward, x)
    features = block_norm(program, cast("NormReadout", model.readout).norm, x)
    return Decoded(features, states, len(blocks), caches)


def _source_mixing(program: Program, mixing: nn.Module, x: Value) -> Value:
    check_class(mixing, BothWays, SelfAttention)
    if isinstance(mixing, BothWays):
        return linear(program, mixing.out, bidirectional(program, mixing.rnn, x).outputs)
    attention = cast("SelfAttention", mixing)
    query, key, value = _rotated(program, attention, x)
    found = program.new(x.width)
    program.emit(Op.ATTEND_SELF, found, query, key, value, p=_heads(attention.attention))
    return linear(program, attention.out, found)


def _unit(program: Program, mixing: UnitMixing, x: Value, state: StateRegisters) -> Value:
    (products,) = input_products(program, x, [mixing.cell])
    step(program, mixing.cell, products, state.read, state.written)
    return linear(program, mixing.out, output(program, mixing.cell, state.written))


def _cached(program: Program, attention: SelfAttention, x: Value, *, cache: int) -> Value:
    """Self-attention to the words so far."""
    query, key, value = _rotated(program, attention, x)
    found = program.new(x.width)
    program.emit(Op.ATTEND_CACHE, found, query, key, value, tensors=[cache], p=_heads(attention.attention))
    return linear(program, attention.out, found)


def _rotated(program: Program, attention: SelfAttention, x: Value) -> list[Value]:
    """Queries, keys and values of `x`, the first two turned by their positions."""
    check_class(attention, SelfAttention)
    width = x.width
    products = linear(program, attention.inputs, x)
    both = products.part(0, 2 * width)
    program.emit(Op.ROTATE, both, both, p=2 * _heads(attention.attention))
    return products.split([width] * 3)


def _heads(attention: DotAttention) -> int:
    check_class(attention, DotAttention)
    return attention.heads


def _memories(encode: Program, blocks: Sequence[DecoderBlock], memory: Value) -> list[tuple[Value, Value]]:
    """Keys and values of the blocks, by one product."""
    maps: list[Linear] = []
    for block in blocks:
        check_class(block, DecoderBlock)
        check_class(block.attention, SourceAttention)
        check_class(block.attention.source, Linear)
        maps.append(block.attention.source)
    found = encode.linear(memory, [each.weights[0] for each in maps], [each.bias for each in maps])
    keys_and_values = found.split([len(each.weights[0]) // 2 for each in maps for _ in range(2)])
    return list(zip(keys_and_values[::2], keys_and_values[1::2], strict=True))


def _feed_forward(program: Program, module: FeedForward, x: Value) -> None:
    check_class(module, FeedForward)
    normed = block_norm(program, module.norm, x)
    if module.gated:
        inner = linear(program, module.up, normed)
        gate, other = inner.split([inner.width // 2] * 2)
        program.emit(Op.SWIGLU, gate, gate, other)
        inner = gate
    else:
        inner = linear(program, module.up, normed, activation=Activation.RELU)
    program.add(x, linear(program, module.down, inner))
