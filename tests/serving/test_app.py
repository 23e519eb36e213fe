"""What the application answers, without a socket: translations, limits of time and access, errors, its pages."""

from __future__ import annotations

import asyncio
import json
import platform
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import pytest

import nmt
from nmt.errors import NmtError
from nmt.serving.app import FILES, INTERNAL, PAGES, create_app
from nmt.serving.command import build_parser
from nmt.serving.limits import Settings
from nmt.serving.service import Service
from tests.exported_run import LINES, Exported

SENTENCES = ["a b c", "c", "", "d d a", "b longer a", "two\nlines", "unknown b"]
DETAILS = ["tokens", "scores", "attention", "alignment"]

Test = Callable[[httpx.AsyncClient, Service], Coroutine[Any, Any, None]]


class Fake:
    """A translator that waits until it may, and fails as told."""

    source_language, target_language, device = "en", "de", "cpu"
    precision, kernels, without_kernels = "fp32", "none", ""
    languages = ()

    def __init__(self, *, error: Exception | None = None) -> None:
        self.may, self.begun = threading.Event(), threading.Event()
        self.asked: list[str] = []
        self.is_closed = False
        self._error = error

    def hypotheses(self, **options: Any) -> int:
        return 4

    def parts(self, sentences: Sequence[nmt.Request], **options: Any) -> list[list[int]]:
        return [[len(sentence.text)] for sentence in sentences]

    def translate(
        self, sentences: str | Sequence[nmt.Request], *, stop: nmt.Stop | None = None, **options: Any
    ) -> list[nmt.Result]:
        if isinstance(sentences, str):  # the one with which a model begins
            if self._error is not None:
                raise self._error
            return []
        assert stop is not None
        self.asked += [sentence.text for sentence in sentences]
        self.begun.set()
        while not self.may.wait(0.01):
            stop.check()
        if self._error is not None:
            raise self._error
        return [nmt.Result(sentence.text, [nmt.Hypothesis(sentence.text.upper(), -1.0)]) for sentence in sentences]

    def close(self) -> None:
        self.may.set()
        self.is_closed = True


@pytest.fixture(scope="module")
def translator(run: Path) -> Iterator[nmt.Translator]:
    with nmt.load(run, device="cpu") as translator:
        yield translator


def served(
    translator: Any, test: Test, *, defaults: dict[str, Any] | None = None, start: bool = True, **changes: Any
) -> None:
    """Run a test with a client of an application; the translator stays open."""
    service = Service(Settings(**changes), name="model")

    async def run() -> None:
        if start:
            service.start(translator, defaults or {})
        transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            try:
                await asyncio.wait_for(test(client, service), 60)
            finally:
                if isinstance(translator, Fake):
                    translator.may.set()
                for model in service._models:
                    model.batcher.close()

    asyncio.run(run())


def only(found: httpx.Response) -> Any:
    assert found.status_code == 200, found.text
    (translation,) = found.json()["translations"]
    return translation


def test_a_string_or_a_list_is_translated_as_the_library_does(translator: nmt.Translator) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        wanted = translator.translate(SENTENCES)
        found = (await client.post("/translate", json={"text": SENTENCES})).json()["translations"]
        assert [one["text"] for one in found] == [one.text for one in wanted]
        assert [one["score"] for one in found] == pytest.approx([one.score for one in wanted], abs=1e-5)
        assert [one.get("notes", []) for one in found] == [list(one.notes) for one in wanted]
        assert {*found[0]} <= {"text", "score", "notes"}
        for sentence, one in zip(SENTENCES, wanted, strict=True):
            assert only(await client.post("/translate", json={"text": sentence}))["text"] == one.text

    served(translator, test)


def test_options_and_wishes_reach_the_search(translator: nmt.Translator) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        for options in (
            {"n_best": 2, "beam_size": 4, "length_penalty": 2.0},
            {"n_best": 1},
            {"search": "greedy", "beam_size": 1},
            {"prefix": "z", "required": "u", "forbidden": ["v", "w"]},
        ):
            wanted = translator.translate("a b c", **cast("Any", options))
            found = only(await client.post("/translate", json={"text": "a b c", **options}))
            assert found["text"] == wanted.text
            assert found["score"] == pytest.approx(wanted.score, abs=1e-5)
            if "n_best" in options:
                assert [one["text"] for one in found["n_best"]] == [one.text for one in wanted.n_best]
            else:
                assert "n_best" not in found

    served(translator, test)


