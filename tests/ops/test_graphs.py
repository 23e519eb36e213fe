"""Recorded work: when it is recorded, that replays read new values, and what happens where it cannot be."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.ops import graphs


class Counter:
    """Work that counts its calls, and a recorder of it that works without a GPU."""

    def __init__(self, *, most: int = 8, fails: bool = False, **options: Any) -> None:
        self.calls, self.recorded, self.fails = 0, 0, fails
        self.recorder = graphs.Recorder(self.record, most=most, **options)

    def work(self, x: Tensor, y: Tensor | None = None) -> list[Tensor]:
        self.calls += 1
        return [2 * x if y is None else x + y]

    def record(self, work: graphs.Work, inputs: graphs.Inputs) -> graphs.Recording:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.recorded += 1
        outputs = [torch.empty_like(out) for out in work(*inputs)]

        @torch.inference_mode()  # as a GPU does, it may write anywhere
        def replay() -> None:
            for out, new in zip(outputs, work(*inputs), strict=True):
                out.copy_(new)
            self.calls -= 1  # a replay runs no Python

        self.calls -= 1
        return graphs.Recording(replay, inputs, outputs)

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


def test_results_are_written_where_the_caller_says() -> None:
    counter, room = Counter(), torch.zeros(3, 2)
    for t in range(3):
        (out,) = counter.run(torch.full((2,), float(t)), out=[room[t]])
        assert out.data_ptr() == room[t].data_ptr()
    assert room.tolist() == [[0, 0], [2, 2], [4, 4]]


def test_in_a_session_what_is_given_again_is_not_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, weight = Counter(), torch.full((2,), 10.0)
    for _ in range(2):
        counter.run(torch.zeros(2), weight)  # done, then recorded
    copied: list[Tensor] = []
    original = Tensor.copy_
    monkeypatch.setattr(Tensor, "copy_", lambda own, given: (copied.append(given), original(own, given))[1])
    session: graphs.Session = {}
    outs = [counter.run(torch.full((2,), float(t)), weight, session=session)[0][0].item() for t in range(3)]
    assert outs == [10, 11, 12]
    assert sum(given is weight for given in copied) == 1
    weight += 5
    assert counter.run(torch.zeros(2), weight, session={})[0][0].item() == 15


def test_recordings_of_one_key_share_the_memory_of_like_inputs() -> None:
    counter, weight = Counter(), torch.ones(1)
    for size in (2, 3):
        for value in (1.0, 2.0, 3.0):
            assert counter.run(torch.full((size,), value), weight)[0].tolist() == [value + 1] * size
    own = [recording.inputs[1] for recording in counter.recorder._known.values()]
    assert len(own) == 2
    assert own[0] is own[1]


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


def test_recordings_take_no_more_memory_than_they_may() -> None:
    """An input and a result of n values of four bytes each; the latest is kept however large it is."""
    counter = Counter(most_bytes=100)

    def kept() -> list[int]:
        known = counter.recorder._known.values()
        return [len(recording.outputs[0]) for recording in known if isinstance(recording, graphs.Recording)]

    for size, left in ((5, [5]), (6, [5, 6]), (3, [6, 3]), (50, [50]), (4, [4])):
        for _ in range(2):
            assert counter.run(torch.ones(size))[0].tolist() == [2.0] * size
        assert kept() == left


def test_work_that_cannot_be_recorded_goes_on_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    counter = Counter(fails=True)
    with caplog.at_level(logging.WARNING):
        outs = [counter.run(torch.full((1,), float(value)))[0].item() for value in range(4)]
    assert outs == [0, 2, 4, 6]
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
        for name in ("CUDAGraph", "Stream", "device_of", "current_stream", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "stream", self.on)

    def CUDAGraph(self) -> Any:
        return SimpleNamespace(capture_begin=self.begin, capture_end=lambda: None, replay=None)

    def Stream(self, device: str) -> Any:
        return SimpleNamespace(name=f"a stream of {device}", wait_stream=lambda other: None)

    def current_stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: None)

    def device_of(self, x: Any) -> Any:
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
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        x: Any = SimpleNamespace(device=device)
        graphs.record(lambda x: [x], [x], pool=None)
    assert gpus.streams == ["a stream of cuda:0", "a stream of cuda:1", "a stream of cuda:0"]
    assert gpus.emptied == 0


@pytest.mark.parametrize("full", [1, 2])
def test_a_recording_that_finds_no_memory_is_made_once_more(full: int, gpus: FakeGPUs) -> None:
    """The allocator's cache may hold it."""
    x: Any = SimpleNamespace(device="cuda:0")

    def work(x: Any) -> list[Any]:
        if gpus.stream != "the current stream" and len(gpus.streams) <= full:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return [x]

    if full == 1:
        assert graphs.record(work, [x], pool=None).outputs == [x]
    else:
        with pytest.raises(torch.OutOfMemoryError):
            graphs.record(work, [x], pool=None)
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
    for _ in range(4):
        x, y = (torch.randn(32, 32, device="cuda", generator=generator) for _ in range(2))
        for ours, wanted in zip(graphs.run(work, [x, y]), work(x, y), strict=True):
            assert torch.equal(ours, wanted)
