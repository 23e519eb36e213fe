"""The lock whose holders take turns: in order, passed on between pieces of work, left by who is interrupted."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from nmt.library.engine import Turns


def waiting(turns: Turns, count: int) -> None:
    """Wait until so many threads do."""
    end = time.monotonic() + 10
    while len(turns._waiting) != count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_threads_get_it_in_the_order_in_which_they_asked() -> None:
    turns, order = Turns(), list[int]()

    def work(number: int) -> None:
        with turns:
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    with turns:
        for count, thread in enumerate(threads, 1):
            thread.start()
            waiting(turns, count)
    for thread in threads:
        thread.join(10)
    assert order == [0, 1, 2, 3, 4]
    with turns:
        turns.pass_on()  # nobody waits


def test_it_is_passed_on_between_two_pieces_of_work_and_comes_back() -> None:
    turns, order = Turns(), list[str]()

    def short() -> None:
        with turns:
            order.append("short")

    thread = threading.Thread(target=short)
    with turns:
        thread.start()
        waiting(turns, 1)
        order.append("first batch")
        turns.pass_on()
        order.append("second batch")
    thread.join(10)
    assert order == ["first batch", "short", "second batch"]


@pytest.mark.parametrize("has_come", [False, True])
def test_who_is_interrupted_while_waiting_keeps_nobody_from_it(has_come: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C arrives while the turn has not come yet, or has come and was not noticed."""
    turns = Turns()

    class Interrupted:
        """A lock whose second acquire, the wait, is ended by Ctrl-C."""

        def __init__(self) -> None:
            self._calls = 0

        def acquire(self) -> None:
            self._calls += 1
            if self._calls == 2:
                if has_come:
                    turns.__exit__(None, None, None)
                raise KeyboardInterrupt

        def release(self) -> None:
            """Nobody waits any more."""

    locks: Any = Interrupted
    with monkeypatch.context() as patched:
        turns.__enter__()
        patched.setattr("nmt.library.engine.threading.Lock", locks)
        with pytest.raises(KeyboardInterrupt):
            turns.__enter__()
    if not has_come:
        turns.__exit__(None, None, None)
    with turns:
        assert not turns._waiting
    assert not turns._is_taken
