"""A server on this machine, from which the tests fetch."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Server(ThreadingHTTPServer):
    """Serves bytes by path, with ranges; notes what was asked for and can break transfers off."""

    files: dict[str, bytes]
    asked: list[tuple[str, str | None]]
    break_after: list[int]  # bytes after which the next transfers end early
    ranges = True


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
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
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        if self.server.break_after:
            rest = rest[: self.server.break_after.pop(0)]
            self.close_connection = True
        self.wfile.write(rest)
        return None

    def log_message(self, *_: Any) -> None:
        """Keep test output clean."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    server = Server(("127.0.0.1", 0), Handler)
    server.files, server.asked, server.break_after = {}, [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def home(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"
