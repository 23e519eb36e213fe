"""docs/migrating.md: each key, option and command on our side of its lists exists."""

from __future__ import annotations

import dataclasses
import re

import pytest

from nmt.config.schema import SECTIONS, Config
from nmt.registry import CELLS, INITIALIZERS, LOSSES, MODELS, OPTIMIZERS, SCHEDULES, SEARCHES, TOKENIZERS
from tests.conftest import REPOSITORY
from tests.console import entry_points, parser_of
from tests.test_readme import options_of

PAGE = (REPOSITORY / "docs/migrating.md").read_text(encoding="utf-8")
KEYS = {field.name for field in dataclasses.fields(Config)}
KEYS |= {f"{name}.{field.name}" for name, section in SECTIONS.items() for field in dataclasses.fields(section)}
COMPONENTS = {
    "data.tokenizer_options": TOKENIZERS,
    "decoding.search_options": SEARCHES,
    "model.architecture_options": MODELS,
    "model.initializer_options": INITIALIZERS,
    "training.optimizer_options": OPTIMIZERS,
    "training.schedule_options": SCHEDULES,
}
VALUES = {
    "data.tokenizer": TOKENIZERS,
    "decoding.search": SEARCHES,
    "model.architecture": MODELS,
    "model.cell": CELLS,
    "model.decoder_cell": CELLS,
    "training.loss": LOSSES,
    "training.schedule": SCHEDULES,
}
TOOLKITS = ("JoeyNMT", "fairseq", "OpenNMT-py", "Sockeye", "Marian")


def rows(toolkit: str) -> list[tuple[str, str]]:
    """Both sides of each line of its list."""
    text = PAGE.split(f"\n## {toolkit}\n")[1].split("\n## ")[0]
    return re.findall(r"^- (`[^`]+`(?:(?:, with | and |, )`[^`]+`)*): (.+)$", text, flags=re.M)


def options(section: str) -> set[str]:
    members = [COMPONENTS[section].get(name) for name in COMPONENTS[section].names()]
    return {field.name for member in members for field in dataclasses.fields(getattr(member, "Options", Config))}


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_what_is_named_exists(toolkit: str) -> None:
    found = rows(toolkit)
    assert len(found) >= 10
    for there, here in found:
        assert "`" in there and here, there
        for text in re.findall(r"`([^`]+)`", here):
            name, _, value = text.partition(": ")
            section, _, option = name.rpartition(".")
            if name.startswith("nmt-"):
                command, *flags = name.split()
                assert command in entry_points()
                assert set(flags) <= options_of(parser_of(command)), name
            elif section in COMPONENTS:
                assert option in options(section), (there, name)
            elif "." in name:
                assert name in KEYS, (there, name)
            if value and name in VALUES:
                assert value in VALUES[name].names(), text


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_a_row_names_a_key_a_command_or_says_why_there_is_none(toolkit: str) -> None:
    plain = ("none", "always", "additive", "text comes out", "several models", "the number of processes")
    for there, here in rows(toolkit):
        named = [name.partition(":")[0].split()[0] for name in re.findall(r"`([^`]+)`", here)]
        known = [
            name for name in named if name in KEYS or name.startswith("nmt-") or name.rpartition(".")[0] in COMPONENTS
        ]
        assert known or here.startswith(plain), (there, here)


def test_each_line_of_a_list_has_two_sides() -> None:
    lists = PAGE.split("\n## JoeyNMT\n")[1]
    assert sum(len(rows(toolkit)) for toolkit in TOOLKITS) == len(re.findall(r"^- ", lists, flags=re.M))


def test_the_list_of_commands_names_existing_ones() -> None:
    text = PAGE.split("## Commands\n")[1].split("\n## ")[0]
    ours = set(re.findall(r"`(nmt-[a-z]+)`", text))
    assert ours <= entry_points().keys() and len(ours) >= 6
