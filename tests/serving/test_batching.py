"""The queue: what is computed together, in which order, and what one client's requests do to another's."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import nmt
from nmt.errors import DataError
from nmt.library.values import Request
from nmt.serving.batching import BATCH, SHORT, Batcher, Job
from nmt.serving.limits import RefusedError, Settings
from nmt.serving.metrics import Metrics


class Model:
    """Answers in capitals, once it may; notes what it was asked."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[str], dict[str, Any]]] = []
        self.may = threading.Event()
        self.may.set()
        self.begun = threading.Event()
        self.waits: set[str] | None = None
        """Texts that wait until it may; None: all."""
        self.stopped = 0

    def __call__(self, sentences: Sequence[Request], options: Mapping[str, Any], stop: nmt.Stop) -> list[str]:
        texts = [sentence.text for sentence in sentences]
        self.batches.append((texts, dict(options)))
        self.begun.set()
        while (self.waits is None or self.waits.intersection(texts)) and not self.may.wait(0.01):
            self.stopped += stop.is_set
            stop.check()
        if "bad" in texts:
            raise DataError("bad")
        return [text.upper() for text in texts]


def batched(test: Callable[[Batcher, Model], Coroutine[Any, Any, None]], **changes: Any) -> Metrics:
    """Run a test with a queue."""
    metrics = Metrics()

    async def run() -> None:
        model = Model()
        settings = Settings(**{"batch_size": 4, "max_wait": 0.0, "max_queue": 100, **changes})
        batcher = Batcher(model, settings, metrics=metrics)
        try:
            await asyncio.wait_for(test(batcher, model), 30)
        finally:
            model.may.set()
            batcher.close()

    asyncio.run(run())
    return metrics


def submit(batcher: Batcher, *texts: str, cost: int = 0, **options: Any) -> Job:
    """`cost`: of each sentence."""
    return batcher.submit([Request(text) for text in texts], options, [cost] * len(texts))


async def held(batcher: Batcher, model: Model) -> Job:
    """A job that is being computed until `model.may` is set; what comes now waits."""
    model.may.clear()
    job = submit(batcher, "first")
    while not model.begun.is_set():
        await asyncio.sleep(0.001)
    return job


def test_what_comes_while_a_batch_is_computed_is_the_next_batch() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        first = await held(batcher, model)
        jobs = [submit(batcher, "a"), submit(batcher, "b", "c")]
        model.may.set()
        assert await first.answer == ["FIRST"]
        assert [await job.answer for job in jobs] == [["A"], ["B", "C"]]
        assert [texts for texts, _ in model.batches] == [["first"], ["a", "b", "c"]]

    metrics = batched(test).text().decode()
    assert 'nmt_batch_sentences_bucket{le="1.0"} 1.0' in metrics
    assert "nmt_batch_sentences_count 2.0" in metrics
    assert "nmt_sentences_total 4.0" in metrics
    assert "nmt_queue_sentences 0.0" in metrics


def test_unlike_options_are_computed_apart_and_in_order() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await held(batcher, model)
        jobs = [
            submit(batcher, "a", beam_size=1, n_best=1),
            submit(batcher, "b", beam_size=2),
            submit(batcher, "c", n_best=1, beam_size=1),
        ]
        model.may.set()
        assert [await job.answer for job in jobs] == [["A"], ["B"], ["C"]]
        assert model.batches[1:] == [(["a", "c"], {"beam_size": 1, "n_best": 1}), (["b"], {"beam_size": 2})]

    batched(test)


def test_a_sentence_waits_for_others_but_not_longer_than_it_may() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        start = time.monotonic()
        jobs = [submit(batcher, "a")]
        await asyncio.sleep(0.05)
        jobs.append(submit(batcher, "b"))
        assert [await job.answer for job in jobs] == [["A"], ["B"]]
        assert time.monotonic() - start >= 0.3
        assert [texts for texts, _ in model.batches] == [["a", "b"]]

    batched(test, max_wait=0.3)


def test_the_oldest_sentence_decides_how_long_a_batch_waits() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        first, second = submit(batcher, "a"), submit(batcher, "b")
        first.arrived -= 1000.0
        assert [await first.answer, await second.answer] == [["A"], ["B"]]

    batched(test, max_wait=1000.0)


def test_a_full_batch_does_not_wait() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        job = submit(batcher, "a", "b", "c", "d")
        assert await asyncio.wait_for(job.answer, 20) == ["A", "B", "C", "D"]

    batched(test, max_wait=1000.0)


def test_a_request_of_many_sentences_shares_its_batches() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await held(batcher, model)
        long = submit(batcher, *(f"l{number}" for number in range(9)))
        short, third = submit(batcher, "s"), submit(batcher, "t")
        model.may.set()
        assert await short.answer == ["S"]
        assert await third.answer == ["T"]
        assert await long.answer == [f"L{number}" for number in range(9)]
        assert [texts for texts, _ in model.batches[1:]] == [
            ["l0", "l1", "s", "t"],
            ["l2", "l3", "l4", "l5"],
            ["l6", "l7", "l8"],
        ]

    batched(test)


def test_a_batch_has_its_size_also_where_many_requests_share_it() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await held(batcher, model)
        jobs = [submit(batcher, *(name + place for place in "123")) for name in "abc"]
        model.may.set()
        assert [await job.answer for job in jobs] == [[name + place for place in "123"] for name in "ABC"]
        assert [len(texts) for texts, _ in model.batches] == [1, 4, 4, 1]

    batched(test)


