"""The endless stream of training batches from any position on, made ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from nmt.data import PAD, Batch, BatchSampler, Corpus, collate
from nmt.data.sampling import Rows


class Position(NamedTuple):
    """Where the stream stands: the epoch, from 1, and how many of its batches have been used.

    `pool` and `skip` say the same in a way that can be gone to without counting batches: so many
    pools of the epoch have been used up, and so many batches of the next one.
    """

    epoch: int
    batch: int
    pool: int = 0
    skip: int = 0


@dataclass(frozen=True)
class Group:
    """The batches of one update, and where the stream stands after them."""

    batches: tuple[Batch, ...]
    after: Position
    epoch_batches: int
    """Batches of an epoch; an estimate where it has many pools."""
    target_tokens: int
    """Real target tokens, end symbols counted."""
    tokens: int
    """Real tokens of both sides."""
    cells: int
    """Positions of both sides, padding counted."""


class BatchStream:
    """Batches of a corpus in the order of its sampler, `accumulate` to an update.

    A pure function of the position: neither threads nor interruptions change the order. The last
    update of an epoch takes what is left of it.
    """

    def __init__(self, corpus: Corpus, sampler: BatchSampler, *, accumulate: int = 1, ahead: int = 8) -> None:
        """`ahead`: updates whose batches are made in advance."""
        self._corpus = corpus
        self._sampler = sampler
        self._accumulate = accumulate
        self._ahead = ahead

    def updates_per_epoch(self) -> int:
        """Updates in the first epoch, estimated where it has many pools; later epochs differ a little."""
        return -(-self._sampler.estimate.batches // self._accumulate)

    def padding_share(self) -> float:
        """Share of the first epoch's batches that is padding, in 0..1; estimated where it has many pools."""
        return self._sampler.estimate.padding_share

    def groups(self, position: Position) -> Iterator[Group]:
        """All updates from `position` on, made when they are asked for; without end."""
        epoch, batch, pool, skip = position
        while True:
            order = self._order(epoch - 1, pool=pool, skip=skip)
            while taken := list(islice(order, self._accumulate)):
                batch += len(taken)
                _, pool, skip = taken[-1]
                after = Position(epoch, batch, pool, skip) if pool < self._sampler.pools else Position(epoch + 1, 0)
                batches = tuple(collate(self._corpus, rows) for rows, _, _ in taken)
                yield _group(batches, after, self._sampler.estimate.batches)
            epoch, batch, pool, skip = epoch + 1, 0, 0, 0

    def _order(self, epoch: int, *, pool: int, skip: int) -> Iterator[tuple[Rows, int, int]]:
        """The batches of an epoch from a position on, each with the `pool` and `skip` after it."""
        for number in range(pool, self._sampler.pools):
            batches = self._sampler.pool(epoch, number)
            for used, rows in enumerate(batches[skip:], start=skip + 1):
                yield rows, *((number, used) if used < len(batches) else (number + 1, 0))
            skip = 0

    @contextmanager
    def prefetched(self, position: Position) -> Iterator[Iterator[Group]]:
        """`groups(position)`, made ahead by a thread that ends with the block."""
        waiting: queue.Queue[Group | BaseException] = queue.Queue(maxsize=self._ahead)
        stop = threading.Event()

        def put(item: Group | BaseException) -> None:
            while not stop.is_set():
                try:
                    waiting.put(item, timeout=0.1)
                    return
                except queue.Full:
                    continue

        def work() -> None:
            try:
                for group in self.groups(position):
                    put(group)
                    if stop.is_set():
                        return
            except BaseException as error:  # handed to the training thread, which raises it
                put(error)

        thread = threading.Thread(target=work, name="batches", daemon=True)
        thread.start()
        try:
            yield _taken(waiting)
        finally:
            stop.set()
            thread.join()


def _taken(waiting: queue.Queue[Group | BaseException]) -> Iterator[Group]:
    while True:
        item = waiting.get()
        if isinstance(item, BaseException):
            raise item
        yield item


def _group(batches: tuple[Batch, ...], after: Position, epoch_batches: int) -> Group:
    target_tokens = sum(int((batch.target != PAD).sum()) for batch in batches)
    source_tokens = sum(int((batch.source != PAD).sum()) for batch in batches)
    cells = sum(batch.source.numel() + batch.target.numel() for batch in batches)
    return Group(batches, after, epoch_batches, target_tokens, source_tokens + target_tokens, cells)
