"""scripts/check_prose: what it reads of pages and code, what it finds, and that all of them pass."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
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
def checker() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPT.parent))
    loader = SourceFileLoader("check_prose", str(SCRIPT))
    spec = importlib.util.spec_from_loader("check_prose", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPT.parent))


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


CODE = {
    "a.py": '''"""Training goes on after a kill."""
name = "goes on"  # what goes on here
help = f"{name} and so on goes on {name}"
''',
    "a.c": """int goes_on; /* training
   goes on */ // it goes on
char *url = "http://it goes on";
""",
    "a.yaml": """goes on: "a goes on"   # training goes on
""",
}


@pytest.mark.parametrize(("name", "lines"), [("a.py", [1, 2, 3]), ("a.c", [2, 2]), ("a.yaml", [1])])
def test_docstrings_comments_and_messages_are_read_but_not_names(
    name: str, lines: list[int], tmp_path: Path, checker: ModuleType
) -> None:
    file = tmp_path / name
    file.write_text(CODE[name], encoding="utf-8")
    assert checker.check([file]) == [f"{name}:{line}: 'goes on': resumes, continues" for line in lines]


def test_scripts_without_an_ending_are_read(checker: ModuleType) -> None:
    files = {file.name for file in checker.all_files()}
    assert {"check_prose", "mutants", "trainer.py", "native.c", "demo.yaml", "README.md"} <= files
    assert "setup_env" not in files  # a shell script


def test_pages_and_code_as_they_are(checker: ModuleType) -> None:
    assert checker.check(checker.all_files()) == []
