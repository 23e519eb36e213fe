"""WebSocket /live: sessions of live translation, one after the other on each connection.

A session begins with a message that has text, and what else that message says is how it translates. It is computed in
threads of its own, a message of another session between two parts of a long one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, cast
from urllib.parse import urlsplit

from starlette.types import Message, Receive, Scope, Send

from nmt.errors import ConfigError, DataError, shortened
from nmt.library.values import WISHES
from nmt.light.binding import Stop
from nmt.serving.connections import ANSWER, SOCKET, refusal
from nmt.serving.limits import CLIENT_GONE, DRAINING, RefusedError, Settings, check_key
from nmt.serving.log import id_of, request_id
from nmt.serving.requests import JSON, keys_of, read_json, read_request, refuse, shown_json
from nmt.serving.service import Service
from nmt.serving.websockets import GOING_AWAY, INTERNAL, LATER, REFUSED, TOO_LARGE

PART: Final = 200
"""Characters that are computed at once; other sessions have their turns between two."""
MESSAGE: Final = {
    "text": "a string: more source text, in pieces of any size; a word is read when white space follows",
    "revise": "a string: the whole of what is being said, which replaces the one before, for speech recognisers",
    "final": "true: what `revise` says is not revised any more",
    "end": "true: the session ends; the next message begins another one",
}
"""Keys of a message: what each is."""
FIRST: Final = {
    "key": "the API key, if the server has one and the header Authorization is missing",
    "policy": "wait_k (default), local_agreement or alignatt",
    "wait": "of wait_k: words that are read before the first one is written",
    "agree": "of local_agreement: translations that must begin alike",
    "unread": "of alignatt: the last words, to which no written word may attend",
}
"""Keys that only the first message of a session may have, besides options of the search."""
CODES: Final = {413: TOO_LARGE, 500: INTERNAL, 503: LATER}
"""With what a connection is closed after an error; after other errors that end it with REFUSED."""
STATUSES: Final = {REFUSED: 408, TOO_LARGE: 413, LATER: 503}
"""The status of what ends a connection, by its code; of others 400."""
GOES_ON: Final = 400
"""The status of errors after which the session stays as it is."""
TEXTS: Final = ("text", "revise")
LEFT_OUT: Final = ("split", "n_best")
"""Options of the command that sessions do not have."""

_errors = logging.getLogger("nmt.serving.errors")


async def live(service: Service, scope: Scope, receive: Receive, send: Send, *, say: Callable[..., None]) -> None:
    """Answer one WebSocket; `say` writes its line in the log."""
    start, status = time.perf_counter(), 101
    request_id.set(id_of(next((value for key, value in scope["headers"] if key == b"x-request-id"), None)))
    await receive()
    try:
        with service.a_session():
            _check_origin(scope, service.settings)
            has_key = _has_key(scope, service.settings)
            await send({"type": "websocket.accept", "body": scope[ANSWER]})
            await _Talk(service, scope, receive, send, has_key=has_key).run()
    except RefusedError as error:
        status = error.status
        body = refusal(error.status, error.message, error.headers)
        await send({"type": "websocket.http.response.body", "body": body})
    finally:
        say(scope, status, 1000 * (time.perf_counter() - start))


def _check_origin(scope: Scope, settings: Settings) -> None:
    """Refuse pages of other servers, which browsers let open WebSockets anywhere."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    host = headers.get(b"host", b"").decode("latin-1")
    if origin and urlsplit(origin).netloc != host and not {origin, "*"} & {*settings.cors_origins}:
        allowed = "pages of this server, and those of --cors-origin"
        raise RefusedError(403, f"Origin: {shortened(origin)} is not allowed. Allowed: {allowed}.")


def _has_key(scope: Scope, settings: Settings) -> bool:
    """Whether the header has the API key, if there is one; a wrong one is refused."""
    given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    if given:
        check_key(given, settings.api_key)
    return bool(given) or settings.api_key is None


