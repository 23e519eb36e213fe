"""The reference of all configuration keys and of the options of a search, made from the schema and the registries.

`python -m nmt.config.reference` prints what docs/configuration.md holds, `python -m nmt.config.reference decoding` what
docs/decoding_options.md holds; a test keeps them equal.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints

from nmt.config.problems import COMPONENTS
from nmt.config.schema import SECTIONS, Config, DecodingConfig
from nmt.light.options import DOORS, ENGINE, OPTIONS, TORCH, Option
from nmt.registry import METRICS, TASKS, field_docstrings

_INTRODUCTION = """# Configuration

Every key, with its default (`key=value`), or in parentheses what counts where it is not set. A run cannot be resumed
with another value of a key marked *. Any key can be set on the command line: `--set training.lr=3e-4`.

A key such as `cell` names one of the components below, or one of a [plugin](plugins.md); `cell_options` has the
options that are listed there.
"""

_ELSEWHERE = "The search in validation, and the defaults of commands: [options of a search](decoding_options.md).\n"
_DECODING = """# Options of a search

With defaults and allowed values. Down to `ensemble_mean` they are keys of section `decoding` of a configuration; all
are keywords of `Translator.translate` and keys of a request. On a command line: `--` and the name with hyphens,
`--search-option` for `search_options`.
"""
_DOORS = """## Who has which

