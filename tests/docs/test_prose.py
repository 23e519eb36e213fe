"""scripts/check_prose: what it reads of a page, what it finds, and that it finds nothing in the pages as they are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "check_prose"
PAGE = """# A page

This sentance is wrong. See `sentance`, which is
said to be a name.

```
teh code
```

| table | teh |
"""


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    loader = SourceFileLoader("check_prose", str(SCRIPT))
    spec = importlib.util.spec_from_loader("check_prose", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_code_is_not_read_and_lines_keep_their_numbers(checker: ModuleType) -> None:
    lines = checker.prose(PAGE).splitlines()
    assert len(lines) == len(PAGE.splitlines())
    assert lines[2] == "This sentance is wrong. See ``, which is"
    assert lines[5:8] == ["", "", ""]
    assert lines[9] == "  table   teh  "


def test_it_names_file_line_and_word(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    done = subprocess.run([sys.executable, SCRIPT, page], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [
        "page.md:3: 'is said': is reported, is stated, or say what reports it",
        "page.md:3: sentance ==> sentence",
        "page.md:10: teh ==> the",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Training goes\non after a kill.", "goes on"),
        ("The figures are in a table.", "figures"),
        ("Registers are those of a thread and memory that of a program.", "those of a thread and memory that of"),
        ("Registers are those of a thread, and memory that of a program.", ""),
        ("The figure shows what a unit holds.", ""),
    ],
)
def test_phrases_with_a_plainer_form(checker: ModuleType, text: str, found: str) -> None:
    lines = checker.plainer_words("page.md", text)
    assert [line.split("'")[1] for line in lines] == [found] * bool(found)


def test_the_pages_as_they_are(checker: ModuleType) -> None:
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    assert checker.check(pages) == []
