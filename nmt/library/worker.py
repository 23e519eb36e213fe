"""The process that computes for a program that has already imported torch; it has its own thread settings.

It is started by `nmt.library.client` and ends with the program. Messages are pickled tuples, sent over a private
socket. Requests are (number, method, arguments); (number, "cancel", None) ends one. Answers are (number, "result",
value) or (number, "error", Failure); log records are sent as (None, "log", (logger, level, text)).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from nmt.library.failures import Failure
from nmt.light.binding import Stop
from nmt.light.errors import StoppedError

if TYPE_CHECKING:
    from nmt.library.engine import Engine

THREADS = 8
"""Most requests at a time; they take turns from batch to batch."""


class Worker:
    """Answers requests until the program closes the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._begun: dict[int, Stop] = {}
        self._engine: Engine

    def run(self) -> None:
        """Load the models named in the first message, then answer."""
        pool = ThreadPoolExecutor(THREADS)
        with contextlib.suppress(EOFError, OSError):
            self._answer(*self._connection.recv())
            while True:
                number, method, arguments = self._connection.recv()
                if method == "cancel":
                    if (stop := self._begun.get(number)) is not None:
                        stop.set()
                else:
                    self._begun[number] = Stop()
                    pool.submit(self._answer, number, method, arguments)

    def say(self, number: int | None, kind: str, value: object) -> None:
        """Send a message; `run` notices if the program has gone away."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.send((number, kind, value))

    def _answer(self, number: int, method: str, arguments: dict[str, Any]) -> None:
        try:
            self.say(number, "result", self._do(number, method, arguments))
        except StoppedError:
            pass  # the program no longer waits
        except BaseException as error:
            self.say(number, "error", Failure.of(error))
        finally:
            self._begun.pop(number, None)

    def _do(self, number: int, method: str, arguments: dict[str, Any]) -> object:
        if method == "load":
            from nmt.library.engine import Engine
            from nmt.training.allocator import keep_large_blocks

            keep_large_blocks()
            self._engine = Engine(**arguments)
            return self._engine.facts
        if method == "check":
            self._engine.check(**arguments)
            return None
        if method == "joined":
            return self._engine.joined(**arguments)
        if method in ("hypotheses", "parts"):
            return getattr(self._engine, method)(**arguments)
        stop = self._begun[number]
        stop.check()
        if method == "inspect":
            return self._engine.inspect(**arguments)
        work = self._engine.translate if method == "translate" else self._engine.score
        return work(**arguments, stop=stop)


class Forward(logging.Handler):
    """Sends log records to the program, whose handlers and levels apply."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(logging.WARNING)
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        self._worker.say(None, "log", (record.name, record.levelno, record.getMessage()))


def _end_without(parent: int) -> None:
    """End when the program is gone, even if another process forked from it holds the connection open."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main(descriptor: int, parent: int) -> None:
    """Serve the program with the process id `parent` over this socket."""
    # Ctrl-C and a job's SIGTERM reach every process of the group; only the program reacts to them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()
    worker = Worker(Connection(descriptor))
    logger = logging.getLogger("nmt")
    logger.addHandler(Forward(worker))
    logger.propagate = False
    worker.run()
    os._exit(0)  # running computations have no receiver
