"""The architecture rnnsearch_deepatt: against Zero's equations in numpy, numerical gradients, search, options."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nmt.config.schema import ModelConfig
from nmt.data.vocabulary import EOS
from nmt.interop import zero
from nmt.models import RNNSearchDeepAtt, build_model
from nmt.models.decoder import AttentionRNN, DeepAttentionRNN
from nmt.models.graphed import GraphedModel
from nmt.models.inference import inference_copy
from nmt.zero.search import beam_search
from tests.models.parameters import count_parameters
from tests.models.two_cells import USUAL, check, given, maker, masks, run_attention, started
from tests.models.zero_deepatt import ZeroDeepAtt

UNITS = ["atr", "gru", "lrn", "lstm", "olrn", "sru"]
V_SOURCE, V_TARGET = 11, 9

SOURCE = torch.tensor([[3, 4, 5, 6, 7, 2], [7, 8, 2, 0, 0, 0], [9, 10, 4, 2, 0, 0]])
TARGET = torch.tensor([[3, 4, 2, 0], [5, 6, 7, 2], [2, 0, 0, 0]])


def config(cell: str = "gru", **settings: Any) -> ModelConfig:
    sizes: dict[str, Any] = {"hidden_size": 8, "embedding_size": 6, "encoder_layers": 2, "decoder_layers": 3}
    sizes |= {"layer_norm": False, "dropout": 0.0}
    return ModelConfig(architecture="rnnsearch_deepatt", cell=cell, **{**sizes, "init_range": 0.5, **settings})


def make(cell: str = "gru", **settings: Any) -> RNNSearchDeepAtt:
    """In double precision, with no parameter left where it starts: biases and layer norms would hide mistakes."""
    torch.manual_seed(5)
    same = settings.get("tie_embeddings") == "all"
    model = build_model(config(cell, **settings), V_TARGET if same else V_SOURCE, V_TARGET).double().eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, 0.2, 0.9)
    assert isinstance(model, RNNSearchDeepAtt)
    return model


def original(model: RNNSearchDeepAtt, settings: ModelConfig) -> ZeroDeepAtt:
    return ZeroDeepAtt(
        zero.to_arrays(model),
        cell=settings.cell,
        hidden_size=settings.hidden_size,
        num_encoder_layer=settings.encoder_layers,
        num_decoder_layer=settings.decoder_layers,
        num_heads=settings.attention_heads,
        layer_norm=settings.layer_norm,
    )


def check_against_the_original(cell: str, **settings: Any) -> None:
    model = make(cell, **settings)
    source = SOURCE.clamp(max=model.source_vocab_size - 1)
    wanted = original(model, config(cell, **settings))
    right = wanted.run(source.numpy(), TARGET.numpy(), label_smooth=0.1)
    assert wanted.read == wanted.variables.keys()  # no variable is left out
    for row, memory in enumerate(right.encodes):
        ours = model.encode(source).memory[row, : len(memory)]
        np.testing.assert_allclose(ours.detach().numpy(), memory, rtol=0, atol=1e-10)
    words = (TARGET != 0).numpy()
    logits = model(source, TARGET).detach().numpy()
    assert np.abs(logits[words]).max() > 0.1
    np.testing.assert_allclose(logits[words], right.logits[words], rtol=0, atol=1e-10)
    loss = model.loss(source, TARGET, label_smoothing=0.1, normalization="sentence")
    assert loss.item() == pytest.approx(right.loss, abs=1e-10)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("cell", UNITS)
def test_logits_and_loss_are_those_of_the_original(cell: str, layer_norm: bool) -> None:
    check_against_the_original(cell, layer_norm=layer_norm)


@pytest.mark.parametrize("settings", [
    {"attention_heads": 4}, {"attention_heads": 2, "layer_norm": True}, {"encoder_layers": 1, "decoder_layers": 1},
    {"encoder_layers": 3}, {"tie_embeddings": "all"}, {"tie_embeddings": "none", "layer_norm": True},
])  # fmt: skip
@pytest.mark.parametrize("cell", ["gru", "sru"])
def test_options_are_those_of_the_original(cell: str, settings: dict[str, Any]) -> None:
    check_against_the_original(cell, **settings)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm", "sru"])
def test_gradients_are_differences_of_the_loss(cell: str, layer_norm: bool) -> None:
    """In a random direction of each part, and of single entries of some parameters; no gradient is one of zero: the
    reset gate of a pair's lower SRU changes nothing."""
    model = make(cell, layer_norm=layer_norm, attention_heads=2, decoder_layers=2)
    source, target = SOURCE[1:, :4], TARGET[:2, :3]
    model.loss(source, target, label_smoothing=0.1).backward()
    generator, step = torch.Generator().manual_seed(1), 1e-5

    @torch.no_grad()
    def difference(parameters: list[nn.Parameter], directions: list[torch.Tensor]) -> float:
        ends, before = [], [parameter.clone() for parameter in parameters]
        for sign in (1, -1):
            for parameter, first, direction in zip(parameters, before, directions, strict=True):
                parameter.copy_(first + sign * step * direction)
            ends.append(model.loss(source, target, label_smoothing=0.1).item())
        for parameter, first in zip(parameters, before, strict=True):
            parameter.copy_(first)
        return (ends[0] - ends[1]) / (2 * step)

    def compare(name: str, parameters: list[nn.Parameter], directions: list[torch.Tensor]) -> None:
        pairs = zip(parameters, directions, strict=True)
        used = [(parameter.grad, direction) for parameter, direction in pairs if parameter.grad is not None]
        found = sum(float((gradient * direction).sum()) for gradient, direction in used)
        assert found == pytest.approx(difference(parameters, directions), rel=1e-5, abs=1e-8), name

    for name, part in model.named_children():
        if parameters := list(part.parameters()):
            shapes = [parameter.shape for parameter in parameters]
            compare(name, parameters, [torch.randn(shape, generator=generator).double() for shape in shapes])
    for name, parameter in list(model.named_parameters())[::7]:
        one = torch.zeros_like(parameter)
        one.view(-1)[0 if parameter.grad is None else parameter.grad.abs().argmax()] = 1
        compare(name, [parameter], [one])


