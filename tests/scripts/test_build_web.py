"""scripts/build_web: the engine as WebAssembly says what the native one says, and its page translates what is typed."""

from __future__ import annotations

import functools
import html
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from nmt.light.binding import Model
from tests.conftest import REPOSITORY
from tests.interop.engine_models import content_of, make_model, section
from tests.light.engine_files import library, pieces

sys.path.insert(0, str(REPOSITORY / "scripts"))

from engine_builds import find_zig

SCRIPT = REPOSITORY / "scripts/build_web"
DRIVER = REPOSITORY / "tests/light/page_driver.html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LINES = [
    *("".join(chr(0x4E00 + (i * k + k) % 12) + " " * (k % 3 == 0) for k in range(1 + i % 19)) for i in range(196)),
    *("", " ", "a \u00fc \U0001f389 \u4e01", "\u4e01\t\u4e02  \u4e03\u2028\u4e04"),
]


def needed(*names: str) -> str:
    """The first of these programs that is there; skips where none is."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"needs {names[0]} on PATH")
    return found


def build(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, "-o", folder, *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, with a small random model of Chinese characters in int8."""
    if find_zig() is None:
        pytest.skip("needs zig: the package ziglang, zig on PATH, or ZIG in the environment")
    folder = tmp_path_factory.mktemp("web")
    model = make_model(section(hidden_size=32, embedding_size=32, init_range=0.3))
    vocabularies = pieces(model.source_vocab_size), pieces(model.target_vocab_size)
    (folder / "any.nmt").write_bytes(content_of(model, subwords=vocabularies, precision="int8"))
    done = build(folder / "page", "--model", folder / "any.nmt")
    assert done.returncode == 0, done.stderr
    return folder / "page"


def native(page: Path) -> Model:
    """The same model in the engine of this machine, with the kernels in plain C."""
    return library().open([page / "model.nmt"], kernels="plain")