def test_a_glossary_of_a_request_is_in_place_of_the_servers(translator: nmt.Translator, tmp_path: Path) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        for own, wanted in (({}, "of the server"), ({"glossary": {"d": "x y"}}, "x y"), ({"glossary": {}}, without)):
            assert only(await client.post("/translate", json={"text": "d", **own}))["text"] == wanted
        refused = await client.post("/translate", json={"text": "d", "glossary": {"a b": "x", "a  b": "y"}})
        said = "glossary, line 2: 'a b' has two translations, 'x' and 'y'"
        assert (refused.status_code, refused.json()) == (400, {"error": said})

    (tmp_path / "terms").write_text("d\tof the server\n")
    without = translator.translate("d").text
    served(translator, test, defaults={"glossary": str(tmp_path / "terms")})


def test_a_request_for_another_search_does_not_get_the_options_of_the_servers_search(
    translator: nmt.Translator,
) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        for name in ("sample", None):
            answer = await client.post("/translate", json={"text": "a b c", **({"search": name} if name else {})})
            assert only(answer)["text"] == sampled.text
        assert only(await client.post("/translate", json={"text": "a b c", "search": "beam"}))["text"] == best.text

    sampling: dict[str, Any] = {"search": "sample", "search_options": {"temperature": 0.01, "seed": 3}}
    sampled, best = translator.translate("a b c", **sampling), translator.translate("a b c", search="beam")
    served(translator, test, defaults=sampling)


def test_details_are_those_of_the_library(translator: nmt.Translator) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        wanted = translator.translate("a b longer", details=DETAILS, n_best=2)  # type: ignore[arg-type]
        found = only(await client.post("/translate", json={"text": "a b longer", "details": DETAILS, "n_best": 2}))
        assert found["source_tokens"] == list(wanted.source_pieces or ())
        assert found["tokens"] == list(wanted.tokens or ())
        assert found["token_scores"] == pytest.approx(list(wanted.token_scores or ()), abs=1e-5)
        np.testing.assert_allclose(found["attention"], wanted.attention, atol=1e-4)
        assert found["alignment"] == [list(pair) for pair in wanted.alignment or ()]
        assert [one["tokens"] for one in found["n_best"]] == [list(one.tokens or ()) for one in wanted.n_best]

    served(translator, test)


def test_options_of_the_command_line_hold_unless_a_request_has_its_own(translator: nmt.Translator) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        for options, wanted in (({}, 0.0), ({"length_penalty": 3.0}, 3.0)):
            found = only(await client.post("/translate", json={"text": "a b c", **options}))
            score = translator.translate("a b c", length_penalty=wanted).score
            assert found["score"] == pytest.approx(score, abs=1e-5)

    served(translator, test, defaults={"length_penalty": 0.0})


def test_files_for_the_engine_are_served(exported: Exported) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        found = (await client.post("/translate", json={"text": LINES, "details": ["attention"]})).json()
        assert [one["text"] for one in found["translations"]] == [one.text for one in translator.translate(LINES)]
        asked = {"text": "a {x}", "placeholders": True, "forbidden": ["b"]}
        assert "{x}" in only(await client.post("/translate", json=asked))["text"]
        asked = {"text": LINES[0], "glossary": {"longaer": "Länger"}}
        assert "Länger" in only(await client.post("/translate", json=asked))["text"]
        begun = only(await client.post("/translate", json={"text": "a", "prefix": "b "}))["text"]
        assert begun == translator.translate("a", prefix="b ").text and begun.startswith("b")
        refused = await client.post("/translate", json={"text": "a", "required": "b"})
        assert refused.status_code == 400
        assert refused.json()["error"].startswith("required: ")

    with nmt.load(exported.file) as translator:
        served(translator, test)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": "a", "details": ["atention"]}, "details: 'atention' is not known.*Allowed: tokens, "),
        ({"text": "a", "search": "bem"}, "search: 'bem' is not a known search. Did you mean 'beam'?"),
        ({"text": "a", "search": "greedy", "beam_size": 1, "n_best": 3}, "n_best 3: search 'greedy' finds at most 1"),
        ({"text": "a b", "required": "x", "forbidden": "x"}, "'a b': "),
    ],
)
def test_what_the_library_refuses_is_the_clients_mistake(
    translator: nmt.Translator, body: dict[str, Any], message: str
) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        found = await client.post("/translate", json=body)
        assert found.status_code == 400
        assert re.match(message, found.json()["error"])
        assert "\n" not in found.json()["error"]

    served(translator, test)


