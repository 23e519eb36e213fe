"""Models of Marian and OPUS-MT as models of nmt: the golden logits and texts, and a calculation in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from nmt.data import PAD
from nmt.data.sentencepiece import SentencePieceTokenizer
from nmt.errors import ConfigError
from nmt.marian import pieces
from nmt.marian.convert import configuration, converted, tokenizer_of
from nmt.marian.foreign import Foreign, read_foreign
from nmt.marian.opus_mt import read_transformers
from nmt.marian.package import open_package
from nmt.models.base import Seq2Seq
from nmt.models.build import build_model
from tests.marian.conftest import golden
from tests.marian.reference import Reference


class Model(NamedTuple):
    folder: Path
    foreign: Foreign
    tokenizer: SentencePieceTokenizer
    model: Seq2Seq

    def source(self, ids: np.ndarray, mask: np.ndarray) -> torch.Tensor:
        """The model's source ids as nmt's."""
        ours = {theirs: i for i, theirs in enumerate(self.foreign.source.old_ids())}
        return torch.tensor(
            [[ours[i] if kept else 0 for i, kept in zip(*row, strict=True)] for row in zip(ids, mask, strict=True)]
        )

    def target(self, ids: np.ndarray) -> torch.Tensor:
        ours = {theirs: i for i, theirs in enumerate(self.foreign.target.old_ids())}
        return torch.tensor([[ours[i] for i in row] for row in ids.tolist()])

    def theirs(self, logits: torch.Tensor) -> np.ndarray:
        """Logits in the order of the model's ids."""
        old = self.foreign.target.old_ids()
        order = [old.index(i) for i in range(len(self.foreign.target.tokens))]
        return logits[..., order].double().numpy()


def made(name: str) -> Model:
    folder = golden(name)
    if name == "ssru":
        foreign = read_foreign(folder / "model.npz", vocabulary=folder / "vocab.spm")
    else:
        foreign = read_transformers(open_package(folder))
    return model_of(foreign)


def model_of(foreign: Foreign) -> Model:
    """A model of nmt with the weights of another system's."""
    tokenizer = tokenizer_of(foreign)
    config = configuration(foreign, tokenizer, output=Path("made"))
    model = build_model(config.model, tokenizer.source_size, tokenizer.target_size)
    model.load_state_dict(converted(foreign).weights)
    return Model(foreign.weights.path.parent, foreign, tokenizer, model.eval())


@pytest.fixture(params=["ssru", "opus_mt"])
def model(request: pytest.FixtureRequest) -> Model:
    return made(request.param)


@torch.no_grad()
def test_forced_logits_are_the_golden_ones_and_those_of_numpy(model: Model) -> None:
    expected = np.load(model.folder / "expected_forced_fp32.npz")
    source, target = model.source(expected["source"], expected["mask"]), model.target(expected["target"])
    logits = model.model(source, target)
    np.testing.assert_allclose(model.theirs(logits), expected["logits"], rtol=0, atol=1e-4)
    if -1 in model.foreign.target.old_ids():  # Marian's models have no padding, which is never said
        assert float(logits[..., PAD].max()) < -100
    exact = model.theirs(model.model.double()(source, target))
    reference = Reference(model.foreign)
    for row, (ids, mask, words) in enumerate(
        zip(expected["source"], expected["mask"], expected["target"], strict=True)
    ):
        calculated = reference.logits(ids[mask.astype(bool)], words)
        np.testing.assert_allclose(exact[row], calculated, rtol=0, atol=1e-9)


@torch.no_grad()
def test_steps_compute_what_whole_sentences_do(model: Model) -> None:
    expected = np.load(model.folder / "expected_forced_fp32.npz")
    own = model.model.double()
    source, target = model.source(expected["source"], expected["mask"]), model.target(expected["target"])
    whole = own(source, target)
    state, tokens = own.start(source), None
    for place in range(target.size(1)):
        logits, state = own.step(tokens, state)
        torch.testing.assert_close(logits, whole[:, place], rtol=0, atol=1e-9)
        tokens = target[:, place]
        order = torch.arange(len(source) - 1, -1, -1)
        state, tokens = state.reorder(order).reorder(order), tokens


def test_two_splitters_of_one_vocabulary_have_the_same_ids() -> None:
    """Which lets a model share its tables; other pieces, or other places of the same, are refused."""
    tokenizer = made("opus_mt").tokenizer
    source, target = tokenizer.models
    assert tokenizer.options.same_ids and source != target
    ids = list(range(tokenizer.source_size))
    assert tokenizer.source_tokens(ids) == tokenizer.target_tokens(ids)
    found = pieces.pieces_of(target)
    exchanged = pieces.with_pieces(target, [*found[:3], found[4], found[3], *found[5:]], unk=1, eos=2, pad=0)
    with pytest.raises(ConfigError, match="same_ids: the two models have not the same pieces by their ids"):
        SentencePieceTokenizer(source, exchanged, options=tokenizer.options)
