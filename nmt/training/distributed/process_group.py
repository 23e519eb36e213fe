"""The world of several processes, on torch.distributed: gloo between CPUs, NCCL between GPUs."""

from __future__ import annotations

import json
import re
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store

from nmt.errors import NmtError
from nmt.training.distributed.world import T, World

BUCKET_BYTES = 32 << 20
"""Gradients are sent in pieces of this size: while one travels, the next is put together."""
POLL = 0.2
"""Seconds between two checks for failures that other ranks recorded in the store."""
BEAT = 1.0
"""Seconds between two signs of life of rank 0 while the others wait for it."""
SETTLING = 1.0
"""Seconds that threads of torch have at most to let go of what was exchanged."""

FAILURE, HEARD, STOP, BEATS, READY = "failure", "heard", "stop", "beats", "ready"
"""Keys of the store: the first failure, how many know of it, a wish to stop, signs of life of rank 0, its blocks."""


class LostContactError(NmtError):
    """Another process has died, hangs or cannot be reached."""


class ProcessGroup(World):
    """Several processes; each method that exchanges data raises LostContactError if another process is gone.

    A process that has died is noticed at once, one that hangs after `timeout` seconds.
    """

    def __init__(self, store: Store, *, rank: int, size: int, device: torch.device, timeout: float) -> None:
        """Meet the others, who must do the same; `store` is common to all."""
        super().__init__(device)
        self.rank, self.size = rank, size
        self.store = store
        self._timeout = timeout
        self._blocks = 0
        self._asked = 0.0
        self._held: list[weakref.ref[Tensor]] = []
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        with self._contact("meeting the others"):
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
            )
            dist.all_reduce(torch.zeros(1))  # connections are made with the first exchange

    def add_up(self, weights: Sequence[Tensor], sums: Tensor) -> list[float]:
        """See `World`; sums are in the type of the gradients, `sums` in float64."""
        have = [float(weight.grad is not None) for weight in weights]
        added: list[float] = []
        totals = torch.cat([sums.detach().double(), torch.tensor(have, dtype=torch.float64).to(sums.device)])
        with self._contact("adding up gradients"):
            waiting = [dist.all_reduce(totals, async_op=True)]
            for bucket in _buckets(weights):
                flat = torch.cat([_gradient(weight).flatten() for weight in bucket])
                waiting.append(dist.all_reduce(flat, async_op=True))
                for weight, piece in zip(bucket, flat.split([weight.numel() for weight in bucket]), strict=True):
                    weight.grad = piece.view_as(weight)  # the old gradients are freed before the next bucket is made
            for work in waiting:
                work.wait()
            added = totals.tolist()
        self._done_with(totals)
        for weight, ranks in zip(weights, added[len(sums) :], strict=True):
            if not ranks:
                weight.grad = None
        return added[: len(sums)]

    def largest(self, *values: float) -> tuple[float, ...]:
        """See `World`."""
        return tuple(self._reduced(values, dist.ReduceOp.MAX))

    def total(self, value: float) -> float:
        """See `World`."""
        return self._reduced([value], dist.ReduceOp.SUM)[0]

    def gather(self, value: T) -> list[T]:
        """See `World`; lists come back for tuples."""
        mine = torch.frombuffer(bytearray(json.dumps(value).encode("ascii")), dtype=torch.uint8)
        length, sizes = torch.tensor([len(mine)]), [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self._contact("collecting results"):
            dist.all_gather(sizes, length)
            longest = max(int(size) for size in sizes)
            padded = torch.cat([mine, mine.new_zeros(longest - len(mine))])
            texts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(texts, padded)
        self._done_with(length, *sizes, padded, *texts)
        return [json.loads(text[:size].numpy().tobytes()) for text, size in zip(texts, sizes, strict=True)]

    def from_main(self, value: T) -> T:
        """See `World`."""
        return self.gather(value if self.is_main else None)[0]  # type: ignore[return-value]

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """See `World`. The block may take rank 0 any time, but it must not stay silent for `timeout` seconds."""
        self._blocks += 1
        ready = f"{READY}/{self._blocks}"
        if not self.is_main:
            with self._contact("waiting for rank 0"):
                self._await(ready)
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(over,), name="signs of life", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        with self._contact("telling the others to continue"):
            self.store.set(ready, "1")

    def ask_to_stop(self) -> None:
        """See `World`."""
        with self._contact("asking the others to stop"):
            self.store.set(STOP, "1")

    def stop_is_asked(self) -> bool:
        """See `World`; looks at most every POLL seconds."""
        now = time.monotonic()
        if now - self._asked < POLL:
            return False
        self._asked = now
        with self._contact("checking whether to stop"):
            return self.store.check([STOP])

    def leave(self) -> None:
        """Close the connections to the others.

        A thread of gloo holds tensors a moment longer than their exchange takes, and needs the interpreter to let go
        of them. PyTorch 2.6 waits for that thread when it closes, and keeps the interpreter meanwhile: for ever, unless
        the thread is done before.
        """
        deadline = time.monotonic() + SETTLING
        while any(held() is not None for held in self._held) and time.monotonic() < deadline:
            time.sleep(0.001)
        with suppress(RuntimeError):
            dist.destroy_process_group()

    def __str__(self) -> str:
        return f"{self.size} processes, gradients added up by {'NCCL' if self.device.type == 'cuda' else 'gloo'}"

    def _reduced(self, values: Sequence[float], operation: dist.ReduceOp.RedOpType) -> list[float]:
        found = torch.tensor(values, dtype=torch.float64, device=self.device)
        with self._contact("agreeing how to continue"):
            dist.all_reduce(found, op=operation)
            self._done_with(found)
            return list(map(float, found.tolist()))

    def _beat(self, over: threading.Event) -> None:
        while not over.wait(BEAT):
            try:
                self.store.add(BEATS, 1)
            except RuntimeError:  # the store has gone with its process; the next exchange will say so
                return

    def _await(self, ready: str) -> None:
        beats, seen = 0, time.monotonic()
        while not self.store.check([ready]):
            if self.store.check([FAILURE]):
                raise RuntimeError("it has failed")
            now, count = time.monotonic(), self.store.add(BEATS, 0)
            if count != beats:
                beats, seen = count, now
            if now - seen > self._timeout:
                raise RuntimeError(f"no sign of life for {self._timeout:.0f} seconds")
            time.sleep(POLL)

    def _done_with(self, *tensors: Tensor) -> None:
        """Note what threads of torch may still hold: a weak reference to it lives until they let go."""
        self._held = [held for held in (*self._held, *map(weakref.ref, tensors)) if held() is not None]

    @contextmanager
    def _contact(self, doing: str) -> Iterator[None]:
        """Turn what torch raises when another rank does not answer into a LostContactError."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise LostContactError(f"lost contact with another process while {doing}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Torch's error about a failed exchange in one line, without its source location and guesses."""
    line = (str(error).strip() or type(error).__name__).split("\n")[0]
    return re.sub(r"\[\S+\.cc:\d+\] ", "", line).split(". This is typically")[0]


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _buckets(weights: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The weights in their order, in lists of one type and at most BUCKET_BYTES or one weight."""
    bucket: list[Tensor] = []
    size = 0
    for weight in weights:
        if bucket and (weight.dtype != bucket[0].dtype or size + weight.nbytes > BUCKET_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(weight)
        size += weight.nbytes
    if bucket:
        yield bucket
