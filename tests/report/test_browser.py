"""The page of a report in a real browser: 10,000 sentences, filters, maps, keys, a phone's width, dark mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.evaluation import build_metric
from nmt.evaluation.metrics import counting
from nmt.inspection.values import Inspection, UnitTrace
from nmt.report import Subject, contents, packed, page, sentences
from nmt.report.contents import Words
from tests.browser import Visit, chromium
from tests.report.texts import HOSTILE, changed, text

pytestmark = pytest.mark.browser
COUNT = 10_000
MAPS = range(0, COUNT, 100)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two systems, the second of which has maps of every hundredth sentence."""
    references = text(COUNT, seed=1)
    systems = {"runs/first": changed(references, seed=2, share=0.4), "runs/second": changed(references, seed=3)}
    source = [line.upper() for line in references]
    subject = Subject(systems=systems, references=[references], source=source, languages=("en", "de"))
    words = Words({})
    table = sentences(subject, words, {}, chrf=counting(build_metric("chrf")))
    figures = contents(subject, [counting(build_metric("bleu"))], words)
    maps = {place: packed({1: inspection(source[place], systems["runs/second"][place])}) for place in MAPS}
    path = tmp_path_factory.mktemp("report") / "report.html"
    html = page(figures, table.as_data(maps), curves=("<svg></svg>", "<svg></svg>"), map_reason="every hundredth")
    path.write_text(html, encoding="utf-8")
    return path


def inspection(source: str, target: str) -> Inspection:
    """Attention along the diagonal, and a memory that fades."""
    first, second = (tuple(f"\u2581{word}" for word in line.split()) + ("<eos>",) for line in (source, target))
    weights = np.full((2, len(second), len(first)), 0.01, dtype=np.float32)
    for place in range(len(second)):
        weights[:, place, min(place, len(first) - 1)] = 0.9
    memory = np.tril(np.float32(0.5) ** np.abs(np.subtract.outer(range(len(first)), range(len(first)))))
    unit = UnitTrace("lrn", False, first, np.zeros((len(first), 2), np.float32), {}, memory.astype(np.float32))
    scores = np.zeros(len(second), dtype=np.float32)
    return Inspection(
        source, target, first, second, scores, scores, {"decoder.0": weights}, {"encoder.0.forward": unit}
    )


@pytest.fixture
def visit(browser: Any, report: Path) -> Iterator[Visit]:
    """The page; at the end nothing must have gone wrong on it."""
    with Visit(browser) as found:
        found.page.goto(report.as_uri() + "#sentences")
        yield found
        assert found.problems == []
        assert found.requests == [report.as_uri()], "nothing is fetched"


def count(visit: Visit) -> str:
    return str(visit.page.locator("#count").inner_text())


def first_rows(visit: Visit, number: int = 5) -> list[int]:
    """The sentences at the top of the list."""
    return [
        int(place) for place in visit.page.eval_on_selector_all(".row", "rows => rows.map((row) => row.dataset.place)")
    ][:number]


def choose(visit: Visit, name: str, value: str) -> None:
    visit.page.locator(f"#{name}").select_option(value)
    visit.page.wait_for_timeout(50)


def test_only_rows_in_sight_are_in_the_page_however_far_one_scrolls(visit: Visit) -> None:
    assert count(visit) == "10,000 sentences"
    assert first_rows(visit) == [0, 1, 2, 3, 4]
    for share in (0.5, 1.0):
        visit.page.evaluate(f"scrollTo(0, document.body.scrollHeight * {share})")
        visit.page.wait_for_timeout(200)
        rows = first_rows(visit, number=1000)
        assert 3 < len(rows) < 60 and rows == sorted(rows)
        assert rows[0] > 9000 * share - 1500
    visit.page.keyboard.press("End")
    visit.page.wait_for_timeout(300)
    assert 9999 in first_rows(visit, number=1000)
    boxes = visit.page.eval_on_selector_all(
        ".row", "rows => rows.map((row) => [row.getBoundingClientRect().top, row.getBoundingClientRect().bottom])"
    )
    for (_, bottom), (top, _) in zip(boxes, boxes[1:], strict=False):
        assert abs(bottom - top) < 1, "rows neither overlap nor leave gaps"


def test_work_of_the_script_fits_a_frame(visit: Visit) -> None:
    """Of typing and scrolling; counted by rows made, not by a clock."""
    made = """() => { let made = 0; const make = document.createElement.bind(document);
        document.createElement = (name) => { made += name === "li"; return make(name); };
        scrollBy(0, 300); render(); return made; }"""
    assert visit.page.evaluate(made) < 20


