"""Long work: its progress shown, and child processes that share it and end with their parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from tqdm import tqdm

from nmt.errors import DataError, NmtError
from nmt.files import is_out_of_memory
from nmt.registry import plugin_error, worded

T = TypeVar("T")
S = TypeVar("S")

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
_KILLED = "a process that prepares the text was killed, perhaps for lack of memory"
_KILLED_ENCODING = "a process that encodes text was killed, perhaps for lack of memory; lower data.workers"
Advance = Callable[[int], object]
"""Called with the work done since its last call."""

INTERVAL = 60.0
"""Seconds between two lines if no bar can be shown."""


def no_progress(done: int) -> None:
    """Show nothing."""


@contextmanager
def progress(name: str, *, total: int, unit: str, done: int = 0, shown: bool = True) -> Iterator[Advance]:
    """Show on stderr how much of `total` (0: not known) is done, from `done` on, with speed and remaining time.

    On a terminal it is a bar; in a file of a batch system a line every INTERVAL seconds, so short
    work leaves no trace there.
    """
    if not shown:
        yield no_progress
    elif sys.stderr.isatty():
        with tqdm(
            total=total or None, initial=done, desc=name, unit=unit, unit_scale=True, leave=False, dynamic_ncols=True
        ) as bar:
            yield bar.update
    else:
        started = last = time.monotonic()
        so_far = done

        def advance(new: int) -> None:
            nonlocal so_far, last
            so_far, now = so_far + new, time.monotonic()
            if now - last >= INTERVAL:
                last = now
                line = tqdm.format_meter(
                    so_far, total, now - started, prefix=name, unit=unit, unit_scale=True, initial=done,
                    bar_format="{desc}: {percentage:.0f}%, {n_fmt} of {total_fmt}{unit}, {rate_fmt}, {remaining} left"
                    if total else "{desc}: {n_fmt}{unit}, {rate_fmt}",
                )  # fmt: skip
                print(line, file=sys.stderr, flush=True)

        yield advance


class _ChildError(Exception):
    """Where in a child an error was raised."""


def obey_parent(parent: int) -> None:
    """Set up a child process: it ends when the process `parent` says so or is gone.

    Ctrl-C, a closed terminal's SIGHUP and a job's SIGTERM reach every process of the group; the parent alone
    decides what they mean.
    A child that outlived its parent would hold the lock of the run directory, which it inherits.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))

    def end_without() -> None:  # if the kernel does not do it, or the parent ended before it was set up
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=end_without, daemon=True).start()


def in_child(function: Callable[..., T], *arguments: Any) -> T:
    """`function(*arguments)`, computed by a child process, so that signals end the wait for long native code.

    Function, arguments and result must pickle. An NmtError is raised here as there; any other error is a DataError.

    Raises:
        DataError: the child was killed.
    """
    with _servants(function, 1) as (servant,):
        _send(servant, arguments, killed=_KILLED)
        value: T = _result(servant, killed=_KILLED)
        return value


def map_in_order(function: Callable[[S], T], items: Iterable[S], *, workers: int) -> Iterator[T]:
    """Like map(function, items), by `workers` child processes; two items for each are in memory.

    The function goes to a child once; items and results must pickle. An NmtError is raised here
    as there; any other error is a DataError. Raises DataError when a child was killed.
    """
    with _servants(function, workers) as servants:
        busy: deque[Connection] = deque()
        for number, item in enumerate(items):
            if len(busy) == 2 * workers:
                yield _result(busy.popleft(), killed=_KILLED_ENCODING)
            servant = servants[number % workers]  # in turn, so that results come in order
            _send(servant, (item,), killed=_KILLED_ENCODING)
            busy.append(servant)
        while busy:
            yield _result(busy.popleft(), killed=_KILLED_ENCODING)


@contextmanager
def _servants(function: Callable[..., Any], count: int) -> Iterator[list[Connection]]:
    """Connections to `count` children that answer arguments with the function's result."""
    # Forking spares children the import of this package, but is safe on Linux alone.
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    connections, children = [], []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            child = context.Process(target=_serve, args=(theirs, os.getpid(), function), daemon=True)
            child.start()
            theirs.close()
            connections.append(ours)
            children.append(child)
        yield connections
    finally:
        for child in children:
            child.kill()
            child.join()
        for connection in connections:
            connection.close()


def _send(servant: Connection, arguments: tuple[Any, ...], *, killed: str) -> None:
    try:
        servant.send(arguments)
    except (BrokenPipeError, ConnectionResetError):
        raise DataError(killed) from None


def _result(servant: Connection, *, killed: str) -> Any:
    try:
        result, error, details = servant.recv()
    except (EOFError, ConnectionResetError):
        raise DataError(killed) from None
    if error is not None:
        error.__cause__ = _ChildError(f"\n{details}") if details else None
        raise error
    return result


def _serve(connection: Connection, parent: int, function: Callable[..., Any]) -> None:
    obey_parent(parent)
    waiting: queue.Queue[Any] = queue.Queue()
    # In a thread of its own, since OpenMP would wait in ours for threads of the parent, which a fork does not copy.
    threading.Thread(target=_answer, args=(connection, function, waiting), daemon=True).start()
    try:
        while True:  # taken off the pipe at once: a parent that waits to send would not take our result
            waiting.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)


def _answer(connection: Connection, function: Callable[..., Any], waiting: queue.Queue[Any]) -> None:
    while True:
        answer: tuple[Any, NmtError | None, str]
        try:
            answer = (function(*waiting.get()), None, "")
        except NmtError as error:
            answer = (None, error, "")
        except Exception as error:  # in the command's words for it, as its class may not be picklable
            if is_out_of_memory(error):
                known = DataError("a process that prepares the text is out of memory; lower data.workers")
                answer = (None, known, "")
            else:
                said = plugin_error(error) or f"internal error: {worded(error)}"
                known = DataError(f"{said} (--debug shows the traceback)")
                answer = (None, known, "".join(traceback.format_exception(error)))
        connection.send(answer)