@pytest.mark.parametrize("error", [RuntimeError("secret"), NmtError("secret: the translator is closed")])
def test_our_own_errors_are_one_line_and_in_the_log(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    translator = Fake(error=error)
    translator.may.set()

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        found = await client.post("/translate", json={"text": "a"})
        assert (found.status_code, found.json()) == (500, {"error": INTERNAL})
        assert b'nmt_requests_total{status="500"} 1.0' in service.metrics.text()

    served(translator, test)
    (record,) = [record for record in caplog.records if record.name == "nmt.serving.errors"]
    assert record.exc_info is not None and record.exc_info[1] is error


@pytest.mark.parametrize("by_request", [True, False])
def test_a_request_whose_time_is_over_is_answered_and_dropped(by_request: bool) -> None:
    translator = Fake()

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        asyncio.get_running_loop().call_later(1.0, translator.may.set)
        limit = {"max_seconds": 0.2} if by_request else {}
        requests = [client.post("/translate", json={"text": text, **limit}) for text in "abc"]
        for found in await asyncio.gather(*requests):
            assert (found.status_code, found.json()["error"][:8]) == (504, "the time")
        assert not translator.may.is_set()
        await service.drain()
        assert translator.asked in (["a"], ["a", "b"], ["a", "b", "c"])  # of one batch

    served(translator, test, max_wait=0.0, timeout=20 if by_request else 0.2)


def test_options_whose_first_use_takes_long_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those for which a file for the engine needs PyTorch, which has to be imported."""
    translator, asked = Fake(), threading.Event()
    translator.may.set()

    def hypotheses(**options: Any) -> int:
        if "placeholders" in options:
            asked.set()
            assert may_end.wait(30)
        return 4

    may_end = threading.Event()
    monkeypatch.setattr(translator, "hypotheses", hypotheses)

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        slow = asyncio.ensure_future(client.post("/translate", json={"text": "a", "placeholders": True}))
        while not asked.is_set():
            await asyncio.sleep(0.001)
        assert only(await client.post("/translate", json={"text": "b"}))["text"] == "B"
        assert not slow.done()
        may_end.set()
        assert only(await slow)["text"] == "A"

    served(translator, test)


@pytest.mark.parametrize("asked", [{}, {"max_seconds": 100}])
def test_the_time_of_a_request_begins_with_its_first_byte(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose body takes all of its time to arrive has none left."""
    now = [0.0]
    monkeypatch.setattr(
        "nmt.serving.app.time", SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    )

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        async def slow() -> AsyncIterator[bytes]:
            body = json.dumps({"text": "a", **asked}).encode()
            yield body[:5]
            now[0] = 100.0
            yield body[5:]

        found = await client.post("/translate", content=slow(), headers={"Content-Type": "application/json"})
        assert (found.status_code, found.json()["error"][:8]) == (504, "the time")

    served(Fake(), test, timeout=100.0)


def test_a_request_whose_client_goes_away_is_not_computed() -> None:
    translator = Fake()

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        app, gone = create_app(service), asyncio.Event()
        first = asyncio.ensure_future(client.post("/translate", json={"text": "a"}))
        while not translator.begun.is_set():
            await asyncio.sleep(0.001)
        messages: list[Any] = []
        body = [{"type": "http.request", "body": b'{"text": "b"}', "more_body": False}]

        async def receive() -> Any:
            if body:
                return body.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/translate", "headers": headers, "query_string": b""}
        second = asyncio.ensure_future(app(scope, receive, send))
        await asyncio.sleep(0.05)
        gone.set()
        await second
        assert messages[0]["status"] == 499
        translator.may.set()
        assert only(await first)["text"] == "A"
        await service.drain()
        assert translator.asked == ["a"]

    served(translator, test, max_wait=0.0)


def test_a_body_that_does_not_come_is_408_and_one_that_ends_early_is_dropped() -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        async def slow() -> Any:
            yield b'{"text": '
            await asyncio.sleep(30)

        found = await client.post("/translate", content=slow(), headers={"Content-Type": "application/json"})
        assert (found.status_code, found.json()) == (408, {"error": "body: has not arrived within 0.2 seconds"})

    served(Fake(), test, timeout=0.2)


def test_a_body_that_is_too_long_is_413_also_in_chunks() -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        async def chunks(number: int) -> Any:
            for _ in range(number):
                yield b" " * 100

        for content in (b" " * 1001, chunks(11), chunks(1000)):
            found = await client.post("/translate", content=content, headers={"Content-Type": "application/json"})
            assert (found.status_code, found.json()) == (413, {"error": "body: too long. Allowed: 1,000 bytes."})
        allowed = json.dumps({"text": "a"}).encode().ljust(1000)
        headers = {"Content-Type": "application/json"}
        assert only(await client.post("/translate", content=allowed, headers=headers))["text"] == "A"

    translator = Fake()
    translator.may.set()
    served(translator, test, max_body_bytes=1000)


def test_the_help_names_the_status_of_what_is_too_long() -> None:
    said = dict(re.findall(r"--(max-\S+) N\s+[^-]*?,\s+else\s+(\d+)", build_parser().format_help()))
    assert {*said} == {"max-characters", "max-body-bytes", "max-tokens", "max-answer-bytes"}

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        assert (await client.post("/translate", json={"text": "a" * 11})).status_code == int(said["max-characters"])
        assert (await client.post("/translate", json={"text": "a" * 101})).status_code == int(said["max-body-bytes"])
        assert (await client.post("/translate", json={"text": "ä" * 10})).status_code == int(said["max-tokens"])
        assert (await client.post("/translate", json={"text": "a"})).status_code == int(said["max-answer-bytes"])

    translator = Fake()
    translator.may.set()
    served(translator, test, max_characters=10, max_body_bytes=100, max_tokens=39, max_answer_bytes=20)


def test_a_full_queue_is_503_with_retry_after() -> None:
    translator = Fake()

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        first = asyncio.ensure_future(client.post("/translate", json={"text": "a"}))
        while not translator.begun.is_set():
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(client.post("/translate", json={"text": ["b", "c"]}))
        await asyncio.sleep(0.05)
        found = await client.post("/translate", json={"text": "d"})
        assert found.status_code == 503 and int(found.headers["Retry-After"]) >= 1
        assert found.json()["error"].startswith("the queue is full: 2 sentences wait.")
        translator.may.set()
        assert only(await first)["text"] == "A"
        assert (await second).status_code == 200

    served(translator, test, max_queue=2, max_wait=0.0)


def test_a_request_costs_tokens_times_hypotheses(translator: nmt.Translator) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        text = "a b. " * 50
        (parts,) = translator.parts([text])
        cost = sum(part + 1 for part in parts)
        service.settings = replace(service.settings, max_tokens=5 * cost)
        only(await client.post("/translate", json={"text": text, "beam_size": 5}))
        wishes = {"beam_size": 1, "required": [*"abcdef"]}  # each of which takes a search of its own
        for body in ({"beam_size": 6}, {"text": text + "b.", "beam_size": 5}, wishes):
            found = await client.post("/translate", json={"text": text, **body})
            assert found.status_code == 413
            assert f"Allowed: {5 * cost:,} in all" in found.json()["error"]

    served(translator, test)


def test_a_sentence_has_a_limit_of_its_own(translator: nmt.Translator) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        text = "a b " * 20
        assert only(await client.post("/translate", json={"text": text}))["notes"] == ["split"]
        service.start(translator, {"split_long": "none"})
        found = await client.post("/translate", json={"text": text})
        assert (found.status_code, found.json()["error"][-30:]) == (
            413,
            "be translated at once. Allowed: 10 in a sentence."[-30:],
        )
        assert only(await client.post("/translate", json={"text": "a b. " * 5}))["text"]

    served(translator, test, max_sentence_tokens=10)


def test_an_answer_is_as_large_as_is_allowed(translator: nmt.Translator) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        body: dict[str, Any] = {"text": "a b c " * 20, "n_best": 4, "details": ["attention"]}
        found = await client.post("/translate", json=body)
        assert found.status_code == 413 and found.json()["error"].startswith("details: the attention of this text")
        found = await client.post("/translate", json={**body, "details": ["tokens", "scores"], "text": ["a b c"] * 50})
        assert found.status_code == 413 and found.json()["error"].startswith("text: the answer has ")
        only(await client.post("/translate", json={"text": "a", "details": ["attention"]}))

    served(translator, test, max_answer_bytes=10_000)


def test_the_attention_of_a_text_in_parts_is_that_of_each(translator: nmt.Translator) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        text, details = "a b c d a b c d", ["attention", "tokens"]
        found = only(await client.post("/translate", json={"text": text, "details": details}))
        wanted = translator.translate(text, details=details, split_long=5).best
        first, second = wanted.attention_of_parts
        assert found["attention_begins"] == [0] * len(first) + [first.shape[1]] * len(second)
        for begin, row, whole in zip(found["attention_begins"], found["attention"], wanted.attention, strict=True):
            assert row == pytest.approx(whole[begin : begin + len(row)], abs=1e-3)
            assert sum(row) == pytest.approx(1, abs=1e-2) and whole.sum() == pytest.approx(1, abs=1e-3)

    served(translator, test, max_sentence_tokens=5)


def test_work_ends_with_the_time_of_its_request() -> None:
    translator = Fake()

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        found = await client.post("/translate", json={"text": "a", "max_seconds": 0.1})
        assert found.status_code == 504
        first = asyncio.ensure_future(client.post("/translate", json={"text": "b"}))
        while translator.asked != ["a", "b"]:  # so the thread is free, although "a" was never answered
            await asyncio.sleep(0.001)
        translator.may.set()
        assert only(await first)["text"] == "B"

    served(translator, test)


def test_health_is_ready_loading_or_draining() -> None:
    translator = Fake()

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        found = await client.get("/health")
        assert (found.status_code, found.json()["status"]) == (503, "loading")
        assert (await client.post("/translate", json={"text": "a"})).status_code == 503
        service.start(cast("Any", translator), {})
        found = await client.get("/health")
        assert found.status_code == 200
        assert found.json().items() >= {"status": "ready", "model": "model", "source_language": "en"}.items()
        assert (await client.head("/health")).status_code == 200
        accepted = asyncio.ensure_future(client.post("/translate", json={"text": "a"}))
        while not translator.begun.is_set():
            await asyncio.sleep(0.001)
        draining = asyncio.ensure_future(service.drain())
        await asyncio.sleep(0.01)
        found = await client.get("/health")
        assert (found.status_code, found.json()["status"]) == (503, "draining")
        refused = await client.post("/translate", json={"text": "b"})
        assert (refused.status_code, refused.json()) == (503, {"error": "the server is draining. Try again later."})
        assert "Retry-After" in refused.headers
        assert not draining.done()
        translator.may.set()
        assert only(await accepted)["text"] == "A"
        await draining

    served(translator, test, start=False)


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer right", "bearer  wrong", "Basic right key", "Bearer Right Key", "Bearer ä"]
)
def test_without_the_key_nothing_is_translated(header: str | None) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        headers = {} if header is None else {"Authorization": header.encode("utf-8")}
        for found in (
            await client.post("/translate", json={"text": "a"}, headers=cast("Any", headers)),
            await client.get("/metrics", headers=cast("Any", headers)),
        ):
            assert (found.status_code, found.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert found.json()["error"].startswith("Authorization: ")
        for path in ("/health", "/", "/docs", "/openapi.json"):
            assert (await client.get(path)).status_code == 200
        found = await client.post("/translate", json={"text": "a"}, headers={"Authorization": "Bearer right key"})
        assert only(found)["text"] == "A"
        assert (await client.get("/metrics", headers={"Authorization": "Bearer right key"})).status_code == 200

    translator = Fake()
    translator.may.set()
    served(translator, test, api_key="right key")


def test_no_other_origin_is_allowed_unless_asked_for() -> None:
    async def without(client: httpx.AsyncClient, service: Service) -> None:
        found = await client.get("/health", headers={"Origin": "https://example.org"})
        assert not [name for name in found.headers if name.startswith("access-control")]
        assert (await client.options("/translate", headers=preflight)).status_code == 405

    async def with_one(client: httpx.AsyncClient, service: Service) -> None:
        found = await client.options("/translate", headers=preflight)
        assert found.status_code == 200
        assert found.headers["Access-Control-Allow-Origin"] == "https://example.org"
        other = await client.options("/translate", headers={**preflight, "Origin": "https://example.com"})
        assert other.status_code == 400

    preflight = {
        "Origin": "https://example.org",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,authorization",
    }
    served(Fake(), without)
    served(Fake(), with_one, cors_origins=("https://example.org",))


def test_metrics_count_what_was_done(translator: nmt.Translator) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        await client.post("/translate", json={"text": ["a", "b", "c"]})
        await client.post("/translate", json={})
        await client.get("/health")
        await client.post("/health")
        found = await client.get("/metrics")
        assert found.headers["Content-Type"].startswith("text/plain")
        lines = dict(line.rsplit(" ", 1) for line in found.text.splitlines() if not line.startswith("#"))
        wanted = {
            'nmt_requests_total{status="200"}': "1.0",
            'nmt_requests_total{status="400"}': "1.0",
            "nmt_request_seconds_count": "2.0",
            "nmt_sentences_total": "3.0",
            'nmt_batch_sentences_bucket{le="2.0"}': "0.0",
            'nmt_batch_sentences_bucket{le="4.0"}': "1.0",
            "nmt_queue_sentences": "0.0",
        }
        assert lines.items() >= wanted.items()
        assert float(lines["nmt_computing_seconds_total"]) > 0

    served(translator, test)


def test_unknown_paths_and_methods_are_one_line_of_json() -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        for method, path, status in (("GET", "/x%0ay", 404), ("GET", "/translate", 405), ("PUT", "/health", 405)):
            found = await client.request(method, path)
            assert found.status_code == status
            assert "\n" not in found.json()["error"] and "POST /translate" in found.json()["error"]

    served(Fake(), test)


def test_its_pages_load_nothing_from_elsewhere() -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        for path, (file, kind) in FILES.items():
            found = await client.get(path)
            assert found.status_code == 200 and found.headers["Content-Type"] == kind
            assert found.content == file.read_bytes()
            assert "default-src 'none'" in found.headers["Content-Security-Policy"]
            assert not re.findall(r"https?://|//[a-z]|@import|\burl\(", re.sub(r"/\*.*?\*/|// .*", "", found.text))
            assert (await client.head(path)).status_code == 200
        linked = re.findall(
            r'(?:src|href)="([^"#]*)"', "".join(file.read_text() for file, kind in FILES.values() if "html" in kind)
        )
        for link in {*linked} - {"data:,"}:
            assert (await client.get(f"/{link.removeprefix('./')}")).status_code == 200, link

    served(Fake(), test)
    assert {file for file, _ in FILES.values() if file.parent == PAGES} == set(PAGES.iterdir())


def test_openapi_says_what_there_is() -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        found = (await client.get("/openapi.json")).json()
        assert {*found["paths"]} == {"/translate", "/live", "/health", "/metrics"}
        assert {*found["paths"]["/live"]["get"]["responses"]} == {"101", "401", "403", "426", "503"}
        post = found["paths"]["/translate"]["post"]
        assert {*post["responses"]} == {"200", "400", "401", "408", "413", "415", "500", "503", "504"}
        schema = post["requestBody"]["content"]["application/json"]["schema"]
        assert schema["required"] == ["text"] and schema["additionalProperties"] is False
        assert schema["properties"]["text"]["anyOf"][1]["minItems"] == 1
        for name in ("n_best", "beam_size"):
            assert schema["properties"][name]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 5}
        for example in schema["examples"]:
            assert (await client.post("/translate", json=example)).status_code == 200

    translator = Fake()
    translator.may.set()
    served(translator, test, max_beam_size=5)


