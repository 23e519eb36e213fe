"""The page of nmt-serve in a browser: it translates while one types, shows attention, asks for a key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import nmt
from tests.browser import Visit, chromium
from tests.conftest import HANGS
from tests.exported_run import Exported
from tests.serving.server_process import ServerProcess, started

pytestmark = pytest.mark.browser

LINES = ["a longaer sentence of ax", "sentence of by b longber", "\u4e00 of b"]


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def server(exported: Exported) -> Iterator[ServerProcess]:
    with started(exported.file) as server:
        yield server


@pytest.fixture(scope="module")
def wanted(exported: Exported) -> list[str]:
    with nmt.load(exported.file) as translator:
        return [result.text for result in translator.translate(LINES)]


@contextmanager
def page_of(
    opened: Any, url: str, *, width: int = 1200, height: int = 800, dark: bool = False
) -> Iterator[tuple[Any, Visit]]:
    """A page in a window of its own, and what is seen of it."""
    with Visit(opened, width=width, height=height, dark=dark) as visit:
        visit.page.set_default_timeout(1000 * HANGS)
        visit.page.goto(url)
        yield visit.page, visit


def outside(visit: Visit, server: ServerProcess) -> list[str]:
    """What a page has asked of others than its server."""
    return [url for url in visit.requests if not url.startswith((server.base, "data:"))]


def expect(what: Any) -> Any:
    """Playwright's own: what is said of a part of a page becomes true."""
    from playwright.sync_api import expect as expected

    expected.set_options(timeout=1000 * HANGS)
    return expected(what)


def test_it_translates_what_is_typed(opened: Any, server: ServerProcess, wanted: list[str]) -> None:
    with page_of(opened, server.base) as (page, seen):
        expect(page.locator("#status")).to_have_text("Ready")
        page.locator("#text").press_sequentially("\n".join(LINES), delay=5)
        expect(page.locator(".target")).to_have_text(wanted, use_inner_text=True)
        assert page.title() == "English to German"
        page.locator("#clear").click()
        page.wait_for_selector(".hint")
        assert (seen.problems, outside(seen, server)) == ([], [])


def test_it_translates_each_word_as_it_is_typed(opened: Any, server: ServerProcess, exported: Exported) -> None:
    """Live: a line is a session, and a change further back begins it again."""
    with nmt.load(exported.file) as translator, page_of(opened, server.base) as (page, seen):
        sessions = [translator.live(wait=2) for _ in range(3)]
        expect(page.locator("#status")).to_have_text("Ready")
        page.locator("#live").check()
        page.locator("#wait").fill("2")
        page.locator("#text").press_sequentially("a b c d", delay=5)
        expect(page.locator(".target > :first-child")).to_have_text([sessions[0].feed("a b c d")])
        page.locator("#text").press_sequentially("\nb c d a ", delay=5)
        whole = translator.live(wait=2)
        first = whole.feed("a b c d") + whole.end()
        expect(page.locator(".target > :first-child")).to_have_text([first, sessions[1].feed("b c d a ")])
        page.locator("#text").fill("c b a ")
        expect(page.locator(".target > :first-child")).to_have_text([sessions[2].feed("c b a ")])
        page.locator("#live").uncheck()
        expect(page.locator(".source")).to_have_text(["c b a"], use_inner_text=True)
        assert (seen.problems, outside(seen, server)) == ([], [])


def test_it_asks_once_one_pauses_and_for_what_has_changed(opened: Any, server: ServerProcess) -> None:
    with page_of(opened, server.base) as (page, seen):
        bodies: list[Any] = []
        page.on("request", lambda request: bodies.append(request.post_data_json) if request.post_data else None)
        page.locator("#text").press_sequentially("a long", delay=10)
        page.wait_for_selector(".target")
        expect(page.locator(".source")).to_have_text("a long")
        first = len(bodies)
        assert bodies[-1]["text"] == ["a long"] and first < 6  # one where keys come fast enough
        page.locator("#text").fill("a long\nof b")
        expect(page.locator(".target")).to_have_count(2)
        assert [body["text"] for body in bodies[first:]] == [["of b"]]
        assert seen.problems == []


