"""Import of a user's own Python files, which register units or other components."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.config.problems import Problem
from nmt.errors import ConfigError, missing
from nmt.plugin_errors import PREFIX, import_line, worded

_KEY = "plugins"


def plugin_problems(paths: Sequence[str | Path], *, key: str) -> list[Problem]:
    """Import each file once; return a problem of `key` for each one that is missing or fails."""
    problems = []
    for path in paths:
        try:
            import_plugins([path])
        except ConfigError as error:
            message = str(error).removeprefix(f"{_KEY}: ")
            problems.append(Problem(key, message, failed_plugin=True, cause=error.__cause__))
    return problems


def import_plugins(paths: Sequence[str | Path]) -> None:
    """Import each file once; raise ConfigError naming the file that is missing or fails.

    Paths are relative to the current directory.
    """
    for path in paths:
        _import_plugin(Path(path))


def _import_plugin(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"{_KEY}: {missing(path)}")
    # The name is made from the full path: two plugins of the same file name do not collide.
    name = f"{PREFIX}{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{_KEY}: {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        # Show any error raised by a user's file to the user, as one line.
        del sys.modules[name]
        line = import_line(error, module=name, path=str(path))
        place = f"{path}" if line is None else f"{path}, line {line}"
        raise ConfigError(f"{_KEY}: {place}: {error if isinstance(error, ConfigError) else worded(error)}") from error