@pytest.mark.parametrize("cell", UNITS)
def test_one_level_is_the_usual_attention(cell: str) -> None:
    """And that runs in the loop that has kernels: values and all gradients of the loop written out are the same."""
    usual: Any = started(AttentionRNN(maker(cell), USUAL.inputs, USUAL.memory, heads=2)).double()
    deep: Any = DeepAttentionRNN(maker(cell), USUAL.inputs, USUAL.memory, levels=1, heads=2).double()
    deep.load_state_dict({as_deep(name): value for name, value in usual.state_dict().items()})
    inputs = given("memory", parts=len(usual.lower.State._fields))
    for mask in (parameter.values[0] for parameter in masks()):
        wanted = run_attention(usual, inputs, mask, torch.float64)
        found = run_attention(deep, inputs, mask, torch.float64)
        check(found, {as_deep(name): value for name, value in wanted.items()}, tolerance=1e-12)


def as_deep(name: str) -> str:
    """The name of a tensor of an AttentionRNN in a DeepAttentionRNN of one level."""
    return name.replace("attention.", "attentions.0.").replace("higher.", "higher.0.")


def test_attention_weights_of_all_levels_stand_side_by_side() -> None:
    rnn: Any = make(attention_heads=2).decoder.layer.rnn
    memory = rnn.prepare(torch.randn(3, 5, 8).double(), torch.ones(3, 5))
    result = rnn.sequence(torch.randn(3, 4, 6).double(), memory)
    assert result.weights.shape == (3, 3 * 2, 4, 5) and result.contexts.shape == (3, 4, 3 * 8)
    per_head = memory.values.unsqueeze(1).expand(3, 3, 2, 5, 4).flatten(1, 2)
    contexts = (result.weights @ per_head).transpose(1, 2).flatten(2)
    torch.testing.assert_close(contexts, result.contexts)


def test_levels_share_one_memory() -> None:
    model = make(decoder_layers=4)
    state = model.start(SOURCE)
    assert len(state.memories) == len(state.states) == 1
    keys = [name for name, _ in model.decoder.named_parameters() if ".memory." in name]
    assert len(keys) == 1


