"""What all architectures promise the trainer and the search."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.schema import ModelConfig
from nmt.errors import ConfigError
from nmt.models import Seq2Seq, build_model
from nmt.models.encoder import ResidualLayer
from nmt.models.parts import initialize
from tests.cross_entropy import reference_cross_entropy

UNITS = ["atr", "gru", "lrn", "lstm", "olrn", "sru"]
ARCHITECTURES = ["deepnmt", "rnnsearch", "rnnsearch_deepatt", "transformer"]
V = 13

SOURCE = torch.tensor([[3, 4, 5, 6, 2], [7, 8, 2, 0, 0], [9, 2, 0, 0, 0]])
TARGET = torch.tensor([[3, 4, 2, 0], [5, 6, 7, 2], [2, 0, 0, 0]])


def make(architecture: str = "deepnmt", cell: str = "lrn", **settings: Any) -> Seq2Seq:
    deep = {} if architecture == "rnnsearch" else {"encoder_layers": 2, "decoder_layers": 3, "attention_heads": 2}
    sizes: dict[str, Any] = {"hidden_size": 8, "embedding_size": 6, "init_range": 0.5, **deep}
    if architecture == "transformer":
        sizes["architecture_options"] = {"heads": 2, "feed_forward": "gated"}
    settings = {"layer_norm": False, "dropout": 0.0, **sizes, **settings}
    torch.manual_seed(5)
    return build_model(ModelConfig(architecture=architecture, cell=cell, **settings), V, V).double().eval()


def close(ours: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-12)


def by_steps(model: Seq2Seq, source: Tensor, target: Tensor) -> Tensor:
    state = model.start(source)
    logits, words = [], None
    for t in range(target.size(1)):
        step, state = model.step(words, state)
        logits.append(step)
        words = target[:, t]
    return torch.stack(logits, 1)


@pytest.mark.parametrize("settings", [{}, {"context_aware_encoder": False, "layer_norm": True}])
@pytest.mark.parametrize("cell", UNITS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_steps_equal_the_whole_sequence(architecture: str, cell: str, settings: dict[str, Any]) -> None:
    model = make(architecture, cell, **settings)
    steps, whole = by_steps(model, SOURCE, TARGET), model(SOURCE, TARGET)
    close(steps[TARGET != 0], whole[TARGET != 0])


@pytest.mark.parametrize(
    "settings",
    [{"deep_attention": True}, {"deep_output": False}, {"tie_embeddings": "all"}, {"encoder_hidden_size": 5}],
)
def test_steps_equal_the_whole_sequence_with_other_options(settings: dict[str, Any]) -> None:
    model = make(**settings)
    close(by_steps(model, SOURCE, TARGET)[TARGET != 0], model(SOURCE, TARGET)[TARGET != 0])


@pytest.mark.parametrize("settings", [{}, {"context_aware_encoder": False}])
@pytest.mark.parametrize("cell", UNITS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_companions_and_padding_change_nothing(architecture: str, cell: str, settings: dict[str, Any]) -> None:
    model = make(architecture, cell, **settings)
    logits, scores = model(SOURCE, TARGET), model.score(SOURCE, TARGET)
    for row in range(3):
        words = TARGET[row] != 0
        alone = model(SOURCE[row : row + 1, SOURCE[row] != 0], TARGET[row : row + 1, words])
        close(alone[0], logits[row, words])
        close(model.score(SOURCE[row : row + 1], TARGET[row : row + 1])[0], scores[row])
    padded = [torch.nn.functional.pad(ids, (0, 3)) for ids in (SOURCE, TARGET)]
    close(model(*padded), logits)
    close(model.loss(*padded, label_smoothing=0.1), model.loss(SOURCE, TARGET, label_smoothing=0.1))
    assert model.encode(padded[0]).memory.size(1) == 5
    assert model.token_losses(*padded).shape == TARGET.shape


def test_losses_are_the_means_they_say_they_are() -> None:
    model = make()
    losses, words = model.token_losses(SOURCE, TARGET, label_smoothing=0.1), TARGET != 0
    assert (losses[~words] == 0).all() and (losses[words] > 0).all()
    close(model.loss(SOURCE, TARGET, label_smoothing=0.1), losses[words].mean())
    of_sentences = torch.stack([losses[row, words[row]].mean() for row in range(3)])
    close(model.loss(SOURCE, TARGET, label_smoothing=0.1, normalization="sentence"), of_sentences.mean())
    log_p = model(SOURCE, TARGET).log_softmax(-1).gather(2, TARGET.unsqueeze(2)).squeeze(2)
    close(model.score(SOURCE, TARGET), torch.stack([-log_p[row, words[row]].mean() for row in range(3)]))
    with pytest.raises(ConfigError, match=r"normalization: 'words' is not known\. Allowed: batch, sentence, token"):
        model.loss(SOURCE, TARGET, normalization="words")  # type: ignore[arg-type]


def test_weighted_loss_and_its_gradient_are_those_of_the_definition() -> None:
    """Also where the target has columns of padding alone, and whatever the weights say there."""
    model = make()
    target = torch.nn.functional.pad(TARGET, (0, 2))
    weights = torch.rand(target.shape, dtype=torch.float64)
    loss, losses, nll = model.weighted_loss(SOURCE, target, weights=weights, label_smoothing=0.1)
    words = TARGET != 0
    wanted = reference_cross_entropy(model(SOURCE, TARGET)[words], TARGET[words], label_smoothing=0.1)
    close(losses[words], wanted.detach())
    close(nll[words], reference_cross_entropy(model(SOURCE, TARGET)[words], TARGET[words]).detach())
    assert (nll[~words] == 0).all() and not losses.requires_grad and not nll.requires_grad
    places, known = words.flatten().nonzero().squeeze(1), weights[:, :4]
    told = model.weighted_loss(SOURCE, TARGET, weights=known, label_smoothing=0.1, words=places)
    assert all(torch.equal(*pair) for pair in zip(told, (loss, losses, nll), strict=True))
    token_losses = model.token_losses(SOURCE, TARGET, label_smoothing=0.1)
    close(losses, token_losses)  # torch multiplies in other shapes where a gradient is wanted
    with torch.no_grad():
        assert torch.equal(model.weighted_loss(SOURCE, target, weights=weights, label_smoothing=0.1)[1], token_losses)
    gradients = [
        torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
        for total in (loss, (wanted * weights[:, :4][words]).sum())
    ]
    for ours, right in zip(*gradients, strict=True):
        assert (ours is None) == (right is None)
        if ours is not None:
            close(ours, right)


def test_sentences_without_words_cost_nothing_and_break_nothing() -> None:
    model = make()
    source, target = torch.cat([SOURCE, torch.zeros(1, 5, dtype=torch.int64)]), torch.cat([TARGET, TARGET[:1] * 0])
    close(model.loss(source, target), model.loss(SOURCE, TARGET))
    assert model.score(source, target)[3] == 0
    assert model.encode(source[3:]).memory.isfinite().all()
    assert model.loss(source[3:], target[3:]) == 0


@pytest.mark.parametrize("cell", ["lrn", "lstm"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_beams_share_the_memory_of_their_sentence(architecture: str, cell: str) -> None:
    model = make(architecture, cell, context_aware_encoder=False)
    logits, state = model.step(None, model.start(SOURCE))
    beams = state.expand(2)
    assert (beams.rows, len(beams.memories[0][0])) == (6, 3)
    assert beams.memories[0] is state.memories[0]
    words = torch.tensor([3, 4, 5, 6, 7, 8])
    both, after = model.step(words, beams)
    for beam in range(2):
        close(both[beam::2], model.step(words[beam::2], state)[0])
    swapped = torch.tensor([1, 0, 3, 3, 4, 5])
    last = torch.full((6,), 9)
    close(model.step(last, after.reorder(swapped))[0], model.step(last, after)[0][swapped])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_finished_sentences_leave_the_batch(architecture: str) -> None:
    model = make(architecture, "sru")
    words = torch.tensor([3, 4, 5, 6, 7, 8])
    state = model.step(words, model.step(None, model.start(SOURCE))[1].expand(2))[1]
    kept = state.keep(torch.tensor([2, 0]))
    assert (kept.rows, len(kept.memories[0][0])) == (4, 2)
    rows = torch.tensor([4, 5, 0, 1])
    close(model.step(words[rows], kept)[0], model.step(words, state)[0][rows])


def test_search_does_not_keep_anything_on_the_model() -> None:
    model = make()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    by_steps(model, SOURCE, TARGET)
    assert before == {name: dict(vars(module)) for name, module in model.named_modules()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_is_active_in_training_only(architecture: str) -> None:
    model = make(architecture, dropout=0.5).train()
    assert not torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    torch.manual_seed(1)
    first = model.loss(SOURCE, TARGET)
    torch.manual_seed(1)
    assert torch.equal(first, model.loss(SOURCE, TARGET))
    model.eval()
    close(model(SOURCE, TARGET), make(architecture)(SOURCE, TARGET))


@pytest.mark.parametrize(
    ("architecture", "settings", "expected"),
    [
        ("rnnsearch", {}, ["source", "target", "feature"]),
        ("rnnsearch_deepatt", {}, ["source", "target", "feature"]),
        (
            "deepnmt",
            {"deep_output": False},
            ["source", "encoder", "encoder", "target", "decoder", "decoder", "decoder"],
        ),
        ("deepnmt", {"encoder_layers": 1, "decoder_layers": 1}, ["source", "encoder", "target", "decoder", "feature"]),
    ],
)
def test_dropout_stands_where_the_original_has_it(
    architecture: str, settings: dict[str, Any], expected: list[str]
) -> None:
    model = make(architecture, dropout=0.5, **settings).train()
    places = {"source_dropout": "source", "target_dropout": "target", "readout": "feature"}
    seen: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout):
            part = name.split(".")[0]
            drops = partial(_note_what_drops, place=places.get(part, part), seen=seen)
            module.register_forward_hook(drops)
    model.loss(SOURCE, TARGET)
    assert seen == expected


def _note_what_drops(module: Any, inputs: tuple[Tensor], output: Tensor, *, place: str, seen: list[str]) -> None:
    if not torch.equal(inputs[0], output):
        seen.append(place)


def test_a_residual_layer_drops_its_branch_and_never_its_input() -> None:
    layer = ResidualLayer(3, 4, layer_norm=False, dropout=1.0).train()
    initialize(layer, 0.8)
    x = torch.randn(2, 4)
    assert torch.equal(layer(x, torch.randn(2, 3)), x)


@pytest.mark.parametrize(
    ("tie", "tables"),
    [("none", ["source", "target", "softmax"]), ("target_softmax", ["source", "target"]), ("all", ["source"])],
)
def test_a_shared_table_is_one_parameter(tie: str, tables: list[str]) -> None:
    model = make(tie_embeddings=tie)
    names = [name for name, _ in model.embeddings.named_parameters() if name != "bias"]
    assert names == tables
    assert len(model.state_dict()) == len(list(model.parameters()))
    model.loss(SOURCE, TARGET).backward()
    gradients = {name: parameter.grad for name, parameter in model.embeddings.named_parameters()}
    unused = torch.tensor([word not in SOURCE for word in range(V)])
    if tie == "all":
        assert (gradients["source"] != 0).all()
    else:
        assert (gradients["source"][unused] == 0).all()


def test_every_parameter_gets_a_gradient() -> None:
    for architecture in ARCHITECTURES:
        model = make(architecture, layer_norm=True, tie_embeddings="none")
        model.loss(SOURCE, TARGET, label_smoothing=0.1).backward()
        silent = [name for name, parameter in model.named_parameters() if parameter.grad is None]
        assert silent == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_low_precision_stays_close_and_keeps_states_in_fp32(architecture: str) -> None:
    model = make(architecture, "gru", init_range=0.2).float()
    exact = model.loss(SOURCE, TARGET)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.loss(SOURCE, TARGET)
        state = model.step(None, model.start(SOURCE))[1]
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-2)
    assert all(state.h.dtype == torch.float32 for state in state.states)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
