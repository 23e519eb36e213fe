"""Sentences of all clients, put together into batches and translated in threads: short requests in one, long ones in
others, which do not keep them waiting."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from nmt.library.values import Request
from nmt.light.binding import Stop
from nmt.light.errors import StoppedError
from nmt.serving.limits import RefusedError, Settings
from nmt.serving.metrics import Metrics

Compute = Callable[[Sequence[Request], Mapping[str, Any], Stop], list[str]]
"""The answers to some sentences, all with the same options; ended by the flag."""

SHORT: Final = 1024
"""Largest cost of a short request: tokens of its sources times hypotheses, 25 words in a beam of 16."""
BATCH: Final = 4096
"""Cost after which a batch gets no further sentence."""
LONG_THREADS: Final = 2
NICE: Final = 5
"""How much lower than those of others the threads of long requests rank, where the system ranks threads (Linux)."""


class Job:
    """The sentences of one request."""

    def __init__(self, sentences: Sequence[Request], options: Mapping[str, Any], costs: Sequence[int]) -> None:
        self.sentences = sentences
        self.options = options
        self.costs = costs
        self.kind = json.dumps(options, sort_keys=True)
        """Jobs of the same kind can be computed together."""
        self.arrived = time.monotonic()
        self.taken = 0
        """Sentences that are in a batch, or were."""
        self.answers: list[str | None] = [None] * len(sentences)
        self.has_come = asyncio.Event()
        """Set when further answers are there."""
        self.at_once = len(sentences)
        """Most sentences in a batch; few where each answer is sent as soon as it is there."""
        self.answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    @property
    def waiting(self) -> int:
        """Sentences that are in no batch yet."""
        return len(self.sentences) - self.taken


class Share(NamedTuple):
    """The sentences of a job that are in a batch."""

    job: Job
    first: int
    sentences: Sequence[Request]


class _Lane:
    """Jobs that wait for the same threads."""

    def __init__(self, threads: int, *, max_wait: float, nice: bool) -> None:
        self.jobs: deque[Job] = deque()
        self.has_come = asyncio.Event()
        self.max_wait = max_wait
        self.pool = ThreadPoolExecutor(
            threads, thread_name_prefix="nmt-serve", initializer=_rank_lower if nice else None
        )


def _rank_lower() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


class Batcher:
    """The queues, and the threads that compute. All methods are called in the event loop.

    While a batch is computed, others gather for the next one. A job that is alone in the queue waits `max_wait` seconds
    for company. A job with many sentences shares its batches with others, so that these need not wait for all of it.
    """

    def __init__(self, compute: Compute, settings: Settings, *, metrics: Metrics, nice: bool = False) -> None:
        """`nice`: the threads of long requests rank lower, which helps where threads do not wait for each other."""
        self._compute = compute
        self._settings = settings
        self._metrics = metrics
        self._short = _Lane(1, max_wait=settings.max_wait, nice=False)
        self._long = _Lane(LONG_THREADS, max_wait=0.0, nice=nice)
        self._running: dict[Stop, Sequence[Share]] = {}
        self._waiting = 0
        self._open = 0
        """Jobs without an answer."""
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._seconds_each = 0.0
        """Recent seconds of computing for a sentence."""
        loop = asyncio.get_running_loop()
        lanes = [self._short, *[self._long] * LONG_THREADS]
        self._tasks = [loop.create_task(self._run(lane)) for lane in lanes]

    def submit(self, sentences: Sequence[Request], options: Mapping[str, Any], costs: Sequence[int]) -> Job:
        """Accept a job; RefusedError where the queue is full. `costs`: of each sentence tokens times hypotheses."""
        most = self._settings.max_queue
        if self._waiting + len(sentences) > most:
            seconds = max(1, math.ceil(self._waiting * self._seconds_each))
            raise RefusedError(
                503,
                f"the queue is full: {self._waiting:,} sentences wait. Allowed: {most:,}. Try again later.",
                headers={"Retry-After": str(seconds)},
            )
        job = Job(sentences, options, costs)
        job.answer.add_done_callback(self._done)
        self._open += 1
        self._is_idle.clear()
        lane = self._lane(job)
        lane.jobs.append(job)
        self._count(len(sentences))
        lane.has_come.set()
        return job

    def drop(self, job: Job) -> None:
        """Drop a job whose client has gone; a batch for nobody else ends at its next step."""
        self._forget(job)
        job.answer.cancel()
        self._stop_unwanted()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Not idle: a job may follow."""
        self._open += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._done()

    async def idle(self) -> None:
        """Wait until all jobs are answered."""
        await self._is_idle.wait()

    def close(self) -> None:
        """End the threads; to be called when no job is left."""
        for task in self._tasks:
            task.cancel()
        for stop in self._running:
            stop.set()
        for lane in (self._short, self._long):
            lane.pool.shutdown(wait=False)

    def _lane(self, job: Job) -> _Lane:
        return self._short if sum(job.costs) <= SHORT else self._long

    async def _run(self, lane: _Lane) -> None:
        while True:
            lane.has_come.clear()
            if not lane.jobs:
                await lane.has_come.wait()
            while lane.jobs:  # wait for more of the kind of the oldest job, unless it has waited long enough
                first = lane.jobs[0]
                left = first.arrived + lane.max_wait - time.monotonic()
                if (
                    left <= 0
                    or sum(job.waiting for job in lane.jobs if job.kind == first.kind) >= self._settings.batch_size
                ):
                    break
                lane.has_come.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(lane.has_come.wait(), left)
            batch = self._batch(lane)
            if batch:
                await self._answer(lane, batch)

    def _batch(self, lane: _Lane) -> list[Share]:
        """The next sentences to compute: from the oldest job and jobs of the same kind, each with its share."""
        if not lane.jobs:
            return []
        alike = [job for job in lane.jobs if job.kind == lane.jobs[0].kind][: self._settings.batch_size]
        left, cost, begins = self._settings.batch_size, 0, [job.taken for job in alike]
        for most in (left // len(alike), left):  # the share of each, then what is left
            for job, begin in zip(alike, begins, strict=True):
                while left and cost < BATCH and job.waiting and job.taken < begin + min(most, job.at_once):
                    cost += job.costs[job.taken]
                    job.taken += 1
                    left -= 1
        batch = [
            Share(job, begin, job.sentences[begin : job.taken])
            for job, begin in zip(alike, begins, strict=True)
            if job.taken > begin
        ]
        for job, _, sentences in batch:
            lane.jobs.remove(job)
            if job.waiting:
                lane.jobs.append(job)  # behind all others
            self._count(-len(sentences))
        return batch

    async def _answer(self, lane: _Lane, batch: Sequence[Share]) -> None:
        sentences = [sentence for share in batch for sentence in share.sentences]
        start, stop = time.perf_counter(), Stop()
        self._running[stop] = batch
        try:
            answers = await asyncio.get_running_loop().run_in_executor(
                lane.pool, self._compute, sentences, batch[0].job.options, stop
            )
        except StoppedError:
            return  # nobody waits for it
        except Exception as error:
            if len(batch) > 1:  # one client's mistake is no one else's
                for share in batch:
                    if not share.job.answer.done():
                        await self._answer(lane, [share])
                return
            job = batch[0].job
            self._forget(job)
            if not job.answer.done():
                job.answer.set_exception(error)
            self._stop_unwanted()
            return
        finally:
            del self._running[stop]
        seconds = time.perf_counter() - start
        self._seconds_each = 0.8 * self._seconds_each + 0.2 * seconds / len(sentences)
        self._metrics.computed(len(sentences), seconds)
        found = iter(answers)
        for job, first, own in batch:
            job.answers[first : first + len(own)] = [next(found) for _ in own]
            job.has_come.set()
            if not job.waiting and None not in job.answers and not job.answer.done():
                job.answer.set_result([answer for answer in job.answers if answer is not None])

    def _stop_unwanted(self) -> None:
        for stop, batch in self._running.items():
            if all(share.job.answer.done() for share in batch):
                stop.set()

    def _forget(self, job: Job) -> None:
        """Remove the sentences of a job that still wait in the queue."""
        jobs = self._lane(job).jobs
        if job in jobs:
            jobs.remove(job)
            self._count(-job.waiting)

    def _count(self, change: int) -> None:
        self._waiting += change
        self._metrics.queue.inc(change)  # where a model is exchanged, of both queues

    def _done(self, *_: object) -> None:
        self._open -= 1
        if not self._open:
            self._is_idle.set()
