"""A line for each request in the log, its part in the metrics, and an answer where the server makes a mistake."""

from __future__ import annotations

import logging
import time

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.errors import printable
from nmt.serving.metrics import Metrics

INTERNAL = "internal error; see the log of the server"

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
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:
            _errors.exception("internal error")
            if status:  # half of an answer is sent; the connection ends
                raise
            await JSONResponse({"error": INTERNAL}, 500)(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - start
            if scope["path"] == "/translate" and scope["method"] == "POST":
                self._metrics.answered(status, seconds)
            client = scope.get("client") or ("-",)
            what = printable(f"{client[0]} {scope['method']} {scope['path']}")
            _log.info("%s %d %.1f ms", what, status, 1000 * seconds)
