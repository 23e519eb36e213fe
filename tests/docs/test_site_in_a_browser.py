"""The built site in a real browser, opened from the disk: its search, what it loads, and its pages on a phone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Visit, chromium
from tests.conftest import REPOSITORY

pytest.importorskip("mkdocs", reason="MkDocs is not installed (extra docs)")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", ".mkdocs.yml", "-d", folder],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("name", ["index.html", "benchmarks/gpu.html"])
def test_the_search_finds_pages_without_a_server(browser: Any, site: Path, name: str) -> None:
    with Visit(browser) as visit:
        visit.page.goto((site / name).as_uri() + "?q=placeholders")
        found = visit.page.locator("a.md-search-result__link")
        found.first.wait_for(state="attached")
        assert any("controlling.html" in link.get_attribute("href") for link in found.all())
        assert visit.problems == []
        assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("name", ["index", "configuration", "migrating", "results", "engine_format"])
def test_wide_tables_and_code_do_not_widen_a_page_on_a_phone(browser: Any, site: Path, name: str) -> None:
    with Visit(browser, width=400, height=800) as visit:
        visit.page.goto((site / f"{name}.html").as_uri())
        assert not visit.is_too_wide()
