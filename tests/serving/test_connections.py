"""Connections: the protocol, how long clients are waited for, how many there may be, how they end; over sockets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import nmt.serving.connections as module
from nmt.errors import ConfigError
from nmt.serving.connections import Connections, most_connections
from nmt.serving.limits import Settings
from tests.conftest import HANGS

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: a\r\n%b\r\n"


class App:
    """Answers with the path, or the body; /slow when it may, /gone when the client has gone, /large with 20 MB."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.begun = asyncio.Event()
        self.has_gone = asyncio.Event()
        self.clients: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.clients.append(scope["client"][0])
        content = scope["path"].encode()
        if content == b"/echo":
            content = await request.body()
        if content == b"/large":
            content = bytes(20_000_000)
        if content in (b"/slow", b"/gone"):
            await request.body()
            self.begun.set()
        if content == b"/slow":
            await self.may.wait()
        if content == b"/gone":
            while (await receive())["type"] != "http.disconnect":
                pass
            self.has_gone.set()
            return
        await Response(content)(scope, receive, send)


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Client]]
Test = Callable[[Connect, App, Connections], Coroutine[Any, Any, None]]


def served(test: Test, listening: socket.socket | None = None, **changes: Any) -> None:
    """Run a test with the connections of a server."""

    async def run() -> None:
        socket_ = listening or socket.create_server(("127.0.0.1", 0))
        address = socket_.getsockname()
        app, writers = App(), []
        connections = Connections(app, socket_, Settings(**changes))
        connections.open()

        async def connect() -> Client:
            client = await asyncio.open_connection(*address)
            writers.append(client[1])
            return client

        try:
            await asyncio.wait_for(test(connect, app, connections), HANGS)
        finally:
            for writer in writers:
                writer.close()
            if not connections.is_closing:
                await connections.close(0)

    asyncio.run(run())


async def ask(client: Client, request: bytes) -> tuple[int, dict[str, str], bytes]:
    client[1].write(request)
    return await answer(client)


