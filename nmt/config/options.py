"""Options: of components, checked against the `Options` dataclass that each declares; lists of components, each a name
or a mapping of a name to its options; and those of the search, changed by a command line or a program."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as validated

from nmt.config.problems import Problem, type_problems
from nmt.config.schema import AUTO, Choice, DecodingConfig
from nmt.errors import ConfigError, SettingError, shown
from nmt.light.options import OPTIONS
from nmt.limits import LARGEST, MOST
from nmt.registry import SEARCHES, Registry, shown_path


@cache
def _checked(options: type) -> type:
    """A subclass of `options` whose constructor checks names and types."""
    strict = ConfigDict(extra="forbid", strict=True)
    frozen = options.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return validated(options, config=strict, frozen=frozen)


def with_options(text: str, *, called: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a component as a command line has it, `NAME[,OPTION=VALUE...]`; true, false and numbers are
    such, other values are text. ConfigError, which begins with `called`, for another form."""
    name, *parts = text.split(",")
    options: dict[str, Any] = {}
    for part in parts:
        option, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or not value:
            raise ConfigError(f"{called}: {shown(part)} is not an option with its value, such as {name},OPTION=3")
        if option in options:
            raise ConfigError(f"{called}: {option} is given twice")
        options[option] = _value(value)
    return name, options


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def component_options(member: Any, options: Mapping[str, Any], *, key: str = "options") -> Any:
    """Build `member.Options` from `options`; raise ConfigError naming each wrong one below `key`."""
    built, problems = check_options(member, options, key=key)
    if problems:
        raise SettingError(*((problem.key, problem.message) for problem in problems))
    return built


def check_options(member: Any, options: Mapping[str, Any], *, key: str) -> tuple[Any, list[Problem]]:
    """Return the options (None if they are wrong) and the problems."""
    kind = _options_of(member)
    if hasattr(kind, "completed"):  # by one of them that stands for several
        options = kind.completed(options)
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


def known_options(
    registry: Registry[Any],
    name: str,
    options: Mapping[str, Any],
    *,
    key: str,
    options_key: str | None = None,
    also: Sequence[str] = (),
) -> tuple[Any, list[Problem]]:
    """The same for the component that `key` names, whose options are in KEY_options or `options_key`.

    `also`: what else the key may hold.
    """
    if name not in registry.names():
        return None, [Problem(key, registry.unknown(name, also=also), component=registry.described(name))]
    return check_options(registry.get(name), options, key=options_key or f"{key}_options")


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


Entry = str | dict[Any, Any]


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
        if name in registry.names() and not isinstance(options, Mapping):
            problems.append(Problem(f"{key}.{name}", f"{options!r} is not a mapping of options to values"))
            completed.append(entry)
            continue
        built, wrong = known_options(registry, name, options, key=key, options_key=f"{key}.{name}")
        problems += wrong
        with_options = isinstance(entry, dict) and built is not None
        completed.append({name: dataclasses.asdict(built)} if with_options else entry)
    for name, count in Counter(choice.name for choice in choices(entries)).items():
        if count > 1:
            problems.append(Problem(key, f"'{name}' is listed {count} times, but {told_apart} by these names"))
    return completed, problems


def changed_decoding(
    saved: DecodingConfig,
    changes: Mapping[str, Any],
    *,
    option: Callable[[str], str] = str,
    say: Callable[[str], object] | None = None,
) -> DecodingConfig:
    """`saved` with the keys in `changes` (of the section `decoding`) replaced.

    A search other than the saved one starts from its own default options, and with the beam size that it needs. If more
    translations are wanted than a search finds with this beam, the beam is widened and `say` is called with one line.
    `option` gives the user's name of a key. Raises ConfigError for keys and values that are not allowed or do not go
    together.
    """
    if changes.get("language_model", "") is None:
        changes = {"language_model_weight": None, **changes}  # the saved weight was for the saved language model
    try:
        decoding = dataclasses.replace(saved, **changes)
    except ValidationError as error:
        known = [field.name for field in dataclasses.fields(DecodingConfig)]
        problems = type_problems(error, known=known)
        raise SettingError(*((option(problem.key), problem.message) for problem in problems)) from None
    if decoding.chosen_search not in SEARCHES.names():
        raise SettingError((option("search"), SEARCHES.unknown(decoding.search, also=(AUTO,))))
    if decoding.chosen_search != saved.chosen_search and "search_options" not in changes:
        decoding = dataclasses.replace(decoding, search_options={})  # the saved ones were for the saved search
    search = SEARCHES.get(decoding.chosen_search)
    if "search" in changes and "beam_size" not in changes and search.only_beam_size is not None:
        decoding = dataclasses.replace(decoding, beam_size=search.only_beam_size)
    most = search.largest_n_best(decoding)
    if decoding.n_best <= most:
        return decoding
    if "n_best" not in changes:
        return dataclasses.replace(decoding, n_best=most)  # the saved n_best was for the saved search and beam
    return _widened(decoding, name=option("n_best"), say=say)


def _widened(decoding: DecodingConfig, *, name: str, say: Callable[[str], object] | None) -> DecodingConfig:
    """`decoding` with a beam of n_best hypotheses, or the next size that the search can divide."""
    wanted, widest = decoding.n_best, int(OPTIONS["beam_size"].most)
    wider = dataclasses.replace(decoding, beam_size=min(wanted, widest))
    search = SEARCHES.get(wider.chosen_search)
    most = search.largest_n_best(wider)
    if most < wanted:
        raise ConfigError(f"{name} {wanted}: search '{wider.chosen_search}' finds at most {most} per sentence")
    sizes = range(wanted, min(2 * wanted, widest) + 1)
    candidates = (dataclasses.replace(decoding, beam_size=size) for size in sizes)
    wider = next((candidate for candidate in candidates if not search.problems(candidate)), wider)
    if say is not None:
        say(f"{name} {wanted} widens the beam from {decoding.beam_size} to {wider.beam_size}")
    return wider