What a form of the model lacks is refused by name.
"""
_SAID = ("name", "pairs", "flag", "file", "model", "language", "text", "phrases", "list")
"""Kinds of options whose meaning says what may be given."""

_TITLES = {
    "task": "Tasks",
    "model.architecture": "Architectures",
    "model.cell": "Units",
    "model.initializer": "Initializers",
    "data.tokenizer": "Tokenizers",
    "training.loss": "Losses",
    "training.optimizer": "Optimizers",
    "training.schedule": "Schedules",
    "decoding.search": "Searches",
    "evaluation.metrics": "Metrics",
}
_LISTS = {"evaluation.metrics": METRICS}
_PAGES = {
    "model.architecture": "architectures.md",
    "model.cell": "units.md",
    "decoding.search": "controlling.md#searches",
    "evaluation.metrics": "evaluation.md#metrics",
}
"""Where components are described, so that here those that have options are enough."""


def markdown() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, "## Top level\n", _listed(Config)]
    for name, section in SECTIONS.items():
        parts += [f"## `{name}`\n", _ELSEWHERE if section is DecodingConfig else _listed(section)]
    registries = {"task": TASKS, **COMPONENTS, **_LISTS}
    for key, title in _TITLES.items():
        registry = registries[key]
        parts.append(f"## {title}: `{key if key in _LISTS else f'{key}_options'}`\n")
        page = _PAGES.get(key, "")
        if page:
            parts.append(f"[{page.partition('#')[0]}]({page}) describes all. Those with options:\n")
        options = {name: _rows(registry.get(name).Options) for name in registry.names()}
        owners: dict[tuple[str, str, str], list[str]] = {}
        for name, rows in options.items():
            for row in rows:
                owners.setdefault(row, []).append(f"`{name}`")
        shared = [
            _line(*row, "all" if len(names) == len(options) else ", ".join(names))
            for row, names in owners.items()
            if len(names) > 1
        ]
        parts += [*shared, ""] if shared else []
        for name, rows in options.items():
            own = [_line(*row) for row in rows if len(owners[row]) == 1]
            said = [] if page or key == "task" else [f"{_first_line(registry.get(name))}\n"]
            if own or said:
                parts += [f"### `{name}`\n", *said, *own, *([""] if own else [])]
    return "\n".join(parts)


def decoding_markdown() -> str:
    """The page about the options of a search."""
    parts = [_DECODING, *(_described(option) for option in OPTIONS.values()), "", _DOORS]
    for doors in (TORCH, ENGINE, ("server",), ("onnx",)):
        forms = ", ".join(f"**{door}** ({DOORS[door]})" for door in doors)
        own = [f"\n    - {door}: {without}" for door in doors if (without := _limits(door, among=doors))]
        parts.append(f"- {forms}: {_limits(*doors)}{''.join(own)}")
    return "\n".join(parts) + "\n"


def _limits(*doors: str, among: Sequence[str] = ()) -> str:
    """What these doors do not have; `among`: doors whose common limits have been told."""
    parts = []
    known = [option for option in OPTIONS.values() if not among or set(among) & set(option.doors)]
    lacks = [f"`{option.name}`" for option in known if not set(doors) & set(option.doors)]
    has = [f"`{option.name}`" for option in known if set(doors) & set(option.doors)]
    if lacks:
        parts.append(f"only {', '.join(has)}" if len(has) < len(lacks) else f"all but {', '.join(lacks)}")
    for option in known:
        limits = {tuple(option.only.get(door, ())) for door in doors}
        if len(limits) == 1 and limits != {tuple(option.only.get(door, ())) for door in among}:
            parts += [f"of `{option.name}` only {', '.join(limit)}" for limit in limits if limit]
    return ", ".join(parts)


def _described(option: Option) -> str:
    default = _shown([*option.default] if option.kind == "list" else option.default)
    allowed = "" if option.kind in _SAID else re.sub(r"^a (?:whole )?number ", "", option.allowed())
    if option.engine_most != option.most:
        allowed += f"; engine: to {option.engine_most:,}"
    also = f" Elsewhere {', '.join(f'`{name}`' for name in option.also)}." if option.also else ""
    more = f" {option.more}" if option.more else ""
    said = option.help if option.kind == "name" else option.meaning
    meaning = re.sub("(<[a-z]+>)", r"`\1`", said[0].upper() + said[1:])
    return _line(f"`{option.name}{default}`", allowed, f"{meaning}.{more}{also}")


def _listed(section: type) -> str:
    return "".join(f"{_line(*row)}\n" for row in _rows(section))


def _line(key: str, default: str, meaning: str, owners: str = "") -> str:
    """A key on the page; `owners`: the components that have it."""
    inner = "; ".join(part for part in (default, owners) if part)
    return f"- {key} ({inner}): {meaning}" if inner else f"- {key}: {meaning}"


def _rows(section: type) -> list[tuple[str, str, str]]:
    """Keys with their defaults, what counts without them, and meaning; a field without one has that of the next."""
    documented, types, rows, keys = dict(field_docstrings(section)), get_type_hints(section), [], ""
    for field in dataclasses.fields(section):
        meaning = re.sub(r" Zero: `[^.]*`\.", "", " ".join(documented.get(field.name, "").split()))
        annotation = types.get(field.name)
        choices = (
            [f"`{choice}`" for choice in get_args(annotation)]
            if str(get_origin(annotation)) == "typing.Literal"
            else []
        )
        if meaning and not all(choice in meaning for choice in choices):
            meaning += f" One of {', '.join(choices)}."
        star = "*" if field.metadata.get("fixed") else ""
        value = _default(field)
        unset = re.fullmatch(r"(.*); `null`: (.*)\.", meaning) if value is None else None
        meaning, otherwise = (f"{unset[1]}.", unset[2]) if unset else (meaning, "")
        if value is dataclasses.MISSING:
            value, otherwise = None, "required"
        keys += f"`{field.name}{_shown(value)}`{star}"
        if meaning:
            rows.append((keys, otherwise, meaning))
        keys = "" if meaning else f"{keys}, "
    return rows


def _default(field: dataclasses.Field[Any]) -> Any:
    """The default value, or MISSING."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return getattr(field.default, "default", field.default)


def _shown(value: Any) -> str:
    return "" if value is None else f"={str(value).lower() if isinstance(value, bool) else value}"


def _first_line(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").split("\n")[0]


if __name__ == "__main__":
    print(decoding_markdown() if "decoding" in sys.argv[1:] else markdown(), end="")
