"""A server from its start to its end: the port, the model, signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import FrameType
from typing import Any, Final

import uvicorn

from nmt.errors import ConfigError, NmtError
from nmt.interop.engine.opened import are_engine_files
from nmt.library.translator import Translator
from nmt.serving.app import create_app
from nmt.serving.service import WARM_UP, Service
from nmt.serving.settings import Settings

Load = Callable[[], tuple[Translator, Mapping[str, Any]]]
"""Loads the model; returns it and the default options of requests."""
BACKLOG: Final = 2048
SECONDS_TO_SEND: Final = 10
"""Within which clients must read their answers when the server ends."""

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
    server = _Server(
        uvicorn.Config(
            create_app(service),
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SECONDS_TO_SEND,
        ),
        service,
    )
    running = asyncio.create_task(server.serve(sockets=[listening]))
    loading = asyncio.create_task(asyncio.to_thread(_loaded, load))
    await asyncio.wait({running, loading}, return_when=asyncio.FIRST_COMPLETED)
    try:
        translator, defaults = await loading
        service.start(translator, defaults)
        _log.info("kernels: %s", translator.kernels)
        if translator.without_kernels:
            _log.warning("translation is several times slower than possible: %s", translator.without_kernels)
        _log.info("serving %s on %s", ", ".join(models), _address(listening))
        await running
    finally:
        server.should_exit = True
        await asyncio.wait({running})
        service.close()
    return server.received or 0


def _loaded(load: Load) -> tuple[Translator, Mapping[str, Any]]:
    """The model, which has translated once: what is wrong with it, or with the options, shows at the start."""
    translator, defaults = load()
    translator.translate(WARM_UP, **defaults)
    return translator, defaults


class _Server(uvicorn.Server):
    """Ends as the other commands do: by the first signal when all is answered, by the second at once."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._draining: asyncio.Task[None] | None = None
        self.received: int | None = None
        """The signal that ends it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        wanted = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
            wanted.append(signal.SIGHUP)
        previous = {number: signal.signal(number, self.handle_exit) for number in wanted}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.received is not None or self._service.status == "loading":
            _log.warning("ended at once by %s", signal.Signals(sig).name)
            os._exit(128 + sig)
        self.received = sig
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        async def drain() -> None:
            await self._service.drain()
            self.should_exit = True

        self._draining = asyncio.create_task(drain())


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
