"""The architecture `transformer`: against equations written out, step by step, and what a configuration may say."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from nmt.config import load_config
from nmt.config.schema import ModelConfig
from nmt.errors import ConfigError
from nmt.models import Seq2Seq, build_model
from nmt.models.blocks import (
    WORDS_STEP,
    BlockNorm,
    DotAttention,
    FeedForward,
    KeptWords,
    Norm,
    SelfAttention,
    SourceAttention,
    Words,
    rotate,
)
from nmt.models.graphed import GraphedModel
from nmt.models.inference import inference_copy
from nmt.models.transformer import FORMS
from nmt.ops.matrices import Int8Matrix
from tests.console import call
from tests.tiny_training import nmt_train, same, training_state, write_config, write_corpus

V = 13
SOURCE = torch.tensor([[3, 4, 5, 6, 2], [7, 8, 2, 0, 0], [9, 2, 0, 0, 0]])
TARGET = torch.tensor([[3, 4, 2, 0], [5, 6, 7, 2], [2, 0, 0, 0]])
MIXINGS = list(itertools.product(("unit", "attention"), repeat=2))


def make(cell: str = "lrn", *, size: int = 8, dropout: float = 0.0, tie: Any = "none", **options: Any) -> Seq2Seq:
    torch.manual_seed(5)
    config = ModelConfig(
        architecture="transformer",
        cell=cell,
        embedding_size=size,
        tie_embeddings=tie,
        dropout=dropout,
        architecture_options={"heads": 2, "encoder_layers": 2, **options},
    )
    return build_model(config, V, V).eval()


def close(ours: Tensor, wanted: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, wanted, rtol=0, atol=atol)


def by_steps(model: Any, source: Tensor, target: Tensor) -> Tensor:
    state, logits, words = model.start(source), [], None
    for t in range(target.size(1)):
        step, state = model.step(words, state)
        logits.append(step)
        words = target[:, t]
    return torch.stack(logits, 1)


@pytest.mark.parametrize("options", [{"norm": "rms", "feed_forward": "gated"}, {"decoder_feed_forward": 0}])
@pytest.mark.parametrize(("encoder", "decoder"), MIXINGS)
def test_steps_equal_the_whole_sequence(encoder: str, decoder: str, options: dict[str, Any]) -> None:
    model = make("gru", encoder_mixing=encoder, decoder_mixing=decoder, **options).double()
    close(by_steps(model, SOURCE, TARGET)[TARGET != 0], model(SOURCE, TARGET)[TARGET != 0])


@pytest.mark.parametrize(("encoder", "decoder"), MIXINGS)
def test_companions_and_padding_change_nothing(encoder: str, decoder: str) -> None:
    model = make("sru", encoder_mixing=encoder, decoder_mixing=decoder).double()
    logits = model(SOURCE, TARGET)
    for row in range(3):
        words = TARGET[row] != 0
        close(model(SOURCE[row : row + 1, SOURCE[row] != 0], TARGET[row : row + 1, words])[0], logits[row, words])


def written_out(model: Any, source: Tensor, target: Tensor) -> Tensor:
    """Logits [T, V] of one sentence [S], [T], by the equations of a plain pre-norm Transformer."""

    def affine(layer: Any, x: Tensor) -> Tensor:
        return x @ layer.weights[0].T + layer.bias

    def norm(layer: Any, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.scale + layer.offset

    def turned(x: Tensor) -> Tensor:  # [T, D]: pairs as complex numbers times e^(i t w)
        half = x.size(1) // 2
        places = torch.arange(len(x)).double().unsqueeze(1)
        rates = 10_000.0 ** (-torch.arange(half).double() / half)
        pairs = torch.complex(x[:, :half], x[:, half:]) * torch.exp(1j * places * rates)
        return torch.cat([pairs.real, pairs.imag], 1)

    def attend(query: Tensor, keys: Tensor, values: Tensor, *, causal: bool = False, rotary: bool = False) -> Tensor:
        found = []
        for q, k, v in zip(*(x.chunk(2, 1) for x in (query, keys, values)), strict=True):
            q, k = (turned(q), turned(k)) if rotary else (q, k)
            scores = q @ k.T / math.sqrt(q.size(1))
            for t in range(len(q)) if causal else ():
                scores[t, t + 1 :] = -math.inf
            found.append(scores.softmax(1) @ v)
        return torch.cat(found, 1)

    def mixed(layer: Any, x: Tensor, *, causal: bool) -> Tensor:
        query, keys, values = affine(layer.inputs, x).chunk(3, 1)
        return affine(layer.out, attend(query, keys, values, causal=causal, rotary=True))

    def fed(layer: Any, x: Tensor) -> Tensor:
        return x + affine(layer.down, affine(layer.up, norm(layer.norm, x)).clamp(min=0))

    tables, size = model.embeddings, model.embeddings.bias.numel()
    x = (tables.source[source] + tables.bias) * math.sqrt(size)
    for block in model.encoder.blocks:
        x = fed(block.feed_forward, x + mixed(block.mixing, norm(block.norm, x), causal=False))
    memory = norm(model.encoder.norm, x)
    y = torch.cat([torch.zeros(1, size), tables.target_table[target[:-1]] + tables.bias]) * math.sqrt(size)
    y = y + model.decoder.words.start
    for block in model.decoder.blocks:
        y = y + mixed(block.mixing.attention, norm(block.norm, y), causal=True)
        keys, values = affine(block.attention.source, memory).chunk(2, 1)
        query = affine(block.attention.query, norm(block.query_norm, y))
        y = fed(block.feed_forward, y + affine(block.attention.out, attend(query, keys, values)))
    return norm(model.readout.norm, y) @ tables.softmax_table.T


@torch.no_grad()
def test_a_plain_transformer_by_its_equations() -> None:
    model = make(encoder_mixing="attention", decoder_mixing="attention").double()
    for parameter in model.parameters():  # also those that start from 0 or 1
        parameter.add_(torch.randn_like(parameter) * 0.1)
    for row in range(3):
        source, target = SOURCE[row][SOURCE[row] != 0], TARGET[row][TARGET[row] != 0]
        close(model(source.unsqueeze(0), target.unsqueeze(0))[0], written_out(model, source, target), atol=1e-10)


def test_positions_count_by_their_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 8, dtype=torch.float64)
    for distance in (0, 1, 5):
        products = [
            (rotate(query, torch.tensor([t])) * rotate(key, torch.tensor([t + distance]))).sum() for t in (0, 3, 40)
        ]
        torch.testing.assert_close(torch.stack(products), products[0].expand(3), rtol=0, atol=1e-5)
    assert torch.equal(rotate(query, torch.zeros(1)), query)


def test_attention_with_and_without_weights_is_one_function() -> None:
    attention, (q, k, v) = DotAttention(2, 0.0).double(), torch.randn(3, 3, 2, 4, 6, dtype=torch.float64)
    penalty = torch.tensor([0.0, 0, -1e8, -1e8], dtype=torch.float64).expand(3, 1, 1, 4)
    for options in ({"penalty": penalty}, {"penalty": None, "causal": True}, {"penalty": None}):
        plain, told = attention(q, k, v, **options), attention(q, k, v, **options, weights=True)
        close(plain.found, told.found)
        close(told.weights.sum(-1), torch.ones(3, 2, 4, dtype=torch.float64))
    assert plain.weights is None


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms(kind: Any) -> None:
    norm, x = BlockNorm(6, Norm(kind)), torch.randn(4, 6)
    with torch.no_grad():
        norm.scale.uniform_(0.5, 2)
    wanted = (
        F.layer_norm(x, (6,), norm.scale, norm.offset, 1e-6)
        if kind == "layer"
        else x / (x.pow(2).mean(1, keepdim=True) + 1e-6).sqrt() * norm.scale
    )
    torch.testing.assert_close(norm(x), wanted)
    assert norm(x.bfloat16()).dtype == torch.float32
    assert (norm.offset is None) == (kind == "rms")


def test_a_gated_feed_forward_layer_is_swiglu() -> None:
    layer = FeedForward(6, 5, activation="gated", norm=Norm("rms"), dropout=0.0, residual_dropout=0.0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(3, 6)
    inner = layer.norm(x) @ layer.up.weights[0].T + layer.up.bias
    wanted = x + (inner[:, :5] * torch.sigmoid(inner[:, :5]) * inner[:, 5:]) @ layer.down.weights[0].T + layer.down.bias
    torch.testing.assert_close(layer(x), wanted)


def test_word_dropout_hides_whole_words_and_keeps_the_mean() -> None:
    torch.manual_seed(1)
    words = Words(16, 0.25).train()
    found = words(torch.ones(40, 50, 16)) / 4
    assert ((found == 0).all(2) | (found == 1 / 0.75).all(2)).all()
    assert (found == 0).float().mean() == pytest.approx(0.25, abs=0.03)
    close(words.eval()(torch.ones(2, 16)), torch.full((2, 16), 4.0))


def test_each_dropout_stands_where_its_name_says() -> None:
    names = ("residual", "feed_forward", "embedding", "attention", "word")
    for name in names:
        options = {f"{other}_dropout": 0.5 if other == name else 0.0 for other in names}
        model = make(encoder_mixing="attention", dropout=0.3, **options).train()
        dropping = {path for path, module in model.named_modules() if isinstance(module, torch.nn.Dropout) and module.p}
        wanted = {
            "residual": {".dropout", "attention_dropout", "residual_dropout"},
            "feed_forward": {"feed_forward.dropout"},
            "embedding": {"source_dropout", "target_dropout"},
            "attention": {"attention.dropout"},
            "word": {"words.dropout"},
        }[name]
        assert dropping, name
        assert all(any(path.endswith(end) for end in wanted) for path in dropping), (name, dropping)
        if name == "residual":
            assert not any(path.endswith(("words.dropout", "feed_forward.dropout", "attention.attention.dropout"))
                           for path in dropping)  # fmt: skip
    defaults = make(dropout=0.3).train()
    probabilities = {
        path: module.p for path, module in defaults.named_modules() if isinstance(module, torch.nn.Dropout)
    }
    for path, p in probabilities.items():
        assert p == (0.0 if "words" in path or path.endswith("attention.dropout") else 0.3), path


def test_parameters_start_as_transformers_do() -> None:
    model = make(size=64, tie="all")
    tables = model.embeddings
    assert tables.source.std().item() == pytest.approx(64**-0.5, rel=0.1)
    assert torch.equal(tables.bias, torch.zeros(64))
    for name, parameter in model.named_parameters():
        if name.endswith("scale"):
            assert (parameter == 1).all(), name
        elif name.endswith(("bias", "offset")):
            assert (parameter == 0).all(), name
        elif ".weights." in name:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert 0.9 * bound < parameter.abs().max() <= bound, name


def test_the_first_word_has_no_exploding_gradient() -> None:
    """Of a zero vector as input a norm has a gradient of 1 / sqrt(epsilon)."""
    model = make("gru", size=16)
    model.loss(SOURCE[:, :2], torch.tensor([[3], [4], [5]])).backward()
    assert torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None]).norm() < 20


def test_units_of_both_sides_and_their_widths() -> None:
    torch.manual_seed(1)
    options = {"heads": 2, "encoder_unit_size": 5, "decoder_unit_size": 7, "encoder_layers": 1, "decoder_layers": 1}
    config = ModelConfig(
        architecture="transformer", cell="lrn", decoder_cell="lstm", embedding_size=8, architecture_options=options
    )
    model: Any = build_model(config, V, V)
    cells = [
        (type(module).__name__, module.hidden_size, module.layer_norm)
        for module in model.modules()
        if hasattr(module, "recurrent_dropout")
    ]
    assert cells == [("LRN", 5, False), ("LRN", 5, False), ("LSTM", 7, False)]
    assert model.outline(config) == (1, 1, 8, "encoder lrn, decoder lstm")
    steps, whole = by_steps(model.eval(), SOURCE, TARGET), model(SOURCE, TARGET)
    torch.testing.assert_close(steps[TARGET != 0], whole[TARGET != 0])


@torch.no_grad()
def test_kept_words_with_room_are_the_same_words() -> None:
    attention = SelfAttention(8, heads=2, dropout=0.0, rotary=True)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(3, 2 * WORDS_STEP + 3, 8)
    whole = attention(x, None)
    none = torch.empty(3, 2, 0, 4)
    kept: Any = KeptWords(none, none)
    roomy: Any = kept.with_room(WORDS_STEP)
    for t in range(x.size(1)):
        found, kept = attention.step(x[:, t], kept)
        torch.testing.assert_close(found, whole[:, t], rtol=1e-4, atol=1e-5)
        if roomy.keys.size(2) == t:
            roomy = roomy.cut(t).with_room(WORDS_STEP)
        found, roomy = attention.step(x[:, t], roomy)
        torch.testing.assert_close(found, whole[:, t], rtol=1e-4, atol=1e-5)
    assert roomy.keys.size(2) == 3 * WORDS_STEP and kept.keys.size(2) == x.size(1)


@torch.no_grad()
def test_recorded_steps_grow_the_room_for_kept_words() -> None:
    model = make(encoder_mixing="attention", decoder_mixing="attention")
    graphed, target = GraphedModel(model), torch.randint(3, V, (3, WORDS_STEP + 5))
    torch.testing.assert_close(by_steps(graphed, SOURCE, target), model(SOURCE, target), rtol=1e-4, atol=1e-5)


def test_the_source_is_projected_once() -> None:
    attention = SourceAttention(8, 8, heads=2, dropout=0.0)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    memory, mask = torch.randn(2, 5, 8), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    kept = attention.prepare(memory, mask)
    x = torch.randn(2, 3, 8)
    weights = torch.cat([attention.query.weights[0], attention.source.weights[0]])
    biases = torch.cat([attention.query.bias, attention.source.bias])  # type: ignore[list-item]
    wanted, shares = F.multi_head_attention_forward(
        x.transpose(0, 1), memory.transpose(0, 1), memory.transpose(0, 1), 8, 2, weights, biases, None, None, False,
        0.0, attention.out.weights[0], attention.out.bias, training=False, key_padding_mask=~mask,
    )  # fmt: skip
    found = attention(x, kept, weights=True)
    torch.testing.assert_close(found.found, wanted.transpose(0, 1))
    assert shares is not None and found.weights is not None
    torch.testing.assert_close(found.weights.mean(1), shares)
    few = attention(x[[1]], kept.keep(torch.tensor([1])))
    torch.testing.assert_close(few.found[0], found.found[1])


def test_int8_takes_the_matrices_of_steps_and_encoder() -> None:
    model = make(size=32, encoder_mixing="attention")
    copied = inference_copy(model, int8=True)
    matrices = [weight for weight in copied.decoder.parameters() if weight.dim() > 1]
    assert matrices and all(isinstance(weight, Int8Matrix) for weight in matrices)
    assert all(isinstance(weight, Int8Matrix) for weight in copied.encoder.parameters() if weight.dim() > 1)
    with torch.no_grad():
        difference = (copied.score(SOURCE, TARGET) - model.score(SOURCE, TARGET)).abs().max()
    assert 0 < difference < 0.1


def test_what_a_configuration_may_say(tmp_path: Path) -> None:
    write_corpus(tmp_path)

    def said(**model: Any) -> str:
        with pytest.raises(ConfigError) as error:
            load_config(write_config(tmp_path, model={"architecture": "transformer", "hidden_size": 512, **model}))
        return str(error.value)

    assert "model.architecture_options.haeds: unknown key. Did you mean 'heads'?" in said(
        architecture_options={"haeds": 2}
    )
    assert "model.architecture_options.heads: 3 must divide embedding_size (8)" in said(
        embedding_size=8, architecture_options={"heads": 3}
    )
    odd = said(embedding_size=12, architecture_options={"heads": 4, "encoder_mixing": "attention"})
    assert "heads: 4 heads of embedding_size (12) have an odd width; rotary positions need pairs" in odd
    layers = said(embedding_size=8, encoder_layers=3, hidden_size=99, attention_heads=2)
    assert (
        "model.encoder_layers: 3 has no effect with 'transformer': give encoder_layers in architecture_options"
        in layers
    )
    assert "model.hidden_size: 99 has no effect with 'transformer'" in layers
    assert "model.attention_heads: 2 has no effect with 'transformer': give heads in architecture_options" in layers
    wrong = said(embedding_size=8, architecture_options={"word_dropout": 1.0})
    assert "word_dropout: must be at least 0 and less than 1, not 1" in wrong
    deep = said(embedding_size=8, architecture_options={"decoder_layers": 0})
    assert "decoder_layers: must be 1 to 1000, not 0" in deep
    idle = said(embedding_size=8, architecture_options={"decoder_mixing": "attention", "decoder_unit_size": 4})
    assert "architecture_options.decoder_unit_size: has no effect with decoder_mixing: attention" in idle
    side = said(embedding_size=8, architecture_options={"decoder_mixing": "attention"}, decoder_cell="sru")
    assert "model.decoder_cell: has no effect with decoder_mixing: attention" in side


def test_keys_that_the_architecture_does_not_read_give_a_warning(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    said: list[str] = []
    unread = {"layer_norm": False, "layer_norm_scale": 1.0, "context_aware_encoder": False, "deep_output": False}
    model = {"architecture": "transformer", "hidden_size": 512, "embedding_size": 8, "cell": "gru", **unread}
    plain = {"encoder_mixing": "attention", "decoder_mixing": "attention"}
    config = write_config(tmp_path, model={**model, "architecture_options": plain})
    load_config(config, warn=said.append)
    assert sorted(line.partition("model.")[2] for line in said) == [
        "cell: 'gru' has no effect: attention mixes the words of both sides",
        *(f"{name}: has no effect with 'transformer'" for name in sorted(unread)),
    ]


def test_trains_resumes_and_translates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way of a model with units on one side and self-attention on the other."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    config = write_config(
        tmp_path,
        model={
            "architecture": "transformer",
            "hidden_size": 512,
            "architecture_options": {"encoder_mixing": "attention", "heads": 2, "word_dropout": 0.1},
        },
        training={"max_steps": 4, "validate_every": 2},
    )
    assert nmt_train(config, "--set", "training.max_steps=2") == 0
    assert nmt_train(config) == 0
    said = Path("run/train.log").read_text(encoding="utf-8")
    assert (
        "model transformer encoder self-attention, decoder gru (recurrent_init: uniform, reset: before), 3 + 2 layers"
        in said
    )
    resumed = training_state(tmp_path / "run", 4)
    assert nmt_train(config, "--set", "run_dir=whole") == 0
    assert same(training_state(tmp_path / "whole", 4), resumed)
    assert call("nmt-check", "run") == 0
    assert call("nmt-average", "run", "--last", "2", "-o", "mean") == 0
    for given in (["run", "mean", "--precision", "int8"], ["mean", "--search", "greedy", "--beam-size", "1"]):
        assert call("nmt-translate", *given, "-i", "dev.en", "-o", "out") == 0
        assert len(Path("out").read_text(encoding="utf-8").splitlines()) == 8


@pytest.mark.parametrize("form", FORMS)
def test_a_form_gives_what_the_configuration_does_not_say(form: str, tmp_path: Path) -> None:
    text = (
        "run_dir: run\ndata: {train: train, dev: dev}\n"
        f"model:\n  architecture: transformer\n  cell: ssru\n  architecture_options: {{form: {form}, heads: 4}}\n"
    )
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    options = load_config(path).model.architecture_options
    assert {key: options[key] for key in FORMS[form]} == {**FORMS[form], "heads": 4}
    path.write_text(text.replace("heads: 4", "heads: 4, norm_position: before"), encoding="utf-8")
    assert load_config(path).model.architecture_options["norm_position"] == "before"
    path.write_text(text.replace(form, "[1]"), encoding="utf-8")
    with pytest.raises(ConfigError, match="architecture_options.form"):
        load_config(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"norm_epsilon": 0.0}, "norm_epsilon: 0.0 must be above 0"),
        ({"positions": "none", "encoder_mixing": "attention"}, "'none' leaves self-attention without the order"),
        ({"decoder_projection": False, "decoder_unit_size": 6}, "must be embedding_size (8)"),
    ],
)
def test_options_that_do_not_fit_together(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    section = {"architecture": "transformer", "embedding_size": 8, "architecture_options": {"heads": 2, **options}}
    path.write_text(yaml.safe_dump({"model": section}), encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_config(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", ["ssru", "lrn"])
def test_forms_step_by_step_and_in_training(form: str, cell: str) -> None:
    """Logits of steps are those of whole sentences, all weights get gradients, a row does not depend on the others."""
    options = {**FORMS[form], "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    model = make(cell, tie="all", **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    whole = model(SOURCE, TARGET)
    close(by_steps(model, SOURCE, TARGET)[TARGET != 0], whole[TARGET != 0], atol=1e-10)
    close(model(SOURCE[1:2, :3], TARGET[1:2])[0], whole[1], atol=1e-10)
    loss = model.loss(SOURCE, TARGET, label_smoothing=0.1)
    smoothed = F.cross_entropy(whole[TARGET != 0], TARGET[TARGET != 0])
    close(model.loss(SOURCE, TARGET), smoothed, atol=1e-10)
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    searched = inference_copy(model)
    assert searched.embeddings.softmax_table is searched.embeddings.softmax_table  # not made anew for each step
    close(by_steps(searched, SOURCE, TARGET)[TARGET != 0], whole[TARGET != 0], atol=1e-10)
    int8 = inference_copy(model.float(), int8=True)
    bias = model.embeddings.output_bias
    assert bias is not None
    assert (by_steps(int8, SOURCE, TARGET)[TARGET != 0] - whole.float()[TARGET != 0]).abs().max() < 0.2
