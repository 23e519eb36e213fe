"""Recorded work: when it is recorded, that replays read new values, and what happens where it cannot be."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.ops import graphs
from nmt.ops.recurrence import next_size

CPU = torch.device("cpu")


class Counter:
    """Work that counts its calls, and a recorder of it that works without a GPU."""

    def __init__(self, *, fails: bool = False, **options: Any) -> None:
        self.calls, self.recorded, self.memories, self.fails = 0, 0, 0, fails
        self.recorder = graphs.Recorder(self.recording, device=CPU, **options)

    def work(self, x: Tensor, y: Tensor | None = None) -> list[Tensor]:
        self.calls += 1
        return [2 * x if y is None else x + y]

    def recording(self) -> graphs.Record:
        self.memories += 1
        return self.record

    def record(self, work: graphs.Replay) -> graphs.Replay:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.recorded += 1

        @torch.inference_mode()  # as a GPU does, it may write anywhere
        def replay() -> None:
            calls = self.calls
            work()
            self.calls = calls  # a replay runs no Python

        return replay

    def run(self, *inputs: Tensor | None, **options: Any) -> Sequence[Tensor]:
        return self.recorder.run(self.work, inputs, **options)


def test_work_is_done_once_then_recorded_then_replayed() -> None:
    counter = Counter()
    for value, calls, recorded in ((1.0, 1, 0), (2.0, 1, 1), (3.0, 1, 1)):
        (out,) = counter.run(torch.full((2,), value))
        assert out.tolist() == [2 * value] * 2
        assert (counter.calls, counter.recorded) == (calls, recorded)


def test_a_result_is_not_overwritten_by_the_next_replay() -> None:
    counter = Counter()
    counter.run(torch.zeros(1))
    first, second = (counter.run(torch.full((1,), value))[0] for value in (1.0, 5.0))
    assert (first.item(), second.item()) == (2.0, 10.0)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What has been copied to where recordings find it."""
    found: list[Tensor] = []
    copy_all = graphs.copy_all
    monkeypatch.setattr(graphs, "copy_all", lambda places, given: (found.extend(given), copy_all(places, given))[1])
    return found


def times(copied: list[Tensor], tensor: Tensor) -> int:
    return sum(given is tensor for given in copied)


def test_in_a_session_what_is_given_again_is_not_copied_again(copied: list[Tensor]) -> None:
    counter, weight = Counter(), torch.full((2,), 10.0)
    for _ in range(2):
        counter.run(torch.zeros(2), weight)  # done, then recorded
    copied.clear()
    session: graphs.Session = {}
    outs = [counter.run(torch.full((2,), float(t)), weight, session=session)[0][0].item() for t in range(3)]
    assert outs == [10, 11, 12]
    assert times(copied, weight) == 1
    weight += 5
    assert counter.run(torch.zeros(2), weight, session={})[0][0].item() == 15


def test_a_session_knows_what_others_have_overwritten(copied: list[Tensor]) -> None:
    """Another session of the same work, and other work: all read their inputs in the same memory."""
    counter, mine, others = Counter(), torch.full((2,), 10.0), torch.full((2,), 70.0)
    large = torch.zeros(9)
    for _ in range(2):
        counter.run(torch.zeros(2), mine)
        counter.run(large, large)
    session: graphs.Session = {}
    other: graphs.Session = {}
    for run in range(3):
        one = counter.run(torch.full((2,), float(run)), mine, session=session)[0]
        two = counter.run(torch.full((2,), float(run)), others, session=other)[0]
        three = counter.run(torch.full((2,), float(run)), mine, session=session)[0]
        counter.run(large, large)
        again = counter.run(torch.full((2,), float(run)), mine, session=session)[0]
        assert [x[0].item() for x in (one, two, three, again)] == [run + 10, run + 70, run + 10, run + 10]


def test_all_that_is_alike_is_copied_by_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[int] = []
    together = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, x: (launches.append(len(to)), together(to, x))[1])
    given = [torch.ones(3), torch.ones(2, 4).t(), torch.ones(5), torch.ones(2, dtype=torch.int64), torch.ones(0)]
    places = [torch.zeros(x.shape, dtype=x.dtype) for x in given]
    graphs.copy_all(places, given)
    assert sorted(launches) == [1, 2]
    assert all(torch.equal(place, x) for place, x in zip(places, given, strict=True))