def test_others_have_their_turn_between_the_parts_of_a_request() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await held(batcher, model)
        jobs = [submit(batcher, *"abcdefghi"), submit(batcher, "x", beam_size=2), submit(batcher, "y", beam_size=3)]
        model.may.set()
        assert [await job.answer for job in jobs] == [[*"ABCDEFGHI"], ["X"], ["Y"]]
        assert [texts for texts, _ in model.batches[1:]] == [[*"abcd"], ["x"], ["y"], [*"efgh"], ["i"]]

    batched(test)


def test_a_dropped_request_is_not_computed() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await held(batcher, model)
        kept, dropped = submit(batcher, "a"), submit(batcher, "b")
        long = submit(batcher, *"cdefghij")
        batcher.drop(dropped)
        model.may.set()
        assert await kept.answer == ["A"]
        batcher.drop(long)  # some of it has been computed, or is just now
        await batcher.idle()
        assert dropped.answer.cancelled()
        assert "b" not in [text for texts, _ in model.batches for text in texts]
        assert len(model.batches) <= 3

    assert b"nmt_queue_sentences 0.0" in batched(test).text()


def test_a_mistake_of_one_is_nobody_elses() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await held(batcher, model)
        jobs = [submit(batcher, "a"), submit(batcher, "bad", "x"), submit(batcher, "b")]
        model.may.set()
        assert await jobs[0].answer == ["A"]
        with pytest.raises(DataError, match="bad"):
            await jobs[1].answer
        assert await jobs[2].answer == ["B"]
        await batcher.idle()

    batched(test)


def test_a_request_that_has_failed_in_part_is_not_computed_on() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        failed = submit(batcher, "bad", *"bcdefgh")
        with pytest.raises(DataError, match="bad"):
            await failed.answer
        assert await submit(batcher, "last").answer == ["LAST"]
        assert [texts for texts, _ in model.batches] == [["bad", *"bcd"], ["last"]]

    assert b"nmt_queue_sentences 0.0" in batched(test).text()


def test_a_full_queue_says_when_to_come_again() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await held(batcher, model)
        jobs = [submit(batcher, "a", "b")]
        with pytest.raises(RefusedError, match="the queue is full: 2 sentences wait. Allowed: 3.") as raised:
            submit(batcher, "c", "d")
        assert raised.value.status == 503
        assert int(raised.value.headers["Retry-After"]) >= 1
        jobs.append(submit(batcher, "e"))
        model.may.set()
        assert [await job.answer for job in jobs] == [["A", "B"], ["E"]]

    batched(test, max_queue=3)


def test_it_says_to_come_again_when_what_waits_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which each batch takes a hundred seconds."""
    ticks = itertools.count(step=100)
    clock = SimpleNamespace(monotonic=time.monotonic, perf_counter=lambda: float(next(ticks)))
    monkeypatch.setattr("nmt.serving.batching.time", clock)

    async def test(batcher: Batcher, model: Model) -> None:
        said = []
        for number in (1, 3):
            await submit(batcher, "a").answer
            model.begun.clear()
            jobs = [await held(batcher, model), submit(batcher, *"bcd"[:number])]
            with pytest.raises(RefusedError) as raised:
                submit(batcher, *"efg")
            said.append(int(raised.value.headers["Retry-After"]))
            model.may.set()
            await asyncio.gather(*(job.answer for job in jobs))
        assert 1 < said[0] < said[1]

    batched(test, max_queue=3)


def test_it_is_idle_when_all_is_answered() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        await batcher.idle()
        first = await held(batcher, model)
        idle = asyncio.ensure_future(batcher.idle())
        await asyncio.sleep(0.05)
        assert not idle.done()
        batcher.drop(submit(batcher, "gone"))
        await asyncio.sleep(0.05)
        assert not idle.done()
        model.may.set()
        await idle
        assert first.answer.done()

    batched(test)


def test_a_long_request_does_not_keep_a_short_one_waiting() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        model.may.clear()
        model.waits = {"long", "second"}
        long = [submit(batcher, name, cost=SHORT + 1) for name in ("long", "second", "third")]
        assert await submit(batcher, "a", cost=SHORT).answer == ["A"]
        assert await submit(batcher, "b", cost=SHORT).answer == ["B"]
        assert not any(job.answer.done() for job in long)
        model.may.set()
        assert [await job.answer for job in long] == [["LONG"], ["SECOND"], ["THIRD"]]

    batched(test)


def test_a_batch_of_costly_sentences_is_small() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        job = submit(batcher, *"abcde", cost=BATCH // 2)
        assert await job.answer == [*"ABCDE"]
        assert sorted(texts for texts, _ in model.batches) == [["a", "b"], ["c", "d"], ["e"]]

    batched(test)


@pytest.mark.parametrize("cost", [1, SHORT + 1])
def test_what_nobody_waits_for_is_computed_no_further(cost: int) -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        model.may.clear()
        jobs = [submit(batcher, name, cost=cost) for name in "ab"]
        while not model.begun.is_set():
            await asyncio.sleep(0.001)
        batcher.drop(jobs[0])
        await asyncio.sleep(0.05)
        assert not jobs[1].answer.done()  # which may be in the same batch
        if any(len(texts) == 2 for texts, _ in model.batches):
            assert not model.stopped
        batcher.drop(jobs[1])
        while model.stopped < len(model.batches):
            await asyncio.sleep(0.001)
        model.waits = set()
        assert await submit(batcher, "c", cost=cost).answer == ["C"]

    batched(test, max_wait=0.05)
