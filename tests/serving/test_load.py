"""Under load: no answer is lost or swapped, memory stays flat, a signal in between loses nothing accepted."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

import nmt
from tests.exported_run import Exported
from tests.serving.server_process import COMMAND, ServerProcess, started

CLIENTS = 64
REQUESTS = 10_000
ALLOWED_GROWTH = 1.1
"""Of the memory from 2,000 requests to 10,000; what is kept for each request would show."""

pytestmark = pytest.mark.slow


def sentences(number: int) -> list[str]:
    """So many sentences, no two of them the same."""
    words = ["a", "b", "c", "d", "longaer", "longber", "sentence", "of", "xa", "yb"]
    texts = (" ".join(chosen) for length in range(1, 9) for chosen in itertools.product(words, repeat=length))
    return list(itertools.islice(texts, number))


def resident(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])


class Clients:
    """Many at once, each with a connection of its own; what each text was answered with."""

    def __init__(self, server: ServerProcess) -> None:
        self.answers: dict[str, tuple[int, str]] = {}
        self._path = f"{server.base}/translate"

    async def ask(self, texts: Sequence[str]) -> None:
        """Send a request for each text; those that the server does not accept at its end have no answer."""
        waiting = iter(texts)

        async def one() -> None:
            async with httpx.AsyncClient(timeout=100) as client:
                for text in waiting:
                    try:
                        found = await client.post(self._path, json={"text": text})
                    except httpx.HTTPError as error:
                        self.answers[text] = (0, repr(error))
                        continue
                    answer = found.json()
                    text_ = answer["translations"][0]["text"] if found.status_code == 200 else answer["error"]
                    self.answers[text] = (found.status_code, text_)

        await asyncio.gather(*(one() for _ in range(CLIENTS)))


@pytest.mark.parametrize("by", ["file", "run"])
def test_64_clients_get_their_own_answers_and_memory_stays_flat(exported: Exported, by: str) -> None:
    model = getattr(exported, by)
    texts = sentences(REQUESTS)
    with started(model, "--device", "cpu", "--quiet", command=COMMAND) as server:
        clients = Clients(server)
        asyncio.run(clients.ask(texts[:2000]))
        early = resident(server)
        asyncio.run(clients.ask(texts[2000:]))
        late = resident(server)
        metrics = httpx.get(f"{server.base}/metrics").text
        server.signal()
        assert server.ended() == 143
    assert 'nmt_requests_total{status="200"} 10000.0' in metrics
    assert "nmt_sentences_total 10000.0" in metrics
    batches = float(re.findall(r"^nmt_batch_sentences_count (.*)$", metrics, flags=re.M)[0])
    assert batches < REQUESTS / 4  # requests of different clients are computed together
    with nmt.load(model, device="cpu") as translator:
        wanted = [result.text for result in translator.translate(texts)]
    assert clients.answers == {text: (200, answer) for text, answer in zip(texts, wanted, strict=True)}
    assert late < ALLOWED_GROWTH * early, f"{early} kB after 2,000 requests, {late} kB after 10,000"


def test_a_signal_under_load_loses_nothing_accepted(exported: Exported) -> None:
    texts = sentences(REQUESTS)
    with started(exported.file, command=COMMAND) as server:
        clients = Clients(server)

        async def run() -> None:
            asking = asyncio.ensure_future(clients.ask(texts))
            while len(clients.answers) < 1000:
                await asyncio.sleep(0.01)
            server.signal()
            await asking

        start = time.monotonic()
        asyncio.run(run())
        assert server.ended() == 143, time.monotonic() - start
    answered = {text: answer for text, (status, answer) in clients.answers.items() if status == 200}
    refused = {answer for status, answer in clients.answers.values() if status == 503}
    assert {status for status, _ in clients.answers.values()} <= {200, 503, 0}
    assert refused <= {"the server is draining. Try again later."}
    assert len(clients.answers) == REQUESTS and 1000 <= len(answered) < REQUESTS
    # The log says what was accepted: each of these requests has been answered.
    logged = [line for line in server.said if " POST /translate 200 " in line]
    assert len(logged) == len(answered)
    assert not [line for line in server.said if re.search(r" POST /translate (?!200 |503 )", line)]
    with nmt.load(exported.file) as translator:
        wanted = translator.translate(list(answered))
    assert list(answered.values()) == [result.text for result in wanted]
