"""LibreTranslate's form (nmt-serve --api libretranslate), and answers that are sent one by one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

import nmt
from nmt.serving.service import Service
from tests.exported_run import LINES, Exported
from tests.serving.server_process import started
from tests.serving.test_app import Fake, served

PAIR = {"source": "en", "target": "de"}
NUMBER = "is not allowed. Allowed: a whole number from 0 to 15."
KEYS = "q, source, target, format, alternatives, api_key"


class Ready(Fake):
    """Answers at once; keeps the options of each call."""

    def __init__(self, *, languages: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.may.set()
        self.languages = languages  # type: ignore[assignment]
        self.options: list[dict[str, Any]] = []

    def translate(self, sentences: Any, *, stop: Any = None, **options: Any) -> list[nmt.Result]:
        self.options.append(options)
        found = super().translate(sentences, stop=stop, **options)
        more = [[nmt.Hypothesis(f"{one.text}{i}", -i) for i in range(1, options.get("n_best", 1))] for one in found]
        return [nmt.Result(one.source, [one.best, *others]) for one, others in zip(found, more, strict=True)]


def answered(body: Any, translator: Any = None, **changes: Any) -> tuple[int, Any]:
    """Status and answer of POST /translate; a body that is bytes is a form."""
    found: list[httpx.Response] = []

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        if isinstance(body, bytes):
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            found.append(await client.post("/translate", content=body, headers=form))
        else:
            found.append(await client.post("/translate", json=body))

    served(translator or Ready(), test, **{"api": "libretranslate", **changes})
    return found[0].status_code, found[0].json()


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"q": "a b", **PAIR}, {"translatedText": "A B"}),
        ({"q": "a", "source": "auto", "target": "de", "format": "text", "api_key": ""}, {"translatedText": "A"}),
        ({"q": ["a", "b"], **PAIR}, {"translatedText": ["A", "B"]}),
        ({"q": "a\n\nb", **PAIR}, {"translatedText": "A\n\nB"}),
        ({"q": "a", "alternatives": 2, **PAIR}, {"translatedText": "A", "alternatives": ["A1", "A2"]}),
        ({"q": "a\nb", "alternatives": 1, **PAIR}, {"translatedText": "A\nB", "alternatives": ["A1\nB1"]}),
        ({"q": ["a"], "alternatives": 1, **PAIR}, {"translatedText": ["A"], "alternatives": [["A1"]]}),
        (b"q=a+%C3%A4&source=en&target=de&alternatives=1", {"translatedText": "A Ä", "alternatives": ["A Ä1"]}),
        ({"text": "a"}, {"translations": [{"text": "A", "score": -1.0}]}),
    ],
)
def test_answers_have_its_form(body: Any, answer: Any) -> None:
    assert answered(body) == (200, answer)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "body: [] is not allowed. Allowed: a JSON object with the keys q, source and target."),
        ({"q": "a", "source": "en"}, "target: missing. Allowed: the code of a language."),
        ({}, "q: missing. Allowed: a string, or a list of one string or more."),
        ({"q": [], **PAIR}, "q: [] is not allowed. Allowed: a string, or a list of one string or more."),
        ({"q": ["a", 1], **PAIR}, 'q: ["a", 1] is not allowed. Allowed: a string, or a list of one string or more.'),
        ({"q": "a", "source": "fr", "target": "de"}, 'source: "fr" is not allowed. Allowed: en, auto.'),
        ({"q": "a", "source": "en", "target": ["de"]}, 'target: ["de"] is not allowed. Allowed: de.'),
        ({"q": "a", "format": "pdf", **PAIR}, 'format: "pdf" is not allowed. Allowed: text, html.'),
        ({"q": "a", "alternatives": 16, **PAIR}, f"alternatives: 16 {NUMBER}"),
        ({"q": "a", "alternatives": True, **PAIR}, f"alternatives: true {NUMBER}"),
        ({"q": "a", "sources": "en", **PAIR}, f"sources: unknown key. Did you mean 'source'? Allowed: {KEYS}."),
        ({"q": "a" * 20_001, **PAIR}, "text: 20,001 characters are too many. Allowed: 20,000."),
        (b"q=a&q=b&source=en&target=de", "q: is given twice. Allowed: once."),
        (b"q=%ff&source=en&target=de", "body: is not a form in UTF-8. Allowed: q, source and target, URL-encoded."),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(body: Any, message: str) -> None:
    assert answered(body) == (400, {"error": message})


def test_html_keeps_tags_and_several_languages_are_chosen() -> None:
    translator = Ready(languages=("deu", "fra"))
    assert answered({"q": "a", "source": "en", "target": "fra", "format": "html"}, translator)[0] == 200
    assert translator.options[-1] == {"placeholders": True, "target_language": "fra"}
    status, answer = answered({"q": "a", **PAIR}, Ready(languages=("deu", "fra")))
    assert (status, answer["error"]) == (400, 'target: "de" is not allowed. Allowed: deu, fra.')


def test_the_key_may_be_in_the_body() -> None:
    assert answered({"q": "a", "api_key": "k", **PAIR}, api_key="k")[0] == 200
    status, answer = answered({"q": "a", **PAIR}, api_key="k")
    assert (status, answer["error"]) == (401, "api_key: missing. Allowed: the key.")
    status, answer = answered({"q": "a", "api_key": "x", **PAIR}, api_key="k")
    assert (status, answer["error"]) == (401, "api_key: is not the key of this server. Allowed: the key.")


def test_languages_are_listed_and_detection_is_refused() -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        assert (await client.get("/languages")).json() == [
            {"code": "de", "name": "German", "targets": []},
            {"code": "en", "name": "English", "targets": ["de"]},
        ]
        found = await client.post("/detect", json={"q": "a"})
        assert found.status_code == 400 and "does not recognise languages" in found.json()["error"]

    served(Ready(), test, api="libretranslate")


def test_without_the_option_the_form_is_unknown() -> None:
    status, answer = answered({"q": "a", **PAIR}, api="nmt")
    assert status == 400 and answer["error"].startswith("q: unknown key.")

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        assert (await client.get("/languages")).status_code == 404

    served(Ready(), test)


def test_its_time_is_limited() -> None:
    status, answer = answered({"q": "a", **PAIR}, Fake(), timeout=0.1)
    assert status == 504 and "time" in answer["error"]


EVENTS = {"Accept": "text/event-stream"}


def test_events_come_one_by_one_in_order() -> None:
    """By a real server: the first is there before the last is computed."""
    translator = Fake()

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        asked = asyncio.ensure_future(client.post("/translate", json={"text": ["a", "b", "c"]}, headers=EVENTS))
        while not translator.asked:
            await asyncio.sleep(0.01)
        assert translator.asked == ["a"]  # alone in its batch
        translator.may.set()
        found = await asked
        assert found.headers["content-type"].startswith("text/event-stream")
        *events, end = found.text.strip().split("\n\n")
        assert [json.loads(event.removeprefix("data: "))["text"] for event in events] == ["A", "B", "C"]
        assert end == "event: end\ndata: {}"

    served(translator, test)


@pytest.mark.parametrize(
    ("fake", "changes", "status"),
    [
        (Fake(error=nmt.DataError("no")), {}, 400),
        (Fake(error=RuntimeError("no")), {}, 500),
        (None, {"timeout": 0.1}, 504),
        (Ready(), {"max_answer_bytes": 50}, 413),
    ],
)
def test_what_fails_later_is_an_event(fake: Any, changes: dict[str, Any], status: int) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        found = await client.post("/translate", json={"text": ["a", "b"]}, headers=EVENTS)
        kind, data = found.text.strip().split("\n\n")[-1].split("\n")
        assert (kind, json.loads(data.removeprefix("data: "))["status"]) == ("event: error", status)
        await asyncio.wait_for(service._models[-1].batcher.idle(), 30)

    if fake is not None:
        fake.may.set()
    served(fake or Fake(), test, **changes)


def test_a_mistake_is_answered_with_its_status_before_events() -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        found = await client.post("/translate", json={"txt": "a"}, headers=EVENTS)
        assert found.status_code == 400 and found.json()["error"].startswith("txt: unknown key.")

    served(Ready(), test)


def test_by_a_socket(exported: Exported) -> None:
    lines = LINES[:3]
    with started(exported.file, "--api", "libretranslate") as server, httpx.Client(base_url=server.base) as client:
        own = client.post("/translate", json={"text": lines}).json()["translations"]
        pair = {"source": "auto", "target": client.get("/languages").json()[-1]["targets"][0]}
        found = client.post("/translate", data={"q": lines[0], **pair}).json()
        assert found == {"translatedText": own[0]["text"]}
        with client.stream("POST", "/translate", json={"text": lines}, headers=EVENTS) as answer:
            assert answer.headers["transfer-encoding"] == "chunked"
            texts = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
        assert [one["text"] for one in texts[:-1]] == [one["text"] for one in own]
        assert client.post("/translate", json={"text": lines[0]}).status_code == 200  # the same connection
