"""Lists of components, as `evaluation.metrics`: a component by its name, or a mapping of its name to its options."""

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
    """The components that the entries ask for, in order; `{name: null}` has no options."""
    return [
        Choice(name, {} if options is None else options)
        for entry in entries
        for name, options in ({entry: None} if isinstance(entry, str) else entry).items()
    ]


def complete_choices(
    entries: Iterable[Entry], registry: Registry[Any], *, key: str, told_apart: str
) -> tuple[list[Entry], list[Problem]]:
    """Look the components up, check their options and write the defaults of these into the entries that have options.

    `key` is that of the list. A name may be there once only: `told_apart` says what goes by it.
    """
    entries, completed, problems = list(entries), list[Entry](), list[Problem]()
    for entry in entries:
        if isinstance(entry, dict) and len(entry) != 1:
            one = f"one {registry.kind} with its options"
            problems.append(Problem(key, f"{entry!r} is not {one}; each has an entry of its own"))
            completed.append(entry)
            continue
        ((name, options),) = choices([entry])
        built, wrong = _checked(name, options, registry, key=key)
        problems += wrong
        with_options = isinstance(entry, dict) and built is not None
        completed.append({name: dataclasses.asdict(built)} if with_options else entry)
    for name, count in Counter(choice.name for choice in choices(entries)).items():
        if count > 1:
            problems.append(Problem(key, f"'{name}' is there {count} times, but {told_apart} by these names"))
    return completed, problems


def _checked(name: str, options: Any, registry: Registry[Any], *, key: str) -> tuple[Any, list[Problem]]:
    """The options of a component, None where something is wrong, and what is."""
    if name not in registry.names():
        return None, [Problem(key, registry.unknown(name), component=registry.described(name))]
    key = f"{key}.{name}"
    if not isinstance(options, Mapping):
        return None, [Problem(key, f"{options!r} is not a mapping of options to values")]
    return check_options(registry.get(name), options, key=key)
