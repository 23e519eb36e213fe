"""Training batches: budgets, completeness, order as a function of (seed, epoch, pool), padding."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import DataConfig
from nmt.data import BatchSampler
from nmt.data import sampler as sampling_module
from nmt.data.corpus import Part


def corpus_of(source: np.ndarray, target: np.ndarray, sizes: list[int] | None = None) -> SimpleNamespace:
    longer = np.maximum(source, target)
    ends = np.cumsum(sizes or [len(source)])
    parts = [Part(len(part), int(part.sum())) for part in np.split(longer, ends[:-1])]
    return SimpleNamespace(
        source_lengths=source.astype(np.int32), target_lengths=target.astype(np.int32), parts=tuple(parts)
    )


def lengths(pairs: int, seed: int = 0, longest: int = 60) -> SimpleNamespace:
    generator = np.random.default_rng(seed)
    source = np.clip(generator.lognormal(2.3, 0.6, pairs), 1, longest)
    target = np.clip(source * generator.lognormal(0, 0.2, pairs), 1, longest)
    return corpus_of(source.astype(np.int32), target.astype(np.int32))


def cost(corpus: SimpleNamespace, rows: np.ndarray) -> int:
    return len(rows) * int(max(corpus.source_lengths[rows].max(), corpus.target_lengths[rows].max()))


def as_lists(batches: object) -> list[list[int]]:
    return [rows.tolist() for rows in batches]  # type: ignore[attr-defined]


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
    corpus = corpus_of(*np.array(sides, np.int32).T)
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
        return as_lists(BatchSampler(corpus, batch_tokens=200, pool_batches=9, seed=seed).epoch(epoch))

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_a_pool_needs_none_of_the_pools_before_it() -> None:
    corpus = lengths(500)
    sampler = BatchSampler(corpus, batch_tokens=200, pool_batches=9, seed=1)
    everything = as_lists(sampler.epoch(7))
    assert sampler.pools > 3
    fresh = BatchSampler(corpus, batch_tokens=200, pool_batches=9, seed=1)
    last = as_lists(fresh.pool(7, sampler.pools - 1).batches)
    assert everything[-len(last) :] == last


def test_the_order_is_the_same_on_every_machine_and_version() -> None:
    # A resumed run must see the batches the first one would have seen.
    batches = BatchSampler(lengths(12, longest=20), batch_sentences=3, pool_batches=2, seed=1).epoch(1)
    assert as_lists(batches) == PINNED


PINNED = [[11, 5, 7], [10, 1, 0], [8, 9, 4], [3, 2, 6]]


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
    assert sampler.estimate.exact and sampler.estimate.batches == len(batches)
    assert sampler.estimate.padding_share == pytest.approx(1 - real / slots, abs=1e-12)
    assert sampler.estimate.padding_share < 0.12
    unsorted = BatchSampler(corpus, batch_sentences=100, pool_batches=1, seed=1)
    assert unsorted.estimate.padding_share > 0.5


def test_an_epoch_of_many_pools_is_estimated_from_some() -> None:
    sampler = BatchSampler(lengths(20_000), batch_tokens=200, pool_batches=4, seed=1)
    assert sampler.pools > 300 and not sampler.estimate.exact
    assert sampler.estimate.batches == pytest.approx(sum(1 for _ in sampler.epoch(0)), rel=0.02)
    assert str(sampler.estimate).startswith("about ")


def test_padding_is_at_most_5_percent_at_4096_tokens() -> None:
    """With the default pools, sentences of the lengths of news text and targets that vary as they do."""
    generator = np.random.default_rng(0)
    source = np.clip(generator.lognormal(3.1, 0.55, 200_000), 1, 100).astype(np.int32)
    target = np.clip(np.rint(source * generator.lognormal(0, 0.2, 200_000)), 1, 100).astype(np.int32)
    sampler = BatchSampler(corpus_of(source, target), batch_tokens=4096, pool_batches=DataConfig().pool_batches)
    assert sampler.estimate.padding_share < 0.05


def test_batches_do_not_come_in_order_of_length() -> None:
    corpus = lengths(20_000)
    longest = [int(corpus.target_lengths[rows].max()) for rows in BatchSampler(corpus, batch_tokens=1500).epoch(0)]
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.2


def test_neighbours_change_from_epoch_to_epoch() -> None:
    sampler = BatchSampler(lengths(5_000), batch_sentences=10, pool_batches=8)
    first = {frozenset(rows.tolist()) for rows in sampler.epoch(0)}
    assert not first & {frozenset(rows.tolist()) for rows in sampler.epoch(1)}


def test_batches_of_a_large_corpus_come_from_all_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of pairs stay together in a pool, but sorting spreads them over its batches."""
    monkeypatch.setattr(sampling_module, "LARGE", 1000)
    corpus = lengths(50_000)
    sampler = BatchSampler(corpus, batch_tokens=1500, pool_batches=64, seed=1)
    assert sampler.order.unit_pairs == 64
    batches = list(sampler.epoch(0))
    assert sorted(np.concatenate(batches).tolist()) == list(range(50_000))
    spread = [len(np.unique(rows // 64)) / len(rows) for rows in batches if len(rows) > 50]
    assert np.mean(spread) > 0.6
    assert not {frozenset(rows.tolist()) for rows in batches} & {
        frozenset(rows.tolist()) for rows in sampler.epoch(1) if len(rows) > 1
    }


def test_a_pool_of_a_huge_corpus_takes_neither_time_nor_memory_for_the_rest() -> None:
    class Lengths:
        """A hundred million lengths that nobody holds."""

        def __getitem__(self, rows: np.ndarray) -> np.ndarray:
            assert len(rows) < 100_000
            return (rows % 97 + 1).astype(np.int32)

    pairs = 100_000_000
    corpus = SimpleNamespace(source_lengths=Lengths(), target_lengths=Lengths(), parts=(Part(pairs, 49 * pairs),))
    started = time.process_time()
    sampler = BatchSampler(corpus, batch_tokens=4096, pool_batches=64)
    batches = sampler.pool(3, sampler.pools // 2).batches
    assert time.process_time() - started < 3
    rows = np.concatenate(batches)
    assert len(np.unique(rows)) == len(rows) > 3000
    assert rows.min() < pairs / 20 and rows.max() > pairs * 19 / 20
    assert sampler.estimate.batches == pytest.approx(pairs * 49 / 4096, rel=0.1)


def test_a_limit_is_needed() -> None:
    with pytest.raises(ValueError, match="batch_tokens or batch_sentences"):
        BatchSampler(lengths(3))