def weights(page: Any, place: str) -> list[float]:
    spans = page.locator(f".line >> nth=0 >> {place} .word")
    return [float(span.evaluate("span => span.style.getPropertyValue('--weight') || 0")) for span in spans.all()]


def test_pointing_at_a_word_shades_what_it_attends_to_and_the_other_way_round(
    opened: Any, server: ServerProcess, exported: Exported
) -> None:
    with page_of(opened, server.base) as (page, seen):
        page.locator("#text").fill("a b")
        page.wait_for_selector(".source .word")
        assert not any(weights(page, ".source")) and not any(weights(page, ".target"))
        page.locator(".target .word").first.hover()
        shaded = weights(page, ".source")
        assert any(shaded) and not any(weights(page, ".target"))
        with nmt.load(exported.file) as translator:
            result = translator.translate("a b", details=["tokens", "attention"])
        found = httpx.post(f"{server.base}/translate", json={"text": "a b", "details": ["tokens", "attention"]}).json()
        assert found["translations"][0]["tokens"] == list(result.tokens or ())
        assert sum(shaded) <= 1.01
        page.locator(".source .word").first.hover()
        assert any(weights(page, ".target")) and not any(weights(page, ".source"))
        assert page.locator(".weights").first.inner_text()
        assert seen.problems == []


def test_it_can_be_used_from_the_keyboard(opened: Any, server: ServerProcess) -> None:
    with page_of(opened, server.base) as (page, seen):
        page.keyboard.type("a longaer sentence of ax")  # the text has the focus at the start
        expect(page.locator(".source")).to_have_text("a longaer sentence of ax")  # not yet of a part of it
        focused = "document.activeElement.className + '|' + document.activeElement.textContent"
        for _ in range(10):
            page.keyboard.press("Tab")
            if page.evaluate(focused).startswith("word"):
                break
        words = page.locator(".word").all_inner_texts()
        assert page.evaluate(focused) == f"word on|{words[0]}"
        page.keyboard.press("ArrowRight")
        assert page.evaluate(focused).endswith(f"|{words[1]}")
        page.keyboard.press("End")
        assert page.evaluate(focused).endswith(f"|{words[-1]}")
        assert page.evaluate("document.activeElement.getAttribute('aria-description')") is not None
        page.keyboard.press("Tab")
        assert page.evaluate(focused) == "|Other translations"
        page.keyboard.press("Enter")
        page.wait_for_selector("ol li")
        assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
        assert seen.problems == []


SENTENCES = ("A sentence of longaer.", "Of {x} sentence.", "By longber of it.")
SEVERAL = " ".join(SENTENCES)


def framed(page: Any, place: str) -> list[int]:
    """The places of the sentences that are marked, above or below."""
    found = page.locator(f".line >> nth=0 >> {place} .sentence")
    return [i for i, one in enumerate(found.all()) if "with" in one.evaluate("span => [...span.classList]")]


def test_of_several_sentences_those_that_belong_together_are_framed(opened: Any, server: ServerProcess) -> None:
    asked = {"text": SEVERAL, "split": "sentences", "placeholders": True, "details": ["tokens", "attention"]}
    (found,) = httpx.post(f"{server.base}/translate", json=asked).json()["translations"]
    assert len({*found["attention_begins"]}) == 3
    with page_of(opened, server.base) as (page, seen):
        page.locator("#split").select_option("sentences")
        page.locator("#placeholders").check()
        page.locator("#text").fill(SEVERAL)
        page.wait_for_selector(".source .sentence")
        assert page.locator(".source .sentence").all_inner_texts() == [*SENTENCES]
        assert " ".join(page.locator(".target .sentence").all_inner_texts()).split() == found["text"].split()
        assert not framed(page, ".source") and not framed(page, ".target")
        for place, other in ((".source", ".target"), (".target", ".source")):
            for number in (1, 2):
                page.locator(f"{place} .sentence >> nth={number} >> .word >> nth=0").hover()
                assert framed(page, place) == framed(page, other) == [number]
        chosen = "document.activeElement.getAttribute('aria-description')"
        page.locator(".word").first.focus()
        assert framed(page, ".source") == [0] and page.evaluate(chosen).endswith("sentence 1 of 3")
        page.keyboard.press("End")
        assert framed(page, ".target") == [2] and page.evaluate(chosen).endswith("sentence 3 of 3")
        page.locator("#text").fill("of b")
        expect(page.locator(".target")).to_have_count(1)
        expect(page.locator(".sentence")).to_have_count(0)
        assert seen.problems == []


