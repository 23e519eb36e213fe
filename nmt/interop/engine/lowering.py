"""A model as the two programs of the engine, by a walk through its modules: encoders, decoders, units, linear maps.

Modules are known by their exact class, because a subclass may compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import torch
from torch import Tensor, nn

from nmt.cells import ATR, GRU, LRN, LSTM, OLRN, RNN, SRU, SSRU, Cell, MinGRU, MinLSTM
from nmt.cells.base import RecurrentCell, UnitCell
from nmt.errors import ConfigError
from nmt.interop.engine.program import (
    NONE,
    Activation,
    Lowered,
    Op,
    Precision,
    Program,
    Register,
    Space,
    StateRegisters,
    Tensors,
    Value,
    shared,
)
from nmt.models import blocks
from nmt.models import decoder as decoders
from nmt.models import encoder as encoders
from nmt.models.attention import AdditiveAttention, AttentionQuery
from nmt.models.base import Seq2Seq
from nmt.models.parts import Embeddings, InitialStates, LayerNorm, Linear, Readout, TanhReadout
from nmt.models.recurrent import DeepNMT, RNNSearch, RNNSearchDeepAtt
from nmt.models.transformer import Transformer
from nmt.ops.recurrence import EPSILON, Projection, Recurrent
from nmt.ops.unit import Unit
from nmt.registry import CELLS, MODELS, PLUGIN_PREFIX, Registry


class Encoded(NamedTuple):
    """What a layer, or a whole encoder, puts out."""

    outputs: Value
    """Of `SOURCE`"""
    last: Callable[[], Value]
    """Emits what computes, in the space `ONE`, what the initial states are made from"""


class Decoded(NamedTuple):
    """What the step of a decoder needs from a search, and what it hands back."""

    features: Value
    states: list[StateRegisters]
    attentions: int
    caches: int = 0


def lower(
    model: Seq2Seq, *, precision: Precision, equations: bool = False, scales: Mapping[str, Tensor] | None = None
) -> Lowered:
    """The programs and tensors of a model as a search runs it.

    With `equations` a step of any unit is one instruction that has its equation, which the engine cannot run.
    `scales`: by the names of matrices, for each row what int8 values are multiplied with; of others they are chosen.

    Raises ConfigError for a class that the engine does not know, as one of a plugin, and for weights that no program
    reads: then something of the model is not understood.
    """
    if type(model) not in _ARCHITECTURES:
        raise _unknown(model, *_ARCHITECTURES, registry=MODELS)
    _check_class(model.embeddings, Embeddings, blocks.BlockEmbeddings)
    own = {id(model.get_parameter(name)): part for name, part in (scales or {}).items()}
    registers, tensors = list[Register](), Tensors(precision, scales=own)
    encode = Program(registers, tensors, space=Space.SOURCE, equations=equations)
    step = Program(registers, tensors, space=Space.STEP, equations=equations)
    encoded = _encoder(encode, model.encoder, _embed(encode, model.encoder, model.embeddings.source, model))
    if type(model.decoder) not in _DECODERS:
        raise _unknown(model.decoder, *_DECODERS)
    decoded = _DECODERS[type(model.decoder)](encode, step, model, encoded)
    tables = model.embeddings
    bias = tables.output_bias if isinstance(tables, blocks.BlockEmbeddings) else None
    table = tensors.number(tables.target_table if tables.softmax is None else tables.softmax)
    output_bias = None if bias is None else tensors.number(bias)
    missing = [name for name, parameter in model.named_parameters() if not tensors.has(parameter)]
    if missing:
        raise ConfigError(f"model.architecture: the engine does not know what the weight {missing[0]} is for")
    programs = encode.instructions, step.instructions
    return shared(Lowered(registers, tensors, *programs, table, output_bias, **decoded._asdict()))


def _embed(
    program: Program,
    side: nn.Module,
    table: Tensor,
    model: Seq2Seq,
    *,
    out: Value | None = None,
    count: Value | None = None,
) -> Value:
    """factor * (table[token] + bias), of zeros at the start of a target sentence; blocks have a factor and positions.

    `count`: how many words there are before, for what has no number of its step.
    """
    factor = side.words.scale if isinstance(side, blocks.BlockEncoder | blocks.BlockDecoder) else 1.0
    out = out or program.new(table.shape[1])
    exact = float(torch.tensor(factor, dtype=torch.float32))
    program.emit(Op.EMBED, out, weights=[table, model.embeddings.bias], f=exact)
    if isinstance(side, blocks.BlockEncoder | blocks.BlockDecoder):
        _check_class(side.words, blocks.Words)
        if side.words.start is not None:
            program.emit(Op.ADD_VECTOR, out, out, weights=[side.words.start])
        if side.words.sinusoids is not None:
            program.emit(Op.POSITIONS, out, out, count, p=blocks.slowest(out.width, side.words.sinusoids))
    return out


def _encoder(program: Program, encoder: encoders.Encoder, x: Value) -> Encoded:
    """An encoder over embedded words `x`, which may be overwritten."""
    if type(encoder) not in _ENCODERS:
        raise _unknown(encoder, *_ENCODERS)
    return _ENCODERS[type(encoder)](program, encoder, x)


def _bidirectional(program: Program, layer: encoders.Bidirectional, x: Value) -> Encoded:
    """Both directions, side by side."""
    _check_class(layer, encoders.Bidirectional)
    cells: list[Cell[Any]] = [layer.forward_rnn, layer.backward_rnn]
    outputs = program.new(layer.output_size)
    halves = outputs.split([cell.hidden_size for cell in cells])
    for place, (cell, products) in enumerate(zip(cells, _input_products(program, x, cells), strict=True)):
        _one_cell(program, cell, products, out=halves[place], backward=place == 1)

    def last() -> Value:
        found = program.new_row(layer.last_size)
        for place, (half, part) in enumerate(zip(halves, found.split([half.width for half in halves]), strict=True)):
            program.emit(Op.ROW, part, half, p=1 - place)
        return found

    return Encoded(outputs, last)


def _alternating(program: Program, encoder: encoders.Alternating, x: Value) -> Encoded:
    _check_class(encoder.first, encoders.Forward)
    return _in_turn(program, encoder.first.cell, cast("list[encoders.OneToOneRNN]", list(encoder.above)), x)


def _in_turn(program: Program, cell: Cell[Any], above: Sequence[encoders.OneToOneRNN], x: Value) -> Encoded:
    """A cell that runs forward, and layers above it that run backward and forward in turn."""
    for layer in above:
        _check_class(layer, encoders.OneToOneRNN)
    first, *products = _input_products(program, x, [cell, *(layer.lower for layer in above)])
    found = _one_cell(program, cell, first)
    for place, (layer, own) in enumerate(zip(above, products, strict=True)):
        found = _two_cells(program, layer, own, found.outputs, backward=place % 2 == 0)
    return found


def _deep(program: Program, encoder: encoders.DeepEncoder, x: Value) -> Encoded:
    found = None
    for layer, branch in zip(encoder.layers, encoder.residuals, strict=True):
        known: Sequence[type] = (encoders.Forward,)
        known = known if found else (*known, encoders.Bidirectional, encoders.ContextAware)
        _check_class(layer, *known)
        found = _encoder(program, cast("encoders.Encoder", layer), x)
        _residual(program, branch, x, found.outputs)
    assert found is not None
    if encoder.widen is not None and encoder.widen_norm is not None:
        x = _linear(program, encoder.widen, x)
        _layer_norm(program, encoder.widen_norm, x)
    return Encoded(x, found.last)


def _residual(program: Program, layer: nn.Module, x: Value, y: Value) -> None:
    """What takes the outputs `y` of a layer into `x`, in its place."""
    _check_class(layer, encoders.ResidualLayer)
    assert isinstance(layer, encoders.ResidualLayer)
    program.add(x, _linear(program, layer.branch, y))
    if layer.norm is not None:
        _layer_norm(program, layer.norm, x)


def _one_cell(
    program: Program, cell: Cell[Any], products: Value, *, out: Value | None = None, backward: bool = False
) -> Encoded:
    """A cell over its input products from a state of zeros."""
    out = out or program.new(cell.hidden_size)
    state = program.new_row(cell.state_size)
    with program.loop(backward=backward):
        _step(program, cell, products, state, state)
        _output(program, cell, state, out=out)
    return Encoded(out, lambda: _output(program, cell, state))


def _two_cells(
    program: Program, rnn: encoders.OneToOneRNN, products: Value, memory: Value, *, backward: bool
) -> Encoded:
    """Two cells per step; the second reads `memory` at the same place."""
    (contexts,) = _input_products(program, memory, [rnn.higher])
    out = program.new(rnn.higher.hidden_size)
    state = program.new_row(rnn.lower.state_size)
    with program.loop(backward=backward):
        _step(program, rnn.lower, products, state, state)
        _step(program, rnn.higher, contexts, state, state)
        _output(program, rnn.higher, state, out=out)
    return Encoded(out, lambda: _output(program, rnn.higher, state))


def _block_encoder(program: Program, encoder: blocks.BlockEncoder, x: Value) -> Encoded:
    for block in cast("list[blocks.EncoderBlock]", list(encoder.blocks)):
        _check_class(block, blocks.EncoderBlock)
        mixing, normed = block.mixing, _read(program, block.norm, x)
        _check_class(mixing, blocks.SourceMixing, blocks.SelfAttention)
        if isinstance(mixing, blocks.SourceMixing):
            mixed = _linear(program, mixing.out, _encoder(program, mixing.rnn, normed).outputs)
        else:
            mixed = _self_attention(program, mixing, normed, Op.ATTEND_EARLIER if mixing.causal else Op.ATTEND_SELF)
        _add(program, block.norm, x, mixed)
        _feed_forward(program, block.feed_forward, x)
    return Encoded(_block_norm(program, encoder.norm, x), lambda: x)


def _deep_decoder(encode: Program, program: Program, model: Seq2Seq, encoded: Encoded) -> Decoded:
    """Residual layers over the words so far; the first one attends."""
    decoder = cast("decoders.DeepDecoder", model.decoder)
    layers = cast("list[decoders.DecoderLayer]", list(decoder.layers))
    memories = iter(_memories(encode, [_attention_of(layer) for layer in layers], encoded.outputs))
    states = _initial_states(encode, program, model, encoded)
    width, memory_size = model.embeddings.bias.numel(), encoded.outputs.width
    # side by side, as layers and readouts that read both take them
    both = program.new(width + memory_size)
    x, context = both.split([width, memory_size])
    _embed(program, decoder, model.embeddings.target_table, model, out=x)
    contexts: dict[int, Value] = {}
    attentions = 0
    for place, (layer, state) in enumerate(zip(layers, states, strict=True)):
        first, last = _cells(layer)
        (products,) = _input_products(program, both if isinstance(layer, decoders.ConcatenatingLayer) else x, [first])
        _step(program, first, products, state.read, state.written)
        if isinstance(layer, decoders.AttendingLayer):
            query = _output(program, first, state.written)
            attention = cast("decoders.AttentionRNN", layer.rnn).attention
            _attend(program, attention, query, next(memories), encoded.outputs, out=context, number=attentions)
            attentions += 1
            readers = [place, *_readers(layers, place)]
            found = _input_products(program, context, [_cells(layers[reader])[1] for reader in readers])
            contexts = dict(zip(readers, found, strict=True))
        if place in contexts:
            _step(program, last, contexts[place], state.written, state.written)
        _residual(program, decoder.residuals[place], x, _output(program, last, state.written))
    return Decoded(_readout(program, model.readout, both, [x, context]), states, attentions)


def _attention_of(layer: decoders.DecoderLayer) -> AttentionQuery | None:
    """The attention of a layer of a deep decoder, None if it has none."""
    _check_class(layer, decoders.AttendingLayer, decoders.ContextLayer, decoders.ConcatenatingLayer)
    if isinstance(layer, decoders.ContextLayer):
        _check_class(layer.rnn, encoders.OneToOneRNN)
    if not isinstance(layer, decoders.AttendingLayer):
        return None
    _check_class(layer.rnn, decoders.AttentionRNN)
    return layer.rnn.attention if isinstance(layer.rnn, decoders.AttentionRNN) else None


def _readers(layers: Sequence[decoders.DecoderLayer], place: int) -> list[int]:
    """The places of the layers that read the context of the layer at `place` in a second cell."""
    found = []
    for later in range(place + 1, len(layers)):
        if isinstance(layers[later], decoders.AttendingLayer):
            break
        if isinstance(layers[later], decoders.ContextLayer):
            found.append(later)
    return found


def _cells(layer: Any) -> tuple[Cell[Any], Cell[Any]]:
    """The cells that a layer begins and ends with; where it has one they are the same."""
    return (
        (layer.cell, layer.cell)
        if isinstance(layer, decoders.ConcatenatingLayer)
        else (layer.rnn.lower, layer.rnn.higher)
    )


def _shallow_decoder(encode: Program, program: Program, model: Seq2Seq, encoded: Encoded) -> Decoded:
    """One layer that attends, once or in several levels."""
    decoder, memory = cast("decoders.ShallowDecoder", model.decoder), encoded.outputs
    (layer,) = decoder.layers
    _check_class(layer, decoders.AttendingLayer)
    rnn = cast("decoders.AttendingRNN", layer.rnn)
    _check_class(rnn, decoders.AttentionRNN, decoders.DeepAttentionRNN)
    levels = rnn.levels
    (powers,) = _memories(encode, [levels[0][0]], memory)
    (state,) = _initial_states(encode, program, model, encoded)
    widths = [rnn.lower.hidden_size, len(levels) * memory.width, model.embeddings.bias.numel()]
    all_pieces = program.new(sum(widths))
    hidden, contexts, x = pieces = all_pieces.split(widths)
    _embed(program, decoder, model.embeddings.target_table, model, out=x)
    (products,) = _input_products(program, x, [rnn.lower])
    _step(program, rnn.lower, products, state.read, state.written)
    cell, each = rnn.lower, contexts.split([memory.width] * len(levels))
    for number, ((attention, higher), context) in enumerate(zip(levels, each, strict=True)):
        query = _output(program, cell, state.written)
        _attend(program, attention, query, powers, memory, out=context, number=number)
        (products,) = _input_products(program, context, [higher])
        _step(program, higher, products, state.written, state.written)
        cell = higher
    _output(program, cell, state.written, out=hidden)
    return Decoded(_readout(program, model.readout, all_pieces, pieces), [state], len(levels))


def _initial_states(encode: Program, program: Program, model: Seq2Seq, encoded: Encoded) -> list[StateRegisters]:
    """The states of the layers of a decoder, from what the encoder read last."""
    module = model.initial_states
    _check_class(module, InitialStates)
    last, states = encoded.last(), []
    activation = Activation.TANH if module.tanh else Activation.NONE
    for each in cast("list[Linear]", list(module.maps)):
        first = _linear(encode, each, last, activation=activation, out=encode.new_row(len(each.weights[0])))
        states.append(_state_registers(program, first))
    return states


def _state_registers(program: Program, first: Value) -> StateRegisters:
    """The registers of a state of the decoder that begins as `first`, a register of `ONE`."""
    return StateRegisters(program.new(first.width), program.new(first.width), first)


def _memories(encode: Program, attentions: Sequence[AttentionQuery | None], values: Value) -> list[Value]:
    """The powers of the keys of each of these attentions, whose keys are one product of `values`."""
    own = [attention for attention in attentions if attention is not None]
    for attention in own:
        _check_class(attention, AdditiveAttention)
    maps = [cast("AdditiveAttention", attention).memory for attention in own]
    for each in maps:
        _check_class(each, Linear)
    keys = encode.linear(values, [each.weights[0] for each in maps])
    parts = keys.split([values.width] * len(own))
    for each, part in zip(maps, parts, strict=True):
        for norm in each.norms:
            _layer_norm(encode, norm, part)
    encode.emit(Op.POWERS, keys, keys)
    return parts


def _attend(
    program: Program,
    attention: AttentionQuery,
    query: Value,
    powers: Value,
    values: Value,
    *,
    out: Value,
    number: int,
) -> None:
    _check_class(attention, AdditiveAttention, AttentionQuery)
    asked = _linear(program, attention.query, query)
    program.tensors.use(attention.score_bias)  # the same at all positions, so it does not change the weights
    weights = [attention.score_weight]
    program.emit(Op.ATTEND_ADDITIVE, out, asked, powers, values, weights=weights, numbers=[number], p=attention.heads)


def _readout(program: Program, readout: nn.Module, joined: Value, pieces: Sequence[Value]) -> Value:
    """The features, from pieces that stand side by side in `joined`."""
    _check_class(readout, Readout, TanhReadout)
    if not isinstance(readout, TanhReadout):
        features = program.new(pieces[0].width)
        program.emit(Op.COPY, features, pieces[0])
        return features
    one_product = readout.joined or not readout.linear.norms
    inputs = [joined] if one_product else pieces
    return _linear(program, readout.linear, *inputs, activation=Activation.TANH)


def _block_decoder(encode: Program, program: Program, model: Seq2Seq, encoded: Encoded) -> Decoded:
    """Blocks over the words so far."""
    decoder = cast("blocks.BlockDecoder", model.decoder)
    _check_class(model.initial_states, blocks.ZeroStates)
    _check_class(model.readout, blocks.NormReadout)
    layers = cast("list[blocks.DecoderBlock]", list(decoder.blocks))
    memories = _keys_and_values(encode, layers, encoded.outputs)
    states, caches, count = list[StateRegisters](), 0, None
    if program.equations and decoder.words.sinusoids is not None:
        states.append(_state_registers(program, encode.new_row(1)))
        count = states[0].read
        program.emit(Op.ADD_VECTOR, states[0].written, count, weights=[torch.ones(1)])
    x = _embed(program, decoder, model.embeddings.target_table, model, count=count)
    for number, (block, (keys, values)) in enumerate(zip(layers, memories, strict=True)):
        mixing, normed = block.mixing, _read(program, block.norm, x)
        _check_class(mixing, blocks.UnitMixing, blocks.AttentionMixing)
        if isinstance(mixing, blocks.UnitMixing):
            states.append(_state_registers(program, encode.new_row(mixing.cell.state_size)))
            mixed = _unit(program, mixing, normed, states[-1])
        else:
            mixed = _self_attention(program, mixing.attention, normed, Op.ATTEND_CACHE, caches)
            caches += 1
        _add(program, block.norm, x, mixed)
        query = _linear(program, block.attention.query, _read(program, block.query_norm, x))
        found, heads = program.new(x.width), _heads(block.attention.attention)
        program.emit(Op.ATTEND_DOT, found, query, keys, values, numbers=[NONE, number], p=heads)
        _add(program, block.query_norm, x, _linear(program, block.attention.out, found))
        if block.feed_forward is not None:
            _feed_forward(program, block.feed_forward, x)
    features = _block_norm(program, cast("blocks.NormReadout", model.readout).norm, x)
    return Decoded(features, states, len(layers), caches)


def _keys_and_values(
    encode: Program, layers: Sequence[blocks.DecoderBlock], memory: Value
) -> list[tuple[Value, Value]]:
    """Those that the attention of each block reads, by one product."""
    maps: list[Linear] = []
    for block in layers:
        _check_class(block, blocks.DecoderBlock)
        _check_class(block.attention, blocks.SourceAttention)
        _check_class(block.attention.source, Linear)
        maps.append(block.attention.source)
    found = encode.linear(memory, [each.weights[0] for each in maps], [each.bias for each in maps])
    parts = found.split([len(each.weights[0]) // 2 for each in maps for _ in range(2)])
    return list(zip(parts[::2], parts[1::2], strict=True))


def _unit(program: Program, mixing: blocks.UnitMixing, x: Value, state: StateRegisters) -> Value:
    (products,) = _input_products(program, x, [mixing.cell])
    _step(program, mixing.cell, products, state.read, state.written)
    outputs = _output(program, mixing.cell, state.written)
    return outputs if isinstance(mixing.out, nn.Identity) else _linear(program, mixing.out, outputs)


def _self_attention(program: Program, attention: blocks.SelfAttention, x: Value, op: Op, *caches: int) -> Value:
    """Attention of words to each other, of all at once or, with the number of a cache, to those so far."""
    _check_class(attention, blocks.SelfAttention)
    heads = _heads(attention.attention)
    products = _linear(program, attention.inputs, x)
    turned = products.part(0, 2 * x.width)  # queries and keys, by their positions
    if attention.rotary:
        program.emit(Op.ROTATE, turned, turned, p=2 * heads)
    found = program.new(x.width)
    program.emit(op, found, *products.split([x.width] * 3), numbers=caches, p=heads)
    return _linear(program, attention.out, found)


def _heads(attention: blocks.DotAttention) -> int:
    _check_class(attention, blocks.DotAttention)
    return attention.heads


def _feed_forward(program: Program, module: blocks.FeedForward, x: Value) -> None:
    """Added to `x`, in its place."""
    _check_class(module, blocks.FeedForward)
    inner = _linear(program, module.up, _read(program, module.norm, x), activation=_ACTIVATIONS[module.activation])
    if module.activation == "gated":
        inner, other = inner.split([inner.width // 2] * 2)
        program.emit(Op.SWIGLU, inner, inner, other)
    _add(program, module.norm, x, _linear(program, module.down, inner))


def _input_products(program: Program, x: Value, cells: Sequence[Cell[Any]]) -> list[Value]:
    """The input products of each of these cells, which read the same, by one matrix."""
    known = [_known(program, cell) for cell in cells]
    heights = [len(cell.input_weight) for cell in known]
    products = program.linear(x, [cell.input_weight for cell in known]).split(heights)
    for cell, own in zip(known, products, strict=True):
        projection = cell.projection()
        _norm_parts(program, own, projection, widths=projection.widths)
    return products


def _step(program: Program, cell: Cell[Any], x: Value, before: Value, after: Value) -> None:
    """One step of a cell from its input products `x`: the state `before` it gives the one `after`, or in its place."""
    known = _known(program, cell)
    unit, width = known.unit(), cell.hidden_size
    if program.equations:
        program.emit(Op.EQUATION, after, x, before, weights=unit.weights, n=width, unit=unit)
        return
    operands: list[Value | None] = [x, before]
    if isinstance(known, RNN):  # which reads the state in its product alone
        operands[1] = None
    if isinstance(known, RecurrentCell):
        operands.append(_recurrent_products(program, known, x, before))
    vectors = [*(recurrent.bias for recurrent in unit.recurrents), *unit.vectors]
    program.emit(_UNITS[type(known)], after, *operands, weights=vectors, n=width, p=unit.code)


def _recurrent_products(program: Program, cell: RecurrentCell[Any], x: Value, before: Value) -> Value:
    """The products of a state with the recurrent matrices, side by side, normalised, without the biases."""
    width = cell.hidden_size
    if not isinstance(cell, GRU):
        widths = [part * width for part in cell.recurrent_parts]
        out = program.new_row(sum(widths))
        _recurrent(program, before.part(0, width), cell.recurrent, out, widths=widths)
        return out
    out = program.new_row(3 * width)
    gates, candidate = out.split([2 * width, width])
    if cell.options.reset == "after":
        program.linear(before, [cell.recurrent_weight, cell.candidate_weight], out=out)
        for part, recurrent in ((gates, cell.recurrent), (candidate, cell.candidate)):
            _norm_parts(program, part, recurrent, widths=[part.width])
        return out
    _recurrent(program, before, cell.recurrent, gates, widths=[2 * width])
    seen = program.new_row(width)
    program.emit(Op.GRU_RESET, seen, x, before, out, weights=[cell.recurrent_bias])
    _recurrent(program, seen, cell.candidate, candidate, widths=[width])
    return out


def _recurrent(program: Program, h: Value, recurrent: Recurrent, out: Value, *, widths: Sequence[int]) -> None:
    program.linear(h, [recurrent.weight], out=out)
    _norm_parts(program, out, recurrent, widths=widths)


def _norm_parts(program: Program, a: Value, product: Projection | Recurrent, *, widths: Sequence[int]) -> None:
    """Layer norm of a product in parts of `widths`, in its place, if it has one."""
    if product.scale is None or product.offset is None:
        return
    program.tensors.use(product.scale, product.offset)
    scales, offsets = (
        [vector] if len(widths) == 1 else vector.split(list(widths)) for vector in (product.scale, product.offset)
    )
    for part, scale, offset in zip(a.split(widths), scales, offsets, strict=True):
        program.norm(part, scale, offset, epsilon=EPSILON, out=part)


def _output(program: Program, cell: Cell[Any], state: Value, *, out: Value | None = None) -> Value:
    """What a cell puts out in a state; without `out` where it already is, if it is there."""
    h = state.part(0, cell.hidden_size)
    unit = cell.unit()
    if unit is not None and unit.tanh_output:
        out = out or program.new_row(cell.hidden_size)
        program.emit(Op.TANH, out, h)
        return out
    if out is None:
        return h
    program.emit(Op.COPY, out, h)
    return out


def _known(program: Program, cell: Cell[Any]) -> UnitCell[Any]:
    """A cell that has instructions or, where equations are enough, computes nothing but that of its unit."""
    if isinstance(cell, UnitCell):
        methods = ("project", "step", "search_step", "sequence", "output")
        usual = all(getattr(type(cell), name) is getattr(UnitCell, name) for name in methods)
        if type(cell) in _UNITS or (program.equations and usual and type(cell.unit()).output is Unit.output):
            return cell
    raise _unknown(cell, *_UNITS, key="cell", registry=CELLS)


def _linear(
    program: Program,
    module: Linear,
    *inputs: Value,
    out: Value | None = None,
    activation: Activation = Activation.NONE,
) -> Value:
    """A linear map of its inputs; without layer norm they are one input, side by side."""
    _check_class(module, Linear)
    if not module.norms:
        (a,) = inputs
        return program.linear(a, [module.weights[0]], [module.bias], out=out, activation=activation)
    out = out or program.new(len(module.weights[0]))
    for place, (a, weight, norm) in enumerate(zip(inputs, module.weights, module.norms, strict=True)):
        product = program.linear(a, [weight], out=None if place else out)
        _layer_norm(program, norm, product, plus=None if place else module.bias)
        if place:
            program.add(out, product)
    if activation == Activation.TANH:
        program.emit(Op.TANH, out, out)
    else:
        assert activation == Activation.NONE
    return out


def _layer_norm(program: Program, module: nn.Module, a: Value, *, plus: Tensor | None = None) -> None:
    """Layer norm of `a` in its place, plus a vector."""
    _check_class(module, LayerNorm)
    assert isinstance(module, LayerNorm)
    offset: Tensor = module.offset
    if plus is not None:
        program.tensors.use(offset, plus)
        offset = (offset + plus).detach()
    program.norm(a, module.scale, offset, epsilon=EPSILON, out=a)


def _block_norm(program: Program, module: nn.Module, a: Value, *, out: Value | None = None) -> Value:
    """A norm of a transformer, or none."""
    if isinstance(module, nn.Identity):
        return a
    _check_class(module, blocks.BlockNorm)
    norm = cast("blocks.BlockNorm", module)
    return program.norm(a, norm.scale, norm.offset, epsilon=norm.norm.epsilon, out=out)


def _read(program: Program, norm: blocks.BlockNorm, x: Value) -> Value:
    """What a part of a block reads of x."""
    return x if norm.norm.after else _block_norm(program, norm, x)


def _add(program: Program, norm: blocks.BlockNorm, x: Value, y: Value) -> None:
    """What a part of a block puts out, added to x in its place."""
    program.add(x, y)
    if norm.norm.after:
        _block_norm(program, norm, x, out=x)


def _check_class(module: nn.Module, *known: type) -> None:
    """Raise ConfigError unless a module is exactly of one of the `known` classes."""
    if type(module) not in known:
        raise _unknown(module, *known)


def _unknown(
    module: nn.Module, *known: type, key: str = "architecture", registry: Registry[Any] | None = None
) -> ConfigError:
    """For a module of none of the `known` classes, which are called as the user calls them.

    `key` is that of the section `model`, and `registry` has what it names.
    """
    names = [each.__name__ for each in known]
    if registry is not None:
        names = [name for name in registry.names() if registry.get(name) in known]
    kind = type(module)
    place = "" if kind.__module__.partition(".")[0] == "nmt" else f" of {kind.__module__.removeprefix(PLUGIN_PREFIX)}"
    allowed = ", ".join(sorted(names))
    return ConfigError(f"model.{key}: the engine does not know the class {kind.__name__}{place}. Allowed: {allowed}.")


_ACTIVATIONS: Final = {
    "relu": Activation.RELU,
    "gated": Activation.NONE,
    "swish": Activation.SWISH,
    "gelu": Activation.GELU,
}
_ARCHITECTURES: Final = (DeepNMT, RNNSearch, RNNSearchDeepAtt, Transformer)
_ENCODERS: Final[dict[type, Callable[[Program, Any, Value], Encoded]]] = {
    encoders.Alternating: _alternating,
    encoders.Bidirectional: _bidirectional,
    blocks.BlockEncoder: _block_encoder,
    encoders.ContextAware: lambda program, layer, x: _in_turn(program, layer.forward_rnn, [layer.backward_rnn], x),
    encoders.DeepEncoder: _deep,
    encoders.Forward: lambda program, layer, x: _in_turn(program, layer.cell, [], x),
}
_DECODERS: Final = {
    blocks.BlockDecoder: _block_decoder,
    decoders.DeepDecoder: _deep_decoder,
    decoders.ShallowDecoder: _shallow_decoder,
}
_UNITS: Final[dict[type, Op]] = {
    ATR: Op.ATR,
    GRU: Op.GRU,
    LRN: Op.LRN,
    LSTM: Op.LSTM,
    MinGRU: Op.MIN_GRU,
    MinLSTM: Op.MIN_LSTM,
    OLRN: Op.OLRN,
    RNN: Op.RNN,
    SRU: Op.SRU,
    SSRU: Op.SSRU,
}
"""The instruction of each cell; its p is `Unit.code`."""
