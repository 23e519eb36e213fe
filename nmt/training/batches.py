"""The endless stream of training batches from any position on, made ahead in a thread."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import Any, NamedTuple

from nmt.data.batching import Pairs, collate
from nmt.data.corpus import Rows
from nmt.data.sampler import BatchSampler, DrawnPairs
from nmt.errors import counted
from nmt.ops.dropout import Masks, batch_key
from nmt.training.distributed import Share


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
    """The batches of one update, and the position of the stream after them.

    With several processes, `batches` is this process's part; everything else covers all processes.
    """

    batches: tuple[Any, ...]
    """Each with a source and a target, padded with 0, and with `to(device)`."""
    sentences: tuple[int, ...]
    """Sentences of the whole batch that each of `batches` is, or is a part of."""
    masks: tuple[Masks, ...]
    """What dropout hides in each of `batches`: in a sentence the same, whichever process has it."""
    whole_batches: int
    whole_sentences: int
    """Sentences of all of these."""
    after: Position
    epoch_batches: int
    """Batches of an epoch; an estimate where it has many pools."""
    target_tokens: int
    """Real target tokens, end symbols counted."""
    tokens: int
    """Real tokens of both sides."""
    cells: int
    """Positions of both sides, padding counted."""
    last_rows: Rows
    """Rows of the corpus in the whole of the last batch, whichever process has them."""
    seed: int | None = None
    """Seed of the generators of this process in this update, for units that draw numbers themselves; None: they run
    on."""
    too_long: int = 0
    """Sentences of the whole batches that were not split again, because they would have become too long."""


class _Taken(NamedTuple):
    """A batch, and the `pool` and `skip` of the position after it."""

    rows: Rows
    drawn: DrawnPairs | None
    """Its pairs after splitting again, if enabled."""
    pool: int
    skip: int


class Prefetching(ABC):
    """The endless stream of updates, a pure function of the position, which a thread makes ahead."""

    ahead: int = 8
    """Updates that are made in advance."""

    @abstractmethod
    def updates_per_epoch(self) -> int:
        """Updates in the first epoch; later ones may differ a little."""

    @abstractmethod
    def groups(self, position: Position) -> Iterator[Group]:
        """All updates from `position` on, made when they are asked for; without end."""

    @contextmanager
    def prefetched(self, position: Position) -> Iterator[Iterator[Group]]:
        """`groups(position)`, made ahead by a thread that ends with the block."""
        waiting: queue.Queue[Group | BaseException] = queue.Queue(maxsize=self.ahead)
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

        def taken() -> Iterator[Group]:
            while True:
                item = waiting.get()
                if isinstance(item, BaseException):
                    raise item
                yield item

        try:
            yield taken()
        finally:
            stop.set()
            thread.join()


@dataclass(eq=False)
class BatchStream(Prefetching):
    """Batches of a corpus in the order of its sampler, `accumulate` to an update.

    A pure function of the position, even if text is split again in each epoch: neither threads nor interruptions change
    the order. The last update of an epoch takes the rest of it. Several processes share each update, so the position
    does not depend on their number.
    """

    corpus: Pairs
    sampler: BatchSampler
    _: KW_ONLY
    accumulate: int = 1
    ahead: int = 8
    share: Share = Share()
    """What is ours of each update; by default all."""
    seed: int = 1
    """What the masks of dropout depend on, and other random numbers where processes share."""
    pinned: bool = False
    """Whether batches are to lie where a GPU can copy them from while others compute."""

    def updates_per_epoch(self) -> int:
        """Updates in the first epoch, estimated where it has many pools; later epochs differ a little."""
        return -(-self.sampler.estimate.batches // self.accumulate)

    def padding_share(self) -> float:
        """Share of the first epoch's batches that is padding, in 0..1; estimated where it has many pools."""
        return self.sampler.estimate.padding_share

    def describe_anew(self) -> list[str]:
        """The effect of splitting the text again, for people; empty if it is not."""
        estimate = self.sampler.estimate
        if estimate.growth is None:
            return []
        longer = f"{estimate.growth:.3g} times the tokens"
        kept = f", {counted(estimate.too_long, 'sentence')} too long for it" if estimate.too_long else ""
        return [f"train: split into subwords again in each epoch: {longer}{kept}"]

    def batch(self, pairs: Pairs, rows: Rows, *, epoch: int) -> Any:
        """What the model is given of `rows` of `pairs` in an epoch, counted from 1."""
        return collate(pairs, rows)._replace(epoch=epoch)

    def groups(self, position: Position) -> Iterator[Group]:
        epoch, batch, pool, skip = position
        while True:
            order = self._order(epoch - 1, pool=pool, skip=skip)
            while taken := list(islice(order, self.accumulate)):
                before = Position(epoch, batch, pool, skip)
                batch += len(taken)
                pool, skip = taken[-1].pool, taken[-1].skip
                after = Position(epoch, batch, pool, skip) if pool < self.sampler.pools else Position(epoch + 1, 0)
                yield self._group(taken, before, after)
            epoch, batch, pool, skip = epoch + 1, 0, 0, 0

    def _order(self, epoch: int, *, pool: int, skip: int) -> Iterator[_Taken]:
        """The batches of an epoch from a position on."""
        for number in range(pool, self.sampler.pools):
            batches, drawn = self.sampler.pool(epoch, number)
            for used, rows in enumerate(batches[skip:], start=skip + 1):
                yield _Taken(rows, drawn, *((number, used) if used < len(batches) else (number + 1, 0)))
            skip = 0

    def _group(self, taken: Sequence[_Taken], before: Position, after: Position) -> Group:
        pairs: list[Pairs] = [self.corpus if one.drawn is None else one.drawn for one in taken]
        lengths = [own.lengths(one.rows) for own, one in zip(pairs, taken, strict=True)]
        parts = self.share.parts([source + target for source, target in lengths])
        target_tokens = sum(int(target.sum()) for _, target in lengths)
        keys = [batch_key(self.seed, before.epoch, before.batch + number) for number in range(len(taken))]
        made = (
            self.batch(pairs[part.batch], taken[part.batch].rows[part.first : part.end], epoch=before.epoch)
            for part in parts
        )
        return Group(
            batches=tuple(batch.pinned() if self.pinned else batch for batch in made),
            sentences=tuple(len(taken[part.batch].rows) for part in parts),
            masks=tuple(Masks(keys[part.batch], part.first) for part in parts),
            whole_batches=len(taken),
            whole_sentences=sum(len(one.rows) for one in taken),
            after=after,
            epoch_batches=self.sampler.estimate.batches,
            target_tokens=target_tokens,
            tokens=target_tokens + sum(int(source.sum()) for source, _ in lengths),
            cells=sum(len(source) * int(source.max() + target.max()) for source, target in lengths),
            last_rows=taken[-1].rows,
            seed=self.share.random_seed(self.seed, *after),
            too_long=sum(one.drawn.too_long(one.rows) for one in taken if one.drawn is not None),
        )
