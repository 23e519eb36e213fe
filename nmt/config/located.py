"""The files that a configuration names: absolute where a run saves them, and found again where the run has moved."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator

from nmt.config.options import option_fields
from nmt.config.problems import COMPONENTS
from nmt.config.schema import SECTIONS, Config
from nmt.files import CHECKPOINTS, model_folder
from nmt.registry import TASKS, Registry
from nmt.system import expanded
from nmt.texts import each_file, name_of, named

Change: TypeAlias = Callable[[str, str], str]
"""The path to take in place of one, of a key."""


def mapped(config: Config, change: Change) -> Config:
    """`config` with `change(key, path)` in place of each path in it, those in options of its components included."""
    changes = _changed(vars(config), _fields(config), "", change)
    for name in SECTIONS:
        section = getattr(config, name)
        changes[name] = replace(section, **_changed(vars(section), _fields(section), f"{name}.", change))
    for component, registry in COMPONENTS.items():
        name, key = component.split(".")
        changes[name] = replace(changes[name], **_options(changes[name], key, registry, f"{name}.", change))
    return replace(config, **changes, **_options(config, "task", TASKS, "", change))


def path_options(member: Any) -> list[str]:
    """The options of a component that are paths."""
    return [name for name, field in option_fields(member).items() if _holds_paths(field.annotation, field.metadata)]


def named_paths(config: Config) -> Iterator[tuple[str, str]]:
    """Each path in a configuration, with its key."""
    found: list[tuple[str, str]] = []

    def noted(key: str, path: str) -> str:
        found.append((key, path))
        return path

    mapped(config, noted)
    yield from found


def anchored(config: Config) -> Config:
    """`config` with absolute paths, which mean the same in every directory."""

    def absolute(_key: str, path: str) -> str:
        """Without links followed, if that leads to the same place."""
        found, real = os.path.abspath(path), os.path.realpath(path)
        return found if os.path.realpath(found) == real else real

    return mapped(config, absolute)


def located(config: Config, file: Path) -> Config:
    """The configuration in `file` of a run, with its paths as they are now if the run has moved.

    What lies where it should from the run's new place is taken from there. Runs of earlier versions have paths relative
    to the directory where training was started, which the place of the run shows if its own path is one of them.
    """
    run, old = os.path.abspath(model_folder(file)), config.run_dir
    if not os.path.isdir(os.path.join(run, CHECKPOINTS)) or os.path.realpath(old) == os.path.realpath(run):
        return config
    start = run.removesuffix(os.path.normpath(old))  # of the relative paths

    def moved(key: str, path: str) -> str:
        if key == "run_dir":
            return run
        there = os.path.join(start, path) if start != run else path
        if os.path.isabs(old):
            there = os.path.normpath(os.path.join(run, os.path.relpath(path, old)))
        return there if os.path.exists(there) or glob.glob(f"{glob.escape(there)}.*") else path

    return mapped(config, moved)


def _fields(section: Any) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = type(section).__pydantic_fields__
    return fields


def _options(owner: Any, key: str, registry: Registry[Any], prefix: str, change: Change) -> dict[str, Any]:
    """The options of the component that `key` of a section names, where it is known."""
    member, name = registry.known(getattr(owner, key)), f"{key}_options"
    if member is None:
        return {}
    given = getattr(owner, name)
    return {name: {**given, **_changed(given, option_fields(member), f"{prefix}{name}.", change)}}


def _changed(values: Mapping[str, Any], fields: Mapping[str, Any], prefix: str, change: Change) -> dict[str, Any]:
    """The new values of those fields that hold paths."""
    found: dict[str, Any] = {}
    for name, field in fields.items():
        value = values.get(name)
        if value and _holds_paths(field.annotation, field.metadata):
            own = partial(change, f"{prefix}{name}")
            if any(_holds(form, field.annotation, field.metadata) for form in (name_of, named)):
                own = partial(each_file, change=own)
            found[name] = _each(value, own)
    return found


def _each(names: Any, change: Callable[[str], str]) -> Any:
    """`names` (see `nmt.texts.Names`) with `change` of each."""
    if isinstance(names, Mapping):
        return {name: _each(own, change) for name, own in names.items()}
    return change(names) if isinstance(names, str) else [*map(change, names)]


def _holds_paths(annotation: Any, metadata: Sequence[Any] = ()) -> bool:
    """Whether a type is, or contains, `nmt.config.schema.FilePath`."""
    return _holds(expanded, annotation, metadata)


def _holds(function: Callable[..., Any], annotation: Any, metadata: Sequence[Any] = ()) -> bool:
    """Whether a type has, or contains one that has, this function as a validator."""
    own = (*metadata, *getattr(annotation, "__metadata__", ()))
    is_such = any(isinstance(one, AfterValidator | BeforeValidator) and one.func is function for one in own)
    return is_such or any(_holds(function, one) for one in get_args(annotation))
