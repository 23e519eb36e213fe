"""The plausible bugs of scripts/mutant_lists: their type, reading them, finding their places in a tree.

A bug is a pattern of tokens and what stands there instead. White space, line breaks, comments and docstrings do not
count, nor does a comma before a closing bracket; `$name` stands for one name, also with what it is an attribute of,
such as `self.rows`, and means the same wherever it occurs again; `$$name` stands for any tokens, as few as possible.
The place is looked for in all files of the bug's package or module, then in all of nmt, and must be there exactly once.
So a bug is still found when code is moved, reformatted, or gets other names and messages where the pattern has a `$`.
"""

from __future__ import annotations

import hashlib
import keyword
import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from nmt.errors import ConfigError, DataError

LISTS = Path(__file__).with_name("mutant_lists")

_FURTHER = {
    "cells": ("tests/models",),
    "compiling": ("tests/ops/native",),
    "evaluation": ("tests/cli/test_evaluate.py",),
    "interop": ("tests/cli", "tests/onnx_export", "tests/zero"),
    "light": ("tests/library",),
    "models": ("tests/search",),
    "onnx_export": ("tests/exporting", "tests/interop"),
    "ops": ("tests/cells", "tests/models"),
    "other_tasks": ("tests/classification", "tests/language_models", "tests/tagging"),
    "kept_text": ("tests/search",),
    "search": ("tests/cli", "tests/kept_text"),
    "tasks": ("tests/training", "tests/cli"),
    "training": ("tests/distributed", "tests/cli/test_train.py", "tests/doubts"),
    "zero": ("tests/interop",),
}
"""By package: folders of tests that notice its bugs besides its own."""
_SUFFIXES = (".py", ".c", ".h", ".js", ".html")
_STRING = r"""(?:\b[rbfuRBFU]{1,2})?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
_LONG_STRING = r"(?:\b[rbf]{1,2})?\"\"\".*?\"\"\""
_OPERATOR = r"->|\*\*=?|//=?|<<=?|>>=?|&&|\|\||\+\+|--|:=|===?|!==?|<=|>=|[-+*/%&|^@]=|\.\.\.|\S"
_TOKENS = {
    True: re.compile(rf"(?P<skip>\s+|#[^\n]*)|{_LONG_STRING}|{_STRING}|\$?\$?\w+|{_OPERATOR}", re.DOTALL),
    False: re.compile(rf"(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|{_STRING}|\$?\$?\w+|{_OPERATOR}", re.DOTALL),
}
"""By whether it is Python."""
_NAME = rf"(?!(?:{'|'.join(keyword.kwlist)})\n)[A-Za-z_]\w*"
_MOST_BETWEEN = 400
"""Characters of the tokens that `$$name` stands for."""


class Tokens:
    """A text as tokens, each ended by a line feed, so that a regular expression finds a run of them."""

    def __init__(self, text: str, *, is_python: bool) -> None:
        found = [
            match
            for match in _TOKENS[is_python].finditer(text)
            if match["skip"] is None and not (match[0].endswith('"""') and _is_alone(text, match.start()))
        ]
        self.spans = [
            match.span()
            for match, after in zip_longest(found, (one[0] for one in found[1:]), fillvalue="")
            if match[0] != "," or after not in (")", "]", "}")
        ]
        self.words = [text[first:end].replace("\n", " ") for first, end in self.spans]
        self.joined = "".join(f"{word}\n" for word in self.words)

    @cached_property
    def known(self) -> frozenset[str]:
        """The tokens, each once."""
        return frozenset(self.words)

    @cached_property
    def starts(self) -> dict[int, int]:
        """Numbers of the tokens by where they begin in `joined`."""
        places, at = {}, 0
        for number, word in enumerate(self.words):
            places[at] = number
            at += len(word) + 1
        return places | {at: len(self.words)}


def _is_alone(text: str, place: int) -> bool:
    """Whether only white space stands before this place in its line, as before a docstring."""
    return not text[text.rfind("\n", 0, place) + 1 : place].strip()


class Place(NamedTuple):
    """Where a bug goes."""

    file: str
    """From the root of the tree."""
    first: int
    end: int
    instead: str

    def changed(self, source: str) -> str:
        """The file with the bug in it."""
        return source[: self.first] + self.instead + source[self.end :]


