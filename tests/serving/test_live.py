"""WebSocket /live: over sockets, with a client of a few lines."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.serving.app import create_app
from nmt.serving.connections import Connections
from nmt.serving.limits import Settings
from nmt.serving.service import Service
from tests.conftest import HANGS

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # of this key, in RFC 6455
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class Client:
    """A WebSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def frame(self, kind: int, content: bytes, *, is_last: bool = True) -> None:
        mask, size = os.urandom(4), len(content)
        head = bytes([kind | 128 * is_last]) + (
            bytes([128 | size]) if size < 126 else bytes([254]) + size.to_bytes(2, "big")
            if size < 1 << 16 else bytes([255]) + size.to_bytes(8, "big")
        )  # fmt: skip
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(content))
        self.writer.write(head + mask + masked)

    def say(self, **message: Any) -> None:
        self.frame(TEXT, json.dumps(message).encode())

    async def heard(self) -> tuple[int, bytes]:
        kind, size = await self.reader.readexactly(2)
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2), "big")
        return kind & 15, await self.reader.readexactly(size)

    async def answer(self) -> dict[str, Any]:
        kind, content = await self.heard()
        assert kind == TEXT and b"\n" not in content, (kind, content)
        found: dict[str, Any] = json.loads(content)
        return found

    async def ask(self, **message: Any) -> dict[str, Any]:
        self.say(**message)
        return await self.answer()

    async def closed(self) -> int:
        """The code of closing, after which the server closes the connection."""
        kind, content = await self.heard()
        assert kind == CLOSE
        self.frame(CLOSE, content)
        self.writer.write_eof()
        assert await self.reader.read() == b""
        return int.from_bytes(content, "big")


