"""Sentences of all clients, put together into batches and translated one batch after the other in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nmt.library.request import Request
from nmt.serving.metrics import Metrics
from nmt.serving.refusal import RefusedError

Compute = Callable[[Sequence[Request], Mapping[str, Any]], list[str]]
"""The answers to some sentences, all with the same options."""


class Job:
    """The sentences of one request."""

    def __init__(self, sentences: Sequence[Request], options: Mapping[str, Any]) -> None:
        self.sentences = sentences
        self.options = options
        self.kind = json.dumps(options, sort_keys=True)
        """Jobs of the same kind can be computed together."""
        self.arrived = time.monotonic()
        self.taken = 0
        """Sentences that are in a batch, or were."""
        self.answers: list[str] = []
        self.answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    @property
    def waiting(self) -> int:
        """Sentences that are in no batch yet."""
        return len(self.sentences) - self.taken


Share = tuple[Job, Sequence[Request]]
"""The sentences of a job that are in a batch."""


class Batcher:
    """The queue, and the thread that computes. All methods are called in the event loop.

    While a batch is computed, others gather for the next one. A job that is alone in the queue waits `max_wait` seconds
    for company. A job with many sentences shares its batches with others, so that these need not wait for all of it.
    """

    def __init__(self, compute: Compute, *, batch_size: int, max_wait: float, max_queue: int, metrics: Metrics) -> None:
        self._compute = compute
        self._batch_size = batch_size
        self._max_wait = max_wait
        self._max_queue = max_queue
        self._metrics = metrics
        self._jobs: deque[Job] = deque()
        self._waiting = 0
        self._open = 0
        """Jobs without an answer."""
        self._has_come = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._seconds_each = 0.0
        """Recent seconds of computing for a sentence."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nmt-serve")
        self._task = asyncio.get_running_loop().create_task(self._run())

    def submit(self, sentences: Sequence[Request], options: Mapping[str, Any]) -> Job:
        """Accept a job; RefusedError where the queue is full."""
        if self._waiting + len(sentences) > self._max_queue:
            seconds = max(1, math.ceil(self._waiting * self._seconds_each))
            raise RefusedError(
                503,
                f"the queue is full: {self._waiting:,} sentences wait. Allowed: {self._max_queue:,}. Try again later.",
                headers={"Retry-After": str(seconds)},
            )
        job = Job(sentences, options)
        job.answer.add_done_callback(self._done)
        self._open += 1
        self._is_idle.clear()
        self._jobs.append(job)
        self._count(len(sentences))
        self._has_come.set()
        return job

    def drop(self, job: Job) -> None:
        """Drop a job whose client has gone; a running computation is finished."""
        self._forget(job)
        job.answer.cancel()

    async def idle(self) -> None:
        """Wait until all jobs are answered."""
        await self._is_idle.wait()

    def close(self) -> None:
        """End the thread; to be called when no job is left."""
        self._task.cancel()
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while True:
            self._has_come.clear()
            if not self._jobs:
                await self._has_come.wait()
            await self._gather()
            batch = self._batch()
            if batch:
                await self._answer(batch)

    async def _gather(self) -> None:
        """Wait for more of the kind of the oldest job, unless it has waited long enough."""
        while self._jobs:
            first = self._jobs[0]
            left = first.arrived + self._max_wait - time.monotonic()
            if left <= 0 or sum(job.waiting for job in self._jobs if job.kind == first.kind) >= self._batch_size:
                return
            self._has_come.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_come.wait(), left)

    def _batch(self) -> list[Share]:
        """The next sentences to compute: from the oldest job and jobs of the same kind, each with its share."""
        if not self._jobs:
            return []
        alike = [job for job in self._jobs if job.kind == self._jobs[0].kind][: self._batch_size]
        share, left = self._batch_size // len(alike), self._batch_size
        counts = [min(share, job.waiting) for job in alike]
        left -= sum(counts)
        batch: list[Share] = []
        for job, count in zip(alike, counts, strict=True):
            more = min(left, job.waiting - count)
            left -= more
            batch.append((job, job.sentences[job.taken : job.taken + count + more]))
            job.taken += count + more
            self._jobs.remove(job)
            if job.waiting:
                self._jobs.append(job)  # behind all others
            self._count(-count - more)
        return batch

    async def _answer(self, batch: Sequence[Share]) -> None:
        sentences = [sentence for _, part in batch for sentence in part]
        start = time.perf_counter()
        try:
            answers = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._compute, sentences, batch[0][0].options
            )
        except Exception as error:
            if len(batch) > 1:  # one client's mistake is no one else's
                for share in batch:
                    if not share[0].answer.done():
                        await self._answer([share])
                return
            self._fail(batch[0][0], error)
            return
        seconds = time.perf_counter() - start
        self._seconds_each = 0.8 * self._seconds_each + 0.2 * seconds / len(sentences)
        self._metrics.computed(len(sentences), seconds)
        place = 0
        for job, part in batch:
            job.answers += answers[place : place + len(part)]
            place += len(part)
            if len(job.answers) == len(job.sentences) and not job.answer.done():
                job.answer.set_result(job.answers)

    def _fail(self, job: Job, error: Exception) -> None:
        self._forget(job)
        if not job.answer.done():
            job.answer.set_exception(error)

    def _forget(self, job: Job) -> None:
        """Remove the sentences of a job that still wait in the queue."""
        if job in self._jobs:
            self._jobs.remove(job)
            self._count(-job.waiting)

    def _count(self, change: int) -> None:
        self._waiting += change
        self._metrics.queue.set(self._waiting)

    def _done(self, _: object) -> None:
        self._open -= 1
        if not self._open:
            self._is_idle.set()