async def answer(client: Client, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next answer; a reset is an error."""
    head = (await client[0].readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await client[0].readexactly(int(headers["content-length"])) if has_body else b""
    return int(head[0].split()[1]), headers, body


def error(body: bytes) -> str:
    found = json.loads(body)["error"]
    assert isinstance(found, str) and len(found) < 200 and "\n" not in found
    return found


def test_requests_of_a_connection_are_answered_in_their_order() -> None:
    async def test(connect: Connect, app: App, _: Connections) -> None:
        client = await connect()
        chunks = POST % b"Transfer-Encoding: chunked\r\n" + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        parts = [GET % b"slow", chunks, b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", POST % b"Content-Length: 2\r\n" + b"de"]
        client[1].write(b"".join(parts))
        await app.begun.wait()
        app.may.set()
        assert (await answer(client))[::2] == (200, b"/slow")
        assert (await answer(client))[::2] == (200, b"abc")
        status, headers, _body = await answer(client, has_body=False)
        assert (status, headers["content-length"]) == (200, "2")
        status, headers, body = await answer(client)
        assert (status, body) == (200, b"de") and "date" in headers and "connection" not in headers
        status, headers, body = await ask(client, b"GET /z HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (status, headers["connection"], body) == (200, "close", b"/z")
        assert await client[0].read() == b""

    served(test)


@pytest.mark.parametrize(
    ("request_", "status", "said"),
    [
        (
            POST % b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n" + b"0\r\n\r\n",
            400,
            "Transfer-Encoding: together with Content-Length. Allowed: one of them.",
        ),
        (GET % (b"x" * 10_000), 414, "path: too long. Allowed: 8,192 bytes."),
        (GET % (b"x" * 60_000), 431, "request: has more than 32,768 bytes that should be a header. Allowed: HTTP/1.1."),
        (
            b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 50_000,
            431,
            "request: has more than 32,768 bytes that should be a header. Allowed: HTTP/1.1.",
        ),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"\x01" * 5000 + b": x\r\n\r\n", 400, "request: illegal header line. "),
        (POST % b"Content-Length: 1%b\r\n" % (b"0" * 5000), 400, "request: bad Content-Length. Allowed: HTTP/1.1."),
        (POST % b"Transfer-Encoding: gzip\r\n", 501, "request: Only Transfer-Encoding"),
        (
            POST % b"Transfer-Encoding: chunked\r\n" + b"1\r\na\r\n" * 100_000,
            400,
            "body: in more than 4,096 chunks. Allowed: fewer.",
        ),
    ],
)
def test_what_is_no_request_gets_a_short_line_and_ends_the_connection(request_: bytes, status: int, said: str) -> None:
    async def test(connect: Connect, app: App, _: Connections) -> None:
        client = await connect()
        found, headers, body = await ask(client, request_)
        assert (found, headers["connection"]) == (status, "close")
        assert error(body).startswith(said)
        assert await client[0].read() == b""

    served(test)


def test_an_answer_before_the_end_of_a_body_is_not_lost_in_a_reset() -> None:
    async def test(connect: Connect, app: App, _: Connections) -> None:
        client = await connect()
        client[1].write(b"GET /early HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n")
        for _part in range(50):
            client[1].write(bytes(100_000))
            await client[1].drain()
        assert (await answer(client))[::2] == (200, b"/early")
        assert await client[0].read() == b""

    served(test)


def test_a_client_that_has_closed_its_writing_half_gets_its_answer() -> None:
    async def test(connect: Connect, app: App, _: Connections) -> None:
        client = await connect()
        client[1].write(GET % b"slow" + GET % b"next")
        client[1].write_eof()
        await app.begun.wait()
        await asyncio.sleep(0.2)
        app.may.set()
        assert (await answer(client))[::2] == (200, b"/slow")
        assert (await answer(client))[::2] == (200, b"/next")
        assert await client[0].read() == b""

    served(test)


@pytest.mark.parametrize("with_reset", [False, True])
def test_a_client_that_has_gone_is_noticed(monkeypatch: pytest.MonkeyPatch, *, with_reset: bool) -> None:
    monkeypatch.setattr(module, "LOOKS", 0.02)

    async def test(connect: Connect, app: App, _: Connections) -> None:
        _reader, writer = await connect()
        writer.write(GET % b"gone")
        await app.begun.wait()
        if with_reset:
            writer.transport.abort()
        writer.close()
        await app.has_gone.wait()

    served(test)


def test_half_a_request_at_the_end_of_what_a_client_sends_is_a_mistake() -> None:
    async def test(connect: Connect, app: App, _: Connections) -> None:
        client = await connect()
        client[1].write(POST % b"Content-Length: 9\r\n" + b"abc")
        client[1].write_eof()
        status, _headers, body = await answer(client)
        assert status == 400
        assert error(body).startswith("request: peer closed connection without sending complete message body")

    served(test)


def test_clients_are_waited_for_until_their_time_is_over() -> None:
    async def test(connect: Connect, app: App, _: Connections) -> None:
        silent, idle, half, busy, deaf = [await connect() for _ in range(5)]
        busy[1].write(GET % b"slow")
        deaf[1].write(GET % b"large")
        assert (await ask(idle, GET % b"x"))[0] == 200

        async def send_slowly() -> None:
            with contextlib.suppress(ConnectionError):
                for letter in GET % (b"y" * 1000):
                    half[1].write(bytes([letter]))
                    await asyncio.sleep(0.05)

        sending = asyncio.ensure_future(send_slowly())
        status, headers, body = await answer(half)
        assert (status, headers["connection"]) == (408, "close")
        assert error(body) == "header: has not arrived within 0.5 seconds"
        assert await silent[0].read() == b"" == await idle[0].read()
        await asyncio.sleep(1)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await answer(deaf)
        sending.cancel()
        app.may.set()
        assert (await answer(busy))[::2] == (200, b"/slow")  # it did not wait for the client

    served(test, timeout=0.5)


def test_more_connections_than_allowed_get_503_if_all_are_busy(caplog: pytest.LogCaptureFixture) -> None:
    async def test(connect: Connect, app: App, _: Connections) -> None:
        busy = [await connect() for _ in range(2)]
        for client in busy:
            client[1].write(GET % b"slow")
        await app.begun.wait()
        for _ in range(40):  # some of which the server does not wait for
            status, headers, body = await answer(await connect())
            assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "5")
            assert error(body) == "too many connections. Try again later."
        app.may.set()
        for client in busy:
            assert (await answer(client))[0] == 200
        assert (await ask(await connect(), GET % b"x"))[0] == 200

    served(test, max_connections=2)
    assert [one.levelname for one in caplog.records if "--max-connections" in one.getMessage()] == ["WARNING"]


def test_idle_connections_make_room_for_new_ones() -> None:
    async def test(connect: Connect, app: App, _: Connections) -> None:
        busy, first, second = [await connect() for _ in range(3)]
        busy[1].write(GET % b"slow")
        assert [(await ask(client, GET % b"x"))[0] for client in (first, second)] == [200, 200]
        assert (await ask(await connect(), GET % b"new"))[::2] == (200, b"/new")
        assert (await answer(first))[0] == 503
        assert (await ask(second, GET % b"x"))[0] == 200
        app.may.set()
        assert (await answer(busy))[0] == 200

    served(test, max_connections=3)


class Starved(socket.socket):
    """Cannot accept while no descriptor is left."""

    is_starved = True
    tried = 0

    def accept(self) -> Any:
        self.tried += 1
        if self.is_starved:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_without_descriptors_there_is_one_line_and_service_goes_on_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.1)
    listening = Starved(fileno=socket.create_server(("127.0.0.1", 0)).detach())

    async def test(connect: Connect, app: App, _: Connections) -> None:
        client = await connect()
        client[1].write(GET % b"x")
        await asyncio.sleep(0.5)
        assert 2 <= listening.tried <= 6
        listening.is_starved = False
        assert (await answer(client))[0] == 200

    served(test, listening)
    (said,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert said == "no connection can be accepted: Too many open files. Trying again."


def test_bodies_that_are_held_are_limited_together() -> None:
    async def test(connect: Connect, app: App, _: Connections) -> None:
        clients = [await connect() for _ in range(65)]
        for client in clients:
            client[1].write(POST % b"Content-Length: 2000\r\n" + bytes(1000))
        refused = [asyncio.ensure_future(answer(client)) for client in clients]
        done, _waiting = await asyncio.wait(refused, return_when=asyncio.FIRST_COMPLETED)
        assert [one.result()[0] for one in done] == [503]
        for client in clients:
            client[1].write(bytes(1000))
        assert sorted(one[0] for one in await asyncio.gather(*refused))[0] == 200
        assert (await ask(await connect(), POST % b"Content-Length: 3\r\n" + b"abc"))[::2] == (200, b"abc")

    served(test, max_body_bytes=1000)


def test_when_it_stops_whoever_comes_is_answered_and_nobody_is_reset() -> None:
    async def test(connect: Connect, app: App, connections: Connections) -> None:
        busy, idle, half = [await connect() for _ in range(3)]
        assert (await ask(idle, GET % b"x"))[0] == 200
        busy[1].write(GET % b"slow")
        half[1].write(b"GET /late HTTP/1.1\r\n")
        await app.begun.wait()
        connections.stop()
        status, headers, body = await ask(await connect(), GET % b"new")
        assert (status, headers["connection"], body) == (200, "close", b"/new")  # as the application says
        closing = asyncio.ensure_future(connections.close(asyncio.get_running_loop().time() + HANGS))
        for client in (idle, half, await connect()):
            status, headers, body = await answer(client)
            assert (status, headers["connection"]) == (503, "close")
            assert error(body) == "the server is draining. Try again later."
            client[1].write(b"Host: a\r\n\r\n")  # crosses the answer
            await client[1].drain()
            assert await client[0].read() == b""
        assert not closing.done()
        app.may.set()
        status, headers, body = await answer(busy)
        assert (status, headers["connection"], body) == (200, "close", b"/slow")
        await closing
        with pytest.raises(ConnectionRefusedError):
            await connect()

    served(test)


def test_only_proxies_that_are_trusted_name_the_client() -> None:
    header = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 9.9.9.9, %b\r\nX-Forwarded-For: 10.1.1.1\r\n\r\n"

    async def test(connect: Connect, app: App, connections: Connections) -> None:
        client = await connect()
        for named in (b"8.8.8.8", b"10.2.2.2", b"x" * 1000):
            await ask(client, header % named)

    def found(*proxies: str) -> list[str]:
        seen: list[str] = []

        async def noted(connect: Connect, app: App, connections: Connections) -> None:
            await test(connect, app, connections)
            seen.extend(app.clients)

        served(noted, trusted_proxies=proxies)
        return seen

    assert found() == ["127.0.0.1"] * 3
    assert found("10.0.0.0/8") == ["127.0.0.1"] * 3  # the peer is not one of them
    assert found("127.0.0.1") == ["10.1.1.1"] * 3
    assert found("127.0.0.0/8", "10.0.0.0/8", "::1/128") == ["8.8.8.8", "9.9.9.9", "10.1.1.1"]


def test_connections_are_fewer_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
    assert (most_connections(None), most_connections(960), most_connections(5)) == (960, 960, 5)
    with pytest.raises(ConfigError, match=r"^--max-connections: 961 is too many: .* 1,024 .* Allowed: at most 960\.$"):
        most_connections(961)
    monkeypatch.setattr("resource.getrlimit", lambda _: (100, 100))
    assert most_connections(None) == 50
