"""The program's side of a worker process: it can be asked from any thread, and ends with the translator."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from multiprocessing import spawn
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from nmt.cpus import usable_cores
from nmt.environment import keep_more_kernels, prepare_environment
from nmt.errors import NmtError
from nmt.home import expanded
from nmt.library.computing import Facts
from nmt.library.failures import Failure
from nmt.library.inspection import Inspection
from nmt.library.request import Request
from nmt.library.results import PairScore, Result
from nmt.light.binding import Stop
from nmt.light.options import NONE, names_of

START = (
    "import json, sys; descriptor, parent, path = sys.argv[1:]; sys.path[:] = json.loads(path); "
    "from nmt.library.worker import main; main(int(descriptor), int(parent))"
)
"""Runs the worker with the program's own search path, so that it finds the same package. Unlike multiprocessing, it
does not import the program's modules, so the program needs no `if __name__ == "__main__":`."""
STOP_WAIT = 0.05
"""Seconds after which a thread that waits looks whether it is to stop."""
SHORT_WAIT = 5.0
"""Seconds to wait for a worker to end."""

Answer = tuple[str, Any]


class _Line:
    """The connection and all that its thread needs, so that the thread does not keep the translator alive."""

    def __init__(self, connection: Connection, process: subprocess.Popen[bytes]) -> None:
        self.connection = connection
        self.process = process
        self.sending = threading.Lock()
        self.guard = threading.Lock()
        self.waiting: dict[int, queue.SimpleQueue[Answer | None]] | None = {}
        """None once the worker has ended."""

    def listen(self) -> None:
        """Pass each answer to the thread that waits for it, until the worker ends."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                number, kind, value = self.connection.recv()
                if kind == "log":
                    name, level, text = value
                    logging.getLogger(name).log(level, "%s", text)
                    continue
                with self.guard:
                    waiting = (self.waiting or {}).pop(number, None)
                if waiting is not None:
                    waiting.put((kind, value))
        with self.guard:
            left, self.waiting = self.waiting or {}, None
        for waiting in left.values():
            waiting.put(None)


class Client:
    """Computes in a worker process; see `nmt.library.computing.Computing`."""

    facts: Facts

    def __init__(self, **arguments: Any) -> None:
        """Start the process and load there; arguments and errors are those of `Engine`."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = _start(theirs.fileno())
            except OSError as error:
                ours.close()
                raise NmtError(
                    f"the worker process cannot be started ({error}); try nmt.load(..., worker=False)"
                ) from error
        self._line = _Line(Connection(os.dup(ours.fileno())), process)
        self._numbers = itertools.count()
        self._owner = os.getpid()
        self.place = f"in worker process {process.pid}"
        self._end = weakref.finalize(self, _end, ours, process, self._owner)
        threading.Thread(target=self._line.listen, name="nmt worker", daemon=True).start()
        try:
            self.facts = self._ask("load", arguments)
        except BaseException:
            process.kill()  # it may still be loading, and answers only afterwards
            self.close()
            raise

    def check(self, options: dict[str, Any]) -> None:
        """Raise ConfigError or DataError for options that are not possible."""
        self._ask("check", {"options": _here(options)})

    def translate(
        self, sentences: Sequence[str | Request], options: dict[str, Any], *, stop: Stop | None = None
    ) -> list[Result]:
        """The results of some sentences, one line each, translated together; StoppedError after `stop.set()`."""
        found = self._ask("translate", {"sentences": list(sentences), "options": _here(options)}, stop=stop)
        return cast("list[Result]", found)

    def hypotheses(self, options: dict[str, Any]) -> int:
        """Hypotheses of a sentence that a search with such options computes at once."""
        return cast("int", self._ask("hypotheses", {"options": _here(options)}))

    def parts(self, sentences: Sequence[str | Request], options: dict[str, Any]) -> list[list[int]]:
        """The source tokens of each part in which each sentence, one line, would be translated."""
        asked = {"sentences": list(sentences), "options": _here(options)}
        return cast("list[list[int]]", self._ask("parts", asked))

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None) -> list[PairScore]:
        """The scores of (source, target) pairs, computed together."""
        return cast("list[PairScore]", self._ask("score", {"pairs": list(pairs), "batch_tokens": batch_tokens}))

    def inspect(self, source: str, target: str | None) -> Inspection:
        """The inner values of the models for a source (one line) and a target (default: the translation)."""
        return cast("Inspection", self._ask("inspect", {"source": source, "target": target}))

    def joined(self, lines: Sequence[str]) -> list[str]:
        """Target text in the form of translations, with subwords joined to words."""
        return cast("list[str]", self._ask("joined", {"lines": list(lines)}))

    def close(self) -> None:
        """End the process."""
        self._end()

    def _ask(self, method: str, arguments: dict[str, Any], *, stop: Stop | None = None) -> Any:
        """The worker's answer. Raises the worker's error, and NmtError if it has ended."""
        if self._owner != os.getpid():
            raise NmtError("this translator was loaded before its process forked; call nmt.load after forking")
        line, number, mine = self._line, next(self._numbers), queue.SimpleQueue[Answer | None]()
        with line.guard:
            if line.waiting is None or not self._end.alive:
                raise self._ended()
            line.waiting[number] = mine
        try:
            self._send((number, method, arguments))
            answer = mine.get() if stop is None else _unless(stop, mine)
        except BaseException:  # Ctrl-C, or stopped
            with line.guard:
                (line.waiting or {}).pop(number, None)
            with contextlib.suppress(OSError):
                self._send((number, "cancel", None))
            raise
        if answer is None:
            raise self._ended()
        kind, value = answer
        if kind == "error":
            failure: Failure = value
            raise failure.error()
        return value

    def _send(self, message: tuple[int, str, Any]) -> None:
        with self._line.sending:
            try:
                self._line.connection.send(message)
            except OSError:
                raise self._ended() from None

    def _ended(self) -> NmtError:
        if not self._end.alive:
            return NmtError("this translator is closed")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._line.process.wait(SHORT_WAIT)
        code = self._line.process.returncode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        return NmtError(
            f"the worker process {how}, perhaps for lack of memory; call nmt.load again to start another one"
        )


