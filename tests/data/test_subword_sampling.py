"""Sampling from SentencePiece models: without dropout their own segmentation, always the same text, what is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from nmt.data.sentencepiece import bpe_dropout, kind_of, unigram_sampling
from nmt.data.text import read_lines
from nmt.errors import ConfigError
from nmt.ops.subwords import Splitter, draw

Model = sentencepiece.SentencePieceProcessor

LINES = [f"the {size}ness of <tag> number {i}, {i} and {i}; rum {size}er" for i in range(90) for size in ("old", "big")]
HARD = ["", "  ", "the <tag><tag> oldness", "漢字 oldness", "ÅÖ🏳️‍🌈 big", "a  b\u00a0c", "<s>the</s>"]
HARD += ["bigbigbignesser" * 9]


def train(**options: Any) -> Model:
    written = io.BytesIO()
    settings: dict[str, Any] = {
        "model_type": "bpe", "vocab_size": 360, "byte_fallback": True, "pad_id": 0, "unk_id": 1, "eos_id": 2,
        "bos_id": -1, "minloglevel": 2, "hard_vocab_limit": False, "num_threads": 1, "sentence_iterator": iter(LINES),
    }  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(model_writer=written, **settings | options)
    return Model(model_proto=written.getvalue())


def drawn(splitter: Splitter, sentences: list[list[int]], *, first_seed: int = 0) -> list[list[int]]:
    seeds = np.arange(first_seed, first_seed + len(sentences)).astype(np.uint64) << np.uint64(20)
    ids = np.array([i for sentence in sentences for i in sentence], np.int64)
    found = draw(splitter, ids, np.array([len(sentence) for sentence in sentences]), seeds, limit=10**6)
    return [part.tolist() for part in np.split(found.ids, np.cumsum(found.lengths)[:-1])]


VARIANTS: dict[str, dict[str, Any]] = {
    "bytes": {},
    "unknown": {"byte_fallback": False, "vocab_size": 90},
    "defined": {"user_defined_symbols": ["<tag>", "umber"]},
    "few characters": {"character_coverage": 0.98},
    "across words": {"split_by_whitespace": False},
    "spaces behind": {"treat_whitespace_as_suffix": True},
    "spaces kept": {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_dropout_it_is_what_sentencepiece_does(variant: str) -> None:
    model = train(**VARIANTS[variant])
    usual = model.encode([*LINES, *HARD])
    assert drawn(bpe_dropout(model, 0.0, key="k"), usual) == usual


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_text_stays_what_it_is(variant: str, model_type: str) -> None:
    model = train(**VARIANTS[variant], model_type=model_type)
    make: Callable[..., Splitter] = bpe_dropout if model_type == "bpe" else unigram_sampling
    usual = model.encode([*LINES, *HARD])
    several = [drawn(make(model, 0.3, key="k"), usual, first_seed=seed) for seed in (0, 10**6)]
    for sentences in several:
        assert [model.decode(ids) for ids in sentences] == [model.decode(ids) for ids in usual]
        assert sum(map(len, sentences)) > 1.005 * sum(map(len, usual))
    assert several[0] != several[1]
    if variant == "defined":
        for own in (model.piece_to_id("<tag>"), model.piece_to_id("umber")):  # letters of the latter are pieces, too
            assert sum(ids.count(own) for ids in usual) > 100
            assert [ids.count(own) for ids in several[0]] == [ids.count(own) for ids in usual]


def test_a_large_alpha_gives_the_best_segmentation() -> None:
    model = train(model_type="unigram")
    usual = model.encode(LINES)
    same = [a == b for a, b in zip(drawn(unigram_sampling(model, 20.0, key="k"), usual), usual, strict=True)]
    assert np.mean(same) > 0.9  # some have two that are nearly as good


@pytest.mark.parametrize("language", ["en", "de"])
def test_without_dropout_it_is_what_sentencepiece_does_on_multi30k(multi30k: Path, language: str) -> None:
    lines = list(islice(read_lines(multi30k / f"train.{language}.gz"), 6000))
    model = train(sentence_iterator=iter(lines[:3000]), vocab_size=2000)
    usual = model.encode(lines, num_threads=1)
    assert drawn(bpe_dropout(model, 0.0, key="k"), usual) == usual
    longer = sum(map(len, drawn(bpe_dropout(model, 0.1, key="k"), usual))) / sum(map(len, usual))
    assert 1.1 < longer < 1.4


class _WithUnused:
    """A model with a piece that is marked as unused."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def is_unused(self, i: int) -> bool:
        return i == 300


def test_models_that_cannot_be_sampled_from_are_refused() -> None:
    kinds = {kind: train(model_type=kind, vocab_size=90, byte_fallback=False) for kind in ("bpe", "unigram", "char")}
    assert {kind: kind_of(model) for kind, model in kinds.items()} == {"bpe": "bpe", "unigram": "unigram", "char": None}
    for make, wrong in ((bpe_dropout, "unigram"), (bpe_dropout, "char"), (unigram_sampling, "bpe")):
        with pytest.raises(ConfigError, match="the.key: needs a .* model, which this SentencePiece model is not"):
            make(kinds[wrong], 0.1, key="the.key")
    with pytest.raises(ConfigError, match="the.key: the SentencePiece model has pieces marked as unused"):
        bpe_dropout(_WithUnused(train()), 0.1, key="the.key")  # type: ignore[arg-type]
