"""Connections of HTTP/1.1 clients: how many there may be, how long each is waited for, and how all of them end.

A connection costs a descriptor and some memory; without limits its client would decide how many there are, and how long
each is kept. So a server waits for a client at most `timeout` at a time: for the header of a request, for the next
request, and until an answer has been read (for a body, and for a translation, the application does). If there are as
many as there may be, the one that has been waited for longest makes room; if all have requests that are being answered,
the new one gets 503. h11 knows the protocol; ASGI is how the application is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ipaddress
import json
import logging
import resource
import socket
import struct
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import h11
from starlette.types import ASGIApp, Message

from nmt.errors import ConfigError
from nmt.serving.limits import DRAINING, SOON, Settings
from nmt.serving.websockets import REFUSED, UNREAD_BYTES, WebSocket, answer_of

USUAL_CONNECTIONS: Final = 1000
OWN_DESCRIPTORS: Final = 64
"""Of the process besides its connections: the model, the log, listening, and the two numbers below."""
ACCEPTED_AT_ONCE: Final = 16
REFUSED_AT_ONCE: Final = 16
"""Above the limit; further connections are closed without waiting until their 503 has been read."""
HEADER_BYTES: Final = 32_768
TARGET_BYTES: Final = 8_192
READ_AT_ONCE: Final = 16_384
"""h11 limits what is incomplete. It gets so much at a time that a header that has come at once is limited, too."""
MOST_CHUNKS: Final = 4_096
"""Of a body; parsing one takes as long as parsing 10 kB that are not in pieces."""
BODIES_AT_ONCE: Final = 64
"""Largest bodies that requests which are not answered yet may have together."""
SOCKETS: Final = frozenset({"/live"})
"""Paths of WebSockets."""
ANSWER: Final = "nmt.answer"
"""The key of a scope that has what accepts a WebSocket."""
SOCKET: Final = "nmt.socket"
"""The key of a scope that has the WebSocket itself."""
TICK: Final = 1.0
"""Seconds; connections are closed so much too late at most."""
RETRY: Final = 0.5
LOOKS: Final = 0.5
HANDSHAKE: Final = 0.1
LAST_WORDS: Final = 1.0
"""Seconds in which clients close their connections, at the end, when they have been told so."""

_log = logging.getLogger("nmt.serving.status")
_access = logging.getLogger("nmt.serving.access")
_errors = logging.getLogger("nmt.serving.errors")


class Connections:
    """All of a server, from `open` to `close`."""

    def __init__(self, app: ASGIApp, listening: socket.socket, settings: Settings) -> None:
        self.app = app
        self.headers: list[tuple[bytes, bytes]] = []
        """Of every answer."""
        self.tasks: set[asyncio.Task[Any]] = set()
        self.held = 0
        """Bytes of bodies of requests that are not answered yet."""
        self.most_held = BODIES_AT_ONCE * settings.max_body_bytes
        self.timeout = settings.timeout
        self.most_bytes = settings.max_body_bytes
        self.is_closing = False
        self._is_stopping = False
        self._listening = listening
        self._most = most_connections(settings.max_connections)
        self._proxies = [ipaddress.ip_network(address) for address in settings.trusted_proxies]
        self.all: set[Connection] = set()
        self.refused: set[Connection] = set()
        """Above the limit; they end when they have read that."""
        self._connecting = 0
        """Connections that are accepted, and about to be in `all`."""
        self.waiting: dict[Connection, float] = {}
        """Those that wait for their clients, and until when; the oldest is the first."""
        self._warned: dict[str, float] = {}
        self.loop = asyncio.get_running_loop()

    def open(self) -> None:
        """Accept connections."""
        self._listening.setblocking(False)
        self._listen()
        self._sweep()

    def _listen(self) -> None:
        if not self.is_closing:
            self.loop.add_reader(self._listening, self._accept)

    def stop(self) -> None:
        """Close each connection after its next answer; what the application answers is its own affair."""
        self._is_stopping = True
        self._set_headers()

    async def close(self, until: float) -> None:
        """Close all connections: those that wait with 503, the others when they are answered, and at `until` (a time of
        the loop) those that still have not read their answers.

        Nothing that has been accepted, or could be, is reset while it waits for its answer.
        """
        _accept_no_handshake(self._listening)
        await asyncio.sleep(HANDSHAKE)
        self.is_closing = True
        self.loop.remove_reader(self._listening)
        while self._accept():
            pass
        self._listening.close()
        while self._connecting:
            await asyncio.sleep(0)
        for connection in list(self.waiting):
            connection.leave()
        soon = min(until, self.loop.time() + LAST_WORDS)
        while (left := self.all | self.refused) and self.loop.time() < until:
            if self.loop.time() >= soon and all(connection.is_silent for connection in left):
                break
            await asyncio.sleep(0.01)
        for connection in left:
            connection.abort()
        self._sweeper.cancel()
        await asyncio.sleep(0)  # in which transports close their sockets

    def waits(self, connection: Connection) -> None:
        """From now on a connection waits for its client."""
        self.waiting.pop(connection, None)
        self.waiting[connection] = self.loop.time() + self.timeout

    def lost(self, connection: Connection) -> None:
        """A connection is no more."""
        self.all.discard(connection)
        self.refused.discard(connection)
        self.waiting.pop(connection, None)

    def client_of(self, peer: tuple[str, int], headers: Sequence[tuple[bytes, bytes]]) -> tuple[str, int]:
        """The client of a request: its peer or, behind proxies that are trusted, whom the last of them has named."""
        named = [part for name, value in headers if name == b"x-forwarded-for" for part in value.split(b",")]
        while named and self._proxies:
            address = ipaddress.ip_address(peer[0].partition("%")[0])
            address = getattr(address, "ipv4_mapped", None) or address
            if not any(address in network for network in self._proxies):
                break
            try:
                peer = (str(ipaddress.ip_address(named.pop().decode("latin-1").strip())), 0)
            except ValueError:
                break
        return peer

    def _accept(self) -> bool:
        """Accept some of the connections that have come; whether there may be more."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return False
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # No descriptor or no memory is left. The connection stays in the queue of the system, which would call
                # this again at once, for ever.
                self._warn("accept", f"no connection can be accepted: {error.strerror}. Trying again.")
                self._make_room()
                if not self.is_closing:
                    self.loop.remove_reader(self._listening)
                    self.loop.call_later(RETRY, self._listen)
                return False
            self._admit(client)
        return True

    def _admit(self, client: socket.socket) -> None:
        client.setblocking(False)
        opened = len(self.all) + self._connecting
        is_full = opened >= self._most
        if is_full:
            self._warn("most", f"{self._most:,} connections are open, which --max-connections allows; some are refused")
        is_refused = is_full and not self._make_room()
        if is_refused and len(self.refused) >= REFUSED_AT_ONCE:
            with client, contextlib.suppress(OSError):
                client.send(refusal(503, _FULL, SOON))
            return

        async def connect() -> None:
            try:
                await self.loop.connect_accepted_socket(lambda: Connection(self, is_refused=is_refused), client)
            except OSError:  # it has gone
                client.close()
            finally:
                self._connecting -= 1

        self._connecting += 1
        self.run(connect())

    def run(self, work: Any) -> None:
        """Run a coroutine as a task."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _make_room(self) -> bool:
        """Close the connection that has been waited for longest, if there is one."""
        connection = next((one for one in self.waiting if not one.is_refused), None)
        if connection is not None:
            connection.leave(_FULL)
            connection.abort()
            self.lost(connection)
        return connection is not None

    def _sweep(self) -> None:
        """Close connections that have been waited for long enough."""
        now = self.loop.time()
        for connection in [one for one, until in self.waiting.items() if until <= now]:
            connection.late()
        self._set_headers()
        self._sweeper = self.loop.call_later(min(TICK, self.timeout), self._sweep)

    def _set_headers(self) -> None:
        self.headers = [(b"date", formatdate(usegmt=True).encode())]
        if self._is_stopping:
            self.headers.append((b"connection", b"close"))

    def _warn(self, kind: str, message: str) -> None:
        """Log a warning, at most one of a kind in a minute."""
        now = self.loop.time()
        if now >= self._warned.get(kind, 0):
            self._warned[kind] = now + 60
            _log.warning(message)


class Connection(asyncio.Protocol):
    """One client: its requests one after the other, each answered before the next is looked at."""

    def __init__(self, connections: Connections, *, is_refused: bool) -> None:
        self.of = connections
        self.http = h11.Connection(h11.SERVER, HEADER_BYTES)
        self.transport: asyncio.Transport
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.is_refused = is_refused
        self._exchange: Exchange | None = None
        """The request that is being answered."""
        self._socket: WebSocket | None = None
        """What the connection has become."""
        self._has_begun = False
        """The header of a request."""
        self._is_paused = False
        self._has_eof = False
        self._is_ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._peer = (transport.get_extra_info("peername") or ("-", 0))[:2]
        self._server = (transport.get_extra_info("sockname") or ("-", 0))[:2]
        (self.of.refused if self.is_refused else self.of.all).add(self)
        self.of.waits(self)
        if self.is_refused or self.of.is_closing:
            self.leave(_FULL if self.is_refused else DRAINING)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        for start in range(0, len(data), READ_AT_ONCE):
            if self._is_ending:
                return
            if self._socket is not None:
                self._socket.received(data[start:])
                return
            self._has_begun = True
            self.http.receive_data(data[start : start + READ_AT_ONCE])
            self._advance()

    def eof_received(self) -> bool:
        """The client sends nothing more. Whether it still reads is not said.

        TCP closes each direction alone. What arrives of a client that has closed both is the same as of one that waits
        for its answer (`nc -N`): that nothing more is coming. So a request that is complete is answered. If the client
        is gone, its system answers the first bytes that it gets with a reset, which the state of the socket shows:
        `_look` sends such bytes while the answer takes time.
        """
        if self._is_ending or self._socket is not None:
            return False
        self._has_eof = True
        self.http.receive_data(b"")
        self._advance()
        if self._exchange is not None:
            self.of.loop.call_later(LOOKS, self._look, 1)
        return self._exchange is not None

    def _look(self, times: int) -> None:
        """Notice that a client whose writing half is closed has gone; `times`: how often that has been looked for."""
        if self._exchange is None or self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.abort()
            return
        if times > 1 and times & (times - 1) == 0 and self.http.their_http_version != b"1.0":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # which any client must skip, as often as it comes
        self.of.loop.call_later(LOOKS, self._look, times + 1)

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        self.of.lost(self)
        self._drop_exchange()
        if self._socket is not None:
            self._socket.lost()
        self.can_write.set()

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        self.can_write.clear()
        self.of.waits(self)

    def resume_writing(self) -> None:
        """The client reads again."""
        self.can_write.set()
        if self._exchange is not None or self._socket is not None:
            self.of.waiting.pop(self, None)

    @property
    def is_silent(self) -> bool:
        """Nothing is to be sent any more."""
        is_open = self._socket is not None and not self._socket.is_closed
        return self._exchange is None and not is_open and not self.transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Leave what arrives to the system, which lets the client wait."""
        if not self._is_paused and not self._has_eof:
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    def answered(self) -> None:
        """The answer to the request is written."""
        assert self._exchange is not None
        self.of.held -= self._exchange.size
        self._exchange = None
        self.of.waits(self)
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            self._end()
            return
        self.http.start_next_cycle()
        self._has_begun = False
        self.resume_reading()
        self._advance()

    def late(self) -> None:
        """The client has been waited for long enough."""
        if self._is_ending or self.transport.get_write_buffer_size():
            self.abort()
        elif self._socket is not None:
            self.of.waits(self)
            self._socket.end(f"message: none has come for {self.of.timeout:g} seconds", REFUSED)
        elif self._has_begun:
            self._refuse(408, f"header: has not arrived within {self.of.timeout:g} seconds")
        else:
            self.transport.close()

    def leave(self, message: str = DRAINING) -> None:
        """Tell a client that is waited for why it is not any more, in answer to what it may be sending just now."""
        if self._is_ending or self.transport.get_write_buffer_size():
            return
        if self._socket is not None:
            self._socket.leave(json.dumps({"error": message, "status": 503}).encode())
            self.ended()
        else:
            self._refuse(503, message, SOON)

    def abort(self) -> None:
        """Close without a word."""
        self.transport.abort()

    def _advance(self) -> None:
        """Take what has arrived to the request that is being answered, or begin the next one."""
        while not self._is_ending and self._socket is None:
            try:
                event = self.http.next_event()
            except h11.RemoteProtocolError as error:
                what = str(error).partition(":")[0]  # after a colon is what the client has sent
                if error.error_status_hint == 431:
                    what = f"has more than {HEADER_BYTES:,} bytes that should be a header"
                self._refuse(error.error_status_hint, f"request: {what}. Allowed: HTTP/1.1.")
                return
            if event is h11.NEED_DATA:
                return
            if event is h11.PAUSED:
                self.pause_reading()
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                assert self._exchange is not None
                self._add(self._exchange, event)
            elif isinstance(event, h11.EndOfMessage):
                assert self._exchange is not None
                self._exchange.is_whole = True
                self._exchange.has_come.set()
            elif isinstance(event, h11.ConnectionClosed):
                if self._exchange is None:
                    self._end()
                return

    def _begin(self, request: h11.Request) -> None:
        headers = list(request.headers)
        names = [name for name, _ in headers]
        if b"transfer-encoding" in names and b"content-length" in names:
            # The next reader of these bytes may believe the other one, and take the body for a request.
            self._refuse(400, "Transfer-Encoding: together with Content-Length. Allowed: one of them.")
            return
        if len(request.target) > TARGET_BYTES:
            self._refuse(414, f"path: too long. Allowed: {TARGET_BYTES:,} bytes.")
            return
        path, _, query = request.target.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode("ascii"),
            "server": self._server,
            "client": self.of.client_of(self._peer, headers),
            "scheme": "http",
            "method": request.method.decode("ascii"),
            "root_path": "",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "headers": headers,
        }
        self.of.waiting.pop(self, None)
        upgrade = dict(headers).get(b"upgrade", b"").strip().lower()
        answer = answer_of(headers) if upgrade == b"websocket" and scope["path"] in SOCKETS else None
        if answer is not None and request.method == b"GET" and isinstance(self.http.next_event(), h11.EndOfMessage):
            self._socket = WebSocket(self, most=self.of.most_bytes)
            self.of.run(
                self._talk({**scope, "type": "websocket", "scheme": "ws", ANSWER: answer, SOCKET: self._socket})
            )
            self._socket.received(self.http.trailing_data[0])
            return
        self._exchange = Exchange(self, scope)
        self.of.run(self._exchange.run())

    async def _talk(self, scope: dict[str, Any]) -> None:
        """Let the application answer the messages of a WebSocket."""
        assert self._socket is not None
        try:
            await self.of.app(scope, self._socket.receive, self._socket.send)
        except Exception:
            _errors.exception("internal error")
        if not self._socket.is_closed:
            self.abort()

    def ended(self) -> None:
        """The last bytes of a WebSocket are written."""
        if not self._is_ending:
            self._end()

    def _add(self, exchange: Exchange, data: h11.Data) -> None:
        exchange.body += data.data
        exchange.size += len(data.data)
        self.of.held += len(data.data)
        exchange.chunks += data.chunk_start
        if exchange.chunks > MOST_CHUNKS:
            self._refuse(400, f"body: in more than {MOST_CHUNKS:,} chunks. Allowed: fewer.")
        elif self.of.held > self.of.most_held:
            self._refuse(503, "too many bodies arrive at the same time. Try again later.", SOON)
        elif len(exchange.body) > UNREAD_BYTES:
            self.pause_reading()
        exchange.has_come.set()

    def _refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Answer what is not a request for the application, and close."""
        if self._exchange is not None and self._exchange.has_begun:  # half of another answer is sent
            self.abort()
            return
        fields = {"client": self._peer[0], "status": status}
        _access.info("%s - %d %s", self._peer[0], status, message, extra={"fields": fields})
        self.transport.write(refusal(status, message, headers or {}))
        self._drop_exchange()
        self._end()

    def _drop_exchange(self) -> None:
        if self._exchange is not None:
            self.of.held -= self._exchange.size
            self._exchange.is_over = True
            self._exchange.has_come.set()
            self._exchange = None

    def _end(self) -> None:
        """Close when all is sent and, if the client may still be sending, when that has come to its end.

        Bytes that arrive at a closed socket are answered with a reset, at which many clients forget an answer that they
        have not read (RFC 9112, 9.6). So the writing half is closed first, and what arrives meanwhile is dropped.
        """
        self._is_ending = True
        self.of.waits(self)
        if self._has_eof or self.http.their_state in (h11.MUST_CLOSE, h11.CLOSED):
            self.transport.close()
        else:
            with contextlib.suppress(OSError):  # the client has gone
                self.transport.write_eof()
            self.resume_reading()


class Exchange:
    """A request and its answer, as ASGI has them."""

    def __init__(self, connection: Connection, scope: dict[str, Any]) -> None:
        self._connection = connection
        self._scope = scope
        self.body = bytearray()
        """What has come of it, and not been asked for."""
        self.is_whole = False
        self.size = 0
        self.chunks = 0
        self.has_come = asyncio.Event()
        self.has_begun = False
        """The answer, to be sent."""
        self.is_over = False
        """It is answered, or the client has gone."""
        self._head = b""

    async def run(self) -> None:
        """Let the application answer it."""
        try:
            await self._connection.of.app(self._scope, self.receive, self.send)
        except Exception:
            _errors.exception("internal error")
        if not self.is_over:
            self._connection.abort()

    async def receive(self) -> Message:
        """See ASGI: the next part of the body; when that is over, wait for the client to go."""
        http = self._connection.http
        if not self.is_over:
            if http.they_are_waiting_for_100_continue:
                go_on = http.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
                self._connection.transport.write(go_on)
            self._connection.resume_reading()
            await self.has_come.wait()
            self.has_come.clear()
        if self.is_over:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": not self.is_whole}

    async def send(self, message: Message) -> None:
        """See ASGI: the beginning of the answer, or the next part of it."""
        connection, http = self._connection, self._connection.http
        await connection.can_write.wait()
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = [*connection.of.headers, *message.get("headers", ())]
            self._head = http.send(h11.Response(status_code=status, headers=headers, reason=_phrase(status)))
            return
        body = b"" if self._scope["method"] == "HEAD" else message.get("body", b"")
        sent, self._head = self._head + http.send(h11.Data(data=body)), b""
        self.has_begun = True
        if message.get("more_body", False):
            connection.transport.write(sent)
            return
        connection.transport.write(sent + http.send(h11.EndOfMessage()))
        if not self.is_over:
            self.is_over = True
            self.has_come.set()
            connection.answered()


_FULL = "too many connections. Try again later."


def most_connections(wanted: int | None) -> int:
    """How many connections there may be at a time: fewer than the descriptors that this process may have.

    Raises ConfigError if more are wanted.
    """
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return wanted or USUAL_CONNECTIONS
    most = max(1, descriptors - min(OWN_DESCRIPTORS, descriptors // 2))
    if wanted is not None and wanted > most:
        raise ConfigError(
            f"--max-connections: {wanted:,} is too many: this process may open {descriptors:,} files (ulimit -n). "
            f"Allowed: at most {most:,}."
        )
    return wanted or min(USUAL_CONNECTIONS, most)


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""


def refusal(status: int, message: str, headers: dict[str, str]) -> bytes:
    """A whole answer, after which the connection is closed."""
    body = json.dumps({"error": message}).encode()
    fields = {"Content-Type": "application/json", "Content-Length": len(body), "Connection": "close", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, _phrase(status), lines.encode(), body)


def _accept_no_handshake(listening: socket.socket) -> None:
    """Let the system ignore clients that begin to connect; what has been connected can still be accepted.

    Between the last accept and the closing of a listening socket others connect, and are reset. No call of the system
    prevents that, but a filter (see socket(7)) that drops what has the flag SYN: such a client tries again, and is told
    that nobody listens. Where there are no filters, the time between is short.
    """
    program = struct.pack("HBBI" * 4, 0x30, 0, 0, 13, 0x45, 0, 1, 0x02, 0x06, 0, 0, 0, 0x06, 0, 0, 0xFFFFFFFF)
    place = ctypes.create_string_buffer(program)
    with contextlib.suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", 4, ctypes.addressof(place)))  # SO_ATTACH_FILTER
