"""The processes find a part of the store for themselves, whatever ended ones have left in it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore, PrefixStore

from nmt.distributed.process_group import fresh_part


def meet(store: HashStore, size: int) -> list[PrefixStore]:
    with ThreadPoolExecutor(size) as threads:
        ranks = [threads.submit(fresh_part, store, rank=rank, size=size, timeout=20) for rank in reversed(range(size))]
        return [rank.result() for rank in reversed(ranks)]


def test_each_start_has_an_empty_part_that_all_ranks_share() -> None:
    """Three starts in one store: of three processes, of two after one was lost, of three again."""
    store = HashStore()
    for size in (3, 2, 3):
        parts = meet(store, size)
        assert not parts[0].check(["key"])
        parts[-1].set("key", "value")
        assert [part.get("key") for part in parts] == [b"value"] * size


def test_a_hello_of_the_past_is_answered_and_waited_past() -> None:
    """Rank 0 reads the one that a process has left which is no more, before the one of now has come."""
    store, past = HashStore(), "nmt/welcome/past"
    store.set("nmt/hello/1", "past")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(fresh_part, store, rank=0, size=2, timeout=5)
        deadline = time.monotonic() + 5
        while not store.check([past]) and time.monotonic() < deadline:
            time.sleep(0.01)
        second = threads.submit(fresh_part, store, rank=1, size=2, timeout=5)
        first.result().set("key", "value")
        assert second.result().get("key") == b"value"


def test_who_does_not_come_is_waited_for_in_vain() -> None:
    with pytest.raises(RuntimeError, match="2 of 3 have not arrived in time"):
        fresh_part(HashStore(), rank=0, size=3, timeout=0.1)
    with pytest.raises(RuntimeError, match="rank 0 has not answered in time"):
        fresh_part(HashStore(), rank=1, size=3, timeout=0.1)
