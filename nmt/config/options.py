"""Validation of a component's own options against the `Options` dataclass it declares."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as validated

from nmt.config.problems import Problem, type_problems
from nmt.errors import ConfigError, SettingError, shown
from nmt.limits import LARGEST, MOST
from nmt.plugin_errors import shown_path


@cache
def _checked(options: type) -> type:
    """A subclass of `options` whose constructor checks names and types."""
    strict = ConfigDict(extra="forbid", strict=True)
    frozen = options.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return validated(options, config=strict, frozen=frozen)


def component_options(member: Any, options: Mapping[str, Any], *, key: str = "options") -> Any:
    """Build `member.Options` from `options`; raise ConfigError naming each wrong one below `key`."""
    built, problems = check_options(member, options, key=key)
    if problems:
        raise SettingError(*((problem.key, problem.message) for problem in problems))
    return built


def check_options(member: Any, options: Mapping[str, Any], *, key: str) -> tuple[Any, list[Problem]]:
    """Return the options (None if they are wrong) and the problems."""
    kind = _options_of(member)
    names = [field.name for field in dataclasses.fields(kind)]
    try:
        checked = _checked(kind)(**options)
    except ValidationError as error:
        return None, type_problems(error, prefix=tuple(key.split(".")), known=names)
    values = {name: getattr(checked, name) for name in names}
    problems = [
        Problem(f"{key}.{name}", f"{shown(value)} {wrong}")
        for name, value in values.items()
        if (wrong := _beyond(value))
    ]
    return (None, problems) if problems else (kind(**values), [])


def option_fields(member: Any) -> Mapping[str, Any]:
    """The fields of a component's options by their names, as pydantic knows them."""
    fields: Mapping[str, Any] = _checked(_options_of(member)).__pydantic_fields__  # type: ignore[attr-defined]
    return fields


def _options_of(member: Any) -> Any:
    """The dataclass of a component's options; ConfigError, naming the plugin, if it is missing or of another kind."""
    options = getattr(member, "Options", None)
    if isinstance(options, type) and dataclasses.is_dataclass(options):
        return options
    name = getattr(member, "__name__", repr(member))
    file = shown_path(inspect.getfile(member)) if inspect.isclass(member) or inspect.isroutine(member) else "a plugin"
    wrong = "has no Options" if options is None else "has Options that are not a dataclass"
    raise ConfigError(
        f"{file}: {name} {wrong}; it needs the base class of its kind, or a frozen dataclass of that name"
    )


def _beyond(value: object) -> str | None:
    """The problem with a number too large for arithmetic; infinity, if an option allows it, means no limit."""
    if isinstance(value, int) and abs(value) > MOST:
        return f"must be at most {MOST}" if value > 0 else f"must be at least {-MOST}"
    if isinstance(value, float) and LARGEST < abs(value) < math.inf:
        return f"must be at most {LARGEST:g}" if value > 0 else f"must be at least {-LARGEST:g}"
    return "is not a number" if isinstance(value, float) and math.isnan(value) else None
