"""Messages about mistakes in a configuration: full key, value, what is allowed, near miss."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from nmt.config.schema import SECTIONS, Config
from nmt.config.suggest import unknown_key
from nmt.errors import ConfigError, printable, refused, shown

_UNION_MEMBER = re.compile(r"^(constrained-|function-|list\[|dict\[|int$|float$|str$|none|literal\[)")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_LONG_NUMBER = re.compile(r"(\d{20})\d{15,}(\d{5})")
SET = "--set"
"""In place of a line number: set on the command line."""


class Problem(NamedTuple):
    """One mistake: the full key it concerns and what is wrong with it."""

    key: str
    message: str
    component: str = ""
    """Kind and name of an unknown component, such as `cell 'mine'`; a plugin could have registered it."""
    failed_plugin: bool = False
    """A plugin could not be loaded, so its components are missing."""
    in_files: bool = False
    """The configuration is valid, but a file named in it is missing."""
    cause: BaseException | None = None
    """The plugin's error that caused it, for --debug."""


class MistakesError(ConfigError):
    """All problems of a configuration."""

    def __init__(self, message: str, problems: Sequence[Problem]) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class MissingPluginError(ConfigError):
    """A saved configuration whose components come from a plugin that was not given."""


def format_problems(origin: str, problems: Iterable[Problem], places: Mapping[str, int | str] | None = None) -> str:
    """All problems of one file, one per line below its name, in the order of its lines.

    `places` gives the place of a key: its line, or `SET`.
    """
    found = [(_place(problem.key, places or {}), problem) for problem in problems]
    found.sort(key=lambda pair: (not isinstance(pair[0], int), pair[0] if isinstance(pair[0], int) else 0))
    return "\n".join([f"{origin}:", *(f"  {printable(_line(place, problem))}" for place, problem in found)])


def _line(place: int | str | None, problem: Problem) -> str:
    where = "" if place is None else f"line {place}: " if isinstance(place, int) else f"{place}: "
    return f"{where}{problem.key}: {problem.message}"


def _place(key: str, places: Mapping[str, int | str]) -> int | str | None:
    """The place of the key or, for an option or item, of what it belongs to; None if it is not written anywhere."""
    parts = key.split(".")
    for count in range(len(parts), min(len(parts), 2) - 1, -1):
        if (place := places.get(".".join(parts[:count]))) is not None:
            return place
    return None


def type_problems(
    error: ValidationError, *, prefix: tuple[str, ...] = (), known: list[str] | None = None
) -> list[Problem]:
    """Word pydantic's findings, one problem for each key; `prefix` is the section of the value.

    `known` lists the keys of the section itself; by default they come from the schema.
    """
    problems: dict[str, Problem] = {}
    for item in error.errors():
        # A union reports one error for each member, its location followed by the member's type.
        path = [str(part) for part in item["loc"] if not _UNION_MEMBER.match(str(part))]
        key = ".".join([*prefix, *path])
        siblings = known if known is not None else _keys_beside(path)
        message = _message(item, key, siblings)
        # An Options dataclass that checks its own values names the option first.
        option, colon, rest = message.partition(": ")
        if item["type"] == "value_error" and colon and option in siblings:
            key, message = f"{key}.{option}", rest
        if key not in problems or item["type"] == "too_short":  # an empty list: an error about text would not help
            problems[key] = Problem(key, message)
        elif item["type"] == "dict_type" and problems[key].message == f"{shown(item['input'])} is not text":
            problems[key] = Problem(key, f"{shown(item['input'])} is neither text nor a mapping of keys to values")
        elif item["type"] == "literal_error":  # a word that may stand in place of the number
            problems[key] = Problem(key, f"{problems[key].message}; {item['ctx']['expected']} is allowed too")
    return list(problems.values())


def _keys_beside(path: list[str]) -> list[str]:
    section: Any = SECTIONS.get(path[0], Config) if len(path) > 1 else Config
    return [field.name for field in dataclasses.fields(section)]


def _message(item: Any, key: str, siblings: list[str]) -> str:
    value, context, kind = item["input"], item.get("ctx", {}), item["type"]
    if kind == "unexpected_keyword_argument":
        return unknown_key(key, siblings)
    if kind in ("missing", "missing_keyword_only_argument", "missing_argument"):
        return "missing"
    if kind == "literal_error":
        return refused("", value, re.findall(r"'([^']*)'", context["expected"]))
    if kind == "value_error":
        return _LONG_NUMBER.sub(r"\1...\2", str(context["error"]))
    wording = {
        "int_type": "is not an integer",
        "int_from_float": "is not an integer",
        "float_type": "is not a number",
        "finite_number": "is not a finite number",
        "bool_type": "is not true or false",
        "string_type": "is not text",
        "string_too_short": "must not be empty",
        "list_type": "is not a list",
        "too_short": "must not be empty",
        "dict_type": "is not a mapping of keys to values",
        "dataclass_type": "is not a section; it must be a mapping of keys to values",
        "greater_than": f"must be greater than {context.get('gt')}",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than": f"must be less than {context.get('lt')}",
        "less_than_equal": f"must be at most {context.get('le')}",
    }
    return f"{shown(value)} {wording.get(kind, item['msg'])}{_advice(value, kind)}"


def _advice(value: Any, kind: str) -> str:
    """How to write what was meant, if that is plain."""
    if kind in ("int_type", "float_type") and isinstance(value, str) and len(value) < 30 and _NUMBER.fullmatch(value):
        return "; leave out the quotes"
    if kind in ("int_type", "int_from_float") and isinstance(value, float) and value.is_integer() and value < 1e15:
        return f"; write {int(value)}"
    return ""