def _unless(stop: Stop, answers: queue.SimpleQueue[Answer | None]) -> Answer | None:
    """The answer; StoppedError soon after `stop.set()`."""
    while True:
        stop.check()
        with contextlib.suppress(queue.Empty):
            return answers.get(timeout=STOP_WAIT)


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    """Start the worker; it inherits the socket, standard output and standard error."""
    environment = dict(os.environ)
    prepare_environment(environment)
    keep_more_kernels(environment)
    if threads := _fewer_threads():
        environment["OMP_NUM_THREADS"] = str(threads)
    root = str(Path(__file__).resolve().parents[2])
    search = [os.path.abspath(entry) for entry in sys.path]  # '' is the current directory
    program = os.fsdecode(spawn.get_executable() or sys.executable)
    command = [program, "-c", START, str(descriptor), str(os.getpid())]
    return subprocess.Popen(
        [*command, json.dumps(search if root in search else [*search, root])],
        stdin=subprocess.DEVNULL,
        env=environment,
        pass_fds=[descriptor],
    )


def _fewer_threads() -> int | None:
    """The program's number of torch threads, if it is below torch's default."""
    if "torch" not in sys.modules:
        return None
    import torch

    return torch.get_num_threads() if torch.get_num_threads() < usable_cores() else None


def _here(options: dict[str, Any]) -> dict[str, Any]:
    """Options with absolute paths, because the other process may have another current directory."""
    paths = {
        name: os.path.abspath(expanded(value))
        for name in names_of("file", "model")
        if isinstance(value := options.get(name), str) and value != NONE
    }
    return {**options, **paths}


def _end(ours: socket.socket, process: subprocess.Popen[bytes], owner: int) -> None:
    """Close the connection, which ends the worker; in a forked process close only this end."""
    if os.getpid() != owner:
        ours.close()
        return
    with contextlib.suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)  # close alone would not interrupt the other thread's read
    ours.close()
    try:
        process.wait(SHORT_WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
