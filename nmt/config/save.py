"""Writing a resolved configuration, and checking that it loads back as the same one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from nmt.config.checks import complete
from nmt.config.load import dump, load_saved
from nmt.config.schema import Config
from nmt.config.yaml12 import write_yaml
from nmt.errors import ConfigError, DataError
from nmt.files import reason, unused_name, write_new


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
        _check(temporary, config, path=name)
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{name}: cannot be written ({reason(error)})") from error
    finally:
        temporary.unlink(missing_ok=True)


def _check(written: Path, config: Config, *, path: Path) -> None:
    try:
        again = load_saved(written)  # its plugins are here already
    except ConfigError as error:
        reason = str(error).replace(str(written), str(path))
        raise ConfigError(f"{path}: this configuration would not load again once it is saved: {reason}") from error
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
        flat |= _flat(value, prefix=f"{key}.") if isinstance(value, dict) and value else {key: _written(value)}
    return flat


def _written(value: Any) -> str:
    return write_yaml(value).removesuffix("\n...\n").strip()