def test_it_takes_a_glossary_and_placeholders(opened: Any, server: ServerProcess) -> None:
    with page_of(opened, server.base) as (page, seen):
        expect(page.locator("#status")).to_have_text("Ready")
        page.locator("#text").fill("a longaer sentence of {x}")
        page.wait_for_selector(".target")
        assert "Satz" not in page.locator(".target").inner_text()
        page.locator("summary").click()
        page.locator("#glossary").fill("sentence of = Satz von\n\nlongaer\tL = nger\n")
        page.locator("#placeholders").check()
        for text in ("Satz von", "L = nger", "{x}"):
            expect(page.locator(".target")).to_contain_text(text)
        assert page.locator("#terms").inner_text() == "(2 terms)"
        for text, said in (
            ("a = b\nlongaer", "Glossary, line 2: longaer is not a term, = and its translation."),
            ("= b", "Glossary, line 1: = b is not a term, = and its translation."),
            ("a = b\na = c", "Glossary, line 2: a has two translations, b and c."),
        ):
            page.locator("#glossary").fill(text)
            expect(page.locator("#status.bad")).to_have_text(said)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.base)
        page.locator("#copy").click()  # of what is still shown
        expect(page.locator("#status")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == page.locator(".line").get_attribute("data-text")
        page.locator("#glossary").fill("")
        expect(page.locator(".target")).not_to_contain_text("Satz von")
        assert page.locator("#status.bad").count() == 0 and seen.problems == []


def test_other_translations_are_those_of_the_search(opened: Any, server: ServerProcess, exported: Exported) -> None:
    with nmt.load(exported.file) as translator:
        first, *others = translator.translate(LINES[0], n_best=5).n_best
    with page_of(opened, server.base) as (page, seen):
        page.locator("#text").fill(LINES[0])
        page.get_by_text("Other translations").click()
        page.wait_for_selector("ol li")
        texts = [other.text for other in others if other.text != first.text] or ["none"]
        assert [item.split() for item in page.locator("ol li").all_inner_texts()] == [text.split() for text in texts]
        page.get_by_text("Hide").click()
        assert not page.locator("ol").is_visible()
        assert seen.problems == []


@pytest.mark.parametrize(("most", "search"), [(3, "auto"), (3, "greedy"), (1, "auto")])
def test_other_translations_are_as_many_as_the_server_allows(
    opened: Any, exported: Exported, most: int, search: str
) -> None:
    arguments = (exported.file, "--max-beam-size", str(most), "--search", search)
    with started(*arguments) as small, page_of(opened, small.base) as (page, seen):
        assert httpx.get(f"{small.base}/health").json()["max_beam_size"] == most
        expect(page.locator("#status")).to_have_text("Ready")
        page.locator("#text").fill(LINES[0])
        page.wait_for_selector(".target")
        button = page.locator(".below button")
        if most == 1:
            assert button.is_hidden()
        else:
            button.click()
            page.wait_for_selector("ol li, #status.bad")
            assert page.locator("ol li").count() in range(1, most) and page.locator("#status.bad").count() == 0
        assert seen.problems == []


def test_copy_takes_all_lines(opened: Any, server: ServerProcess, wanted: list[str]) -> None:
    with page_of(opened, server.base) as (page, seen):
        page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.base)
        page.locator("#text").fill("\n".join(LINES))
        page.locator("#copy").click()
        expect(page.locator("#status")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == "\n".join(wanted)
        assert seen.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "/docs"])
def test_a_phone_needs_no_scrolling_sideways_and_dark_is_dark(
    opened: Any, server: ServerProcess, path: str, scheme: Any
) -> None:
    with page_of(opened, server.base, width=360, height=740, dark=scheme == "dark") as (page, seen):
        page.goto(server.base + path)
        if not path:
            page.locator("#text").fill("\n".join([*LINES, "long" * 100]))
            page.wait_for_selector(".source .word")
            page.get_by_text("Other translations").first.click()
            page.wait_for_selector("ol li")
        else:
            page.wait_for_selector("dl")
        assert not seen.is_too_wide()
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(part) for part in colour[4:-1].split(",")) < 200) == (scheme == "dark")
        assert (seen.problems, outside(seen, server)) == ([], [])