@pytest.mark.parametrize("given", ["a-1", "\u00e4", "a b", "", "x" * 129, "\x7f", None])
def test_a_request_has_an_id(given: str | None) -> None:
    """The client's, if it is short and visible ASCII; also of errors."""

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        headers = {} if given is None else {"X-Request-ID": given.encode()}
        for method, path, status in (("POST", "/translate", 415), ("GET", "/health", 200), ("GET", "/x", 404)):
            found = await client.request(method, path, headers=cast("Any", headers))
            assert found.status_code == status
            if given == "a-1":
                assert found.headers["X-Request-ID"] == given
            else:
                assert re.fullmatch("[0-9a-f]{16}", found.headers["X-Request-ID"])

    served(Fake(), test)


def test_what_serves_and_what_is_served_are_labels() -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        text = (await client.get("/metrics")).text
        assert f'nmt_build_info{{python="{platform.python_version()}",version="{nmt.__version__}"}} 1.0' in text
        assert "nmt_model_info{" not in text
        service.start(cast("Any", Fake()), {})
        other = Fake()
        other.precision = "int8"
        service.start(cast("Any", other), {})
        (line,) = re.findall(r"^nmt_model_info\{(.*)\} 1\.0$", (await client.get("/metrics")).text, flags=re.M)
        wanted = {"model": "model", "source_language": "en", "target_language": "de", "precision": "int8"}
        assert dict(re.findall(r'(\w+)="(.*?)"', line)) == {**wanted, "device": "cpu", "kernels": "none"}

    served(Fake(), test, start=False)