class Sources:
    """The files of nmt in a tree, by their names from its root."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        paths = sorted(path for path in (tree / "nmt").rglob("*") if path.suffix in _SUFFIXES)
        self._texts = {path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8") for path in paths}
        self._tokens: dict[str, Tokens] = {}

    def place(self, mutant: Mutant) -> Place:
        """Where a bug goes; DataError unless its pattern is exactly once in its package or, not being there, in nmt."""
        own = [name for name in self._texts if name.startswith((f"nmt/{mutant.package}/", f"nmt/{mutant.package}."))]
        found = self._places(mutant, own) or self._places(mutant, [name for name in self._texts if name not in own])
        if len(found) != 1:
            where = ", ".join(sorted({place.file for place in found}))
            problem = f"stands {len(found)} times ({where})" if found else f"is in no file of {self.tree / 'nmt'}"
            raise DataError(f"mutant '{mutant.name}': its text {problem}: {mutant.text.strip()!r}")
        return found[0]

    def _places(self, mutant: Mutant, names: Iterable[str]) -> list[Place]:
        found = []
        for name in names:
            is_python = name.endswith(".py")
            pattern, literal = mutant.pattern(is_python=is_python)
            if name not in self._tokens:
                self._tokens[name] = Tokens(self._texts[name], is_python=is_python)
            tokens = self._tokens[name]
            if literal <= tokens.known:
                found += [self._place(mutant, name, match) for match in pattern.finditer(tokens.joined)]
        return found

    def _place(self, mutant: Mutant, name: str, match: re.Match[str]) -> Place:
        text, tokens = self._texts[name], self._tokens[name]

        def span(first: int, end: int) -> tuple[int, int]:
            begin, after = tokens.starts[first], tokens.starts[end]
            return (tokens.spans[begin][0], tokens.spans[after - 1][1]) if after > begin else (0, 0)

        first, end = span(*match.span())
        line = text[text.rfind("\n", 0, first) + 1 : first]
        indent = line[: len(line) - len(line.lstrip())]
        meant = {key: text[slice(*span(*match.span(key)))] for key in match.groupdict()}
        instead = re.sub(r"\$\$?(\w+)", lambda found: meant[found[1]], textwrap.dedent(mutant.instead).strip())
        return Place(name, first, end, instead.replace("\n", f"\n{indent}"))


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A bug that a person could have written: a change of one place."""

    name: str
    """What is wrong, in plain words."""
    package: str
    """The package of nmt whose bug it is."""
    text: str
    """The original, as a pattern."""
    instead: str
    tests: str = ""
    """Arguments of pytest for tests that should notice it, as in a shell, which run before those of the package."""
    explained: str | None = None
    """Why no test can notice it."""

    @property
    def digest(self) -> str:
        """Hash of the change only: it does not depend on the name, the explanation and the tests."""
        return hashlib.sha256("\0".join((self.package, self.text, self.instead)).encode()).hexdigest()[:16]

    @property
    def named_tests(self) -> list[str]:
        """The arguments of pytest as a list."""
        return shlex.split(self.tests)

    def wider_tests(self, tree: Path) -> list[str]:
        """The tests of the package in a tree."""
        wanted = [f"tests/{self.package}", f"tests/test_{self.package}.py", *_FURTHER.get(self.package, ())]
        return [name for name in wanted if (tree / name).exists()] or ["tests/config", "tests/robustness"]

    def pattern(self, *, is_python: bool) -> tuple[re.Pattern[str], frozenset[str]]:
        """A regular expression for `Tokens.joined`, and the tokens that the text must have."""
        tokens = Tokens(self.text, is_python=is_python).words
        return _expression(tuple(tokens)), frozenset(token for token in tokens if not re.match(r"\$+\w", token))


def _expression(tokens: Sequence[str]) -> re.Pattern[str]:
    parts, known = [r"(?:(?<=\n)|\A)"], set[str]()
    for token in tokens:
        name = token.lstrip("$")
        if token == name or not name:
            parts.append(re.escape(token) + "\n")
        elif name in known:
            parts.append(f"(?P={name})")
        elif token.startswith("$$"):
            parts.append(rf"(?P<{name}>(?:[^\n]*\n){{0,{_MOST_BETWEEN}}}?)")
        else:
            parts.append(rf"(?P<{name}>{_NAME}\n(?:(?:\.|->)\n{_NAME}\n)*)")
        known |= {name} if token != name else set()
    return re.compile("".join(parts))


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
    if not isinstance(entry, dict) or not known - {"tests", "explained"} <= entry.keys() <= known:
        raise DataError(
            f"{path}: {entry!r} must have {', '.join(sorted(known))} ('tests' and 'explained' are optional)"
        )
    wrong = [key for key, value in entry.items() if not isinstance(value, str)]
    if wrong:
        raise DataError(f"{path}: {entry['name']}: {', '.join(wrong)} must be text")
    return Mutant(**entry)


def chosen(mutants: Iterable[Mutant], words: Sequence[str]) -> list[Mutant]:
    """The mutants with one of `words` in their name, or as their package, or all without `words`.

    Raises ConfigError for an unused word.
    """
    found = list(mutants)
    for word in words:
        if not any(word in mutant.name or word == mutant.package for mutant in found):
            raise ConfigError(f"--only: no mutant has '{word}' in its name, or as its package")
    return [
        mutant for mutant in found if not words or any(word in mutant.name or word == mutant.package for word in words)
    ]