def in_node(page: Path, folder: Path, *, beam: int) -> Any:
    (folder / "lines.json").write_text(json.dumps(LINES))
    given = [needed("node"), REPOSITORY / "tests/light/translate.js", page, folder / "lines.json", str(beam)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
def test_the_same_in_node_as_by_the_native_engine(page: Path, tmp_path: Path, beam: int) -> None:
    seen = in_node(page, tmp_path, beam=beam)
    assert seen["imports"] == []
    engine = native(page)
    found = engine.translate([line.encode() for line in LINES], engine.defaults()._replace(beam_size=beam, attention=1))
    for number, result in enumerate(seen["results"]):
        assert result["text"] == found.text(number, 0)
        parts = range(len(found.sources(number)))
        assert result["ids"] == [token for part in parts for token in found.ids(number, 0, part)]
        assert result["cut"] == ("length_limit" in found.notes(number))
        for row, other in zip(result["attention"], found.attention(number, 0, 0) if parts else [], strict=True):
            assert row == pytest.approx(other, abs=1e-5)
        assert all(0 < sum(row) < 1.0001 for row in result["attention"])


@pytest.mark.slow
def test_options_of_the_browser_by_their_names(page: Path, tmp_path: Path) -> None:
    seen = in_node(page, tmp_path, beam=4)
    lacking, threads, wrong, half, search, seed, inner = seen["problems"]
    allowed = "Allowed: search, search_options, glossary, beam_size, n_best, max_length_offset, max_length_factor, "
    allowed += "length_penalty, length_normalization, shortlist, scores, attention, split, capitals, split_long, "
    allowed += "repeat_penalty, min_length, no_repeat_ngram, coverage_penalty, target_language, placeholders, "
    allowed += "replace_unknown, entropies."
    what = "is not an option of the engine in a browser"
    assert lacking == f"glossry: {what}. {allowed}"
    assert threads.startswith("threads: is not an option")
    assert (wrong, half) == ("repeat_penalty must be 0.01 to 10", "n_best must be 1 to 1000")
    assert search == "search: mbr is not known. Allowed: auto, beam, greedy, sample."
    assert (
        seed.startswith("search_options: seed: is not an option of this search.")
        and inner == f"seed: {what}. {allowed}"
    )
    engine = native(page)
    drawing = engine.defaults()._replace(sample=1, n_best=3, seed=4, top_p=0.9, entropies=1)
    drawn = engine.translate([LINES[0].encode()], drawing)
    assert [one["text"] for one in seen["samples"]["n_best"]] == [drawn.text(0, i) for i in range(3)]
    entropies = [value for part in range(len(drawn.sources(0))) for value in drawn.entropies(0, 0, part)]
    assert seen["samples"]["entropies"] == pytest.approx(entropies, abs=1e-4)
    keeps = engine.defaults()._replace(
        placeholders=1, replace_unknown=1, glossary=engine.glossary("\u4e02\tA b".encode())
    )
    kept = engine.translate(["\u4e01 {x} \u4e02 Z".encode()], keeps).text(0, 0)
    assert seen["kept"] == kept and "{x}" in kept and "A b" in kept
    chosen = engine.defaults()._replace(
        beam_size=max(3, engine.defaults().beam_size), n_best=3, repeat_penalty=1.5, split_long=0, shortlist=0
    )
    found = engine.translate([LINES[0].encode()], chosen)
    assert [one["text"] for one in seen["several"]] == [found.text(0, i) for i in range(found.translations(0))]
    assert [one["score"] for one in seen["several"]] == pytest.approx([found.score(0, i) for i in range(3)], abs=1e-4)


@pytest.mark.slow
def test_the_code_is_small_and_complete(page: Path) -> None:
    names = {"index.html", "page.css", "page.js", "door.js", "engine.js", "nmt.wasm.gz"}
    assert {path.name for path in page.iterdir()} == names | {"model.nmt"}
    assert sum((page / name).stat().st_size for name in names) <= 230_000
    assert not any("://" in (page / name).read_text() for name in names - {"nmt.wasm.gz"})


@pytest.mark.slow
def test_a_damaged_model_is_said(page: Path, tmp_path: Path) -> None:
    broken = tmp_path / "page"
    shutil.copytree(page, broken)
    content = (page / "model.nmt").read_bytes()
    (broken / "model.nmt").write_bytes(content[:-9] + b"?" + content[-8:])
    assert in_node(broken, tmp_path, beam=1)["problem"].startswith("damaged")


def test_the_results_of_a_line_in_parts() -> None:
    """Attention of each part lies over the pieces of that part."""
    script, engine = REPOSITORY / "tests/light/page_results.js", REPOSITORY / "nmt/light/web/engine.js"
    done = subprocess.run([needed("node"), script, engine], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["lines"], seen["freed"]) == (["a cb  "], 1)
    assert seen["source"] == ["\u2581a", "<eos>", "\u2581c", "b", "<eos>"] and seen["ids"] == [6, 2, 8, 7, 2]
    assert seen["attention"] == [
        [0.75, 0.25, 0, 0, 0],
        [0.5, 0.5, 0, 0, 0],
        [0, 0, 0.5, 0.25, 0.25],
        [0, 0, 0.75, 0.125, 0.125],
        [0, 0, 0, 0, 1],
    ]
    assert seen["begins"] == [0, 0, 2, 2, 2]


def test_what_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.nmt").write_text("a text")
    done = build(tmp_path / "page", "--model", tmp_path / "text.nmt")
    said = f"scripts/build_web: {tmp_path}/text.nmt: not a model file of nmt's engine; nmt-export writes one (.nmt)\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert not (tmp_path / "page").exists()


@pytest.fixture
def address(page: Path, tmp_path: Path) -> Iterator[str]:
    """Of the page and its driver, served by Python's own server."""
    shutil.copytree(page, tmp_path / "served")
    shown = ["\u4e01\u4e02\u4e03", "\u4e01 \u4e04\n\n\u4e05 \u4e06 \u4e07"]
    driver = DRIVER.read_text(encoding="utf-8").replace("LINES", json.dumps(shown))
    (tmp_path / "served/driver.html").write_text(driver, encoding="utf-8")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path / "served")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/driver.html"
        server.shutdown()


@pytest.mark.slow
def test_the_page_in_a_browser(page: Path, address: str, tmp_path: Path) -> None:
    """Types, waits, goes along the words; in a window as narrow as a phone's."""
    browser = needed(*BROWSERS)
    options = ["--headless", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=60000"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    done = subprocess.run([browser, *options, "--dump-dom", address], capture_output=True, timeout=200, check=False)
    (text,) = re.findall(r'<pre id="seen">(.*?)</pre>', done.stdout.decode(), re.S)
    assert text, done.stderr.decode()[-2000:]
    seen = json.loads(html.unescape(text))
    engine = native(page)
    lines = ["\u4e01\u4e02\u4e03", "\u4e01 \u4e04", "\u4e05 \u4e06 \u4e07"]
    found = engine.translate([line.encode() for line in lines], engine.defaults())
    texts = [found.text(number, 0) for number in range(3)]
    assert seen["status"] == "Ready" and seen["texts"] == [texts[:1], texts[1:]]
    assert seen["searches"] == ["", "greedy"] and seen["wide"] is False and seen["focused"] == 1
    assert any(seen["first"]) and any(seen["second"]) and seen["stops"] == 1
    assert sorted(set(seen["loaded"])) == [*("door.js", "engine.js", "model.nmt", "nmt.wasm.gz", "page.css", "page.js")]
