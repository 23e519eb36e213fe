"""Answers of the server: translations, its state, its page; each has a line in the log. Every error is one line of
JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt import __version__
from nmt.errors import ConfigError, DataError, counted, printable, shortened
from nmt.light.pretrained import HERE
from nmt.serving import PROGRAM
from nmt.serving.batching import Job
from nmt.serving.libretranslate import Languages, is_meant, read_body_of, read_wanted
from nmt.serving.limits import CLIENT_GONE, DRAINING, LIBRETRANSLATE, SOON, RefusedError, check_answer, check_key
from nmt.serving.live import FIRST, MESSAGE, live
from nmt.serving.log import id_of, request_id
from nmt.serving.metrics import CONTENT_TYPE
from nmt.serving.requests import JSON, Answer, Failed, check_lists, checked_request, read_body, read_request, schema_of
from nmt.serving.service import Service

PAGE: Final = Path(HERE, "web")
"""The page, which asks `door.js` for translations."""
PAGES: Final = Path(__file__).parent / "pages"
FILES: Final = {
    "/": (PAGE / "index.html", "text/html; charset=utf-8"),
    "/page.css": (PAGE / "page.css", "text/css; charset=utf-8"),
    "/page.js": (PAGE / "page.js", "text/javascript; charset=utf-8"),
    "/door.js": (PAGES / "door.js", "text/javascript; charset=utf-8"),
    "/docs": (PAGES / "docs.html", "text/html; charset=utf-8"),
    "/docs.css": (PAGES / "docs.css", "text/css; charset=utf-8"),
    "/docs.js": (PAGES / "docs.js", "text/javascript; charset=utf-8"),
}
POLICY: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
"""The pages load nothing from other servers, which browsers enforce."""


INTERNAL = "internal error; see the log of the server"
SENTENCES: Final = "nmt.sentences"
"""The key of a scope that has the number of sentences of the request."""
EVENTS: Final = "text/event-stream"
STREAMED: Final = 1
"""Sentences in a batch of a request whose answers are sent one by one."""
LONGEST_PATH: Final = 200
"""Characters of a path in the log."""

_log = logging.getLogger("nmt.serving.access")
_errors = logging.getLogger("nmt.serving.errors")


def create_app(service: Service) -> ASGIApp:
    """The application of a service."""
    api = create_api(service)

    async def directly(scope: Scope, receive: Receive, send: Send) -> None:
        """POST /translate without FastAPI, whose way to a function takes longer than all else that a request needs."""
        if scope["path"] != "/translate" or scope["method"] != "POST":
            await api(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await _translate(service, request)
        except RefusedError as error:
            response = await _failed(request, error)
        await response(scope, receive, send)

    if not service.settings.cors_origins:
        return _logged(directly, service)
    allowing = CORSMiddleware(
        directly,
        allow_origins=service.settings.cors_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
        expose_headers=["X-Request-ID"],
    )
    return _logged(allowing, service)


def _logged(app: ASGIApp, service: Service) -> ASGIApp:
    """An application each of whose answers has a line in the log, and counts; it answers an error of its own, too."""

    async def logged(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await live(service, scope, receive, send, say=_say)
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
            await app(scope, receive, noted)
        except Exception:
            _errors.exception("internal error")
            if not status:
                await JSONResponse({"error": INTERNAL}, 500)(scope, receive, noted)
            elif not is_whole:  # half of an answer is sent; the connection ends
                raise
        finally:
            seconds = time.perf_counter() - start
            if scope["path"] == "/translate" and scope["method"] == "POST":
                service.metrics.answered(status, seconds)
            _say(scope, status, 1000 * seconds)

    return logged


def _say(scope: Scope, status: int, milliseconds: float) -> None:
    if not _log.isEnabledFor(logging.INFO):
        return
    method, path, sentences = scope["method"], scope["path"][:LONGEST_PATH], scope.get(SENTENCES)
    client = (scope.get("client") or ("-",))[0]
    said = f"{client} {method} {printable(path)} {status} {milliseconds:.1f} ms"
    fields = {"client": client, "method": method, "path": path, "status": status}
    fields |= {"milliseconds": round(milliseconds, 1), "sentences": sentences}
    _log.info(said if sentences is None else f"{said}, {counted(sentences, 'sentence')}", extra={"fields": fields})


def create_api(service: Service) -> FastAPI:
    """What FastAPI documents."""
    app = FastAPI(
        title=PROGRAM,
        version=__version__,
        description="Translates sentences.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # to where the header Host says
    )
    for kind in (RefusedError, HTTPException, Exception):
        app.add_exception_handler(kind, _failed)
    schema = schema_of(service.settings, *service.doors)

    @app.post(
        "/translate",
        summary="Translate a sentence, or a list of sentences",
        responses={
            200: {"model": Answer, "description": "One translation for each sentence"},
            **_failures(400, 401, 408, 413, 415, 500, 503, 504),
        },
        openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}},
    )
    async def translate(request: Request) -> Response:
        return await _translate(service, request)

    @app.get(
        "/live",
        summary="Translate while text is still being spoken or typed, by a WebSocket: a JSON object in each message",
        description=_described_live(),
        status_code=101,
        responses={
            101: {"description": "A WebSocket; answers are objects with text and tail, or error and status"},
            **_failures(401, 403, 426, 503),
        },
    )
    async def upgrade() -> Response:
        raise RefusedError(
            426, "Upgrade: missing. Allowed: websocket, of version 13.", headers={"Upgrade": "websocket"}
        )

    @app.head("/health", include_in_schema=False)
    @app.get(
        "/health",
        summary="Whether it accepts requests: 200 if it is ready, 503 while it loads the model or ends",
        responses={200: {"description": "ready"}, 503: {"description": "loading or draining"}},
    )
    async def health() -> JSONResponse:
        is_ready = service.status == "ready"
        return JSONResponse(service.health(), 200 if is_ready else 503, {"Cache-Control": "no-store"})

    @app.get(
        "/metrics",
        summary="Counts and times, in the text format of Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "the metrics"}, **_failures(401)},
    )
    async def metrics(request: Request) -> Response:
        check_key(request.headers.get("authorization", ""), service.settings.api_key)
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.post(
        "/reload",
        summary="Load the model again, from the same files, and answer when new requests go to it",
        include_in_schema=service.settings.api_key is not None,
        responses={200: {"description": "what is served now, as for /health"}, **_failures(401, 409, 422, 500, 503)},
    )
    async def reload(request: Request) -> JSONResponse:
        if service.settings.api_key is None:
            raise RefusedError(403, "/reload: the server has no API key, without which anybody could call it.")
        check_key(request.headers.get("authorization", ""), service.settings.api_key)
        if service.exchange.locked():
            raise RefusedError(409, "the model is being reloaded already. Try again later.", headers=SOON)
        await asyncio.shield(service.reload())
        return JSONResponse(service.health(), headers={"Cache-Control": "no-store"})

    if service.settings.api == LIBRETRANSLATE:

        @app.get(
            "/languages",
            summary="The languages of the model, in LibreTranslate's form",
            responses={200: {"description": "code, name and targets of each"}, **_failures(503)},
        )
        async def languages() -> JSONResponse:
            return JSONResponse(_languages(service).listed())

        @app.post("/detect", include_in_schema=False)
        async def detect() -> Response:
            raise RefusedError(400, "/detect: this server does not recognise languages. Allowed: source in /translate.")

    def file(path: str) -> Callable[[], Coroutine[Any, Any, Response]]:
        content, kind = FILES[path][0].read_bytes(), FILES[path][1]

        async def answer() -> Response:
            if service.draining.is_set():
                raise RefusedError(503, DRAINING, headers=SOON)
            return Response(content, media_type=kind, headers=POLICY)

        return answer

    for path in FILES:
        for method in ("GET", "HEAD"):
            app.add_api_route(path, file(path), methods=[method], include_in_schema=False)
    return app


def _described_live() -> str:
    """The keys of messages."""
    keys = [f"`{name}`: {meaning}." for name, meaning in {**MESSAGE, **FIRST}.items()]
    return "\n\n".join([*keys[: len(MESSAGE)], "The first message of a session may also have:", *keys[len(MESSAGE) :]])


async def _translate(service: Service, request: Request) -> Response:
    settings, key = service.settings, request.headers.get("authorization", "")
    until = time.monotonic() + settings.timeout
    if settings.api == LIBRETRANSLATE:
        return await _as_libretranslate(service, request, key, until=until)
    check_key(key, settings.api_key)
    body = await _body(request, service)
    wanted = read_request(body, request.headers.get("content-type", ""), settings, *service.doors)
    return await _answered(service, request, wanted, until=until)


async def _answered(service: Service, request: Request, wanted: Any, *, until: float) -> Response:
    if wanted.max_seconds is not None:
        until = min(until, time.monotonic() + wanted.max_seconds)
    kinds = [kind.partition(";")[0].strip().lower() for kind in request.headers.get("accept", "").split(",")]
    if EVENTS in kinds:
        asked = contextlib.AsyncExitStack()
        job = await asked.enter_async_context(_asked(request, service, wanted, until=until, at_once=STREAMED))
        return _Events(job, asked, service)
    async with _asked(request, service, wanted, until=until) as job:
        answers = await job.answer
    answer = ('{"translations": [' + ", ".join(answers) + "]}").encode()
    check_answer(len(answer), service.settings)
    return Response(answer, media_type=JSON)


async def _as_libretranslate(service: Service, request: Request, key: str, *, until: float) -> Response:
    """The answer of a server that understands both forms; in LibreTranslate's the key may be in the body."""
    settings = service.settings
    if key:
        check_key(key, settings.api_key)
    body = await _body(request, service)
    check_lists(body, settings)
    value = read_body_of(body, request.headers.get("content-type", ""))
    if not key:
        given = value.get("api_key") if isinstance(value, dict) else None
        check_key(f"Bearer {given}" if isinstance(given, str) and given else "", settings.api_key, "api_key", "the key")
    if not is_meant(value):
        return await _answered(service, request, checked_request(value, settings, *service.doors), until=until)
    wanted = read_wanted(value, _languages(service), settings, *service.doors)
    async with _asked(request, service, wanted.request, until=until) as job:
        answer = wanted.answer(await job.answer)
    check_answer(len(answer), settings)
    return Response(answer, media_type=JSON)


