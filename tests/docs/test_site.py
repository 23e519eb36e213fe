"""The site of the documentation: what scripts/site_hooks.py makes of README.md and of links that leave docs/."""

from __future__ import annotations

import importlib.util
import logging
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from tests.conftest import REPOSITORY

pytest.importorskip("mkdocs", reason="MkDocs is not installed (extra docs)")
CONFIG = {"docs_dir": str(REPOSITORY / "docs"), "site_dir": "site", "use_directory_urls": False}


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", REPOSITORY / "scripts/site_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=name))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.md", "[base](../nmt/cells/base.py) x", "base (`nmt/cells/base.py`) x"),
        ("a.md", "[nmt/cells](../nmt/cells)", "`nmt/cells`"),
        ("benchmarks/a.md", "[results.md](../results.md#gpu)", "[Results](../results.md#gpu)"),
        ("a.md", "![curves](../LICENSE)", "![curves](../LICENSE)"),
        ("a.md", "([results.md](results.md#gpu))", "([Results](results.md#gpu))"),
        ("benchmarks/a.md", "[the results](../results.md)", "[the results](../results.md)"),
        ("a.md", "| a \\| b | `x\\|y` |", "| a \\| b | `x|y` |"),
        ("a.md", "no table: `x\\|y`", "no table: `x\\|y`"),
    ],
)
def test_links_have_titles_and_files_outside_are_named(hooks: ModuleType, name: str, text: str, expected: str) -> None:
    assert hooks.on_page_markdown(text, page=page(name), config=CONFIG, files=None) == expected


def test_a_link_to_nothing_is_a_warning(hooks: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="mkdocs.hooks"):
        hooks.on_page_markdown("[x](../nmt/nothing.py)", page=page("a.md"), config=CONFIG, files=None)
    assert [record.getMessage() for record in caplog.records] == [
        "a.md: links to ../nmt/nothing.py, which does not exist"
    ]


def test_the_first_page_is_the_readme_with_links_as_in_docs(hooks: ModuleType) -> None:
    text = "[a](docs/library.md#x) [b](LICENSE) [c](https://example.com) [d](#tests) ![e](docs/curves.svg)"
    expected = "[a](library.md#x) [b](../LICENSE) [c](https://example.com) [d](#tests) ![e](curves.svg)"
    assert hooks.first_page(text) == expected


def test_the_navigation_names_existing_pages() -> None:
    """MkDocs itself says which ones are missing in it."""

    def names(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        inner = entry.values() if isinstance(entry, dict) else entry
        return [name for part in inner for name in names(part)]  # type: ignore[attr-defined]

    text = (REPOSITORY / ".mkdocs.yml").read_text(encoding="utf-8")
    listed = names(yaml.safe_load(text)["nav"])
    assert len(listed) == len(set(listed)) > 40
    assert [name for name in listed if name != "index.md" and not (REPOSITORY / "docs" / name).is_file()] == []