@pytest.mark.parametrize("cell", ["gru", "sru"])
def test_beam_search_finds_what_exhaustive_search_finds(cell: str) -> None:
    """With a beam of all prefixes: the best of all translations of up to three words."""
    model = make(cell, layer_norm=True).float()
    source, length = SOURCE[1:2, :3], 4
    with torch.no_grad():
        best = beam_search(model, source, beam_size=400, length_penalty=0.6, max_length_offset=length - 3)[0][0]
        words = [word for word in range(V_TARGET) if word != EOS]
        scores = {}
        for count in range(1, length):
            texts = list(itertools.product(words, repeat=count))
            target = torch.tensor([[*text, EOS] for text in texts])
            many = source.expand(len(texts), -1)
            log_p = model(many, target).log_softmax(-1).gather(2, target.unsqueeze(2)).sum((1, 2))
            penalty = ((5 + count + 1) / 6) ** 0.6
            scores |= {text: value / penalty for text, value in zip(texts, log_p.tolist(), strict=True)}
    wanted = max(scores, key=lambda text: scores[text])
    assert best.score == pytest.approx(scores[wanted], abs=1e-4)
    assert tuple(best.ids) in (wanted, (*wanted, EOS))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_graphed_and_converted_models_translate(cell: str) -> None:
    model = make(cell, layer_norm=True, hidden_size=16, embedding_size=16).float()
    options = {"beam_size": 3, "length_penalty": 0.6, "max_length_offset": 3}
    with torch.no_grad():
        wanted = beam_search(model, SOURCE, **options)
        graphed = beam_search(GraphedModel(model), SOURCE, **options)
        assert [h.ids for hs in graphed for h in hs] == [h.ids for hs in wanted for h in hs]
        exact = model.step(None, model.start(SOURCE))[0]
        for changes in ({"int8": True}, {"bf16": True}, {"bf16": True, "int8": True}):
            converted: Any = inference_copy(model, **changes)
            with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in changes):
                logits = converted.step(None, converted.start(SOURCE))[0]
                assert len(beam_search(converted, SOURCE, **options)) == 3
            assert (logits - exact).abs().max() < 0.1 * exact.abs().max()


def test_a_narrower_encoder_and_another_unit() -> None:
    model = make("gru", encoder_hidden_size=6, encoder_cell="lrn", attention_heads=3)
    assert model.encode(SOURCE).memory.shape == (3, 6, 6)
    logits = model(SOURCE, TARGET)
    state = model.start(SOURCE)
    torch.testing.assert_close(model.step(None, state)[0], logits[:, 0])


def test_parameters_are_counted_without_memory() -> None:
    settings = config(hidden_size=1000, embedding_size=620, encoder_layers=5, decoder_layers=5, layer_norm=True)
    small = config("lstm", tie_embeddings="none")
    assert count_parameters(small, 11, 9) == sum(p.numel() for p in build_model(small, 11, 9).parameters())
    assert count_parameters(settings, 32_000, 32_000) == 39_680_620 + 105_406_265


@pytest.mark.parametrize(("settings", "message"), [
    ({"context_aware_encoder": False}, ("context_aware_encoder", "has no effect with 'rnnsearch_deepatt': ")),
    ({"deep_attention": True}, ("deep_attention", "has no effect with 'rnnsearch_deepatt': its decoder attends in")),
    ({"deep_output": False}, ("deep_output", "has no effect with 'rnnsearch_deepatt': it has a tanh layer")),
    ({"attention_heads": 3}, ("attention_heads", "3 must divide the encoder's width (8)")),
    ({"attention_heads": 4, "encoder_hidden_size": 6}, ("attention_heads", "4 must divide the encoder's width (6)")),
])  # fmt: skip
def test_keys_that_do_not_fit_are_named(settings: dict[str, Any], message: tuple[str, str]) -> None:
    ((key, text),) = RNNSearchDeepAtt.check(config(**settings))
    assert key == message[0] and text.startswith(message[1])
    assert RNNSearchDeepAtt.check(config()) == []
