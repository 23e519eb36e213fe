"""Files for the engine: an interpreter of the file computes what PyTorch does, whatever the model is made of."""

from __future__ import annotations

import dataclasses
import struct
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nmt.cells import GRU
from nmt.config import load_config
from nmt.config.schema import DecodingConfig
from nmt.data import EOS
from nmt.errors import ConfigError
from nmt.interop.engine.export import PRECISIONS, settings_of
from nmt.interop.engine.lowering import lower
from nmt.interop.engine.program import Lowered, Op, Precision, Program, Register, Space, Tensors, shared
from nmt.models import DeepNMT, build_model
from nmt.models.base import Seq2Seq
from nmt.models.parts import Linear
from nmt.ops.matrices import quantize
from nmt.search.shortlist import Shortlist
from tests.conftest import REPOSITORY
from tests.interop.engine_models import BLOCKS, EACH_UNIT, OTHERS, TRANSFORMER, content_of, make_model, section
from tests.interop.engine_reference import File, Search
from tests.light.file_parts import parts_of

SENTENCES = [[5, 3, 9, EOS], [8, EOS]]
STEPS = 3


def engine_file(model: Seq2Seq, *, precision: Precision = "fp32", **decoding: Any) -> File:
    return File(content_of(model, precision=precision, **decoding))


def check_same(model: Seq2Seq) -> None:
    """Logits and attention of some steps of a greedy search, by PyTorch for a batch, by the file one by one."""
    file = engine_file(model)
    source = torch.zeros(len(SENTENCES), max(map(len, SENTENCES)), dtype=torch.long)
    for row, sentence in zip(source, SENTENCES, strict=True):
        row[: len(sentence)] = torch.tensor(sentence)
    searches = [Search(file, sentence) for sentence in SENTENCES]
    with torch.inference_mode():
        state, tokens = model.start(source), None
        for _ in range(STEPS):
            logits, weights, state = model.attending_step(tokens, state)
            words = [None] * len(SENTENCES) if tokens is None else tokens.tolist()
            found = np.stack([search.step(word) for search, word in zip(searches, words, strict=True)])
            np.testing.assert_allclose(found, logits.numpy(), rtol=1e-4, atol=1e-4 * float(logits.abs().max()))
            for search, sentence, row in zip(searches, SENTENCES, weights.numpy(), strict=True):
                mean = np.concatenate([search.attention[i] for i in range(file.attentions)]).mean(0)
                np.testing.assert_allclose(mean, row[: len(sentence)], atol=1e-4)
            tokens = logits[:, 3:].argmax(1) + 3
    assert len({tuple(np.round(search.values[file.features][0], 3)) for search in searches}) == len(searches)


@pytest.mark.parametrize(("cell", "options"), EACH_UNIT)
def test_each_unit_with_each_option(cell: str, options: dict[str, Any]) -> None:
    """With layer norm and without, from state to state in two cells and in one."""
    check_same(make_model(section(cell=cell, cell_options=options, layer_norm=True)))
    check_same(make_model(section(cell=cell, cell_options=options, **TRANSFORMER)))


@pytest.mark.parametrize("changes", OTHERS, ids=str)
def test_each_option_of_the_recurrent_architectures(changes: dict[str, Any]) -> None:
    check_same(make_model(section(**changes)))


@pytest.mark.parametrize("options", BLOCKS, ids=str)
def test_each_option_of_the_transformer(options: dict[str, Any]) -> None:
    check_same(make_model(section(architecture="transformer", architecture_options=options)))


def test_mixed_units_and_shared_tables_of_the_transformer() -> None:
    check_same(make_model(section(encoder_cell="lrn", decoder_cell="ssru", tie_embeddings="all", **TRANSFORMER)))


def values(file: File) -> list[tuple[int, torch.Tensor]]:
    return [(kind, torch.from_numpy(tensor)) for kind, tensor in zip(file.kinds, file.tensors, strict=True)]


@pytest.mark.parametrize("tie", ["none", "target_softmax", "all"])
def test_int8_values_are_those_that_a_search_by_pytorch_has(tie: str) -> None:
    """Of matrices of 16 columns or more, a table that is shared being one; vectors and narrow matrices are exact."""
    model = make_model(section(embedding_size=18, encoder_hidden_size=10, tie_embeddings=tie))
    exact, rounded = engine_file(model), engine_file(model, precision="int8")
    assert Counter(rounded.kinds).keys() == {0, 1, 3}
    for precision, file in (("fp32", exact), ("int8", rounded)):
        parts = lower(model, precision=precision).tensors
        sizes = [len(each.values) + len(each.scales) + len(each.sums) for each in parts.stored()]
        assert sum(sizes) == parts.size() <= len(file.sections["DATA"]) < parts.size() + 3 * 64 * len(sizes)
    for (kind, weight), (stored, found) in zip(values(exact), values(rounded), strict=True):
        is_int8 = kind == 1 and weight.shape[1] >= 16
        assert stored == (3 if is_int8 else kind)
        expected = quantize(weight).dequantize().double() if is_int8 else weight
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=0)  # the product, here in fp64
    tables = [one.t[0] for name in ("ENCO", "STEP") for one in rounded.programs[name] if one.op == 1]
    shares = {"none": (False, False), "target_softmax": (False, True), "all": (True, True)}[tie]
    assert tuple(table == rounded.table for table in tables) == shares