def test_text_is_text(visit: Visit) -> None:
    assert visit.page.title().startswith("Translation report")
    said = visit.page.eval_on_selector_all(
        ".line.reference .said", f"all => all.slice(0, {len(HOSTILE)}).map((one) => one.textContent)"
    )
    assert said[:6] == HOSTILE[:6]
    directions = visit.page.eval_on_selector_all(
        ".line.reference .said", "all => all.map((one) => getComputedStyle(one).direction)"
    )
    assert directions[0] == "ltr" and directions[4] == "rtl"


def test_filters_and_order(visit: Visit) -> None:
    visit.page.locator("#text").fill("RIGHT TO LEFT")
    visit.page.locator("#count", has_text="1 of 10,000").wait_for()
    assert first_rows(visit) == [7]
    visit.page.evaluate('() => { systems[0].lines[9] = "Nur Hier"; texts = undefined; update(); }')
    visit.page.locator("#text").fill("nur HIER")
    visit.page.locator('.row[data-place="9"]').wait_for(timeout=5000)
    assert first_rows(visit) == [9]
    visit.page.get_by_role("button", name="Reset").click()
    visit.page.wait_for_timeout(100)
    assert count(visit) == "10,000 sentences"
    data = visit.page.evaluate("({bleu: data.bleu, chrf: data.chrf, lengths: data.lengths})")
    places = range(COUNT)
    choose(visit, "key", "chrf")
    choose(visit, "of", "0")
    assert first_rows(visit) == sorted(places, key=lambda n: (data["chrf"][0][n], n))[:5]
    choose(visit, "order", "down")
    choose(visit, "key", "bleu-gain")
    choose(visit, "of", "1")
    gains = [b - a for a, b in zip(*data["bleu"], strict=True)]
    assert first_rows(visit) == sorted(places, key=lambda n: (-gains[n], n))[:5]
    choose(visit, "key", "chrf-gain")
    gains = [b - a for a, b in zip(*data["chrf"], strict=True)]
    assert first_rows(visit) == sorted(places, key=lambda n: (-gains[n], n))[:5]
    choose(visit, "key", "length")
    assert visit.page.locator("#of").is_disabled()
    assert first_rows(visit) == sorted(places, key=lambda n: (-data["lengths"][n], n))[:5]
    visit.page.locator("#least").fill("5")
    visit.page.locator("#most").fill("6")
    choose(visit, "show", "differ")
    differ = visit.page.evaluate("view.every((n) => systems[0].lines[n] !== systems[1].lines[n])")
    rows = first_rows(visit, 30)
    assert differ and {data["lengths"][n] for n in rows} == {6} and rows == sorted(rows)
    for name, wanted in (("empty", "lines.some((line) => !line)"), ("maps", "n % 100 === 0")):
        visit.page.get_by_role("button", name="Reset").click()
        choose(visit, "show", name)
        each = f"(n) => {{ const lines = systems.map((system) => system.lines[n]); return {wanted}; }}"
        assert visit.page.evaluate(f"view.length > 50 && view.every({each})")


def test_differences_are_marked_word_by_word(visit: Visit) -> None:
    visit.page.evaluate(
        """() => { systems[0].lines[0] = "der alte Hund rennt , sagt er";
        systems[1].lines[0] = "der junge Hund sagt er";
        references[0][0] = "der Hund sagt er etwas"; update(); }"""
    )
    row = visit.page.locator('.row[data-place="0"]')

    def marks(system: int) -> list[str]:
        return list(row.locator(".line.system").nth(system).locator("mark:not(.gone)").all_inner_texts())

    assert (marks(0), marks(1)) == (["alte", "rennt ,"], ["junge"])
    assert row.locator(".line.system").nth(1).locator("mark.gone").count() == 1, "where 'rennt ,' is missing"
    choose(visit, "base", "reference")
    assert (marks(0), marks(1)) == (["alte", "rennt ,"], ["junge"])
    choose(visit, "base", "none")
    assert row.locator("mark").count() == 0
    visit.page.locator("#shown input").first.uncheck()
    visit.page.wait_for_timeout(50)
    assert row.locator(".line.system").count() == 1
    assert row.locator(".line.system .said").inner_text() == "der junge Hund sagt er"


