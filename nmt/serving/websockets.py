"""WebSockets (RFC 6455): frames of a connection that was a request, as messages of ASGI."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from starlette.types import Message

if TYPE_CHECKING:
    from nmt.serving.connections import Connection

_KEY: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUES, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_LONGEST_CONTROL: Final = 125
UNREAD_BYTES: Final = 65_536
"""Of messages or a body, until the application asks for them."""
_WAITING: Final = 16
"""Messages that the application has not asked for; reading pauses until it does."""
GOING_AWAY, PROTOCOL, NOT_TEXT, REFUSED, TOO_LARGE, INTERNAL, LATER = 1001, 1002, 1003, 1008, 1009, 1011, 1013
"""Codes of closing (RFC 6455, 7.4.1)."""


def answer_of(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """What a request for a WebSocket is answered with; None where it is none of version 13."""
    found = dict(headers)
    key = found.get(b"sec-websocket-key", b"").strip()
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except ValueError:
        is_key = False
    if not is_key or found.get(b"sec-websocket-version", b"").strip() != b"13":
        return None
    accept = base64.b64encode(hashlib.sha1(key + _KEY, usedforsecurity=False).digest())
    lines = (b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade")
    return b"\r\n".join((*lines, b"Sec-WebSocket-Accept: " + accept, b"", b""))


def frame(kind: int, content: bytes) -> bytes:
    """A frame of a server, which is a whole message."""
    size = len(content)
    if size <= _LONGEST_CONTROL:
        return bytes((0x80 | kind, size)) + content
    if size < 1 << 16:
        return bytes((0x80 | kind, 126)) + size.to_bytes(2, "big") + content
    return bytes((0x80 | kind, 127)) + size.to_bytes(8, "big") + content


class _FrameError(Exception):
    """What ends the connection: a code, and why."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class WebSocket:
    """The messages of one client, in their order."""

    def __init__(self, connection: Connection, *, most: int) -> None:
        """`most`: bytes of a message."""
        self._connection, self._most = connection, most
        self._raw = bytearray()
        self._part: bytearray | None = None
        """What has come of a message that is not complete."""
        self._messages = deque[bytes]()
        self._held = 0
        self._has_come = asyncio.Event()
        self._is_begun = False
        self.gone = asyncio.Event()
        """Nothing more comes."""
        self.problem = ""
        """Why the server has ended it."""
        self._code = GOING_AWAY
        self.is_closed = False
        """It has been said that nothing more follows."""

    def received(self, data: bytes) -> None:
        """What the connection has received."""
        if self.gone.is_set():
            return
        self._connection.of.waits(self._connection)
        self._raw += data
        try:
            while self._take():
                pass
        except _FrameError as error:
            self.end(str(error), error.code)
        if len(self._messages) > _WAITING or sum(map(len, self._messages)) > UNREAD_BYTES:
            self._connection.pause_reading()
        self._count()

    def _count(self) -> None:
        """Bytes that are held, of all connections together."""
        of, before = self._connection.of, self._held
        self._held = len(self._raw) + len(self._part or b"") + sum(map(len, self._messages))
        of.held += self._held - before
        if of.held > of.most_held:
            self.end("too many messages arrive at the same time. Try again later.", LATER)

    def _take(self) -> bool:
        """Take a frame of what has been received, if there is one."""
        raw = self._raw
        if len(raw) < 2:
            return False
        kind, size, begin = raw[0] & 15, raw[1] & 127, 2
        if raw[0] & 0x70 or kind not in (_CONTINUES, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise _FrameError(PROTOCOL, "frame: of a kind that is not known. Allowed: RFC 6455 without extensions.")
        if not raw[1] & 128:
            raise _FrameError(PROTOCOL, "frame: is not masked. Allowed: RFC 6455.")
        if size > _LONGEST_CONTROL:
            begin = 4 if size == 126 else 10
            if len(raw) < begin:
                return False
            size = int.from_bytes(raw[2:begin], "big")
        if kind >= _CLOSE and (size > _LONGEST_CONTROL or not raw[0] & 128):
            raise _FrameError(PROTOCOL, "frame: a control frame is too long, or in parts. Allowed: RFC 6455.")
        if size + len(self._part or b"") > self._most:
            raise _FrameError(TOO_LARGE, f"message: too long. Allowed: {self._most:,} bytes.")
        if len(raw) < begin + 4 + size:
            return False
        mask = (bytes(raw[begin : begin + 4]) * (size // 4 + 1))[:size]
        masked = int.from_bytes(raw[begin + 4 : begin + 4 + size], "big") ^ int.from_bytes(mask, "big")
        content, is_last = masked.to_bytes(size, "big"), bool(raw[0] & 128)
        del raw[: begin + 4 + size]
        self._add(kind, content, is_last=is_last)
        return not self.gone.is_set()

    def _add(self, kind: int, content: bytes, *, is_last: bool) -> None:
        if kind == _CLOSE:
            self._say(_CLOSE, content[:2] or GOING_AWAY.to_bytes(2, "big"))
            self.is_closed = True
            self._go()
        elif kind == _PING:
            self._say(_PONG, content)
        elif kind == _BINARY:
            raise _FrameError(NOT_TEXT, "message: is binary. Allowed: a JSON object in UTF-8.")
        elif kind in (_CONTINUES, _TEXT):
            if (kind == _CONTINUES) != (self._part is not None):
                raise _FrameError(PROTOCOL, "frame: does not follow the one before. Allowed: RFC 6455.")
            self._part = bytearray() if self._part is None else self._part
            self._part += content
            if is_last:
                self._messages.append(bytes(self._part))
                self._part = None
                self._has_come.set()

    def end(self, problem: str, code: int = GOING_AWAY) -> None:
        """Let the application say why the server ends the connection, and close it with this code."""
        if not self.gone.is_set():
            self.problem, self._code = problem, code
            self._go()

    def lost(self) -> None:
        """The connection is no more."""
        self.is_closed = True
        self._go()

    def _go(self) -> None:
        self._raw, self._part, self._messages = bytearray(), None, deque()
        self.gone.set()
        self._has_come.set()
        self._count()

    def _say(self, kind: int, content: bytes) -> None:
        if not self.is_closed and not self._connection.transport.is_closing():
            self._connection.transport.write(frame(kind, content))

    async def receive(self) -> Message:
        """See ASGI: that somebody connects, the next message, then that no more comes, and why the server ends it."""
        if not self._is_begun:
            self._is_begun = True
            return {"type": "websocket.connect"}
        connection = self._connection
        while not self._messages and not self.gone.is_set():
            self._has_come.clear()
            connection.resume_reading()
            connection.of.waits(connection)
            await self._has_come.wait()
        if not self._messages:
            return {"type": "websocket.disconnect", "code": self._code, "reason": self.problem}
        connection.of.waiting.pop(connection, None)
        found = self._messages.popleft()
        self._count()
        return {"type": "websocket.receive", "bytes": found}

    async def send(self, message: Message) -> None:
        """See ASGI: the beginning, a message, or the end; `websocket.http.response.body` is a whole answer instead."""
        await self._connection.can_write.wait()
        kind = message["type"]
        if kind == "websocket.send":
            self._say(_TEXT, message["bytes"])
            return
        if kind in ("websocket.accept", "websocket.http.response.body") and not self.is_closed:
            self._connection.transport.write(message["body"])
        if kind == "websocket.close":
            self._say(_CLOSE, int(message["code"]).to_bytes(2, "big"))
        if kind != "websocket.accept":
            self.is_closed = True
            self._go()
            self._connection.ended()

    def leave(self, error: bytes) -> None:
        """Send the last message, and close, without the application."""
        self._say(_TEXT, error)
        self._say(_CLOSE, LATER.to_bytes(2, "big"))
        self.lost()