def test_narrow_matrices_are_not_rounded_to_int8() -> None:
    """Below 16 columns, as the name of the format says."""
    tensors = Tensors("int8", scales={})
    for columns in (15, 16, 17):
        tensors.number(torch.ones(2, columns))
    assert [(each.kind.name, each.columns) for each in tensors.stored()] == [("F32", 15), ("INT8", 16), ("INT8", 17)]
    assert PRECISIONS["int8"].startswith("int8: matrices of 16 columns or more ")


def test_bf16_values_are_the_nearest() -> None:
    model = make_model(section())
    for (kind, weight), (stored, found) in zip(
        values(engine_file(model)), values(engine_file(model, precision="bf16")), strict=True
    ):
        assert stored == 2 * kind
        assert torch.equal(found, weight.to(torch.bfloat16).double() if kind else weight)


def test_a_sum_of_weights_that_is_infinite_is_refused() -> None:
    """The engine would refuse the file."""
    model = make_model(section())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith("initial_states.maps.0") and name.endswith(("offset", "bias")):
                weight.fill_(3e38)
    with pytest.raises(ConfigError, match="^model: the sum of a bias and an offset of a layer norm is beyond"):
        content_of(model)


def test_int8_translates_nearly_as_fp32() -> None:
    model = make_model(section(hidden_size=32, embedding_size=32, init_range=0.1))
    exact, rounded = (Search(engine_file(model, precision=precision), SENTENCES[0]) for precision in ("fp32", "int8"))
    first, second = exact.step(None), rounded.step(None)
    assert 0 < float(np.abs(first - second).max()) < 0.05 * float(np.abs(first).max())


def test_a_file_of_a_shipped_model_is_small() -> None:
    """With 5,000 pieces of both languages; a SentencePiece model of so many and the card are below 0.4 MB."""
    config = load_config(REPOSITORY / "configs/multi30k_lrn.yaml")
    lowered = lower(build_model(config.model, 5000, 5000).eval(), precision="int8")
    size = sum(len(each.values) + len(each.scales) + len(each.sums) for each in lowered.tensors.stored())
    assert size == lowered.tensors.size() < 2_850_000
    assert len(lowered.encode) <= 15 and len(lowered.step) <= 10


def test_registers_are_shared_where_that_is_safe() -> None:
    options = {"encoder_layers": 4, "decoder_layers": 4}
    model = make_model(section(architecture="transformer", architecture_options=options))
    with_four = len(lower(model, precision="fp32").registers)
    options = {"encoder_layers": 1, "decoder_layers": 1}
    model = make_model(section(architecture="transformer", architecture_options=options))
    with_one = len(lower(model, precision="fp32").registers)
    # of the encoder the states of two directions, of the decoder the state before, after and at first
    assert with_four - with_one == 3 * (2 + 3)


def test_registers_of_an_instruction_and_of_a_loop_stay_apart() -> None:
    """What is written in a loop is not in the place of what its next round reads."""
    registers: list[Register] = []
    program = Program(registers, Tensors("fp32", scales={}), space=Space.SOURCE)
    first, second, third, fourth = (program.new(4) for _ in range(4))
    program.emit(Op.TANH, second, first)  # the last use of the first
    program.emit(Op.TANH, third, second)  # of the second
    with program.loop(backward=False):
        program.emit(Op.ADD, third, third, third)  # of the third, but in a loop
        program.emit(Op.ADD, fourth, fourth, fourth)
    steps = Program(registers, program.tensors, space=Space.STEP)
    features = steps.new(4)
    steps.emit(Op.TANH, features, features)
    both = program.instructions, steps.instructions
    lowered = shared(Lowered(registers, program.tensors, *both, 0, None, features, [], 0, 0))
    places = [one.out.register for one in lowered.encode if one.out is not None]
    before = [one.operands[0].register for one in lowered.encode if one.operands and one.operands[0] is not None]
    assert before[0] != places[0] and before[1] != places[1] and places[1] == before[0]
    assert places[2] != places[3]


def test_sections_are_aligned_and_nothing_lies_between_them() -> None:
    content = content_of(make_model(section()))
    file = File(content)
    assert list(file.sections) == ["SETT", "TENS", "REGS", "STAT", "ENCO", "STEP", "DATA", "SPMS", "SPMT"]
    end = 32 + 24 * len(file.places)
    for offset, length in file.places:
        assert offset % 64 == 0 and not any(content[end:offset])
        end = offset + length
    assert end == len(content)
    with pytest.raises(AssertionError):
        File(content[:-1] + b"!")
    assert content == content_of(make_model(section()))
    assert (file.sections["SPMS"], file.sections["SPMT"]) == (b"source", b"target")


