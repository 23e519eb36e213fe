"""A server on this machine, from which the tests fetch."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Server(ThreadingHTTPServer):
    """Serves bytes by path, with ranges; notes what was asked for and can break transfers off."""

    files: dict[str, bytes]
    answers: dict[str, Callable[[], Iterable[bytes]]]  # what is sent instead, headers too
    sent = 0  # bytes of these
    asked: list[tuple[str, str | None]]
    break_after: list[int]  # bytes after which the next transfers end early
    ranges = True
    chunked = False  # does not tell the length, but when the end is missing


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is not None:
            self.close_connection = True
            with contextlib.suppress(OSError):  # the client has had enough
                for block in answer():
                    self.wfile.write(block)
                    self.server.sent += len(block)
            return None
        content = self.server.files.get(self.path)
        if content is None:
            return self.send_error(404)
        start = int(wanted[6:-1]) if wanted and self.server.ranges else 0
        if start >= len(content) and start:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return None
        self.send_response(206 if start else 200)
        chunked = self.server.chunked
        self.send_header(
            *(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(content) - start)))
        )
        self.end_headers()
        rest, end = content[start:], b"0\r\n\r\n"
        if self.server.break_after:
            rest, end = rest[: self.server.break_after.pop(0)], b""
            self.close_connection = True
        self.wfile.write(b"%x\r\n%b\r\n%b" % (len(rest), rest, end) if chunked else rest)
        return None

    def log_message(self, *_: Any) -> None:
        """Keep test output clean."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    server = Server(("127.0.0.1", 0), Handler)
    server.files, server.answers, server.asked, server.break_after = {}, {}, [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def home(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"
