"""Load YAML text and overrides into a validated Config, and write it; all mistakes are reported at once. Plugins, and
the configurations that come with nmt."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import importlib.util
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nmt.config.checks import Found, complete, contradictions, cross_checks, odd_settings, unused_unit_keys
from nmt.config.located import located
from nmt.config.problems import SET, MissingPluginError, MistakesError, Problem, format_problems, type_problems
from nmt.config.schema import SECTIONS, Config
from nmt.config.upgrade import FORMAT, KEY, UNMARKED, is_newer, upgrade
from nmt.config.yaml12 import Document, read_yaml, write_yaml
from nmt.errors import ConfigError, DataError, missing, near_miss, shown
from nmt.files import LARGEST_CONFIG, open_model_file, reason, unused_name, write_new
from nmt.light.lines import not_utf8
from nmt.registry import PLUGIN_PREFIX, TASKS, import_line, worded
from nmt.system import expanded

logger = logging.getLogger(__name__)

Check = Callable[[Config], Iterable[Found | Problem]]
"""Further checks by the caller: the problems of a complete configuration."""

_ADAPTER = TypeAdapter(Config)
_NEAREST = 3
"""Names of shipped configurations that an error suggests."""


def load_config(
    path: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    plugins: Sequence[str] = (),
    checks: Sequence[Check] = (),
    is_begun: Callable[[Config], bool] | None = None,
    add: Callable[[dict[str, Any]], Iterable[Problem]] = lambda raw: (),
    warn: Callable[[str], None] = logger.warning,
) -> Config:
    """Read the YAML file `path` (or a bundled name), apply `key=value` overrides, import its plugins, validate.

    A mapping is taken as the content of such a file. `plugins` are imported in addition to those in the file. `checks`
    look at the complete configuration, and their findings are reported with the rest, as are those of `add`, which
    changes what is given before it is checked. `warn` is called with a line for each doubtful setting, and for each
    contradiction in a run that `is_begun`, which must stay resumable because an earlier version may have started it.

    Raises:
        ConfigError: the file is missing or unreadable, or has mistakes; all are listed, one per line.
        DataError: the only mistake is that files named in it are missing.
    """
    document, path = (
        (Document(copy.deepcopy(dict(path)), {}, []), "configuration")
        if isinstance(path, Mapping)
        else (_read(find_config(path)), path)
    )
    places: dict[str, int | str] = {**document.lines}
    problems = [Problem(key, message) for key, message in document.repeated]
    raw = document.value
    try:
        raw = upgrade(raw, unmarked=FORMAT, origin=str(path))
    except ConfigError as error:
        if is_newer(raw):  # its keys may mean anything
            raise
        problems.append(Problem(KEY, str(error).partition(f"{KEY}: ")[2]))
        raw = {key: value for key, value in raw.items() if key != KEY}
    problems += _apply_overrides(raw, overrides, places)
    given = copy.deepcopy(raw)
    failed = [*_add_plugins(raw, plugins), *add(raw)]
    goes_on = is_begun or (lambda config: False)
    config = validate(
        raw,
        origin=str(path),
        problems=[*problems, *failed],
        places=places,
        checks=[lambda complete: [] if goes_on(complete) else contradictions(complete, given), *checks],
    )
    odd = [*(contradictions(config, given) if goes_on(config) else []), *odd_settings(config, given)]
    for line in format_problems(str(path), (Problem(*found) for found in odd), places).split("\n")[1:]:
        warn(f"{path}: {line.strip()}")
    return config


def _add_plugins(raw: dict[str, Any], more: Sequence[str]) -> list[Problem]:
    """Import the plugins in `raw` and in `more`, which is added to `raw`; return those that could not be loaded."""
    named = raw.get("plugins")
    given = [("--plugin", str(path)) for path in more]
    if isinstance(named, list):
        for path in named:  # values of other types, and unknown home directories, are reported when types are checked
            with contextlib.suppress(ValueError):
                given += [("plugins", expanded(path))] if isinstance(path, str) and path else []
        raw["plugins"] = [*named, *(path for path in more if path not in named)]
    elif named is None and more:
        raw["plugins"] = list(more)
    problems = []
    for key, path in given:
        try:
            import_plugins([path])
        except ConfigError as error:
            message = str(error).removeprefix(f"{_PLUGINS}: ")
            problems.append(Problem(key, message, failed_plugin=True, cause=error.__cause__))
    return problems


def load_saved(path: str | Path, plugins: Sequence[str] = ()) -> Config:
    """Read the resolved configuration of a saved run or model, of whatever version; see `nmt.config.upgrade`.

    Paths in the configuration of a run that has moved are those of its new place: see `nmt.config.located`.

    Plugins named in the file are never imported: they may come from someone else. The user names them again in
    `plugins`; a missing one is reported in one line.
    """
    document = _read(Path(path), saved=True)
    raw = upgrade(document.value, unmarked=UNMARKED, origin=str(path))
    import_plugins(plugins)
    repeated = [Problem(key, message) for key, message in document.repeated]
    try:
        return located(validate(raw, origin=str(path), problems=repeated, places=document.lines), Path(path))
    except MistakesError as error:
        given = {Path(plugin).name for plugin in plugins}  # it may have moved
        named = raw.get("plugins")
        missing = [str(name) for name in named if Path(str(name)).name not in given] if isinstance(named, list) else []
        if not missing:
            raise
        unknown = dict.fromkeys(problem.component for problem in error.problems if problem.component)
        why = f"for the {', the '.join(unknown)}" if unknown else str(error).split("\n")[1].strip()
        several = "plugins, which" if len(missing) > 1 else "a plugin, which"
        advice = " ".join(f"--plugin {name}" for name in missing)
        raise MissingPluginError(f"{path}: was made with {several} must be given again: {advice} ({why})") from None


def find_config(path: str | Path) -> Path:
    """Return `path` if it exists, else the bundled configuration of that name."""
    if not str(path):
        raise ConfigError("--config: the name of the file is empty")
    if Path(path).is_file():
        return Path(path)
    names = bundled_names()
    if str(path) in names:
        return _folder() / path
    if Path(path).is_dir():
        raise ConfigError(f"{path}: is a directory, not a configuration file")
    hint = near_miss(Path(path).name, names, ending=".yaml", most=_NEAREST)
    listed = f"nmt-train --list shows the {len(names)} shipped configurations."
    raise ConfigError(f"{missing(path)}.{hint} {listed}")


def dump(config: Config) -> str:
    """The resolved configuration as YAML, with its format: see `nmt.config.upgrade`.

    All keys are included except those that have no effect, with the task or with the layers of the model, which a
    configuration may not have.
    """
    sections = dataclasses.asdict(config)
    unused = [f"model.{key}" for key in unused_unit_keys(config.model)]
    unused += TASKS.get(config.task).unused_in(config.task_options) if config.task in TASKS.names() else ()
    for key in dict.fromkeys(unused):
        section, _, name = key.partition(".")
        if name:
            del sections[section][name]
        else:
            del sections[section]
    return write_yaml({KEY: FORMAT, **sections})


def _apply_overrides(raw: dict[str, Any], overrides: Sequence[str], places: dict[str, int | str]) -> list[Problem]:
    """Set `section.key=value` entries in `raw`; values are YAML. Returns the entries that could not be set.

    `places`, the lines of keys in the file, loses the replaced keys.
    """
    problems = list[Problem]()
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")):
            problems.append(Problem(f"--set {shown(override)[1:-1]}", "must be KEY=VALUE, such as training.lr=3e-4"))
            continue
        try:
            document = read_yaml(text, origin="value")
        except ConfigError as error:
            problems.append(Problem(f"--set {key}", str(error).removeprefix("value: ").removeprefix("line 1: ")))
            continue
        problems += [Problem(f"--set {key}.{repeated}", message) for repeated, message in document.repeated]
        message = _put(raw, key.split("."), document.value)
        if message is not None:
            problems.append(Problem(f"--set {key}", message))
            continue
        for place in [place for place in places if f"{place}.".startswith(f"{key}.")]:
            del places[place]
        places[key] = SET
    return problems


def _put(raw: dict[str, Any], path: Sequence[str], value: Any) -> str | None:
    """Set the value at `path`, creating the sections above it; return what prevents it."""
    *sections, name = path
    target = raw
    for depth, section in enumerate(sections, start=1):
        inner = target.setdefault(section, {})
        if inner is None:
            inner = target[section] = {}
        if not isinstance(inner, dict):
            return f"'{'.'.join(sections[:depth])}' is not a section"
        target = inner
    target[name] = value
    return None


def validate(
    raw: Mapping[str, Any],
    *,
    origin: str,
    problems: Sequence[Problem] = (),
    places: Mapping[str, int | str] | None = None,
    checks: Sequence[Check] = (),
) -> Config:
    """Check types, names and combinations, and fill in defaults; raise ConfigError with all mistakes.

    The error is a DataError if the only problems are missing files. `problems` were found before; `places` holds the
    lines of keys; `checks` look at the complete configuration.
    """
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
        more += [Problem(*one) for check in (cross_checks, *checks) for one in check(config)]
        refused = {problem.key for problem in found}
        found += [problem for problem in more if not _follows(problem, refused)]
    if any(problem.failed_plugin for problem in found):  # which may be why a component is unknown
        unless = ", unless a plugin that fails registers it."
        found = [
            problem._replace(message=problem.message.replace(".", unless, 1)) if problem.component else problem
            for problem in found
            if not problem.component or "Did you mean" in problem.message
        ]
    if found or config is None:
        text = format_problems(origin, found, places)
        if all(problem.in_files for problem in found):
            raise DataError(text)
        raise MistakesError(text, found) from next((problem.cause for problem in found if problem.cause), None)
    return config


def _follows(problem: Problem, refused: Collection[str]) -> bool:
    """Whether the problem may only be there because a refused value was left out: it is about that key, or names it."""
    if problem.key in refused:
        return True
    section, words = problem.key.partition(".")[0], re.findall(r"[\w.]+", problem.message)
    return any(word in refused or f"{section}.{word}" in refused for word in words)


def _read(path: Path, *, saved: bool = False) -> Document:
    """The mapping in a file that the user named or, if `saved`, that lies in a model directory."""
    try:
        with open_model_file(path) if saved else path.open("rb") as stream:
            content = stream.read(LARGEST_CONFIG + 1)
        if len(content) > LARGEST_CONFIG:
            raise ConfigError(f"{path}: larger than {LARGEST_CONFIG >> 20} MiB, too large for a configuration")
        text = content.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        before, lines = content.count(b"\n", 0, error.start), content.split(b"\n")
        raise ConfigError(f"{path}, line {before + 1}: {not_utf8(lines[before])}") from None
    document = read_yaml(text, origin=str(path))
    if not isinstance(document.value, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, such as 'run_dir: runs/first'")
    return document


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


def _folder() -> Path:
    """`configs` inside the installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def bundled_names() -> list[str]:
    """File names of all bundled configurations, sorted."""
    return sorted(path.name for path in _folder().glob("*.yaml"))


