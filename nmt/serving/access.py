"""A line for each request in the log, its part in the metrics, and an answer where the server makes a mistake."""

from __future__ import annotations

import logging
import time
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.errors import counted, printable
from nmt.serving.log import id_of, request_id
from nmt.serving.metrics import Metrics

INTERNAL = "internal error; see the log of the server"
SENTENCES: Final = "nmt.sentences"
"""The key of a scope that has the number of sentences of the request."""
LONGEST_PATH: Final = 200
"""Characters of a path in the log."""

_log = logging.getLogger("nmt.serving.access")
_errors = logging.getLogger("nmt.serving.errors")


class AccessLog:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status, is_whole = 0, False
        name = id_of(next((value for key, value in scope["headers"] if key == b"x-request-id"), None))
        request_id.set(name)

        async def noted(message: Message) -> None:
            nonlocal status, is_whole
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name.encode())]
            else:
                is_whole = not message.get("more_body")
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:
            _errors.exception("internal error")
            if not status:
                await JSONResponse({"error": INTERNAL}, 500)(scope, receive, noted)
            elif not is_whole:  # half of an answer is sent; the connection ends
                raise
        finally:
            seconds = time.perf_counter() - start
            if scope["path"] == "/translate" and scope["method"] == "POST":
                self._metrics.answered(status, seconds)
            if _log.isEnabledFor(logging.INFO):
                _say(scope, status, 1000 * seconds)


def _say(scope: Scope, status: int, milliseconds: float) -> None:
    method, path, sentences = scope["method"], scope["path"][:LONGEST_PATH], scope.get(SENTENCES)
    client = (scope.get("client") or ("-",))[0]
    said = f"{client} {method} {printable(path)} {status} {milliseconds:.1f} ms"
    fields = {"client": client, "method": method, "path": path, "status": status}
    fields |= {"milliseconds": round(milliseconds, 1), "sentences": sentences}
    _log.info(said if sentences is None else f"{said}, {counted(sentences, 'sentence')}", extra={"fields": fields})
