"""The world of several processes, on torch.distributed: gloo between CPUs, NCCL between GPUs."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from nmt.errors import NmtError
from nmt.registry import WORLDS, plugin_error
from nmt.training.distributed import Launch, RankError, T, World

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
            limit = timedelta(seconds=timeout)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
            dist.all_reduce(torch.zeros(1))  # connections are made with the first exchange

    def add_up(self, weights: Sequence[Tensor], sums: Tensor) -> list[float]:
        """See `World`; sums are in the type of the gradients, `sums` in float64."""
        have = [float(weight.grad is not None) for weight in weights]
        added: list[float] = []
        totals = torch.cat([sums.detach().double(), torch.tensor(have, dtype=torch.float64).to(sums.device)])
        with self._contact("adding up gradients"):
            waiting = [dist.all_reduce(totals, async_op=True)]
            for bucket in _buckets(weights):
                flat = torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in bucket])
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
        return tuple(self._reduced(values, dist.ReduceOp.MAX))

    def total(self, value: float) -> float:
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


MEETING_POLL = 0.05
"""Seconds between two looks at what has arrived."""


def fresh_part(store: Store, *, rank: int, size: int, timeout: float) -> Store:
    """An empty part of `store`, the same for all ranks, which must all call this.

    A launcher may keep its store when it restarts processes, including the old processes' entries, which would mislead
    torch. So each other rank writes a hello with an unused word, and rank 0, which may first read an old hello, answers
    each until all ranks have arrived.
    Raises RuntimeError where a rank has not arrived within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    if rank != 0:
        hello = uuid.uuid4().hex
        store.set(f"nmt/hello/{rank}", hello)
        while not store.check([f"nmt/welcome/{hello}"]):
            _pause(deadline, "rank 0 has not answered")
        name = store.get(f"nmt/welcome/{hello}").decode("ascii")
        store.add(f"{name}/arrived", 1)
        return PrefixStore(name, store)
    name = f"nmt/{uuid.uuid4().hex}"
    seen = [b""] * size
    while (arrived := store.add(f"{name}/arrived", 0)) < size - 1:
        for other in range(1, size):
            key = f"nmt/hello/{other}"
            if store.check([key]) and (word := store.get(key)) != seen[other]:
                seen[other] = word
                store.set(f"nmt/welcome/{word.decode('ascii')}", name)
        _pause(deadline, f"{size - 1 - arrived} of {size} have not arrived")
    return PrefixStore(name, store)


def _pause(deadline: float, otherwise: str) -> None:
    if time.monotonic() > deadline:
        raise RuntimeError(f"{otherwise} in time")
    time.sleep(MEETING_POLL)


PATIENCE = 3.0
"""Seconds that a process waits for the reason of a failure elsewhere; rank 0 keeps the store that long."""
LAST_RESORT = 30
"""Seconds after which the kernel ends a process that has failed but cannot leave torch.distributed."""


@WORLDS.register("torchrun")
@contextmanager
def several(launch: Launch, device: torch.device) -> Iterator[World]:
    """The world of the processes that were launched, while the block runs; see `connected`."""
    # Otherwise a lost GPU would end this process from a thread of torch, without an error message.
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=launch.timeout))))
        store = fresh_part(store, rank=rank, size=size, timeout=launch.timeout)
        world = ProcessGroup(store, rank=rank, size=size, device=device, timeout=launch.timeout)
    except (LostContactError, RuntimeError, OSError, ValueError) as error:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        what = f"could not connect to the other processes at {place}: {reason(error)}"
        raise RankError(f"rank {launch.rank} of {launch.size}: {what}") from error
    try:
        yield world
        world.gather(None)  # the first process to end must not end the store
    except Exception as error:
        message = _last_words(world, error)
        if message is None:
            raise
        raise message from error
    except BaseException:  # a signal, which has its own exit code; it may have reached this process alone
        _publish(world, "interrupted", exit_code=1)
        raise
    world.leave()


def _last_words(world: ProcessGroup, error: Exception) -> RankError | None:
    """The message of this process instead of `error`, or None; the first process to fail informs the others."""
    with suppress(ValueError):  # signals can only be handled in the main thread
        # The launcher ends the others as soon as one has ended; they still have to print the reason.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(LAST_RESORT)
    me = f"rank {world.rank} of {world.size}"
    if isinstance(error, LostContactError):
        first = _first_failure(world)
    else:
        text = plugin_error(error) if not isinstance(error, NmtError) else None
        if not text:  # in one line: of the mistakes that may be listed the first, and how many more there are
            text, *listed = str(error).strip().split("\n")
            text += f" {listed[0].strip()}" if listed else ""
            text += f" (and {len(listed) - 1} more)" if len(listed) > 1 else ""
        text = text or type(error).__name__
        first = _publish(world, text, exit_code=getattr(error, "exit_code", 1))
    if first is not None:
        # Let the others notice that something has failed, and keep the store, which may be ours, until they know what.
        world.leave()  # closes the connections on which they wait
        deadline = time.monotonic() + PATIENCE
        with suppress(RuntimeError):
            heard = world.store.add(HEARD, 1)
            while world.is_main and heard < world.size and time.monotonic() < deadline:
                time.sleep(0.05)
                heard = world.store.add(HEARD, 0)
        if first["rank"] != world.rank:
            message = f"{me}: ended because rank {first['rank']} has failed: {first['message']}"
            return RankError(message, exit_code=first["exit_code"])
    return RankError(f"{me}: {error}", exit_code=error.exit_code) if isinstance(error, NmtError) else None


def _publish(world: ProcessGroup, message: str, *, exit_code: int) -> dict[str, Any] | None:
    """Record the failure in the store unless another rank was faster; return the record, None if unknown."""
    record = {"rank": world.rank, "message": message, "exit_code": exit_code}
    try:
        return dict(json.loads(world.store.compare_set(FAILURE, "", json.dumps(record))))
    except (RuntimeError, ValueError):
        return None


def _first_failure(world: ProcessGroup) -> dict[str, Any] | None:
    """The failure that another rank recorded in the store; None if it died without a record."""
    deadline = time.monotonic() + PATIENCE
    with suppress(RuntimeError, ValueError):
        while time.monotonic() < deadline:
            if world.store.check([FAILURE]):
                return dict(json.loads(world.store.get(FAILURE)))
            time.sleep(0.1)
    return None
