"""Every command of nmt that a page shows has options that exist: each line is parsed by the real parser.

Most pages have tests of their own, which run their commands; this one is for those that need days, GPUs or downloads.
"""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest

from nmt.config.schema import SECTIONS, Config
from nmt.registry import TASKS
from tests.conftest import REPOSITORY, page_of
from tests.console import entry_points, parser_of

PATHS = [*(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "scripts/recipes").glob("*.sh")]
PAGES = ["README.md", *sorted(str(path.relative_to(REPOSITORY)) for path in PATHS)]
"""Pages, and the longer ones of their commands, which are files."""
PLACEHOLDERS = {r"<[^> ][^>]*>": "1", r"\$\(cat weights\)": "score=1"}
"""What stands for a value that the page gives in a table, and a value."""
KEYS = {field.name for field in dataclasses.fields(Config)}
KEYS |= {f"{name}.{field.name}" for name, section in SECTIONS.items() for field in dataclasses.fields(section)}
KEYS |= {
    f"task_options.{field.name}" for name in TASKS.names() for field in dataclasses.fields(TASKS.get(name).Options)
}


def commands(name: str) -> list[list[str]]:
    """The words of each command of nmt, in a page of blocks that have no language; also what torchrun starts."""
    found = []
    text = page_of(name)
    blocks = [("", text)] if name.endswith(".sh") else re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.M | re.S)
    for language, block in blocks:
        if language:
            continue
        for line in block.splitlines():
            line = re.sub(r"^(?:\$ |[A-Z_]+=\S+ )+", "", line.strip())
            line = re.sub(r"^torchrun .* -m nmt\.cli\.", "nmt-", line)
            command = re.match(
                r"(nmt-[a-z]+) (?!attention |memory |live )", line
            )  # of nmt-plot, with parsers of their own
            if command is None or command[1] not in entry_points():
                continue
            for pattern, value in PLACEHOLDERS.items():
                line = re.sub(pattern, value, line)
            words = shlex.split(re.sub(r"\s#.*|\$\w+", "", line.partition(" | ")[0].partition(" && ")[0]))
            ends = [place for place, word in enumerate(words) if word in ("<", ">", "2>&1")]
            found.append(words[: min(ends, default=len(words))])
    return found


@pytest.mark.parametrize("name", PAGES)
def test_options_exist(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command, *arguments in commands(name):
        try:
            parser_of(command).parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{command} {shlex.join(arguments)}: {capsys.readouterr().err.splitlines()[-1]}")


@pytest.mark.parametrize("name", PAGES)
def test_keys_that_are_set_exist(name: str) -> None:
    for words in commands(name):
        values = [value for option, value in zip(words, words[1:], strict=False) if option == "--set"]
        keys = {".".join(value.partition("=")[0].split(".")[:2]) for value in values}
        assert keys <= KEYS or "bad.yaml" in words, words  # which shows how mistakes are reported


def test_most_pages_show_commands() -> None:
    counts = {name: len(commands(name)) for name in PAGES}
    assert sum(counts.values()) > 150
    assert counts["docs/results.md"] > 10 and counts["docs/reproducing_wmt14.md"] >= 4
    assert all(counts[name] for name in PAGES if name.endswith(".sh"))


def test_the_page_of_commands_has_an_entry_and_an_example_of_each() -> None:
    text = (REPOSITORY / "docs/commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^- `(nmt-[a-z]+)", text, flags=re.M)) == entry_points().keys()
    assert {words[0] for words in commands("docs/commands.md")} == entry_points().keys()
