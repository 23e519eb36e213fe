"""The pairs of an epoch: each as often as its share says, in batches, with other subwords in each epoch."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import DataConfig, load_config
from nmt.data import sampler as sampling_module
from nmt.data.batching import collate
from nmt.data.corpus import Corpus, FlatSentences, Part
from nmt.data.prepare import PreparedData, prepare
from nmt.data.sampler import BatchSampler, DrawnPairs, PairOrder, Permutation, Resegmentation, sampling_shares, seeds
from nmt.data.tokenizer import Sides
from nmt.errors import DataError
from tests.subword_run import write_subword_config


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
def test_every_number_is_met_once(size: int, key: int) -> None:
    found = Permutation(size, key, "x")(np.arange(size))
    assert sorted(found.tolist()) == list(range(size))


def test_it_depends_on_the_key_alone_and_is_the_same_everywhere() -> None:
    assert Permutation(10, 1, "epoch", 0)(np.arange(10)).tolist() == PINNED
    assert Permutation(10, 1, "epoch", 1)(np.arange(10)).tolist() != PINNED
    huge = Permutation(10**12, 5)
    assert huge(np.array([7, 10**12 - 1])).tolist() == [huge(np.array([i])).tolist()[0] for i in (7, 10**12 - 1)]


PINNED = [1, 7, 6, 9, 8, 0, 4, 3, 5, 2]


def test_every_permutation_of_few_is_about_as_likely() -> None:
    counts = Counter(tuple(Permutation(4, key)(np.arange(4)).tolist()) for key in range(4800))
    assert len(counts) == 24
    assert min(counts.values()) > 140 and max(counts.values()) < 260  # 200 expected, standard deviation 14


def test_neighbours_part() -> None:
    size = 100_000
    found = Permutation(size, 3)(np.arange(size))
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 0.02
    distance = np.abs(np.diff(found)) / size
    assert distance.mean() == pytest.approx(1 / 3, abs=0.01)


def test_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="size 0"):
        Permutation(0, 1)


NAMES = ["big", "small"]


def test_temperature_and_weights_decide_the_shares() -> None:
    assert sampling_shares([900, 100], NAMES) == pytest.approx([0.9, 0.1])
    assert sampling_shares([900, 100], NAMES, temperature=2.0) == pytest.approx([0.75, 0.25])
    assert sampling_shares([900, 100], NAMES, temperature=1e9) == pytest.approx([0.5, 0.5])
    assert sampling_shares([10**9, 1], NAMES, temperature=1e-3) == pytest.approx([1, 0])
    assert sampling_shares([900, 100], NAMES, weights=[1, 3]) == pytest.approx([0.25, 0.75])
    with pytest.raises(DataError, match=r"^data\.train: no pair of small was kept, so it cannot be sampled"):
        sampling_shares([900, 0], NAMES, temperature=2.0)


def taken(order: PairOrder, epoch: int) -> np.ndarray:
    return order.rows(epoch, 0, order.units)


def test_without_shares_an_epoch_is_each_pair_once() -> None:
    order = PairOrder([Part(70, 0), Part(30, 0)], seed=4)
    for epoch in (0, 1, 5):
        assert sorted(taken(order, epoch).tolist()) == list(range(100))
    assert taken(order, 0).tolist() != taken(order, 1).tolist()
    assert order.uses() == [1.0]


@pytest.mark.parametrize("large", [10**9, 10])
def test_pairs_of_a_corpus_are_used_equally_often_over_the_epochs(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(sampling_module, "LARGE", large)
    parts = [Part(900 * 64, 0), Part(100 * 64, 0)]
    order = PairOrder(parts, shares=[0.55, 0.45], seed=4)
    assert order.unit_pairs == (64 if large == 10 else 1)
    counts: Counter[int] = Counter()
    for epoch in range(3):
        rows = taken(order, epoch)
        assert len(rows) == 1000 * 64
        small = np.count_nonzero(rows >= parts[0].pairs)
        assert small == 450 * 64
        counts.update(rows.tolist())
    big = [counts[row] for row in range(parts[0].pairs)]
    small_uses = [counts[row] for row in range(parts[0].pairs, 1000 * 64)]
    assert (min(big), max(big)) == (1, 2) and sum(big) == 3 * 550 * 64
    assert (min(small_uses), max(small_uses)) == (13, 14)
    assert order.uses() == pytest.approx([550 / 900, 4.5])


def test_any_piece_is_what_the_whole_has_there() -> None:
    order = PairOrder([Part(50, 0), Part(7, 0)], shares=[0.5, 0.5], seed=1)
    whole = taken(order, 6).tolist()
    assert order.rows(6, 20, 31).tolist() == whole[20:31]


def test_both_corpora_are_found_all_over_an_epoch() -> None:
    order = PairOrder([Part(5000, 0), Part(5000, 0)], shares=[0.5, 0.5], seed=1)
    for piece in np.split(taken(order, 0), 10):
        assert 400 < np.count_nonzero(piece < 5000) < 600


def test_runs_end_where_the_corpus_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_module, "LARGE", 10)
    order = PairOrder([Part(100, 0), Part(65, 0)], shares=[0.5, 0.5], seed=1)
    rows = Counter(taken(order, 0).tolist())
    assert max(rows) == 164 and min(rows) == 0
    one = PairOrder([Part(100, 0), Part(65, 0)], seed=1)
    assert sorted(taken(one, 0).tolist()) == list(range(165))


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


def epoch_of(sampler: BatchSampler, epoch: int) -> Iterator[np.ndarray]:
    """All batches of an epoch, in their order."""
    for number in range(sampler.pools):
        yield from sampler.pool(epoch, number).batches


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
    batches = list(epoch_of(sampler, epoch))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sides)))
    for rows in batches:
        assert len(rows) > 0
        assert sentences is None or len(rows) <= sentences
        # A pair larger than the budget is alone, never lost.
        assert tokens is None or len(rows) == 1 or cost(corpus, rows) <= tokens


def test_order_is_a_function_of_seed_and_epoch() -> None:
    corpus = lengths(500)

    def order(seed: int, epoch: int) -> list[list[int]]:
        return as_lists(epoch_of(BatchSampler(corpus, batch_tokens=200, pool_batches=9, seed=seed), epoch))

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_a_pool_needs_none_of_the_pools_before_it() -> None:
    corpus = lengths(500)
    sampler = BatchSampler(corpus, batch_tokens=200, pool_batches=9, seed=1)
    everything = as_lists(epoch_of(sampler, 7))
    assert sampler.pools > 3
    fresh = BatchSampler(corpus, batch_tokens=200, pool_batches=9, seed=1)
    last = as_lists(fresh.pool(7, sampler.pools - 1).batches)
    assert everything[-len(last) :] == last


def test_the_order_is_the_same_on_every_machine_and_version() -> None:
    # A resumed run must see the batches the first one would have seen.
    batches = epoch_of(BatchSampler(lengths(12, longest=20), batch_sentences=3, pool_batches=2, seed=1), 1)
    assert as_lists(batches) == PINNED_OF_SAMPLER


PINNED_OF_SAMPLER = [[11, 5, 7], [10, 1, 0], [8, 9, 4], [3, 2, 6]]


def test_batches_are_full_and_of_similar_length() -> None:
    corpus = lengths(20_000)
    sampler = BatchSampler(corpus, batch_tokens=1500, pool_batches=64, seed=1)
    batches = list(epoch_of(sampler, 0))
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
    assert sampler.estimate.batches == pytest.approx(sum(1 for _ in epoch_of(sampler, 0)), rel=0.02)
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
    longest = [int(corpus.target_lengths[rows].max()) for rows in epoch_of(BatchSampler(corpus, batch_tokens=1500), 0)]
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.2


def test_neighbours_change_from_epoch_to_epoch() -> None:
    sampler = BatchSampler(lengths(5_000), batch_sentences=10, pool_batches=8)
    first = {frozenset(rows.tolist()) for rows in epoch_of(sampler, 0)}
    assert not first & {frozenset(rows.tolist()) for rows in epoch_of(sampler, 1)}


def test_batches_of_a_large_corpus_come_from_all_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of pairs stay together in a pool, but sorting spreads them over its batches."""
    monkeypatch.setattr(sampling_module, "LARGE", 1000)
    corpus = lengths(50_000)
    sampler = BatchSampler(corpus, batch_tokens=1500, pool_batches=64, seed=1)
    assert sampler.order.unit_pairs == 64
    batches = list(epoch_of(sampler, 0))
    assert sorted(np.concatenate(batches).tolist()) == list(range(50_000))
    spread = [len(np.unique(rows // 64)) / len(rows) for rows in batches if len(rows) > 50]
    assert np.mean(spread) > 0.6
    assert not {frozenset(rows.tolist()) for rows in batches} & {
        frozenset(rows.tolist()) for rows in epoch_of(sampler, 1) if len(rows) > 1
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
    corpora = [one.dev[""].corpus for one in (without, data)]
    assert len({corpus.key for corpus in corpora if corpus is not None}) == 1 and None not in corpora
    assert (without.tokenizer.fingerprint(), without.tokenizer.sampling()) == (data.tokenizer.fingerprint(), Sides())


def test_flat_sentences() -> None:
    sentences = FlatSentences.of(np.array([5, 6, 7, 8], np.uint16), np.array([3, 0, 1]))
    assert sentences.row(0).tolist() == [5, 6, 7] and sentences.row(1).tolist() == []
    assert sentences.padded(np.array([2, 0])).tolist() == [[8, 0, 0], [5, 6, 7]]
    taken = sentences.taken(np.array([2, 1, 0, 2]))
    assert taken.ids.tolist() == [8, 5, 6, 7, 8] and taken.lengths.tolist() == [1, 0, 3, 1]
    assert [taken.row(i).tolist() for i in range(4)] == [[8], [], [5, 6, 7], [8]]
    assert sentences.padded(np.array([], np.int64)).shape == (0, 0)