def test_results_share_memory_but_for_those_that_last() -> None:
    counter = Counter()
    counter.work = lambda x: [x, x.double(), (2 * x).t(), x.sum(), x[:0]]  # type: ignore[method-assign]
    x = torch.arange(6.0).view(2, 3)
    for _ in range(3):
        results = counter.recorder.run(counter.work, [x], lasting=2)
    storages = [result.untyped_storage().data_ptr() for result in results]
    assert len(set(storages[:3])) == len(set(storages[3:])) == 1
    assert storages[0] != storages[3]
    assert not any(result._is_view() for result in results)
    for result, wanted in zip(results, counter.work(x), strict=True):
        assert result.dtype == wanted.dtype
        assert torch.equal(result, wanted)


def test_recordings_take_no_more_memory_than_the_largest_of_them() -> None:
    counter = Counter()
    for size in (2000, 500, 1999, 30):
        for value in (1.0, 2.0, 3.0):
            assert counter.run(torch.full((size,), value))[0].tolist() == [2 * value] * size
    assert counter.recorded == 4
    assert len(counter.recorder._inputs) == len(counter.recorder._results) == int(1.25 * 8192)


def test_where_one_needs_more_memory_all_are_recorded_anew() -> None:
    """In memory of their own: torch makes no graph in memory that all its graphs have left."""
    counter = Counter()
    small, large = torch.ones(10), torch.ones(1000)
    for x, recorded, memories in (
        (small, 0, 1), (small, 1, 2), (large, 1, 2), (large, 2, 3), (small, 3, 3), (large, 3, 3), (small, 3, 3)
    ):  # fmt: skip
        assert counter.run(x)[0].tolist() == [2.0] * len(x)
        assert (counter.recorded, counter.memories) == (recorded, memories)


def test_work_is_recorded_on_the_inputs_that_were_given() -> None:
    """Not on what an earlier recording has left where they are: an index would be beyond the smaller table."""
    counter = Counter()
    counter.work = lambda table, index: [table[index]]  # type: ignore[method-assign,assignment]
    for size in (9, 4):
        for _ in range(3):
            table, index = torch.arange(size), torch.tensor([size - 1])
            assert counter.run(table, index)[0].item() == size - 1
    assert counter.recorded == 2


def test_what_inference_has_recorded_serves_training_too() -> None:
    counter = Counter()
    for value in range(5):
        with torch.inference_mode(value < 2):
            assert counter.run(torch.full((2,), float(value)))[0].tolist() == [2 * value] * 2
    assert counter.recorded == 1


def test_shapes_types_absent_tensors_and_keys_are_recorded_apart() -> None:
    counter = Counter()
    x = torch.ones(2)
    inputs = [(x,), (torch.ones(3),), (x.double(),), (x, x), (x, None)]
    for given in inputs * 2:
        counter.run(*given)
    assert counter.recorded == len(inputs)
    counter.run(x, key="other")
    counter.run(x, key="other")
    assert counter.recorded == len(inputs) + 1


def test_the_recording_used_longest_ago_is_dropped() -> None:
    counter = Counter(most=2)
    small, middle, large = (torch.ones(size) for size in (1, 2, 3))
    for x in (small, small, middle, middle, small, large, large, small):
        counter.run(x)
    assert counter.recorded == 3
    counter.run(middle)
    counter.run(middle)
    assert counter.recorded == 4


def test_nothing_is_forgotten_in_a_training_with_large_batches() -> None:
    """600 batches of 12,000 tokens, of sentences as long as those of newspapers, each with five loops both ways."""
    pytest.importorskip("sentencepiece", reason="the data package needs what only an installation has")
    from nmt.data.corpus import Part
    from nmt.data.sampler import BatchSampler

    counter, draw = Counter(), np.random.default_rng(1)
    counter.work = lambda x, mask: [x]  # type: ignore[method-assign,assignment]
    lengths = np.clip(draw.lognormal(3.2, 0.6, 400_000), 2, 100).astype(np.int32)
    corpus: Any = SimpleNamespace(
        source_lengths=lengths,
        target_lengths=np.clip(lengths * draw.lognormal(0, 0.2, len(lengths)), 2, 100).astype(np.int32),
        parts=[Part(len(lengths), int(1.1 * lengths.sum()))],
    )
    shapes: set[tuple[int, int]] = set()
    sampler = BatchSampler(corpus, batch_tokens=12_000)
    batches = chain.from_iterable(sampler.pool(0, number).batches for number in range(sampler.pools))
    for rows in islice(batches, 600):
        batch, length = graphs.filled_up(len(rows)), int(lengths[rows].max())
        shapes.add((batch, length))
        for loop in range(10):
            counter.run(torch.empty(batch, length, dtype=torch.uint8), torch.empty(1), key=loop)
    known = counter.recorder._known
    assert 150 < len(shapes) < 210
    assert 110 < len({(batch, next_size(length, an_octave=16)) for batch, length in shapes}) < 150
    assert len(known) == 10 * len(shapes) < graphs.MOST_RECORDINGS / 2
    assert sum(isinstance(one, graphs.Recording) for one in known.values()) == counter.recorded > 1000


