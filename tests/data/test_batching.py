"""Batches: budgets, completeness, order as a function of (seed, epoch), padding, restoring order."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data import EOS, PAD, BatchSampler, batch_lines, collate, pad, restore_order


def lengths(pairs: int, seed: int = 0, longest: int = 60) -> SimpleNamespace:
    generator = np.random.default_rng(seed)
    source = np.clip(generator.lognormal(2.3, 0.6, pairs), 1, longest)
    target = np.clip(source * generator.lognormal(0, 0.2, pairs), 1, longest)
    return SimpleNamespace(source_lengths=source.astype(np.int32), target_lengths=target.astype(np.int32))


def cost(corpus: SimpleNamespace, rows: np.ndarray) -> int:
    return len(rows) * int(max(corpus.source_lengths[rows].max(), corpus.target_lengths[rows].max()))


@settings(max_examples=60, deadline=None)
@given(
    sides=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=80),
    tokens=st.one_of(st.none(), st.integers(1, 100)),
    sentences=st.one_of(st.none(), st.integers(1, 9)),
    pool=st.integers(1, 5),
    epoch=st.integers(0, 3),
)
def test_every_pair_is_in_one_batch_within_the_budget(sides, tokens, sentences, pool, epoch) -> None:
    if tokens is None and sentences is None:
        sentences = 4
    source, target = np.array(sides, np.int32).T
    corpus = SimpleNamespace(source_lengths=source, target_lengths=target)
    sampler = BatchSampler(corpus, batch_tokens=tokens, batch_sentences=sentences, pool_batches=pool, seed=3)
    batches = list(sampler.epoch(epoch))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sides)))
    for rows in batches:
        assert len(rows) > 0
        assert sentences is None or len(rows) <= sentences
        # A pair larger than the budget is alone, never lost.
        assert tokens is None or len(rows) == 1 or cost(corpus, rows) <= tokens


def test_order_is_a_function_of_seed_and_epoch() -> None:
    corpus = lengths(500)

    def order(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in BatchSampler(corpus, batch_tokens=200, seed=seed).epoch(epoch)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    sampler = BatchSampler(corpus, batch_tokens=200, seed=1)
    sampler.epoch(7)
    sampler.padding_share(5)
    assert [rows.tolist() for rows in sampler.epoch(0)] == order(1, 0)


def test_the_order_is_the_same_on_every_machine_and_version() -> None:
    # A resumed run must see the batches the first one would have seen; these came from numpy 2.4.
    batches = BatchSampler(lengths(12, longest=20), batch_sentences=3, pool_batches=2, seed=1).epoch(1)
    assert [rows.tolist() for rows in batches] == PINNED


PINNED = [[3, 11, 5], [2, 7, 6], [8, 10, 0], [9, 4, 1]]


def test_batches_can_be_taken_from_any_position() -> None:
    batches = BatchSampler(lengths(300), batch_tokens=150, seed=1).epoch(2)
    everything = list(batches)
    assert len(everything) == len(batches)
    for start in (0, 5, len(batches)):
        part = batches[start : start + 4]
        assert [rows.tolist() for rows in part] == [rows.tolist() for rows in everything[start : start + 4]]
    assert batches[-1].tolist() == everything[-1].tolist()
    with pytest.raises(IndexError):
        batches[len(batches)]


def test_batches_are_full_and_of_similar_length() -> None:
    corpus = lengths(20_000)
    sampler = BatchSampler(corpus, batch_tokens=1500, pool_batches=64, seed=1)
    batches = list(sampler.epoch(0))
    used = np.mean([cost(corpus, rows) / 1500 for rows in batches])
    assert used > 0.93
    real = sum(int(side[rows].sum()) for rows in batches for side in (corpus.source_lengths, corpus.target_lengths))
    slots = sum(
        len(rows) * int(side[rows].max()) for rows in batches for side in (corpus.source_lengths, corpus.target_lengths)
    )
    assert sampler.padding_share(0) == pytest.approx(1 - real / slots, abs=1e-12)
    assert sampler.padding_share(0) < 0.12
    unsorted = BatchSampler(corpus, batch_sentences=100, pool_batches=1, seed=1)
    assert unsorted.padding_share(0) > 0.5


def test_batches_do_not_come_in_order_of_length() -> None:
    corpus = lengths(20_000)
    longest = [int(corpus.target_lengths[rows].max()) for rows in BatchSampler(corpus, batch_tokens=1500).epoch(0)]
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.2


def test_neighbours_change_from_epoch_to_epoch() -> None:
    sampler = BatchSampler(lengths(5_000), batch_sentences=10, pool_batches=8)
    first = {frozenset(rows.tolist()) for rows in sampler.epoch(0)}
    assert not first & {frozenset(rows.tolist()) for rows in sampler.epoch(1)}


def test_large_corpora_are_cut_in_little_time() -> None:
    corpus = lengths(300_000)
    started = time.process_time()
    batches = BatchSampler(corpus, batch_tokens=4096).epoch(0)
    assert sum(len(rows) for rows in batches) == 300_000
    assert time.process_time() - started < 3


def test_a_limit_is_needed() -> None:
    with pytest.raises(ValueError, match="batch_tokens or batch_sentences"):
        BatchSampler(lengths(3))


def test_collate_pads_on_the_right() -> None:
    sources = [[5, 6, EOS], [7, EOS]]
    targets = [[8, EOS], [3, 4, 5, EOS]]
    corpus = SimpleNamespace(
        source=lambda i: np.array(sources[i], np.uint16), target=lambda i: np.array(targets[i], np.uint16)
    )
    batch = collate(corpus, np.array([1, 0]))  # type: ignore[arg-type]
    assert batch.source.tolist() == [[7, EOS, PAD], [5, 6, EOS]]
    assert batch.target.tolist() == [[3, 4, 5, EOS], [8, EOS, PAD, PAD]]
    assert batch.source.dtype == batch.target.dtype == torch.int64
    assert batch.rows.tolist() == [1, 0]


def test_pad_takes_lists_and_nothing() -> None:
    assert pad([[1], [2, 3]]).tolist() == [[1, 0], [2, 3]]
    assert pad([]).shape == (0, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 100), st.integers(1, 5), st.none() | st.integers(1, 9))
def test_translation_batches_keep_the_budget_and_give_the_order_back(line_lengths, tokens, copies, rows) -> None:
    batches = batch_lines(line_lengths, batch_tokens=tokens, copies=copies, batch_rows=rows)
    for batch in batches:
        longest = max(1, max(line_lengths[i] for i in batch))
        assert len(batch) == 1 or len(batch) * longest * copies <= tokens
        assert len(batch) == 1 or rows is None or len(batch) * copies <= rows
    firsts = [line_lengths[batch[0]] for batch in batches]
    assert firsts == sorted(firsts, reverse=True)
    results = [[f"line {i}" for i in batch] for batch in batches]
    assert restore_order(batches, results) == [f"line {i}" for i in range(len(line_lengths))]