def _languages(service: Service) -> Languages:
    model = service.newest()
    return Languages.of(model.facts, model.translator.languages)


class _Events(Response):
    """The answers to a request, each sent as an event (see Server-sent events) as soon as it is there, in order."""

    def __init__(self, job: Job, asked: contextlib.AsyncExitStack, service: Service) -> None:
        """`asked` ends the job."""
        super().__init__(media_type=EVENTS, headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._job, self._asked, self._settings = job, asked, service.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._asked:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            size = 0
            try:
                async for answer in _one_by_one(self._job):
                    size += len(answer)
                    check_answer(size, self._settings)
                    await send({"type": "http.response.body", "body": answer, "more_body": True})
                last = b"event: end\ndata: {}\n\n"
            except (RefusedError, ConfigError, DataError) as error:
                status, message = (
                    (error.status, error.message)
                    if isinstance(error, RefusedError)
                    else (400, " ".join(str(error).split("\n")))
                )
                last = f"event: error\ndata: {json.dumps({'error': message, 'status': status})}\n\n".encode()
            except Exception:
                _errors.exception("internal error")
                last = f"event: error\ndata: {json.dumps({'error': INTERNAL, 'status': 500})}\n\n".encode()
            await send({"type": "http.response.body", "body": last})


async def _one_by_one(job: Job) -> AsyncIterator[bytes]:
    """Events of the answers to a job; raises what has made it fail."""
    for place in range(len(job.sentences)):
        while job.answers[place] is None:
            job.has_come.clear()
            more = asyncio.ensure_future(job.has_come.wait())
            try:
                waited: set[asyncio.Future[Any]] = {more, job.answer}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            finally:
                more.cancel()
            if job.answer.done() and job.answers[place] is None:
                job.answer.result()
        yield f"data: {job.answers[place]}\n\n".encode()


async def _body(request: Request, service: Service) -> bytes:
    """The body of a request, which is refused if its time is over, or the server ends, before all of it has arrived."""
    settings, close = service.settings, {"Connection": "close"}
    reading = asyncio.ensure_future(read_body(request, most=settings.max_body_bytes))
    await asyncio.sleep(0)
    if reading.done():  # most bodies arrive together with their headers
        return reading.result()
    ending = asyncio.ensure_future(service.draining.wait())
    try:
        waited: set[asyncio.Future[Any]] = {reading, ending}
        await asyncio.wait(waited, timeout=settings.timeout, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        if ending.done():
            raise RefusedError(503, DRAINING, headers={**SOON, **close})
        raise RefusedError(408, f"body: has not arrived within {settings.timeout:g} seconds", headers=close)
    finally:
        reading.cancel()
        ending.cancel()


@contextlib.asynccontextmanager
async def _asked(
    request: Request, service: Service, wanted: Any, *, until: float, at_once: int | None = None
) -> AsyncIterator[Job]:
    """The job of a request, which is dropped when the client goes away or its time is over; `at_once`: see Job."""
    try:
        job = await service.submit(wanted)
        job.at_once = at_once or job.at_once
        request.scope[SENTENCES] = len(job.sentences)

        def fail(status: int, message: str) -> None:
            if not job.answer.done():
                job.answer.set_exception(RefusedError(status, message))

        async def leave() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            fail(CLIENT_GONE, "the client went away")

        over = "the time of this request (max_seconds, or --timeout of the server) is over"
        timer = asyncio.get_running_loop().call_later(until - time.monotonic(), fail, 504, over)
        gone = asyncio.ensure_future(leave())
        try:
            yield job
        finally:
            timer.cancel()
            gone.cancel()
            service.drop(job)
    except (ConfigError, DataError) as error:
        raise RefusedError(400, " ".join(str(error).split("\n"))) from error


def _failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    meanings = {
        400: "Not allowed: the line names the key, what was wrong and what is allowed",
        401: "The key is missing or wrong",
        403: "The page is not of this server",
        408: "The body has not arrived in time",
        413: "The body, the text or the answer is too long",
        409: "The model is being reloaded already",
        415: "The body is not application/json",
        426: "The request is none for a WebSocket",
        422: "The model cannot be loaded, or is for other languages; the one before keeps serving",
        500: "An error of the server; see its log",
        503: "The queue is full, or the server is starting or ending; Retry-After tells when to try again",
        504: "The time is over",
    }
    return {status: {"model": Failed, "description": meanings[status]} for status in statuses}


async def _failed(request: Request, error: Exception) -> Response:
    """The answer to a request that is refused, to another path, or where the server has made a mistake."""
    if isinstance(error, HTTPException):
        allowed = "POST /translate, GET /, /live, /health, /metrics, /docs, /openapi.json"
        message = f"{request.method} {shortened(request.scope['path'])}: unknown. Allowed: {allowed}."
        error = RefusedError(error.status_code, message, headers=error.headers)
    if isinstance(error, RefusedError):
        return JSONResponse({"error": error.message}, error.status, error.headers)
    return JSONResponse({"error": INTERNAL}, 500)
