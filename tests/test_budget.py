"""The size of the core, all of nmt but its satellites, and that the satellites are what .importlinter says."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

from tests.conftest import REPOSITORY

SUFFIXES = (".py", ".c", ".h")


def contract(name: str, key: str) -> set[str]:
    """The packages of nmt that a contract of import-linter lists."""
    parser = ConfigParser()
    parser.read(REPOSITORY / ".importlinter", encoding="utf-8")
    return {module.removeprefix("nmt.") for module in parser[f"importlinter:contract:{name}"][key].split()}


def satellites() -> set[str]:
    """The folders of nmt that the core does not import."""
    return contract("satellites", "forbidden_modules")


def lines(folder: Path) -> int:
    """Lines of Python and C below a folder."""
    return sum(
        path.read_bytes().count(b"\n") for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file()
    )


def test_the_core_has_no_more_lines_than_it_may() -> None:
    page = (REPOSITORY / "docs" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(r"The core has\s+at\s+most\s+([\d,]+)\s+lines", page)
    assert found is not None
    core = lines(REPOSITORY / "nmt") - sum(lines(REPOSITORY / "nmt" / name) for name in satellites())
    assert core <= int(found[1].replace(",", "")), f"the core has {core:,} lines"


def test_the_map_of_the_house_names_all_rooms() -> None:
    page = (REPOSITORY / "docs" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = page.split("\n## A map of the house\n")[1].split("\n**The budget.**")[0]
    named = set(re.findall(r"`([a-z_]+)`", drawn)) | satellites()
    found = {path.stem for path in (REPOSITORY / "nmt").iterdir() if path.suffix in ("", ".py") and path.stem[0] != "_"}
    assert named == found


def test_import_linter_knows_all_packages() -> None:
    """Each package is a satellite or may import none, and no satellite imports another."""
    packages = {path.parent.name for path in (REPOSITORY / "nmt").glob("*/__init__.py")}
    bottom = contract("bottom", "source_modules") | {"light"}
    assert satellites() <= packages
    assert packages - satellites() <= contract("satellites", "source_modules") | bottom
    assert contract("satellites-alone", "modules") == satellites()
