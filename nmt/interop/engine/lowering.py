"""A model as the two programs of the engine, by a walk through its modules."""

from __future__ import annotations

from nmt.errors import ConfigError
from nmt.interop.engine.decoders import lower_deep, lower_shallow
from nmt.interop.engine.embeddings import embed
from nmt.interop.engine.encoders import lower_encoder
from nmt.interop.engine.layers import check_class, unknown
from nmt.interop.engine.program import Lowered, Program, Register, Space
from nmt.interop.engine.registers import shared
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