def test_a_shortlist_is_written_as_it_is() -> None:
    lists = Shortlist(
        frequent=torch.tensor([7, 4]),
        partners=torch.tensor([5, 6, 9]),
        starts=torch.tensor([0, 0, 2, *[3] * 15]),
        target_size=19,
    )
    file = File(content_of(make_model(section()), shortlist=lists))
    assert np.frombuffer(file.sections["LIST"], "<u4").tolist() == [2, 3, 7, 4, 0, 0, 2, *[3] * 15, 5, 6, 9]
    filled = File(content_of(make_model(section()), shortlist=dataclasses.replace(lists, multiple=8)))
    assert (file.multiple, filled.multiple) == (1, 8)


def test_the_settings_of_the_search() -> None:
    file = engine_file(make_model(section()), beam_size=5, length_penalty=1.5, max_length_offset=9, split_long=None)
    assert (file.beam_size, file.length_penalty, file.offset, file.longest) == (5, 1.5, 9, 0)
    file = engine_file(make_model(section()), beam_size=1, split_long=80)
    assert (file.beam_size, file.longest) == (1, 80)
    plain, penalised = (
        content_of(make_model(section()), repeat_penalty=penalty, beam_size=1, split_long=80) for penalty in (1, 1.5)
    )
    assert "OPTS" not in parts_of(plain)  # so that earlier versions read it
    assert parts_of(penalised)["OPTS"] == struct.pack("<28sf", b"repeat_penalty", 1.5)


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("search", {"search": "sample"}),
        ("search", {"search": "beam", "beam_size": 1}),
        ("search_options.temperature", {"search_options": {"temperature": 0.7}}),
        ("glossary", {"glossary": "terms.tsv"}),
        ("language_model", {"language_model": "lm"}),
    ],
)
def test_a_search_that_the_engine_has_not_is_refused_by_its_key(key: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^decoding\.{key}: .* is set, .* Allowed in config.yaml: .*\.$"):
        settings_of(DecodingConfig(**changes))


def test_settings_that_change_no_translation_are_taken() -> None:
    settings_of(DecodingConfig(batch_tokens=100, precision="int8", n_best=2, ensemble_weights=[1.0, 2.0]))


class OwnGRU(GRU):
    """May compute anything."""


class OwnLinear(Linear):
    """May compute anything."""


class OwnModel(DeepNMT):
    """May compute anything."""


def change(model: Seq2Seq, path: str, kind: type) -> None:
    model.get_submodule(path).__class__ = kind


def test_a_class_that_is_not_known_is_refused_by_name() -> None:
    """Also where it is derived from one that is."""
    for path, kind, key, allowed in (
        ("encoder.layers.0.forward_rnn", OwnGRU, "cell", "atr, gru, lrn"),
        ("decoder.layers.0.rnn.higher", OwnGRU, "cell", "atr, gru, lrn"),
        ("decoder.residuals.0.branch", OwnLinear, "architecture", "Linear"),
        ("readout.linear", OwnLinear, "architecture", "Linear"),
        ("", OwnModel, "architecture", "deepnmt, rnnsearch, rnnsearch_deepatt, transformer"),
    ):
        model = make_model(section(cell="gru"))
        change(model, path, kind)
        message = rf"^model\.{key}: the engine does not know the class {kind.__name__} of tests.*Allowed: {allowed}"
        with pytest.raises(ConfigError, match=message):
            lower(model, precision="fp32")


def test_every_module_of_every_architecture_is_looked_at() -> None:
    """None of them can be of a derived class unseen, but dropout, which does nothing in a search, and plain lists."""
    unseen = []
    for config in (
        section(encoder_layers=2, decoder_layers=2, context_aware_encoder=False),
        section(encoder_layers=2, decoder_layers=2),
        section(architecture="rnnsearch", cell="gru"),
        section(architecture="rnnsearch_deepatt", decoder_layers=2),
        section(**TRANSFORMER, architecture_options={"encoder_mixing": "attention"}),
        section(**TRANSFORMER, architecture_options={"decoder_mixing": "attention"}),
    ):
        model = make_model(config)
        for name, module in model.named_modules():
            if isinstance(module, (nn.Dropout, nn.ModuleList, nn.ParameterList)):
                continue
            kind = type(module)
            module.__class__ = type(f"Own{kind.__name__}", (kind,), {})
            try:
                lower(model, precision="fp32")
                unseen.append(f"{type(model).__name__}.{name}")
            except ConfigError as error:
                assert f"does not know the class Own{kind.__name__} of tests." in str(error)
            module.__class__ = kind
    assert unseen == []


def test_a_weight_that_nothing_reads_is_refused() -> None:
    model = make_model(section())
    model.readout.register_parameter("extra", nn.Parameter(torch.zeros(3)))
    with pytest.raises(ConfigError, match=r"weight readout\.extra"):
        lower(model, precision="fp32")
