"""Child processes that encode text and train tokenizers: how they start, and that they end with their parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from nmt.errors import DataError, NmtError

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


def process_context() -> BaseContext:
    """How children start: forking spares them the import of this package, but is safe on Linux alone."""
    return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def obey_parent(parent: int) -> None:
    """Set up a child process: it ends when the process `parent` says so or is gone.

    Ctrl-C and a job's SIGTERM reach every process of the group; the parent alone decides what they mean.
    A child that outlived its parent would hold the lock of the run directory, which it inherits.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()


def _end_without(parent: int) -> None:
    """Where the kernel does not do it, or the parent was gone before it was told to."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def in_child(function: Callable[..., T], *arguments: Any) -> T:
    """`function(*arguments)`, computed by a child process, so that signals end the wait for long native code.

    Function, arguments and result must pickle. An NmtError is raised here as there.

    Raises:
        DataError: the child was killed.
    """
    context: Any = process_context()
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_call, args=(sender, os.getpid(), function, arguments), daemon=True)
    child.start()
    sender.close()
    try:
        result, error = receiver.recv()
    except EOFError:
        raise DataError("a process that prepares the text was killed, perhaps for lack of memory") from None
    finally:
        child.kill()
        child.join()
        receiver.close()
    if error is not None:
        raise error
    value: T = result
    return value


def _call(sender: Connection, parent: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    obey_parent(parent)
    try:
        sender.send((function(*arguments), None))
    except NmtError as error:
        sender.send((None, error))