class _Talk:
    """The sessions of one connection."""

    def __init__(self, service: Service, scope: Scope, receive: Receive, send: Send, *, has_key: bool) -> None:
        self._service, self._settings = service, service.settings
        self._socket, self._receive, self._send = scope[SOCKET], receive, send
        self._has_key = has_key
        self._session: Any = None
        self._model = contextlib.ExitStack()
        """Keeps the model of the session."""
        self._stop = Stop()
        self._until = math.inf
        """When the message that is being answered must be."""

    async def run(self) -> None:
        """Answer messages until the client goes away, or the server ends."""
        try:
            code = None
            while code is None:
                content, code = await self._next()
                if content is not None:
                    code = await self._answered(content)
            await self._send({"type": "websocket.close", "code": code})
        finally:
            self._stop.set()
            self._drop()

    async def _next(self) -> tuple[bytes | None, int | None]:
        """The next message, or the code with which the connection ends. When the server ends, the session does, too."""
        coming = asyncio.ensure_future(cast("Coroutine[Any, Any, Message]", self._receive()))
        ending = asyncio.ensure_future(self._service.draining.wait())
        waited: set[asyncio.Future[Any]] = {coming, ending}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                if self._session is not None:
                    await self._answered(b'{"end": true}')
                await self._say({"error": DRAINING, "status": 503})
                return None, GOING_AWAY
            message = coming.result()
            if message["type"] == "websocket.receive":
                return message["bytes"], None
            if message["reason"]:
                await self._say({"error": message["reason"], "status": STATUSES.get(message["code"], 400)})
            return None, message["code"]
        finally:
            coming.cancel()
            ending.cancel()

    async def _answered(self, content: bytes) -> int | None:
        """Answer a message; after an error that ends the connection, the code of that."""
        self._until = time.monotonic() + self._settings.timeout
        try:
            await self._answer(self._checked(content))
        except RefusedError as error:
            await self._say({"error": error.message, "status": error.status})
            return None if error.status == GOES_ON else CODES.get(error.status, REFUSED)
        except Exception:
            _errors.exception("internal error")
            await self._say({"error": "internal error; see the log of the server", "status": 500})
            return INTERNAL
        return None

    def _checked(self, content: bytes) -> dict[str, Any]:
        """A message, whose mistakes are refused by name."""
        found: Any = read_json(content)
        if not isinstance(found, dict):
            refuse(f"message: {shown_json(found)} is not allowed", "a JSON object with text, revise or end")
        for name in found:
            if name not in MESSAGE and self._session is not None:
                refuse(f"{shortened(name)}: only the first message of a session has it", ", ".join(MESSAGE))
            value = found[name]
            if name in MESSAGE and not (isinstance(value, str) if name in TEXTS else value is True):
                refuse(f"{name}: {shown_json(value)} is not allowed", MESSAGE[name].partition(":")[0])
        given = [name for name in (*TEXTS, "end") if name in found]
        if not given:
            refuse("text: missing", "text, revise or end")
        if len(given) > 1:
            refuse(f"{given[0]}: does not go together with {given[1]}", "one of text, revise and end")
        if "final" in found and "revise" not in found:
            refuse("final: has no meaning without revise", "together with revise")
        if len(found.get(given[0], "") if given[0] in TEXTS else "") > self._settings.max_characters:
            characters = f"{len(found[given[0]]):,} characters are too many"
            refuse(f"{given[0]}: {characters}", f"{self._settings.max_characters:,}")
        return found

    async def _answer(self, message: dict[str, Any]) -> None:
        if self._session is None and "end" not in message:
            await self._open(message)
        session, found = self._session, ""
        if "end" in message:
            found = "" if session is None else await self._computed(session.end)
            self._drop()
            await self._say({"text": found, "tail": "", "end": True})
            return
        try:
            if "revise" in message:
                final = "final" in message
                found = await self._computed(functools.partial(session.revise, message["revise"], final=final))
            else:
                text = message["text"]
                for at in range(0, len(text), PART):
                    found += await self._computed(functools.partial(session.feed, text[at : at + PART]))
                    self._check_sentence()
            self._check_sentence()
        except RefusedError:
            if found:
                await self._say({"text": found, "tail": ""})
            raise
        await self._say({"text": found, "tail": session.tail})

    def _check_sentence(self) -> None:
        most = self._settings.max_sentence_tokens
        if self._session.open_words > most:
            raise RefusedError(413, f"text: a sentence of more than {most:,} words. Allowed: at most {most:,}; end it.")

    async def _open(self, message: dict[str, Any]) -> None:
        """Begin the session that a message asks for."""
        from nmt.registry import POLICIES  # late, as nmt-light has none

        given = {name: value for name, value in message.items() if name not in (*MESSAGE, *FIRST)}
        if not self._has_key:
            key = message.get("key")
            check_key(f"Bearer {key}" if isinstance(key, str) else "", self._settings.api_key, "key", "the API key")
            self._has_key = True
        policy = message.get("policy", "wait_k")
        with _one_line():
            own = {field.name for field in dataclasses.fields(POLICIES.get(str(policy)).Options)}
        known = [
            *MESSAGE,
            *FIRST,
            *sorted(own - {*FIRST}),
            *(n for n in keys_of(*self._service.doors) if n not in LEFT_OUT),
        ]
        for name in given:
            if name not in known:
                refuse(f"{shortened(name)}: unknown key", ", ".join(known))
        for name in FIRST:
            if name in message and name not in (*own, "key", "policy"):
                refuse(f"{name}: is no option of {policy}", ", ".join(sorted(own)) or "none")
        asked = {name: value for name, value in given.items() if name not in own}
        wanted = read_request(json.dumps({**asked, "text": ""}).encode(), JSON, self._settings, *self._service.doors)
        wishes = {name: value for name in WISHES if (value := getattr(wanted, name)) is not None}
        model = self._service.newest()
        defaults = {name: value for name, value in model.defaults.items() if name not in LEFT_OUT}
        options = {**defaults, **wanted.options(), **wishes, **{n: message[n] for n in own if n in message}}
        self._model.enter_context(model.batcher.kept())
        try:
            live = functools.partial(model.translator.live, policy, revise="revise" in message, **options)
            self._session = await self._computed(live)
        finally:
            if self._session is None:
                self._drop()
        self._session.stop = self._stop

    async def _computed(self, function: Callable[[], Any]) -> Any:
        """What a function returns in a thread, whose work ends at the next word when nobody waits for it any more."""
        working = asyncio.get_running_loop().run_in_executor(self._service.live_threads, function)
        working.add_done_callback(lambda done: done.cancelled() or done.exception())
        gone = asyncio.ensure_future(self._socket.gone.wait())
        waited: set[asyncio.Future[Any]] = {working, gone}
        await asyncio.wait(waited, timeout=self._until - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not working.done():
            self._stop.set()
            if self._socket.gone.is_set():
                raise RefusedError(CLIENT_GONE, "the client went away")
            raise RefusedError(504, "the time of this message (--timeout of the server) is over")
        with _one_line():
            return working.result()

    async def _say(self, answer: dict[str, Any]) -> None:
        await self._send({"type": "websocket.send", "bytes": json.dumps(answer, ensure_ascii=False).encode()})

    def _drop(self) -> None:
        self._session = None
        self._model.close()


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Mistakes of the client, as one line."""
    try:
        yield
    except (ConfigError, DataError, TypeError) as error:
        raise RefusedError(400, " ".join(str(error).split("\n"))) from None
