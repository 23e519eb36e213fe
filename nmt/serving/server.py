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
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import FrameType
from typing import Any, Final, NoReturn

from nmt.errors import ConfigError, NmtError
from nmt.interop.engine.opened import are_engine_files
from nmt.library.translator import Translator
from nmt.serving.app import create_app
from nmt.serving.connections import Connections
from nmt.serving.service import WARM_UP, Service
from nmt.serving.settings import Settings

Load = Callable[[], tuple[Translator, Mapping[str, Any]]]
"""Loads the model; returns it and the default options of requests."""
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

    Raises:
        ConfigError: a host that is not known; what `load` raises.
        NmtError: the port cannot be listened on.
    """
    listening = _listen(host, port)
    with contextlib.closing(listening):
        return asyncio.run(_serve(load, settings, models=models, listening=listening))


async def _serve(load: Load, settings: Settings, *, models: Sequence[str], listening: socket.socket) -> int:
    doors = ("file",) if are_engine_files(models) else ("run",)
    service = Service(settings, name=", ".join(PurePath(model).name for model in models), doors=doors)
    connections = Connections(create_app(service), listening, settings)
    end = _End(service, connections, settings.timeout)
    with end.signals():
        connections.open()
        try:
            translator, defaults = await asyncio.to_thread(_loaded, load)
            service.start(translator, defaults)
            _log.info("kernels: %s", translator.kernels)
            if translator.without_kernels:
                _log.warning("translation is several times slower than possible: %s", translator.without_kernels)
            _log.info("serving %s on %s", ", ".join(models), _address(listening))
            await end.wait()
        finally:
            # It waits for what is being computed, which nobody needs any more.
            closing = threading.Thread(target=service.close, daemon=True)
            closing.start()
            closing.join(SECONDS_TO_CLOSE)
    return end.number or 0


def _loaded(load: Load) -> tuple[Translator, Mapping[str, Any]]:
    """The model, which has translated once: what is wrong with it, or with the options, shows at the start."""
    translator, defaults = load()
    translator.translate(WARM_UP, **defaults)
    return translator, defaults


class _End:
    """Ends a server as the other commands end: by the first signal when all is answered, by the second at once."""

    def __init__(self, service: Service, connections: Connections, timeout: float) -> None:
        self._service = service
        self._connections = connections
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._signalled = asyncio.Event()
        self._until = math.inf
        self.number: int | None = None
        """The signal that ends it."""

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Handle the signals that end a server."""
        wanted = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
            wanted.append(signal.SIGHUP)
        previous = {number: signal.signal(number, self._handle) for number in wanted}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    async def wait(self) -> None:
        """Wait for a signal, and then until all that had been accepted is answered; what comes meanwhile gets 503.

        A request has its answer, or 504, within the time limit of requests. So the process is gone after that, whatever
        a thread may still compute.
        """
        await self._signalled.wait()
        self._connections.stop()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._service.drain(), self._timeout)
        await self._connections.close(self._until)
        _exit_within(2 * SECONDS_TO_CLOSE, self.number or 0)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.number is not None or self._service.status == "loading":
            _exit(number, f"ended at once by {name}")
        self.number = number
        self._until = self._loop.time() + self._timeout + SECONDS_TO_SEND
        _exit_within(self._timeout + SECONDS_TO_SEND + 3 * SECONDS_TO_CLOSE, number, f"ended by {name}, late")
        self._loop.call_soon_threadsafe(self._signalled.set)


def _exit_within(seconds: float, number: int, message: str = "") -> None:
    """End the process after so many seconds if it has not ended by then. No thread can be stopped from outside, and
    Python waits at its end for one that computes."""
    timer = threading.Timer(seconds, _exit, (number, message))
    timer.daemon = True
    timer.start()


def _exit(number: int, message: str) -> NoReturn:
    if message:
        _log.warning(message)
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(128 + number)


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


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