def bundled_descriptions() -> dict[str, str]:
    """What each bundled configuration trains, in the words of its first line, by name."""
    texts = {name: (_folder() / name).read_text(encoding="utf-8") for name in bundled_names()}
    return {name: text.partition("\n")[0].removeprefix("# ") for name, text in texts.items()}


_PLUGINS = "plugins"


def import_plugins(paths: Sequence[str | Path]) -> None:
    """Import each file once; raise ConfigError naming the file that is missing or fails.

    Paths are relative to the current directory.
    """
    for path in map(Path, paths):
        if not path.is_file():
            raise ConfigError(f"{_PLUGINS}: {missing(path)}")
        # The name is made from the full path: two plugins of the same file name do not collide.
        name = f"{PLUGIN_PREFIX}{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{_PLUGINS}: {path}: not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # any error raised by a user's file is shown to the user, as one line
            del sys.modules[name]
            line = import_line(error, module=name, path=str(path))
            place = f"{path}" if line is None else f"{path}, line {line}"
            said = error if isinstance(error, ConfigError) else worded(error)
            raise ConfigError(f"{_PLUGINS}: {place}: {said}") from error


def write_config(path: Path, config: Config, *, name: Path | None = None) -> None:
    """Replace the file `path` by `config` in one step, after reading back what was written and comparing it.

    `name` is the file's later name, for errors, if its directory will be renamed.

    Raises:
        ConfigError: the configuration holds a value that no file can hold, such as an option of a type that YAML lacks;
            an existing file stays.
        DataError: the file cannot be written.
    """
    content = dump(config).encode("utf-8")
    temporary, name = unused_name(path), name or path
    try:
        write_new(temporary, content)
        _check_equal(temporary, config, path=name)
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{name}: cannot be written ({reason(error)})") from error
    finally:
        temporary.unlink(missing_ok=True)


def _check_equal(written: Path, config: Config, *, path: Path) -> None:
    try:
        again = load_saved(written)  # its plugins are here already
    except ConfigError as error:
        why = str(error).replace(str(written), str(path))
        raise ConfigError(f"{path}: this configuration would not load again once it is saved: {why}") from error
    # Defaults are already filled in, unless a program created the configuration.
    before, after = (_flat(dataclasses.asdict(each)) for each in (complete(config)[0], again))
    if different := [key for key in (*before, *after) if before.get(key) != after.get(key)]:
        key = different[0]
        values = f"{before.get(key, 'nothing')} would load as {after.get(key, 'nothing')}"
        raise ConfigError(f"{path}: this configuration would not load back equal once it is saved: {key}: {values}")


def _flat(sections: dict[str, Any], *, prefix: str = "") -> dict[str, str]:
    """Each key with its value in YAML, in which a tuple is a list and NaN equals itself."""
    flat: dict[str, str] = {}
    for name, value in sections.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            flat |= _flat(value, prefix=f"{key}.")
        else:
            flat[key] = write_yaml(value).removesuffix("\n...\n").strip()
    return flat
