"""Calls commands as their console scripts do: the function that setup.py names, arguments in sys.argv."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from types import ModuleType

from tests.conftest import REPOSITORY


def entry_points() -> dict[str, tuple[ModuleType, str]]:
    """Module and function of each console script."""
    setup = (REPOSITORY / "setup.py").read_text(encoding="utf-8")
    found = re.findall(r'"(nmt-\w+)=([\w.]+):(\w+)"', setup)
    return {name: (importlib.import_module(module), function) for name, module, function in found}


def call(name: str, *arguments: str) -> int:
    """The exit code of a command."""
    module, function = entry_points()[name]
    before = sys.argv
    sys.argv = [name, *arguments]
    try:
        code: int = getattr(module, function)()
    finally:
        sys.argv = before
    return code


def parser_of(name: str) -> argparse.ArgumentParser:
    """The options of a command."""
    parser: argparse.ArgumentParser = entry_points()[name][0].build_parser()
    return parser
