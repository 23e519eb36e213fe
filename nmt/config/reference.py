"""The reference of all configuration keys and of the options of a search, made from the schema and the registries.

`python -m nmt.config.reference` prints what docs/configuration.md holds, `python -m nmt.config.reference decoding` what
docs/decoding_options.md holds; a test keeps them equal.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from typing import Any, get_args, get_origin, get_type_hints

from nmt.config.problems import COMPONENTS
from nmt.config.schema import SECTIONS, Config, DecodingConfig
from nmt.light.options import DOORS, OPTIONS, Option
from nmt.registry import CALLBACKS, METRICS, TASKS, field_docstrings

_INTRODUCTION = """# Configuration

Every key, its default if it has one, and its meaning; `python -m nmt.config.reference` prints this page. A run cannot
be resumed with another value of a key marked *. Any key can be set on the command line: `--set training.lr=3e-4`.
"""

_ELSEWHERE = (
    "These keys are options of commands, library and server, too: [decoding_options.md](decoding_options.md).\n"
)
_DECODING = """# Options of a search

By their names in section `decoding` of a configuration (down to `ensemble_mean`), in `Translator.translate` and in a
request. On a command line: `--` and the name with hyphens, `--search-option` for `search_options`.
`python -m nmt.config.reference decoding` prints this page.
"""
_DOORS = """## Who has which

An option that a column lacks is refused there by name. The columns:
"""

_TITLES = {
    "task": "Tasks",
    "model.architecture": "Architectures",
    "model.cell": "Units",
    "model.initializer": "Initializers",
    "data.tokenizer": "Tokenizers",
    "training.loss": "Losses",
    "training.optimizer": "Optimizers",
    "training.schedule": "Schedules",
    "training.callbacks": "Callbacks",
    "decoding.search": "Searches",
    "evaluation.metrics": "Metrics",
}
_LISTS = {"training.callbacks": CALLBACKS, "evaluation.metrics": METRICS}


def markdown() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, "## Top level\n", _listed(Config, skip=[f"`{name}`" for name in SECTIONS])]
    for name, section in SECTIONS.items():
        keys = _ELSEWHERE if section is DecodingConfig else _listed(section)
        parts += [f"## `{name}`\n", f"{_first_line(section)}\n", keys]
    registries = {"task": TASKS, **COMPONENTS, **_LISTS}
    for key, title in _TITLES.items():
        registry = registries[key]
        parts.append(f"## {title}: `{key if key in _LISTS else f'{key}_options'}`\n")
        if not registry.names():
            parts.append(f"None is shipped; a plugin registers one: [plugins.md](plugins.md#{title.lower()}).\n")
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
            parts += [f"### `{name}`\n", f"{_first_line(registry.get(name))}\n", *own, *([""] if own else [])]
    return "\n".join(parts)


def decoding_markdown() -> str:
    """The page about the options of a search."""
    parts = [_DECODING, "| option | default | allowed | meaning |", "|---|---|---|---|"]
    parts += [_described(option) for option in OPTIONS.values()]
    parts += ["", _DOORS, *(f"- {name}: {meaning}" for name, meaning in DOORS.items()), ""]
    parts += [f"| options | {' | '.join(DOORS)} |", "|---" * (len(DOORS) + 1) + "|"]
    alike: dict[tuple[str, ...], list[str]] = {}
    for option in OPTIONS.values():
        has = {door: "yes" if door in option.doors else "" for door in DOORS}
        has |= {door: ", ".join(f"`{value}`" for value in values) for door, values in option.only.items()}
        alike.setdefault(tuple(has.values()), []).append(f"`{option.name}`")
    parts += [f"| {', '.join(names)} | {' | '.join(has)} |" for has, names in alike.items()]
    return "\n".join(parts) + "\n"


def _described(option: Option) -> str:
    default = _shown([*option.default] if isinstance(option.default, tuple) else option.default)
    allowed = re.sub(r"^a (?:whole )?number |^the | of the search$", "", option.allowed())
    if option.unit:
        allowed += f" ({option.unit})"
    if option.engine_most != option.most:
        allowed += f"; engine: to {option.engine_most:,}"
    also = f" Elsewhere {', '.join(f'`{name}`' for name in option.also)}." if option.also else ""
    more = f" {option.more}" if option.more else ""
    said = option.help if option.kind == "name" else option.meaning
    meaning = re.sub("(<[a-z]+>)", r"`\1`", said[0].upper() + said[1:])
    return f"| `{option.name}` | {default} | {allowed} | {meaning}.{more}{also} |"


def _listed(section: type, *, skip: Any = ()) -> str:
    return "".join(f"{_line(*row)}\n" for row in _rows(section) if row[0] not in skip)


def _line(key: str, default: str, meaning: str, owners: str = "") -> str:
    """A key on the page; `owners`: the components that have it."""
    inner = "; ".join(part for part in (default, owners) if part)
    return f"- {key} ({inner}): {meaning}" if inner else f"- {key}: {meaning}"


def _rows(section: type) -> list[tuple[str, str, str]]:
    """Key, default and meaning of each field."""
    documented, types, rows = dict(field_docstrings(section)), get_type_hints(section), []
    for field in dataclasses.fields(section):
        meaning = re.sub(r" Zero: `[^.]*`\.", "", " ".join(documented.get(field.name, "").split()))
        annotation = types.get(field.name)
        choices = (
            [f"`{choice}`" for choice in get_args(annotation)]
            if str(get_origin(annotation)) == "typing.Literal"
            else []
        )
        if not all(choice in meaning for choice in choices):
            meaning += f" One of {', '.join(choices)}."
        star = "*" if field.metadata.get("fixed") else ""
        default = _default(field)
        if default == "none":
            unset = re.fullmatch(r"(.*); `null`: (.*)\.", meaning)
            meaning, default = (f"{unset[1]}.", unset[2]) if unset else (meaning, "")
        rows.append((f"`{field.name}`{star}", default, meaning))
    return rows


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = getattr(field.default, "default", field.default)
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "required"
    return _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _first_line(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").split("\n")[0]


if __name__ == "__main__":
    print(decoding_markdown() if "decoding" in sys.argv[1:] else markdown(), end="")