def test_a_reload_needs_the_key_and_work_in_progress_ends_on_the_model_before() -> None:
    models = [Fake(), Fake()]
    models[1].precision = "int8"
    models[1].may.set()
    key = {"Authorization": "Bearer k"}

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        waiting = [*models]
        await service.open(lambda: (cast("Any", waiting.pop(0)), {}))
        first = asyncio.ensure_future(client.post("/translate", json={"text": "a"}, headers=key))
        while not models[0].begun.is_set():
            await asyncio.sleep(0.001)
        assert (await client.post("/reload")).status_code == 401
        found = await client.post("/reload", headers=key)
        assert found.json() == (await client.get("/health")).json() and found.json()["precision"] == "int8"
        assert only(await client.post("/translate", json={"text": "b"}, headers=key))["text"] == "B"
        assert not first.done() and not models[0].is_closed
        models[0].may.set()
        assert only(await first)["text"] == "A"
        while not models[0].is_closed:
            await asyncio.sleep(0.001)
        assert (models[0].asked, models[1].asked, models[1].is_closed) == (["a"], ["b"], False)
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert "409" in paths["/reload"]["post"]["responses"]

    served(Fake(), test, start=False, api_key="k")


def test_without_a_key_nobody_can_reload() -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        found = await client.post("/reload")
        assert found.status_code == 403 and found.json()["error"].startswith("/reload: ")

    served(Fake(), test)


