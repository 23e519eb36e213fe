"""Lists of components, such as `evaluation.metrics`: each is a name, or a mapping of a name to its options."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nmt.config.options import check_options
from nmt.config.problems import Problem
from nmt.registry import Registry

Entry = str | dict[Any, Any]


class Choice(NamedTuple):
    """A component by its name in the registry, and the options given for it."""

    name: str
    options: Mapping[str, Any]


def choices(entries: Iterable[Entry]) -> list[Choice]:
    """The components of the entries, in order; `{name: null}` has no options."""
    return [
        Choice(name, {} if options is None else options)
        for entry in entries
        for name, options in ({entry: None} if isinstance(entry, str) else entry).items()
    ]


def complete_choices(
    entries: Iterable[Entry], registry: Registry[Any], *, key: str, told_apart: str
) -> tuple[list[Entry], list[Problem]]:
    """Look up the components, check their options and write defaults into the entries that have options.

    `key` is the key of the list. Each name may occur only once: `told_apart` words what is distinguished by names.
    """
    entries, completed, problems = list(entries), list[Entry](), list[Problem]()
    for entry in entries:
        if isinstance(entry, dict) and len(entry) != 1:
            one = f"one {registry.kind} with its options"
            problems.append(Problem(key, f"{entry!r} is not {one}; write one entry for each"))
            completed.append(entry)
            continue
        ((name, options),) = choices([entry])
        built, wrong = _checked(name, options, registry, key=key)
        problems += wrong
        with_options = isinstance(entry, dict) and built is not None
        completed.append({name: dataclasses.asdict(built)} if with_options else entry)
    for name, count in Counter(choice.name for choice in choices(entries)).items():
        if count > 1:
            problems.append(Problem(key, f"'{name}' is listed {count} times, but {told_apart} by these names"))
    return completed, problems


def _checked(name: str, options: Any, registry: Registry[Any], *, key: str) -> tuple[Any, list[Problem]]:
    """The options of a component (None if something is wrong), and the problems."""
    if name not in registry.names():
        return None, [Problem(key, registry.unknown(name), component=registry.described(name))]
    key = f"{key}.{name}"
    if not isinstance(options, Mapping):
        return None, [Problem(key, f"{options!r} is not a mapping of options to values")]
    return check_options(registry.get(name), options, key=key)
