"""A headless browser for tests marked `browser`: the Chromium on PATH, driven by Playwright, which brings none here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's browser; the test skips where Chromium or Playwright is absent."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on PATH (Debian: chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page with all that must not happen on it: `problems`, errors and messages of the console, and `requests`."""

    def __init__(self, browser: Any, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        scheme = "dark" if dark else "light"
        self._context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self._context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *failure: object) -> None:
        self._context.close()

    def is_too_wide(self) -> bool:
        """Whether the page scrolls sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))