def test_work_that_cannot_be_recorded_goes_on_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    counter = Counter(fails=True)
    with caplog.at_level(logging.WARNING):
        outs = [counter.run(torch.full((1,), float(value)))[0].item() for value in range(4)]
    assert outs == [0, 2, 4, 6]
    assert counter.memories == 3  # at first, with the first arena, after the failure
    assert len(caplog.messages) == 1
    assert "could not be recorded" in caplog.messages[0]


def test_on_a_cpu_nothing_is_recorded() -> None:
    counter = Counter()
    for _ in range(3):
        assert graphs.run(counter.work, [torch.ones(1)])[0].item() == 2
    assert counter.calls == 3


class FakeGPUs:
    """What `record` asks of torch.cuda; notes where graphs are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.streams: list[str] = []
        self.emptied = 0
        self.stream = "the current stream"
        graphs._stream.cache_clear()
        for name in ("CUDAGraph", "Stream", "device", "current_stream", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "stream", self.on)

    def CUDAGraph(self) -> Any:
        return SimpleNamespace(capture_begin=self.begin, capture_end=lambda: None, replay=None)

    def Stream(self, device: str) -> Any:
        return SimpleNamespace(name=f"a stream of {device}", wait_stream=lambda other: None)

    def current_stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: None)

    def device(self, device: torch.device) -> Any:
        return contextlib.nullcontext()

    def empty_cache(self) -> None:
        self.emptied += 1

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        self.stream = stream.name
        yield
        self.stream = "the current stream"

    def begin(self, *, pool: object, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        self.streams.append(self.stream)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGPUs]:
    yield FakeGPUs(monkeypatch)
    graphs._stream.cache_clear()


def test_each_gpu_is_recorded_on_a_stream_of_its_own(gpus: FakeGPUs) -> None:
    for index in (0, 1, 0):
        graphs.record(lambda: None, device=torch.device("cuda", index), pool=None)
    assert gpus.streams == ["a stream of cuda:0", "a stream of cuda:1", "a stream of cuda:0"]
    assert gpus.emptied == 0


@pytest.mark.parametrize("full", [1, 2])
def test_a_recording_that_finds_no_memory_is_made_once_more(full: int, gpus: FakeGPUs) -> None:
    """The allocator's cache may hold it."""

    def work() -> None:
        if len(gpus.streams) <= full:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    if full == 1:
        graphs.record(work, device=torch.device("cuda", 0), pool=None)
    else:
        with pytest.raises(torch.OutOfMemoryError):
            graphs.record(work, device=torch.device("cuda", 0), pool=None)
    assert (len(gpus.streams), gpus.emptied) == (2, 1)


def test_batches_are_filled_up_to_few_sizes() -> None:
    found = {batch: graphs.filled_up(batch) for batch in range(1, 1025)}
    assert all(batch <= rows <= batch * 9 / 8 for batch, rows in found.items())
    assert all(graphs.filled_up(rows) == rows for rows in found.values())
    assert [found[batch] for batch in (1, 15, 17, 64, 65, 100, 1000)] == [1, 15, 18, 64, 72, 104, 1024]
    assert len({rows for batch, rows in found.items() if 128 <= batch <= 1024}) == 3 * 8 + 1


@pytest.mark.gpu
def test_a_replay_on_a_gpu_is_the_work_itself() -> None:
    def work(x: Tensor, y: Tensor) -> list[Tensor]:
        for _ in range(5):
            x = torch.tanh(x @ y)
        return [x, x.sum()]

    generator = torch.Generator("cuda").manual_seed(0)
    kept = []
    for size in (32, 32, 32, 300, 300, 32, 32, 300, 32):
        x, y = (torch.randn(size, size, device="cuda", generator=generator) for _ in range(2))
        kept.append((graphs.run(work, [x, y], lasting=1), work(x, y)))
    for ours, wanted in kept:  # nobody has written over what came first
        assert all(torch.equal(*pair) for pair in zip(ours, wanted, strict=True))
