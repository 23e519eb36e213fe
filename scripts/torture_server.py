"""A server among 64 clients of which some cut, leave, ask for too much or send what is no request, while its model is
exchanged: each request that is in order gets its own answer."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import json
import random
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import nmt
from nmt.errors import DataError
from tests.exported_run import make_exported
from tests.serving.server_process import ServerProcess, started

CLIENTS = 64
WORDS = ("a", "b", "c", "d", "longaer", "longber", "sentence", "of", "xa", "yb", "日本", "é", "🙂")
ODD = (
    b"\x00\xff\xfe garbage\r\n\r\n",
    b"GET / HTTP/one\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
    b"Content-Length: 2\r\n\r\n{}",
)
BAD: tuple[Any, ...] = (
    {"text": 1},
    {"text": []},
    [0] * 9,
    {"x" * 999: 1},
    {"text": "a", "n_best": 99},
    {"text": ["a", 2]},
)
COSTLY: tuple[Any, ...] = (
    {"text": "\ufdfa" * 20_000, "beam_size": 16},
    {"text": "a b. " * 3_000, "beam_size": 16},
    {"text": "a b c d. " * 99, "n_best": 16, "details": ["attention"]},
)
WAYS = {"order": 12, "half-closed": 1, "cut": 2, "left": 2, "odd": 1, "bad": 1, "costly": 1, "late": 1}
"""How a client behaves, and how often."""


def server(work: Path, *, requests: int, seed: int) -> dict[str, int]:
    """Send so many requests, and end the server by SIGTERM while further ones come.

    Raises:
        DataError: a request that is in order has no answer or another one's, or the server has logged an error.
    """
    file = work / "served.nmt"
    shutil.copy(make_exported(work).file, file)
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 12))) for _ in range(500)]
    with nmt.load(file) as translator:
        wanted = dict(zip(texts, map(str, translator.translate(texts)), strict=True))
    with started(str(file), "--timeout", "10") as process:
        attack = Attack(process, wanted, chance)
        asyncio.run(attack.run(requests, file))
        code = process.ended()
        said = process.said
    if code != 128 + signal.SIGTERM:
        raise DataError(f"the server ended with {code} instead of {128 + signal.SIGTERM}")
    if wrong := [line for line in said if re.search(r"Traceback|internal error|Exception", line)]:
        raise DataError(f"the server logged: {wrong[0]}")
    return dict(sorted(attack.found.items()))


class Attack:
    """The clients, and what they have got."""

    def __init__(self, process: ServerProcess, wanted: dict[str, str], chance: random.Random) -> None:
        self.process, self.wanted, self.chance = process, wanted, chance
        self.host, _, self.port = process.base.removeprefix("http://").rpartition(":")
        self.found: collections.Counter[str] = collections.Counter()
        self.is_ending = False

    async def run(self, requests: int, file: Path) -> None:
        """All of it; the last requests come while the server ends."""
        left = iter(range(requests))
        exchanging = asyncio.create_task(self._exchange(file))
        await asyncio.gather(*(self._client(left) for _ in range(CLIENTS)))
        exchanging.cancel()
        ending = [asyncio.create_task(self._client(itertools.repeat(0))) for _ in range(CLIENTS)]
        await asyncio.sleep(0.5)
        self.is_ending = True
        self.process.signal(signal.SIGTERM)
        await asyncio.gather(*ending)

    async def _exchange(self, file: Path) -> None:
        """The file is overwritten in place, and the model opened again, over and over."""
        content = file.read_bytes()
        while True:
            await asyncio.sleep(0.7)
            file.write_bytes(content)
            self.process.signal(signal.SIGHUP)
            self.found["exchanges of the model"] += 1

    async def _client(self, left: Any) -> None:
        for _ in left:
            way = self.chance.choices(list(WAYS), weights=list(WAYS.values()))[0]
            try:
                reader, writer = await asyncio.open_connection(self.host, int(self.port))
            except OSError:
                if self.is_ending:
                    return  # it no longer listens
                raise DataError("the server accepts no connection") from None
            try:
                await asyncio.wait_for(self._request(way, reader, writer), 60)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                if way in ("order", "half-closed"):
                    raise DataError(f"a request that is in order ({way}) had no answer: {error!r}") from None
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    async def _request(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = self.chance.choice(list(self.wanted))
        body: Any = {"bad": self.chance.choice(BAD), "costly": self.chance.choice(COSTLY)}.get(way, {"text": text})
        if way == "late":
            body = {"text": text, "max_seconds": 0.0005}
        content = json.dumps(body, ensure_ascii=False).encode()
        head = (
            f"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
        )
        whole = self.chance.choice(ODD) if way == "odd" else head.encode() + b"\r\n\r\n" + content
        writer.write(whole[: self.chance.randrange(len(whole))] if way == "cut" else whole)
        await writer.drain()
        self.found[f"requests: {way}"] += 1
        if way in ("cut", "left"):
            return
        if way == "half-closed":
            writer.write_eof()
        status, answer = await read_answer(reader)
        if way in ("order", "half-closed") and status == 200:
            if answer["translations"][0]["text"] != self.wanted[text]:
                raise DataError(f"{text!r} was answered with {answer}")
            self.found["answers, all of them right"] += 1
        elif status == 503 and self.is_ending:
            self.found["refused while the server ended (503)"] += 1
        elif status == 200 and way != "late" and way != "costly":
            raise DataError(f"a request that is {way} was answered with 200")
        elif status != 200:
            allowed = {"odd": (400, 405, 413, 414, 415, 431, 505), "bad": (400,), "costly": (413,), "late": (504,)}
            if status not in allowed.get(way, ()):
                raise DataError(f"a request ({way}) was answered with {status}: {answer}")


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """Status and body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    content = await reader.readexactly(int(length[1])) if length else b"{}"
    return int(head.split()[1]), json.loads(content)
