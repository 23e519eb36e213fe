"""The key-value store in which the processes of a run leave word for each other."""

from __future__ import annotations

import time
import uuid

from torch.distributed.distributed_c10d import PrefixStore, Store

POLL = 0.05
"""Seconds between two looks at what has arrived."""


def fresh_part(store: Store, *, rank: int, size: int, timeout: float) -> Store:
    """An empty part of `store`, the same for all ranks, which must all call this.

    A launcher may keep its store when it restarts processes, including the old processes' entries, which would mislead
    torch. So each other rank writes a hello with an unused word, and rank 0, which may first read an old hello, answers
    each until all ranks have arrived.

    Raises:
        RuntimeError: a rank has not arrived within `timeout` seconds.
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
    time.sleep(POLL)
