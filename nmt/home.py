"""`~` in names of files: the home directory, in a configuration and on every command line."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from nmt.errors import ConfigError, printable

_ARGUMENT = re.compile(r"(--[\w-]+=|-\w)?(~.*)", flags=re.DOTALL)
"""A word that begins with a tilde, or an option with one joined to it."""


def expanded(path: str) -> str:
    """`path` with the home directory in place of `~` or `~user` at its start; ValueError where there is none."""
    if not path.startswith("~"):
        return path
    found = os.path.expanduser(path)
    if found.startswith("~"):
        name = printable(path.partition("/")[0])
        raise ValueError(f"'{name}' is no home directory; './{name}' means a file of that name")
    return found


def expanded_arguments(arguments: Sequence[str]) -> list[str]:
    """A command line in which `~` is the home directory in `--config=~/x`, too, where shells leave it.

    Raises ConfigError naming an argument that begins with `~` and no user of that name.
    """
    result = []
    for argument in arguments:
        if found := _ARGUMENT.fullmatch(argument):
            try:
                argument = (found[1] or "") + expanded(found[2])
            except ValueError as error:
                raise ConfigError(f"{printable(argument)}: {error}") from None
        result.append(argument)
    return result