class Server:
    """A server in this process."""

    def __init__(self, service: Service, connections: Connections, address: Any) -> None:
        self.service, self.connections, self.address = service, connections, address
        self.clients: list[Client] = []

    async def request(self, **headers: str) -> tuple[int, dict[str, str], Client]:
        client = Client(*await asyncio.open_connection(*self.address))
        self.clients.append(client)
        given = {
            "Host": "here", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": KEY, **{name.replace("_", "-"): value for name, value in headers.items()},
        }  # fmt: skip
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        client.writer.write(f"GET /live HTTP/1.1\r\n{lines}\r\n".encode())
        head = (await client.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        return int(head[0].split()[1]), dict(line.lower().split(": ", 1) for line in head[1:] if line), client

    async def connect(self, **headers: str) -> Client:
        status, found, client = await self.request(**headers)
        assert status == 101 and found["sec-websocket-accept"] == ACCEPT.lower()
        return client

    async def refused(self, **headers: str) -> tuple[int, str]:
        status, found, client = await self.request(**headers)
        return status, json.loads(await client.reader.readexactly(int(found["content-length"])))["error"]


Test = Callable[[Server], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def translator(run: Path) -> Iterator[nmt.Translator]:
    with nmt.load(run, device="cpu") as translator:
        yield translator


def served(translator: Any, test: Test, *, start: bool = True, **changes: Any) -> None:
    """Run a test with a server."""

    async def go() -> None:
        settings, listening = Settings(**changes), socket.create_server(("127.0.0.1", 0))
        service = Service(settings, name="model")
        if start:
            service.start(translator, {})
        connections = Connections(create_app(service), listening, settings)
        connections.open()
        server = Server(service, connections, listening.getsockname())
        try:
            await asyncio.wait_for(test(server), HANGS)
        finally:
            for client in server.clients:
                client.writer.close()
            if not connections.is_closing:
                await connections.close(0)
            for model in service._models:
                model.batcher.close()
            service.live_threads.shutdown()

    asyncio.run(go())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_words_are_translated_as_they_come(translator: nmt.Translator) -> None:
    """Several sessions on one connection, each by its own options, as the library does."""

    async def test(server: Server) -> None:
        client = await server.connect()
        for options in ({}, {"wait": 1}, {"policy": "local_agreement", "beam_size": 2}):
            own = dict(options)
            session, first = translator.live(str(own.pop("policy", "wait_k")), **own), options
            for text in ("a b ", "c d a", " b longer ", ""):
                wanted = session.feed(text)
                assert await client.ask(text=text, **first) == {"text": wanted, "tail": session.tail}
                first = {}
            assert await client.ask(end=True) == {"text": session.end(), "tail": "", "end": True}
        assert await client.ask(end=True) == {"text": "", "tail": "", "end": True}
        client.frame(CLOSE, (1000).to_bytes(2, "big"))
        assert await client.heard() == (CLOSE, (1000).to_bytes(2, "big"))
        await until(lambda: not server.service._sessions)

    served(translator, test)


def test_what_is_being_said_may_change(translator: nmt.Translator) -> None:
    async def test(server: Server) -> None:
        client, session = await server.connect(), translator.live(wait=2, revise=True)
        first: dict[str, Any] = {"wait": 2}
        for text in ("a b", "a c", "d a c b"):
            wanted = session.revise(text)
            assert await client.ask(revise=text, **first) == {"text": wanted, "tail": session.tail}
            first = {}
        found = await client.ask(revise="d a c b c", final=True)
        assert found["text"] == session.revise("d a c b c", final=True)
        assert (await client.ask(end=True))["text"] == session.end()

    served(translator, test)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("[]", "message: [] is not allowed. Allowed: a JSON object with text, revise or end."),
        ("{", "body: is not JSON"),
        ('{"wait": 3}', "text: missing. Allowed: text, revise or end."),
        ('{"text": 5}', "text: 5 is not allowed. Allowed: a string."),
        ('{"end": false}', "end: false is not allowed. Allowed: true."),
        ('{"text": "a", "end": true}', "text: does not go together with end."),
        ('{"text": "a", "final": true}', "final: has no meaning without revise."),
        ('{"text": "a", "wiat": 3}', "wiat: unknown key. Allowed: text, revise, final, end, key, policy, wait, "),
        ('{"text": "a", "wait": 0}', "wait: must be at least 1, not 0"),
        ('{"text": "a", "agree": 2}', "agree: is no option of wait_k. Allowed: wait."),
        ('{"text": "a", "policy": "waitk"}', "'waitk' is not a known policy of live translation."),
        ('{"text": "a", "beam_size": 17}', "beam_size: 17 is not allowed. Allowed: 1 to 16."),
        ('{"text": "a", "prefix": "b"}', "prefix: a live session has no such option"),
        ('{"text": "a", "placeholders": true}', "placeholders: has its place only when a sentence is complete."),
        ('{"text": "%s"}' % ("a" * 101), "text: 101 characters are too many. Allowed: 100."),
        ('{"text": "a \\\\ud83d b"}', "text holds half of a surrogate pair"),
    ],
)
def test_a_mistake_is_one_line_and_the_session_stays(translator: nmt.Translator, message: str, said: str) -> None:
    async def test(server: Server) -> None:
        client = await server.connect()
        client.frame(TEXT, message.replace("\\\\", "\\").encode())
        found = await client.answer()
        assert found["status"] == 400 and said in found["error"]
        assert "error" not in await client.ask(text="a b ", **({} if "ud83d" in message else {"wait": 1}))
        inside = await client.ask(text="c ", wait=2)
        assert inside["error"] == "wait: only the first message of a session has it. Allowed: text, revise, final, end."
        assert (await client.ask(end=True))["text"] is not None

    served(translator, test, max_characters=100)


def test_a_sentence_has_so_many_words(translator: nmt.Translator) -> None:
    """In several messages, too; those of another sentence count anew."""

    async def test(server: Server) -> None:
        client = await server.connect()
        assert "error" not in await client.ask(text="a b c. D b c ")
        found = await client.ask(text="d a b ")
        assert found["status"] == 413 and "a sentence of more than 5 words. Allowed: at most 5" in found["error"]

    served(translator, test, max_sentence_tokens=5)


def test_who_may_open_one(translator: nmt.Translator) -> None:
    async def test(server: Server) -> None:
        assert await server.refused(Authorization="Bearer no") == (
            401, "Authorization: is not the key of this server. Allowed: Bearer KEY.",
        )  # fmt: skip
        assert (await server.refused(Origin="http://elsewhere"))[0] == 403
        assert (await server.refused(Upgrade=""))[0] == 426
        assert (await server.refused(Sec_WebSocket_Version="8"))[0] == 426
        await server.connect(Authorization="Bearer secret", Origin="http://here")
        client = await server.connect(Origin="http://friend")  # browsers cannot send a key in the header
        assert "error" not in await client.ask(text="a ", key="secret")
        client = await server.connect()
        assert (await client.ask(text="a "))["status"] == 401
        assert await client.closed() == 1008

    served(translator, test, api_key="secret", cors_origins=("http://friend",))


