"""Windows of documents: which sentences they have, and the loss of a model that carries its states through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.vocabulary import EOS
from nmt.documents.training import Reader, WindowBatch, added, longest_sentence
from nmt.documents.windows import window_starts
from nmt.models.base import Seq2Seq
from nmt.ops.dropout import Masks, masked_by
from nmt.registry import CELLS
from nmt.training.losses import CrossEntropy
from tests.models.small_model import ARCHITECTURES, make_model

# Windows of three, one and two sentences; the third has an empty one.
SOURCE = [[[5, 7, 3], [9], [11, 4]], [[4, 8]], [[6], []]]
TARGET = [[[4, 3], [7, 5, 9, 6], [8]], [[7, 5]], [[], [8, 10]]]
CASES = [
    *((name, cell) for name in ("deepnmt", "transformer") for cell in sorted(set(CELLS.names()) - {"rnn"})),
    *(("plain", "lrn"), ("rnnsearch", "gru"), ("deep", "gru"), ("deepatt", "lstm"), ("sinusoids", "ssru")),
]


def model_of(name: str, cell: str, **more: Any) -> Seq2Seq:
    changes: dict[str, Any] = dict(ARCHITECTURES.get(name, {}))
    if name == "deep":
        changes = {"deep_attention": True}
    if name == "deepatt":
        changes = {"architecture": "rnnsearch_deepatt", "encoder_layers": 2, "decoder_layers": 2, "attention_heads": 1}
    if name == "sinusoids":
        changes = dict(ARCHITECTURES["transformer"])
        changes["architecture_options"] = {**changes["architecture_options"], "positions": "sinusoidal"}
    return make_model(cell, **{**changes, **more}).double()


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


def windows(sides: list[list[list[int]]]) -> Tensor:
    return padded([[token for sentence in window for token in [*sentence, EOS]] for window in sides])


def batch_of(model: Seq2Seq, source: Tensor, target: Tensor) -> WindowBatch:
    words = (target != 0).flatten().nonzero().squeeze(1)
    weights = torch.rand(target.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return WindowBatch(model, source, target, words, weights * (target != 0))


def by_steps(model: Seq2Seq, weights: Tensor) -> Tensor:
    """The loss word by word as a search computes it, one sentence after the other."""
    total = torch.zeros((), dtype=torch.float64)
    for row, (sources, targets) in enumerate(zip(SOURCE, TARGET, strict=True)):
        after: tuple[Any, ...] | None = None
        place = 0
        for source, target in zip(sources, targets, strict=True):
            state = model.start(torch.tensor([[*source, EOS]]))
            counted = [type(own).__name__ == "WordCount" for own in state.states]
            if after is not None:
                state = state._replace(
                    states=tuple(
                        own if counts else type(own)(*(left + right for left, right in zip(own, other, strict=True)))
                        for own, other, counts in zip(state.states, after, counted, strict=True)
                    )
                )
            before = None
            for word in [*target, EOS]:
                logits, state = model.step(before, state)
                total = total + weights[row, place] * F.cross_entropy(logits, torch.tensor([word]))
                before, place = torch.tensor([word]), place + 1
            after = state.states
    return total


@pytest.mark.parametrize(("name", "cell"), CASES)
def test_a_window_is_its_sentences_one_after_the_other(name: str, cell: str) -> None:
    model = model_of(name, cell)
    batch = batch_of(model, windows(SOURCE), windows(TARGET))
    found = CrossEntropy()(batch)
    wanted = by_steps(model, batch.weights)
    torch.testing.assert_close(found.total, wanted)
    weights = list(model.parameters())
    pairs = zip(*(torch.autograd.grad(loss, weights, allow_unused=True) for loss in (found.total, wanted)), strict=True)
    for (own, by_hand), (parameter, _) in zip(pairs, model.named_parameters(), strict=True):
        assert (own is None) == (by_hand is None), parameter
        if own is not None:
            torch.testing.assert_close(own, by_hand, msg=lambda said, name=parameter: f"{name}: {said}")
    # Without the states of sentences before, the loss is another one.
    plain = model.weighted_loss(batch.source, batch.target, weights=batch.weights, words=batch.places)
    assert abs(float(plain.total - wanted)) > 1e-4


def test_a_sentence_alone_has_the_usual_loss() -> None:
    model = model_of("deepnmt", "gru")
    source, target = windows([[one] for (one, *_) in SOURCE]), windows([[one] for (one, *_) in TARGET])
    batch = batch_of(model, source, target)
    usual = model.weighted_loss(source, target, weights=batch.weights, words=batch.places)
    found = CrossEntropy()(batch)
    assert torch.equal(found.total, usual.total)
    assert torch.equal(found.nll, usual.nll.flatten()[batch.places])
    assert torch.equal(Reader(model).token_losses(source, target, words=batch.places), found.nll)


def test_passes_and_sentences_have_dropout_of_their_own() -> None:
    same = [[[5, 7, 3], [5, 7, 3]]]
    model = model_of("deepnmt", "gru", dropout=0.5).train()
    for state in model.initial_states.parameters():
        torch.nn.init.zeros_(state)
    batch = batch_of(model, windows(same), windows([[[4, 3], [4, 3]]]))
    with masked_by(Masks(key=3)):
        first = batch.features()
        again = batch.features()
        together = batch.passes(2)
    with masked_by(Masks(key=3)):
        torch.testing.assert_close(batch_of(model, batch.source, batch.target).features(), first, rtol=0, atol=0)
    assert not torch.allclose(first, again)
    assert not torch.allclose(together[0], together[1])
    # Each sentence of the window drops other values: 0 where dropped, else another state.
    assert not torch.equal(first[:3] == 0, first[3:] == 0)


def test_states_are_added_tensor_by_tensor() -> None:
    model = model_of("deepnmt", "lstm")
    states = model.start(torch.tensor([[5, EOS]])).states
    double = added(states, states)
    assert [type(one) for one in double] == [type(one) for one in states]
    for one, twice in zip(states, double, strict=True):
        for left, right in zip(one, twice, strict=True):
            assert torch.equal(left * 2, right)


@pytest.mark.parametrize(
    ("lines", "sentences", "wanted"),
    [
        ([0, 1, 2, 3, 4], 2, [0, 2, 4]),
        ([0, 1, 3, 4, 5, 9], 2, [0, 2, 4, 5]),
        ([2, 3, 4, 5, 7], 4, [0, 4]),
        ([1, 3, 5], 4, [0, 1, 2]),
        ([0, 1, 2], 1, [0, 1, 2]),
        ([], 4, []),
    ],
)
def test_windows_end_with_a_document_or_when_they_are_full(lines: list[int], sentences: int, wanted: list[int]) -> None:
    assert window_starts(np.array(lines, np.int64), sentences=sentences).tolist() == wanted


def test_the_longest_sentence_is_not_the_longest_window(monkeypatch: Any) -> None:
    from types import SimpleNamespace

    ids = np.array([5, 7, EOS, 4, 4, 4, 4, EOS, EOS, 6, EOS])
    corpus: Any = SimpleNamespace(sides=[SimpleNamespace(ids=ids)])
    for size in (1, 3, 100):
        monkeypatch.setattr("nmt.documents.training._CHUNK", size)
        assert longest_sentence(corpus) == 4
