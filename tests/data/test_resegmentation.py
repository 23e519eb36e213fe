"""Text split anew in each epoch: what it follows from, what batches are cut from it, what stays as it is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nmt.config import load_config
from nmt.data import BatchSampler, Corpus, PreparedData, collate
from nmt.data.corpus import FlatSentences
from nmt.data.prepare import prepare
from nmt.data.sampler import DrawnPairs, Resegmentation, seeds
from nmt.data.tokenizer import Sides
from tests.subword_run import write_subword_config

ROWS = np.arange(120)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    config = load_config(write_subword_config(tmp_path_factory.mktemp("text")))
    return prepare(config, config.run_dir, progress=False)


def texts(pairs: DrawnPairs | Corpus, rows: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """Both sides of each pair, padding taken off."""
    source, target = pairs.padded_source(rows), pairs.padded_target(rows)
    lengths = zip(*pairs.lengths(rows), strict=True)
    found = []
    for i, (s, t) in enumerate(lengths):
        assert not source[i, s:].any() and not target[i, t:].any()
        found.append((source[i, :s].tolist(), target[i, :t].tolist()))
    return found


def anew(data: PreparedData, *, sides: Sides | None = None, seed: int = 1, max_length: int = 100) -> Resegmentation:
    return Resegmentation(data.train, sides or data.sides, seed=seed, max_length=max_length)


def test_a_sentence_follows_from_seed_epoch_pair_and_side_alone(data: PreparedData) -> None:
    whole = texts(anew(data)(3, ROWS), ROWS)
    assert whole == texts(anew(data)(3, ROWS), ROWS)
    some = np.array([7, 110, 7, 0, 51])
    assert texts(anew(data)(3, some), some) == [whole[i] for i in some]
    for other in (texts(anew(data)(4, ROWS), ROWS), texts(anew(data, seed=2)(3, ROWS), ROWS), texts(data.train, ROWS)):
        for side in (0, 1):
            assert sum(a[side] != b[side] for a, b in zip(whole, other, strict=True)) > len(ROWS) / 2
    keys = [seeds(*key, np.arange(50)) for key in itertools.product((1, 2), (0, 1), ("source", "target"))]
    assert len(np.unique(np.concatenate(keys))) == 400


def test_the_text_stays_the_same(data: PreparedData) -> None:
    tokenizer = data.tokenizer
    for (source, target), (own_source, own_target) in zip(
        texts(anew(data)(0, ROWS), ROWS), texts(data.train, ROWS), strict=True
    ):
        assert tokenizer.decode_source(source) == tokenizer.decode_source(own_source)
        assert tokenizer.decode_target(target) == tokenizer.decode_target(own_target)


@pytest.mark.parametrize("side", [0, 1])
def test_one_side_alone(data: PreparedData, side: int) -> None:
    sides = Sides(source=data.sides.source) if side == 0 else Sides(target=data.sides.target)
    both, one, usual = (
        texts(pairs, ROWS) for pairs in (anew(data)(2, ROWS), anew(data, sides=sides)(2, ROWS), data.train)
    )
    assert [pair[side] for pair in one] == [pair[side] for pair in both]
    assert [pair[1 - side] for pair in one] == [pair[1 - side] for pair in usual]


def test_what_would_be_too_long_stays_as_it_is_and_is_counted(data: PreparedData) -> None:
    longest = data.train.longest_source
    pairs, free = anew(data, max_length=longest)(1, ROWS), anew(data)(1, ROWS)
    kept = 0
    for own, usual, loose in zip(texts(pairs, ROWS), texts(data.train, ROWS), texts(free, ROWS), strict=True):
        for side in (0, 1):
            too_long = len(loose[side]) > longest + 1
            assert own[side] == (usual[side] if too_long else loose[side])
            kept += too_long
    assert pairs.too_long(ROWS) == kept > 3
    assert pairs.too_long(np.concatenate([ROWS, ROWS])) == 2 * kept
    assert free.too_long(ROWS) == 0
    assert max(int(side.max()) for side in pairs.lengths(ROWS)) <= longest + 1


def test_batches_are_cut_from_the_lengths_of_the_epoch(data: PreparedData) -> None:
    def sampler(anew: Resegmentation | None) -> BatchSampler:
        return BatchSampler(data.train, batch_tokens=90, pool_batches=5, seed=1, anew=anew)

    plain, split = sampler(None), sampler(anew(data, max_length=data.train.longest_source))
    assert split.pools == plain.pools > 2
    seen, batches, kept, tokens = [], 0, 0, 0
    for number in range(split.pools):
        pool = split.pool(0, number)
        assert pool.drawn is not None and plain.pool(0, number).drawn is None
        for rows in pool.batches:
            batch = collate(pool.drawn, rows)
            assert len(rows) == 1 or max(batch.source.numel(), batch.target.numel()) <= 90
            seen += rows.tolist()
            batches += 1
            kept += pool.drawn.too_long(rows)
            tokens += int((batch.source != 0).sum() + (batch.target != 0).sum())
    assert sorted(seen) == ROWS.tolist()
    assert kept > 0
    estimate = split.estimate
    if estimate.exact:
        assert (estimate.batches, estimate.too_long) == (batches, kept)
    usual = int(data.train.source_lengths.sum() + data.train.target_lengths.sum())
    assert estimate.growth == pytest.approx(tokens / usual, rel=0.1) and estimate.growth > 1.05
    assert plain.estimate.growth is None and plain.estimate.too_long == 0
    assert estimate.batches > plain.estimate.batches


def test_dev_text_and_caches_know_nothing_of_it(data: PreparedData, tmp_path: Path) -> None:
    config = load_config(write_subword_config(tmp_path))
    options = {**config.data.tokenizer_options, "bpe_dropout": 0.0}
    without = prepare(replace(config, data=replace(config.data, tokenizer_options=options)), tmp_path, progress=False)
    assert without.train.key == data.train.key and without.sides == Sides()
    assert without.dev is not None and data.dev is not None and without.dev.key == data.dev.key
    assert (without.tokenizer.fingerprint(), without.tokenizer.sampling()) == (data.tokenizer.fingerprint(), Sides())


def test_flat_sentences() -> None:
    sentences = FlatSentences.of(np.array([5, 6, 7, 8], np.uint16), np.array([3, 0, 1]))
    assert sentences.row(0).tolist() == [5, 6, 7] and sentences.row(1).tolist() == []
    assert sentences.padded(np.array([2, 0])).tolist() == [[8, 0, 0], [5, 6, 7]]
    taken = sentences.taken(np.array([2, 1, 0, 2]))
    assert taken.ids.tolist() == [8, 5, 6, 7, 8] and taken.lengths.tolist() == [1, 0, 3, 1]
    assert [taken.row(i).tolist() for i in range(4)] == [[8], [], [5, 6, 7], [8]]
    assert sentences.padded(np.array([], np.int64)).shape == (0, 0)