def test_a_click_shows_attention_and_memory(visit: Visit) -> None:
    row = visit.page.locator('.row[data-place="0"]')
    row.locator(".line.source").click()
    row.locator(".map rect").first.wait_for(state="attached")
    assert row.locator(".map rect").count() > 5
    titles = row.locator(".panel option").all_inner_texts()
    assert titles == [
        "Attention, mean of all",
        "Attention, decoder.0, mean of its heads",
        "Attention, decoder.0, head 1",
        "Attention, decoder.0, head 2",
        "Memory of lrn, encoder.0.forward",
    ]
    row.locator(".map svg").hover(position={"x": 140, "y": 140})
    assert "attends to" in row.locator(".readout").inner_text()
    row.locator(".panel select").last.select_option(label=titles[-1])
    assert "states after each token" in row.locator(".readout").inner_text()
    row.locator(".panel summary").click()
    assert "0.50" in row.locator(".panel ul").inner_text()
    below = visit.page.locator('.row[data-place="1"]').bounding_box()
    here = row.bounding_box()
    assert below["y"] == pytest.approx(here["y"] + here["height"], abs=1)
    row.locator(".toggle").click()
    assert row.locator(".panel").count() == 0


def test_keys_alone_are_enough(visit: Visit) -> None:
    visit.page.locator("#show").focus()
    for _ in range(12):
        visit.page.keyboard.press("Tab")
        if visit.page.evaluate("document.activeElement.matches('.row')"):
            break
    focused = "Number(document.activeElement.closest('.row').dataset.place)"
    assert visit.page.evaluate(focused) == 0
    visit.page.keyboard.press("Enter")
    assert visit.page.locator('.row[data-place="0"] .map rect').count() > 5
    assert visit.page.locator('.row[data-place="0"] .toggle').get_attribute("aria-expanded") == "true"
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.tagName") == "SELECT"
    visit.page.keyboard.press("Escape")
    visit.page.keyboard.press("Enter")
    assert visit.page.locator(".panel").count() == 0
    for _ in range(30):
        visit.page.keyboard.press("ArrowDown")
    assert visit.page.evaluate(focused) == 30
    box = visit.page.evaluate("(({top, bottom}) => [top, bottom])(document.activeElement.getBoundingClientRect())")
    assert 0 <= box[0] < box[1] <= 901
    visit.page.keyboard.press("End")
    assert visit.page.evaluate(focused) == COUNT - 1
    visit.page.keyboard.press("Home")
    assert visit.page.evaluate(focused) == 0
    row = visit.page.locator('.row[data-place="0"]')
    assert (row.get_attribute("aria-posinset"), row.get_attribute("aria-setsize")) == ("1", "10000")


def test_controls_have_names(visit: Visit) -> None:
    nameless = visit.page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, summary, table, [role=region]")].filter((one) =>
        !(one.labels?.[0]?.textContent.trim() || one.getAttribute("aria-label") || one.title || one.textContent.trim()))
        .map((one) => one.outerHTML)"""
    )
    assert nameless == []


def test_many_systems_with_long_names_fit_a_phone(browser: Any, tmp_path: Path) -> None:
    references = text(40, seed=1)
    names = [f"experiments/a_very_long_name_{n}/" + "of_a_directory/" * 6 + "translations.de" for n in range(9)]
    systems = {name: changed(references, seed=n) for n, name in enumerate(names)}
    subject = Subject(systems=systems, references=[references])
    words = Words({})
    table = sentences(subject, words, {}, chrf=counting(build_metric("chrf")))
    figures = contents(subject, [counting(build_metric("bleu"))], words)
    path = tmp_path / "report.html"
    path.write_text(page(figures, table.as_data({}), curves=("", ""), map_reason=""), encoding="utf-8")
    with Visit(browser, width=360, height=740) as visit:
        visit.page.goto(path.as_uri())
        visit.page.locator("#tools summary").click()
        assert not visit.is_too_wide()
        assert visit.problems == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_has_no_sideways_scrolling(browser: Any, report: Path, dark: bool) -> None:
    with Visit(browser, width=360, height=740, dark=dark) as visit:
        visit.page.goto(report.as_uri())
        assert not visit.is_too_wide()
        visit.page.locator("#tools summary").click()
        assert not visit.is_too_wide()
        row = visit.page.locator('.row[data-place="0"]')
        row.locator(".toggle").click()
        row.locator(".map svg").scroll_into_view_if_needed()
        assert row.locator(".map rect").count() > 5 and not visit.is_too_wide()
        ink, paper = visit.page.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        lightness = [sum(int(part) for part in colour[4:-1].split(",")) for colour in (ink, paper)]
        assert (lightness[0] > 600 and lightness[1] < 100) if dark else (lightness[0] < 150 and lightness[1] > 700)
        assert visit.problems == []
