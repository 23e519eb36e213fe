"""The windows of a stream as batches of a training."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.streams import Rows, windows
from nmt.data.vocabulary import PAD
from nmt.ops.dropout import Masks, batch_key
from nmt.training.batches import Group, Position, Prefetching
from nmt.training.distributed import Share


class Window(NamedTuple):
    """Some columns of some rows of a stream."""

    source: Tensor
    """[B, T], the word before each of the target's"""
    target: Tensor
    """[B, T]"""
    first_row: int
    begins: bool
    """Whether it is the first window of an epoch, before which there is nothing."""
    share: float
    """T by the usual length of a window: rates are in proportion to it (Merity et al., ICLR 2018)."""

    def pinned(self) -> Window:
        """The same in memory from which a GPU can copy by itself."""
        return self._replace(source=self.source.pin_memory(), target=self.target.pin_memory())

    def to(self, device: torch.device) -> Window:
        """The same on a device."""
        source, target = (part.to(device, non_blocking=True) for part in (self.source, self.target))
        return self._replace(source=source, target=target)


class StreamBatches(Prefetching):
    """The windows of an epoch one after the other, `accumulate` to an update, all rows of each at once.

    Where they are cut is a function of the seed and the epoch. Several processes share the rows.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        steps: int,
        varied: bool,
        accumulate: int,
        seed: int,
        share: Share | None = None,
        pinned: bool = False,
    ) -> None:
        self._rows = rows
        self._steps = steps
        self._varied = varied
        self._accumulate = accumulate
        self._seed = seed
        self._share = Share() if share is None else share
        self._pinned = pinned
        count = len(rows.targets)
        parts = self._share.parts([np.full(count, rows.length)])
        self._mine = (parts[0].first, parts[0].end) if parts else (0, 0)

    def ends(self, epoch: int) -> NDArray[np.int64]:
        """Where the windows of an epoch end, counted from 1."""
        generator = np.random.default_rng([self._seed, epoch])
        return windows(self._rows.length, steps=self._steps, varied=self._varied, generator=generator)

    def updates_per_epoch(self) -> int:
        return -(-len(self.ends(1)) // self._accumulate)

    def groups(self, position: Position) -> Iterator[Group]:
        epoch, done = position.epoch, position.batch
        while True:
            ends = self.ends(epoch)
            starts = np.concatenate([[0], ends[:-1]])
            order = iter(zip(range(done, len(ends)), starts[done:], ends[done:], strict=True))
            while taken := list(islice(order, self._accumulate)):
                yield self._group(epoch, taken, windows_of_epoch=len(ends))
            epoch, done = epoch + 1, 0

    def _group(self, epoch: int, taken: list[tuple[int, int, int]], *, windows_of_epoch: int) -> Group:
        after = Position(epoch, taken[-1][0] + 1) if taken[-1][0] + 1 < windows_of_epoch else Position(epoch + 1, 0)
        count, (first, end) = len(self._rows.targets), self._mine
        words = sum(int((self._rows.targets[:, start:stop] != PAD).sum()) for _, start, stop in taken)
        made = [self._window(start, stop, begins=number == 0) for number, start, stop in taken] if end > first else []
        return Group(
            batches=tuple(window.pinned() if self._pinned else window for window in made),
            sentences=(count,) * len(made),
            masks=tuple(Masks(batch_key(self._seed, epoch, number), first) for number, *_ in taken[: len(made)]),
            whole_batches=len(taken),
            whole_sentences=count * len(taken),
            after=after,
            epoch_batches=windows_of_epoch,
            target_tokens=words,
            tokens=words,
            cells=sum(count * int(stop - start) for _, start, stop in taken),
            last_rows=np.arange(0),
            seed=self._share.random_seed(self._seed, *after),
        )

    def _window(self, start: int, stop: int, *, begins: bool) -> Window:
        first, end = self._mine
        source, target = (
            torch.from_numpy(np.ascontiguousarray(side[first:end, start:stop]))
            for side in (self._rows.inputs, self._rows.targets)
        )
        share = (stop - start) / self._steps if self._varied else 1.0
        return Window(source, target, first, begins, float(share))
