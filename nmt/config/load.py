"""From YAML text and overrides to a validated Config, with every mistake named in one run."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nmt.config.bundled import bundled_names, bundled_path
from nmt.config.checks import complete, cross_checks
from nmt.config.plugins import import_plugins
from nmt.config.problems import Problem, format_problems, type_problems
from nmt.config.schema import SECTIONS, Config
from nmt.config.upgrade import FORMAT, KEY, UNMARKED, upgrade
from nmt.config.yaml12 import parse_yaml, write_yaml
from nmt.errors import ConfigError
from nmt.registry import near_miss
from nmt.safe_files import LARGEST_CONFIG, open_model_file

_ADAPTER = TypeAdapter(Config)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read the YAML file `path` (or a bundled name), apply `key=value` overrides, import its plugins, validate.

    Raises:
        ConfigError: the file is missing or unreadable, or has mistakes; all are listed, one a line.
    """
    found = find_config(path)
    raw = upgrade(_read_mapping(found), unmarked=FORMAT, origin=str(path))
    problems = apply_overrides(raw, overrides)
    plugins = raw.get("plugins")
    if isinstance(plugins, list):
        import_plugins([plugin for plugin in plugins if isinstance(plugin, str)])
    return validate(raw, origin=str(path), problems=problems)


def load_saved(path: str | Path, plugins: Sequence[str] = ()) -> Config:
    """Read the resolved configuration of a saved run or model, of whatever version; see `nmt.config.upgrade`.

    Plugins that the file names are never imported: they may come from somebody else. The user
    names them again in `plugins`; where one is missing, one line says so.
    """
    raw = upgrade(_read_mapping(Path(path), saved=True), unmarked=UNMARKED, origin=str(path))
    import_plugins(plugins)
    try:
        return validate(raw, origin=str(path))
    except ConfigError as error:
        given = {Path(plugin).name for plugin in plugins}  # it may lie elsewhere now
        named = raw.get("plugins")
        missing = [str(name) for name in named if Path(str(name)).name not in given] if isinstance(named, list) else []
        if not missing:
            raise
        first = str(error).split("\n")[1].strip()
        advice = " ".join(f"--plugin {name}" for name in missing)
        raise ConfigError(f"{path}: it was made with a plugin, which must be named again: {advice} ({first})") from None


def find_config(path: str | Path) -> Path:
    """Return `path` if it exists, else the bundled configuration of that name."""
    if not str(path):
        raise ConfigError("--config: the name of the file is empty")
    if Path(path).is_file():
        return Path(path)
    bundled = bundled_path(str(path))
    if bundled is not None:
        return bundled
    if Path(path).is_dir():
        raise ConfigError(f"{path}: is a directory, not a configuration file")
    names = bundled_names()
    raise ConfigError(f"{path}: no such file.{near_miss(str(path), names)} Bundled: {', '.join(names)}.")


def dump(config: Config) -> str:
    """The resolved configuration as YAML, every key included, and the format it is in: see `nmt.config.upgrade`."""
    return write_yaml({KEY: FORMAT, **dataclasses.asdict(config)})


def apply_overrides(raw: dict[str, Any], overrides: Sequence[str]) -> list[Problem]:
    """Set `section.key=value` entries in `raw`; values are YAML. Returns what could not be set."""
    problems = []
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            problems.append(Problem(f"--set {override}", "must be KEY=VALUE"))
            continue
        *sections, name = key.strip().split(".")
        target = raw
        for depth, section in enumerate(sections, start=1):
            inner = target.setdefault(section, {})
            if inner is None:
                inner = target[section] = {}
            if not isinstance(inner, dict):
                problems.append(Problem(key, f"'{'.'.join(sections[:depth])}' is not a section"))
                break
            target = inner
        else:
            target[name] = parse_yaml(text, origin=f"--set {override}")
    return problems


def validate(raw: Mapping[str, Any], *, origin: str, problems: Sequence[Problem] = ()) -> Config:
    """Check types, names and combinations, and fill in defaults; raise ConfigError with all mistakes."""
    # An empty section in YAML reads as None; it means the defaults.
    raw = {key: {} if value is None and key in SECTIONS else value for key, value in raw.items()}
    found = list(problems)
    config: Config | None
    try:
        config = _ADAPTER.validate_python(raw)
    except ValidationError as error:
        found += type_problems(error)
        config = _provisional(raw, error)
    if config is not None:
        config, more = complete(config)
        named = {problem.key for problem in found}
        found += [problem for problem in [*more, *cross_checks(config)] if problem.key not in named]
    if found or config is None:
        raise ConfigError(format_problems(origin, found))
    return config


def _read_mapping(path: Path, *, saved: bool = False) -> dict[str, Any]:
    """The content of a file, which the user has named or, if it is `saved`, lies in a model directory."""
    try:
        with open_model_file(path) if saved else path.open("rb") as stream:
            content = stream.read(LARGEST_CONFIG + 1)
        if len(content) > LARGEST_CONFIG:
            raise ConfigError(f"{path}: larger than {LARGEST_CONFIG >> 20} MiB, which no configuration is")
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    raw = parse_yaml(text, origin=str(path))
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, such as 'run_dir: runs/first'")
    return raw


def _provisional(raw: Mapping[str, Any], error: ValidationError) -> Config | None:
    """The configuration without its wrong keys, so that the other checks can still run."""
    kept: dict[str, Any] = copy.deepcopy(dict(raw))
    kept.setdefault("run_dir", "unknown")
    for item in error.errors():
        section, *rest = (str(part) for part in item["loc"])
        if rest and isinstance(kept.get(section), dict):
            kept[section].pop(rest[0], None)
        elif item["type"] != "missing":
            kept.pop(section, None)
            kept.setdefault("run_dir", "unknown")
    try:
        return _ADAPTER.validate_python(kept)
    except ValidationError:
        return None