def test_a_reload_that_fails_leaves_the_model_that_serves(caplog: pytest.LogCaptureFixture) -> None:
    """Each case: what loading does, the status, and a part of the line that says why."""
    french = Fake()
    french.source_language = "fr"
    cases: list[tuple[Exception | Fake, int, str]] = [
        (nmt.errors.CheckpointError("m.nmt: damaged\nat byte 3"), 422, "m.nmt: damaged at byte 3"),
        (FileNotFoundError(2, "No such file or directory", "m.nmt"), 422, "m.nmt: "),
        (french, 422, "from fr to de. Allowed: from en to de"),
        (RuntimeError("secret"), 500, "internal error"),
        (Fake(error=nmt.ConfigError("beam_size: is odd")), 422, "beam_size: is odd"),
    ]
    served_now, key = Fake(), {"Authorization": "Bearer k"}
    served_now.may.set()

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        for model, status, said in cases:

            def load(model: Exception | Fake = model) -> Any:
                if isinstance(model, Exception):
                    raise model
                model.may.set()
                return model, {}

            service._load = load
            caplog.clear()
            found = await client.post("/reload", headers=key)
            assert found.status_code == status, found.text
            assert said in found.json()["error"] and "secret" not in found.text
            (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
            assert said in record.getMessage() and "\n" not in record.getMessage()
            assert bool(record.exc_info) == (status == 500)
            assert isinstance(model, Exception) or model.is_closed
            assert only(await client.post("/translate", json={"text": "a"}, headers=key))["text"] == "A"
        assert not served_now.is_closed

    served(served_now, test, api_key="k")


def test_reloads_follow_one_after_the_other() -> None:
    may, begun, key = threading.Event(), threading.Event(), {"Authorization": "Bearer k"}
    loaded: list[Fake] = []

    def load() -> Any:
        begun.set()
        assert may.wait(60)
        loaded.append(Fake())
        loaded[-1].may.set()
        return loaded[-1], {}

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        service._load = load
        first = asyncio.ensure_future(client.post("/reload", headers=key))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        assert (await client.post("/reload", headers=key)).status_code == 409
        second = asyncio.ensure_future(service.reload())
        await asyncio.sleep(0.01)
        assert loaded == []
        may.set()
        assert (await first).status_code == 200
        await second
        while not loaded[0].is_closed:
            await asyncio.sleep(0.001)
        assert len(loaded) == 2 and not loaded[1].is_closed

    served(Fake(), test, api_key="k")
