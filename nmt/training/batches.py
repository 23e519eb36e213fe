"""The endless stream of training batches from any position on, collated ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from nmt.data import PAD, Batch, BatchSampler, Corpus, collate


class Position(NamedTuple):
    """Where the stream stands: the epoch, from 1, and how many of its batches have been used."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class Group:
    """The batches of one update, and where the stream stands after them."""

    batches: tuple[Batch, ...]
    after: Position
    epoch_batches: int
    """Batches of the epoch they belong to."""
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

    def __init__(self, corpus: Corpus, sampler: BatchSampler, *, accumulate: int = 1, ahead: int = 4) -> None:
        """`ahead`: updates whose batches are made in advance."""
        self._corpus = corpus
        self._sampler = sampler
        self._accumulate = accumulate
        self._ahead = ahead
        self._first_updates: int | None = None

    def updates_per_epoch(self) -> int:
        """Updates in the first epoch; later ones differ a little where batches are cut by tokens."""
        if self._first_updates is None:
            self._first_updates = -(-len(self._sampler.epoch(0)) // self._accumulate)
        return self._first_updates

    def padding_share(self) -> float:
        """Share of the first epoch's batches that is padding, in 0..1."""
        return self._sampler.padding_share(0)

    def groups(self, position: Position) -> Iterator[Group]:
        """All updates from `position` on, made when they are asked for; without end."""
        epoch, start = position
        while True:
            order = self._sampler.epoch(epoch - 1)
            for first in range(start, len(order), self._accumulate):
                end = min(first + self._accumulate, len(order))
                after = Position(epoch, end) if end < len(order) else Position(epoch + 1, 0)
                yield _group(tuple(collate(self._corpus, rows) for rows in order[first:end]), after, len(order))
            epoch, start = epoch + 1, 0

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
