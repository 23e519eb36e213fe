"""The attention that models tell: step by step and of whole sequences, by every model that a search may see."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.models.decoder import Decoder
from nmt.models.graphed import GraphedModel
from nmt.ops import graphs
from tests.models.test_graphed import Replayed
from tests.models.test_seq2seq import SOURCE, TARGET, V, make

KINDS: dict[str, dict[str, Any]] = {
    "one attention, two heads": {"cell": "gru"},
    "deep attention": {"cell": "lrn", "deep_attention": True},
    "deepnmt, plain": {"cell": "atr", "context_aware_encoder": False, "layer_norm": True},
    "rnnsearch": {"architecture": "rnnsearch", "cell": "lstm"},
    "rnnsearch_deepatt": {"architecture": "rnnsearch_deepatt", "cell": "sru"},
    "transformer": {"architecture": "transformer", "cell": "lrn"},
    "plain transformer": {
        "architecture": "transformer",
        "embedding_size": 8,
        "architecture_options": {"encoder_mixing": "attention", "decoder_mixing": "attention", "heads": 2},
    },
}
COUNTS = {
    "transformer": (2, 2),
    "plain transformer": (2, 2),
    "deep attention": (3, 2),
    "rnnsearch": (1, 1),
    "rnnsearch_deepatt": (3, 2),
}
"""Attentions and heads; of the others (1, 2)."""
WORDS = TARGET != 0


def close(ours: Tensor, wanted: Tensor, atol: float = 1e-6) -> None:
    """The C kernels of the attention compute its weights in fp32."""
    torch.testing.assert_close(ours.double(), wanted.double(), rtol=0, atol=atol)


@torch.no_grad()
def by_steps(model: Any, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [B, T, V] and attention [B, T, S]."""
    state, words, found = model.start(source), None, []
    for t in range(target.size(1)):
        logits, weights, state = model.attending_step(words, state)
        found.append((logits, weights))
        words = target[:, t]
    logits, weights = (torch.stack(parts, 1) for parts in zip(*found, strict=True))
    return logits, weights


@pytest.mark.parametrize("kind", KINDS)
def test_steps_tell_the_attention_of_whole_sequences(kind: str) -> None:
    model = make(**KINDS[kind])
    whole = model.attention(SOURCE, TARGET)
    logits, steps = by_steps(model, SOURCE, TARGET)
    assert (len(whole.layers), whole.layers[0].size(1)) == COUNTS.get(kind, (1, 2))
    assert whole.mean.shape == (3, 4, 5)
    close(steps[WORDS], whole.mean[WORDS])
    close(torch.stack([layer.mean(1) for layer in whole.layers]).mean(0), whole.mean)
    close(whole.mean[WORDS].sum(-1), torch.ones(int(WORDS.sum())))
    assert (whole.mean.masked_select(WORDS.unsqueeze(2) & (SOURCE == 0).unsqueeze(1)) == 0).all()
    with torch.no_grad():
        wanted = model(SOURCE, TARGET)
    torch.testing.assert_close(logits[WORDS], wanted[WORDS])


@pytest.mark.parametrize("kind", KINDS)
def test_attention_does_not_hang_on_companions(kind: str) -> None:
    model = make(**KINDS[kind])
    whole, steps = model.attention(SOURCE, TARGET), by_steps(model, SOURCE, TARGET)[1]
    for row in range(3):
        source, target = SOURCE[row : row + 1, SOURCE[row] != 0], TARGET[row : row + 1, WORDS[row]]
        alone = model.attention(source, target)
        inside = whole.mean[row, WORDS[row], : source.size(1)]
        close(alone.mean[0], inside)
        close(by_steps(model, source, target)[1][0], steps[row, WORDS[row], : source.size(1)])
        for ours, layer in zip(alone.layers, whole.layers, strict=True):
            close(ours[0], layer[row][:, WORDS[row], : source.size(1)])
    padded = model.attention(torch.nn.functional.pad(SOURCE, (0, 2)), torch.nn.functional.pad(TARGET, (0, 3)))
    assert torch.equal(padded.mean, whole.mean)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_with_attention_is_the_step_without(kind: str) -> None:
    """Bit for bit, for several hypotheses of a sentence, too."""
    model = make(**KINDS[kind]).float()
    words = torch.tensor([3, 4, 5, 6, 7, 8])
    with torch.no_grad():
        beams = model.step(None, model.start(SOURCE))[1].expand(2)
        wanted, after = model.step(words, beams)
        logits, weights, also = model.attending_step(words, beams)
        assert torch.equal(logits, wanted)
        for one, two in zip(after.states, also.states, strict=True):
            assert all(map(torch.equal, one, two))
        for beam in range(2):
            alone = model.attending_step(words[beam::2], model.step(None, model.start(SOURCE))[1])[1]
            close(weights[beam::2], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_step_tells_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the positions that its memory is filled up with."""
    model, replayed = make(**KINDS[kind]).float(), Replayed()
    monkeypatch.setattr(graphs, "run", replayed.run)
    graphed, wanted = GraphedModel(model), by_steps(model, SOURCE, TARGET)
    for _ in range(3):
        for ours, right in zip(by_steps(graphed, SOURCE, TARGET), wanted, strict=True):
            close(ours, right, atol=1e-5)
    assert replayed.replays > 3


class Silent(Decoder):
    """A decoder of a plugin that has nothing but what training and search call."""

    def sequence(self, x: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        return (x,)


def test_a_decoder_without_attention_says_so() -> None:
    model = make()
    assert model.tells_attention
    model.decoder = Silent([])
    assert not model.tells_attention
    with pytest.raises(ConfigError, match="the decoder Silent does not report its attention"):
        model.decoder.attending_sequence(torch.zeros(1, 1, V), (), (), torch.ones(1, 1))
    with pytest.raises(ConfigError, match="the decoder Silent does not report"):
        model.decoder.attending_step(torch.zeros(1, V), (), ())
