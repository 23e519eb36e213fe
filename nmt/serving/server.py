"""A server from its start to its end: the port, the model, signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import FrameType
from typing import Any, Final

from nmt.errors import ConfigError, NmtError
from nmt.interop.engine.opened import are_engine_files
from nmt.library.translator import Translator
from nmt.serving import IS_LIGHT
from nmt.serving.app import create_app
from nmt.serving.connections import Connections
from nmt.serving.limits import RefusedError, Settings
from nmt.serving.service import Load, Service

BACKLOG: Final = 2048
SECONDS_TO_SEND: Final = 0.5
"""For the last answers, when the time of all requests is over and the server ends."""
SECONDS_TO_CLOSE: Final = 0.5
"""For the thread that computes, when nobody waits for it any more."""

_log = logging.getLogger("nmt.serving.status")


def serve(load: Load, settings: Settings, *, models: Sequence[str], host: str, port: int) -> int:
    """Serve until a signal ends it, and return its number. All accepted requests are answered then.

    `models` are its files or folders as the user named them. A second signal, or one while the model is loaded, ends
    the process at once.

    Raises ConfigError for an unknown host, NmtError for a port that cannot be listened on, and what `load` raises.
    """

    async def run(listening: socket.socket) -> int:
        return await _Server(load, settings, models, listening).run()

    with contextlib.closing(_listen(host, port)) as listening:
        return asyncio.run(run(listening))


class _Server:
    """In a running loop. It ends as the other commands end: by the first signal when all is answered, by the second at
    once. SIGHUP reloads the model, unless it says that the terminal has been closed: then it is a signal to end, too.
    """

    def __init__(self, load: Load, settings: Settings, models: Sequence[str], listening: socket.socket) -> None:
        self._load, self._models, self._listening, self._timeout = load, models, listening, settings.timeout
        self._is_file = are_engine_files(models)
        name = ", ".join(PurePath(model).name for model in models)
        doors = ("file", "light") if IS_LIGHT else ("file",) if self._is_file else ("run",)
        self._service = Service(settings, name=name, doors=doors)
        self._connections = Connections(create_app(self._service), listening, settings)
        self._loop = asyncio.get_running_loop()
        self._signalled = asyncio.Event()
        self._had_terminal = _has_terminal()
        self._told_to_reload = asyncio.Event()
        self._until = math.inf
        self._number = 0
        """The signal that ends it."""

    async def run(self) -> int:
        """Serve until a signal ends it; return its number."""
        wanted = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
            wanted.append(signal.SIGHUP)
        previous = {number: signal.signal(number, self._handle) for number in wanted}
        try:
            self._connections.open()
            await self._service.open(self._opened)
            host, port = self._listening.getsockname()[:2]
            place = f"[{host}]" if ":" in host else host
            _log.info("serving %s on http://%s:%s", ", ".join(self._models), place, port)
            reloading = asyncio.create_task(self._reload_when_told())
            await self._wait()
            reloading.cancel()
        finally:
            # It waits for what is being computed, which nobody needs any more.
            closing = threading.Thread(target=self._service.close, daemon=True)
            closing.start()
            closing.join(SECONDS_TO_CLOSE)
            for number, handler in previous.items():
                signal.signal(number, handler)
        return self._number

    def _opened(self) -> tuple[Translator, Mapping[str, Any]]:
        if are_engine_files(self._models) != self._is_file:  # clients have been told what it can do
            kind = "one file for the engine" if self._is_file else "a run or an exported folder"
            raise ConfigError(f"{self._models[0]}: is of another kind than when the server started. Allowed: {kind}.")
        return self._load()

    async def _reload_when_told(self) -> None:
        """Reload after each SIGHUP; once for those that arrive during a reload, as the files may have changed since."""
        while True:
            await self._told_to_reload.wait()
            self._told_to_reload.clear()
            with contextlib.suppress(RefusedError):  # the log says it
                await self._service.reload()

    async def _wait(self) -> None:
        """Wait for a signal, and then until all that had been accepted is answered; what comes meanwhile gets 503.

        A request has its answer, or 504, within the time limit of requests. So the process is gone after that, whatever
        a thread may still compute.
        """
        await self._signalled.wait()
        self._connections.stop()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._service.drain(), self._timeout)
        await self._connections.close(self._until)
        _exit_within(2 * SECONDS_TO_CLOSE, self._number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP and _has_terminal() == self._had_terminal:
            self._loop.call_soon_threadsafe(self._told_to_reload.set)
            return
        if self._number or self._service.status == "loading":
            with contextlib.suppress(Exception):  # the signal may have come while the same was being done
                _log.warning("ended at once by %s", signal.Signals(number).name)
            os._exit(128 + number)
        self._number = number
        self._until = self._loop.time() + self._timeout + SECONDS_TO_SEND
        _exit_within(self._timeout + SECONDS_TO_SEND + 3 * SECONDS_TO_CLOSE, number)
        self._loop.call_soon_threadsafe(self._signalled.set)


def _exit_within(seconds: float, number: int) -> None:
    """End the process after so many seconds if it has not ended by then, without a word, for which it might wait, too.

    No thread can be stopped from outside, and Python waits at its end for one that computes.
    """
    timer = threading.Timer(seconds, os._exit, [128 + number])
    timer.daemon = True
    timer.start()


def _has_terminal() -> bool:
    """Whether a terminal controls this process."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, on the first of the addresses that a name has."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not a name"
        raise ConfigError(f"--host {host}: {reason}. Allowed: a name or an address of this machine.") from None
    try:
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used for listening: {error.strerror}"
        raise NmtError(f"--port {port}: {host}:{port} {reason}") from None
    # Connections inherit it. Without it the second half of an answer waits 40 ms until the client confirms the first;
    # asyncio sets it only on sockets that it has created.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