def test_there_are_so_many_sessions(translator: nmt.Translator) -> None:
    """One that has gone makes room, whatever it was doing."""

    async def test(server: Server) -> None:
        first, second = await server.connect(), await server.connect()
        status, said = await server.refused()
        assert (status, said) == (503, "too many live sessions are open. Allowed: 2. Try again later.")
        first.say(text="a b c d " * 2000)
        await asyncio.sleep(0.1)
        first.writer.transport.abort()
        await until(lambda: server.service._sessions == 1)
        third = await server.connect()
        for client in (second, third):
            assert "error" not in await client.ask(text="a ")

    served(translator, test, max_sessions=2)


def test_how_long_it_is_waited(translator: nmt.Translator) -> None:
    """For a message, whose coming any frame delays; and for what it asks for."""

    async def test(server: Server) -> None:
        client = await server.connect()
        for _ in range(4):
            await asyncio.sleep(0.3)
            client.frame(PING, b"ab")
            assert await client.heard() == (PONG, b"ab")
        assert await client.answer() == {"error": "message: none has come for 0.8 seconds", "status": 408}
        assert await client.closed() == 1008
        client = await server.connect()
        client.say(text="a b c d " * 2400, policy="local_agreement")
        found = await client.answer()
        while "error" not in found:
            found = await client.answer()
        assert found["status"] in (504, 413)
        assert await client.closed() in (1008, 1009)
        await until(lambda: not server.service._sessions)

    served(translator, test, timeout=0.8)


@pytest.mark.parametrize(
    ("frames", "code", "said"),
    [
        ([(2, b"a", True)], 1003, "message: is binary"),
        ([(TEXT, b"x" * 2000, True)], 1009, "message: too long. Allowed: 1,000 bytes."),
        ([(TEXT, b"x" * 600, False), (0, b"x" * 600, True)], 1009, "message: too long. Allowed: 1,000 bytes."),
        ([(0, b"a", True)], 1002, "frame: does not follow the one before"),
        ([(TEXT, b"a", False), (TEXT, b"a", True)], 1002, "frame: does not follow the one before"),
        ([(3, b"a", True)], 1002, "frame: of a kind that is not known"),
        ([(PING, b"a" * 126, True)], 1002, "frame: a control frame is too long"),
        ([(64 | TEXT, b"a", True)], 1002, "frame: of a kind that is not known"),
    ],
)
def test_what_is_no_message_ends_the_connection(
    translator: nmt.Translator, frames: list[tuple[int, bytes, bool]], code: int, said: str
) -> None:
    async def test(server: Server) -> None:
        client = await server.connect()
        for kind, content, is_last in frames:
            client.frame(kind, content, is_last=is_last)
        assert said in (await client.answer())["error"]
        assert await client.closed() == code

    served(translator, test, max_body_bytes=1000)


def test_a_message_may_come_in_parts(translator: nmt.Translator) -> None:
    async def test(server: Server) -> None:
        client = await server.connect()
        raw = json.dumps({"text": "a b ", "wait": 1}).encode()
        client.frame(TEXT, raw[:5], is_last=False)
        client.frame(PING, b"")
        client.frame(0, raw[5:9], is_last=False)
        client.frame(0, raw[9:])
        assert await client.heard() == (PONG, b"")
        assert (await client.answer())["text"] == translator.live(wait=1).feed("a b ")

    served(translator, test)


def test_the_server_ends_what_is_open(translator: nmt.Translator, caplog: pytest.LogCaptureFixture) -> None:
    """With the rest of each translation, before the server does."""

    async def test(server: Server) -> None:
        session = translator.live(wait=2)
        client, idle = await server.connect(), await server.connect()
        await client.ask(text="a b c", wait=2)
        session.feed("a b c")
        await asyncio.gather(server.service.drain(), asyncio.sleep(0.01))
        assert await client.answer() == {"text": session.end(), "tail": "", "end": True}
        for one in (client, idle):
            assert (await one.answer())["status"] == 503
            assert await one.closed() == 1001
        assert (await server.refused())[0] == 503
        await until(lambda: not server.service._sessions)

    with caplog.at_level(logging.INFO, "nmt.serving.access"):
        served(translator, test)
    assert sum("GET /live 101" in record.message for record in caplog.records) == 2
