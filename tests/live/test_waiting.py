"""Encoders that read forward, and training in which target words see only what has been read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data.vocabulary import EOS
from nmt.errors import ConfigError
from nmt.live.encoding import Listener
from nmt.live.waiting import visible
from nmt.live.words import Words
from nmt.models.base import DecodingState, Seq2Seq
from nmt.registry import CELLS
from tests.models.small_model import ARCHITECTURES, SOURCE, TARGET, make_model
from tests.tiny_training import nmt_train, write_config, write_corpus

COUNTS = torch.ones(12, dtype=torch.long)
COUNTS[[EOS, 3, 5, 9]] = 0  # the end symbol, and what goes on with a word
NONE = torch.zeros(12, dtype=torch.bool)
BOTH = (Words(COUNTS, inside=NONE, opens=NONE, closes=NONE, marks=NONE, letters=NONE, endings=NONE, commas=NONE),) * 2
WAIT = torch.tensor([1, 2, 3])
CASES = [
    *((name, cell) for name in ("deepnmt", "transformer") for cell in sorted(set(CELLS.names()) - {"rnn"})),
    ("plain", "lrn"),
    ("rnnsearch", "gru"),
    ("attention", "lrn"),
]


def one_way(name: str, cell: str) -> Seq2Seq:
    changes: dict[str, Any] = dict(ARCHITECTURES["transformer" if name == "attention" else name])
    if name == "attention":
        options = {**changes["architecture_options"], "encoder_mixing": "attention", "decoder_mixing": "attention"}
        changes["architecture_options"] = options
    return make_model(cell, encoder_direction="forward", **changes)


@pytest.mark.parametrize(("name", "cell"), CASES)
def test_words_are_read_before_those_that_follow(name: str, cell: str) -> None:
    model = one_way(name, cell)
    with torch.no_grad():
        whole = model.encode(SOURCE).memory
        for length in range(1, SOURCE.size(1) + 1):
            torch.testing.assert_close(model.encode(SOURCE[:1, :length]).memory[0], whole[0, :length])


def step_by_step(model: Seq2Seq, source: Tensor, target: Tensor, seen: Tensor) -> Tensor:
    """Logits [T, V] of a sentence, of which each word is predicted from an encoding of nothing but what it sees."""
    logits, states = [], None
    for place, count in enumerate(seen.sum(1).tolist()):
        assert seen[place, :count].all()
        encoded = model.encode(source[None, :count])
        states = encoded.initial if states is None else states
        state = DecodingState(model.decoder.prepare(encoded.memory, encoded.mask), states)
        found, state = model.step(target[place - 1 : place] if place else None, state)
        states = state.states
        logits.append(found)
    return torch.cat(logits)


@pytest.mark.parametrize(("name", "cell"), CASES)
def test_training_sees_what_a_listener_has_heard(name: str, cell: str) -> None:
    model = one_way(name, cell)
    seen = visible(SOURCE, TARGET, BOTH, wait=WAIT)
    places = (TARGET != 0).flatten().nonzero().squeeze(1)
    with torch.no_grad():
        features = model.word_features(SOURCE, TARGET, words=places, visible=seen)
        found = model.embeddings.logits(features)
        wanted = []
        for source, target, own in zip(SOURCE, TARGET, seen, strict=True):
            words = int((target != 0).sum())
            wanted.append(step_by_step(model, source, target[:words], own[:words]))
    torch.testing.assert_close(found, torch.cat(wanted), rtol=1e-4, atol=1e-5)


def test_words_are_waited_for_not_tokens() -> None:
    """Tokens 3, 5 and 9 go on with a word; the end symbol is read by a step of its own."""
    source, target = torch.tensor([[4, 3, 7, 6, EOS]]), torch.tensor([[4, 5, 8, 6, 7, EOS]])
    counts = {wait: visible(source, target, BOTH, wait=torch.tensor([wait])).sum(2)[0].tolist() for wait in (1, 2, 9)}
    assert counts == {1: [2, 2, 3, 4, 5, 5], 2: [3, 3, 4, 5, 5, 5], 9: [5] * 6}


def test_an_encoder_that_reads_ahead_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path)
    for model, wait, said in (
        ({}, 3, "training.wait: needs model.encoder_direction: forward"),
        ({"encoder_direction": "forward"}, [4, 2], "training.wait: [4, 2] is not a range"),
        ({"encoder_direction": "forward"}, 0, "training.wait"),
    ):
        assert nmt_train(write_config(tmp_path, model=model, training={"wait": wait})) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("architecture", ["deepnmt", "transformer"])
def test_a_model_is_trained_and_resumed(tmp_path: Path, architecture: str) -> None:
    """The words that sentences wait for are the same again."""
    write_corpus(tmp_path)
    model: dict[str, Any] = {"architecture": architecture, "encoder_direction": "forward", "cell": "lrn"}
    if architecture == "transformer":
        model |= {"hidden_size": 512, "architecture_options": {"heads": 2, "encoder_layers": 1, "decoder_layers": 1}}
    weights = []
    for name, steps in (("once", [6]), ("twice", [3, 6])):
        for count in steps:
            training = {"wait": [1, 4], "max_steps": count, "validate_every": 3, "schedule": "constant"}
            path = write_config(tmp_path, model=model, training=training)
            assert nmt_train(path, "--set", f"run_dir={tmp_path / name}") == 0
        (file,) = (tmp_path / name / "checkpoints").glob("step-6/*.safetensors")
        weights.append(file.read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize(("name", "cell"), CASES)
def test_token_by_token_the_encoder_reads_the_same(name: str, cell: str) -> None:
    model = one_way(name, cell)
    with torch.inference_mode():
        listener = Listener(model)
        for length in range(1, SOURCE.size(1) + 1):
            listener.read(SOURCE[0, length - 1 : length].tolist())
            whole = model.start(SOURCE[:1, :length])
            for own, other in zip(listener.memories, whole.memories, strict=True):
                for part, wanted in zip(own or (), other or (), strict=True):
                    if wanted is not None:
                        torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-5)
            found, _ = model.step(None, listener.state(listener.initial))
            torch.testing.assert_close(found, model.step(None, whole)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match="encoder_direction: forward"):
        Listener(make_model(cell))