def test_a_newer_text_ends_the_request_for_an_older_one(opened: Any, run: Path) -> None:
    with started(str(run), "--device", "cpu", "--timeout", "60") as slow, page_of(opened, slow.base) as (page, seen):
        ended: list[str] = []
        page.on("requestfailed", lambda request: ended.append(request.failure))
        page.locator("#text").fill("\n".join("a b c d " * 40 + "abcd"[n % 4] * (n // 4) for n in range(30)))
        page.wait_for_timeout(600)
        page.locator("#text").fill("a b")
        expect(page.locator(".target")).to_have_count(1)
        assert len(ended) == 1 and "ABORTED" in ended[0]
        slow.wait_for("POST /translate (499)")


def test_it_tries_again_when_the_queue_was_full(opened: Any, server: ServerProcess) -> None:
    with page_of(opened, server.base) as (page, seen):
        refused: list[Any] = []

        def full_once(route: Any) -> None:
            if refused:
                route.continue_()
                return
            refused.append(route.request.post_data_json["text"])
            route.fulfill(status=503, headers={"Retry-After": "1"}, json={"error": "the queue is full"})

        page.route("**/translate", full_once)
        page.locator("#text").fill("a b")
        expect(page.locator(".target")).to_have_count(1)
        assert refused == [["a b"]]
        assert all("503" in complaint for complaint in seen.problems)  # of the browser itself


def test_it_opens_when_the_server_answers_again(opened: Any, server: ServerProcess) -> None:
    with Visit(opened) as seen:
        asked: list[str] = []

        def gone_once(route: Any) -> None:
            asked.append(route.request.url)
            if len(asked) > 1:
                route.continue_()
            else:  # a proxy's page instead of the server's answer
                route.fulfill(status=200, content_type="text/html", body="<h1>Bad gateway</h1>")

        seen.page.route("**/health", gone_once)
        seen.page.goto(server.base)
        expect(seen.page.locator("#status")).to_have_text("The server does not answer.")
        expect(seen.page.locator("#status")).to_have_text("Ready")
        assert len(asked) == 2 and seen.problems == []


def test_a_key_is_asked_for_and_kept_in_memory_alone(opened: Any, exported: Exported) -> None:
    with (
        started(exported.file, environment={"NMT_API_KEY": "right"}) as locked,
        page_of(opened, locked.base) as (page, seen),
    ):
        page.locator("#text").fill("a b")
        page.wait_for_selector("#access:not([hidden])")
        for key, selector in (("wrong", "#access:not([hidden])"), ("right", ".target .word")):
            page.locator("#key").fill(key)
            page.keyboard.press("Enter")
            page.wait_for_selector(selector)
            page.wait_for_timeout(300)
        assert page.locator("#access").is_hidden()
        assert (
            page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])") == '[{},{},""]'
        )
        assert all("401" in complaint for complaint in seen.problems)  # of the browser itself


def test_markup_and_odd_text_are_text(opened: Any, server: ServerProcess) -> None:
    odd = "<img src=x onerror=alert(1)> </script> & \u202e \u2028 b"
    with page_of(opened, server.base) as (page, seen):
        page.locator("#text").fill(odd)
        page.wait_for_selector(".target")
        assert page.locator("#output img").count() == 0
        assert seen.problems == []


def test_errors_of_the_server_are_shown(opened: Any, exported: Exported) -> None:
    arguments = (exported.file, "--max-characters", "50")
    with started(*arguments) as small, page_of(opened, small.base) as (page, seen):
        page.locator("#text").fill("b " * 40)
        page.wait_for_selector("#status.bad")
        assert page.locator("#status").inner_text() == "text: 80 characters are too many. Allowed: 50."
        page.locator("#text").fill("b")
        page.wait_for_selector(".target")
        assert page.locator("#status.bad").count() == 0
        small.signal()
        small.ended()
        page.locator("#text").fill("c")
        expect(page.locator("#status")).to_have_text("The server does not answer.")
