"""The plausible bugs of scripts/mutant_lists: their type, reading them, putting one into a text."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from nmt.errors import ConfigError, DataError

LISTS = Path(__file__).with_name("mutant_lists")

_WIDER = {
    "cells": ("tests/cells", "tests/models"),
    "cli": ("tests/cli",),
    "data": ("tests/data",),
    "demo": ("tests/demo", "tests/data"),
    "evaluation": ("tests/evaluation", "tests/cli/test_evaluate.py"),
    "interop": ("tests/interop", "tests/cli"),
    "kernel_check": ("tests/kernel_check",),
    "models": ("tests/models", "tests/search"),
    "ops": ("tests/ops", "tests/cells", "tests/models"),
    "search": ("tests/search", "tests/cli"),
    "training": ("tests/training", "tests/distributed", "tests/cli/test_train.py"),
}
"""By package of nmt: the tests that run if the tests named for a bug have not noticed it."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A bug that a person could have written: a change of one place in one file."""

    name: str
    """What is wrong, in plain words."""
    file: str
    """From the root of the tree."""
    text: str
    """The original text, which is in the file exactly once."""
    instead: str
    tests: str
    """Arguments of pytest for the tests that should notice it, as in a shell."""
    explained: str | None = None
    """Why no test can notice it."""

    @property
    def digest(self) -> str:
        """Hash of the change only: it does not depend on the name, the explanation and the tests."""
        return hashlib.sha256("\0".join((self.file, self.text, self.instead)).encode()).hexdigest()[:16]

    @property
    def package(self) -> str:
        """The package of nmt that contains the file."""
        return Path(self.file).parts[1]

    @property
    def named_tests(self) -> list[str]:
        """The arguments of pytest as a list."""
        return shlex.split(self.tests)

    @property
    def wider_tests(self) -> list[str]:
        """Further tests of the package."""
        return list(_WIDER.get(self.package, ("tests/config", "tests/robustness")))

    def changed(self, source: str) -> str:
        """The file's text with the bug in it; DataError unless the original text is there exactly once."""
        count = source.count(self.text)
        if count != 1:
            found = "is no longer in" if count == 0 else f"stands {count} times in"
            raise DataError(f"mutant '{self.name}': its text {found} {self.file}: {self.text.strip()!r}")
        return source.replace(self.text, self.instead)


def read_mutants(folder: Path = LISTS) -> list[Mutant]:
    """All bugs in the .yaml files of `folder`, by file; DataError for an invalid entry, or a name used twice."""
    mutants: list[Mutant] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            entries = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise DataError(f"{path}: {' '.join(str(error).split())}") from error
        mutants += [_mutant(entry, path) for entry in entries or []]
    names = [mutant.name for mutant in mutants]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{folder}: the name '{name}' is used {names.count(name)} times; each bug needs its own")
    return mutants


def _mutant(entry: Any, path: Path) -> Mutant:
    known = {field.name for field in fields(Mutant)}
    if not isinstance(entry, dict) or not known - {"explained"} <= entry.keys() <= known:
        raise DataError(f"{path}: {entry!r} must have {', '.join(sorted(known))} ('explained' is optional)")
    wrong = [key for key, value in entry.items() if not isinstance(value, str)]
    if wrong:
        raise DataError(f"{path}: {entry['name']}: {', '.join(wrong)} must be text")
    return Mutant(**entry)


def chosen(mutants: Iterable[Mutant], words: Sequence[str]) -> list[Mutant]:
    """The mutants with one of `words` in their name or file, or all without `words`; ConfigError for an unused word."""
    found = list(mutants)
    for word in words:
        if not any(word in mutant.name or word in mutant.file for mutant in found):
            raise ConfigError(f"--only: no mutant has '{word}' in its name or file")
    return [
        mutant for mutant in found if not words or any(word in mutant.name or word in mutant.file for word in words)
    ]
