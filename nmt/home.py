"""`~` in names of files: the home directory, in a configuration, in Python and on every command line."""

from __future__ import annotations

import os

from nmt.errors import printable


def expanded(path: str) -> str:
    """`path` with the home directory in place of `~` or `~user` at its start; ValueError where there is none."""
    if not path.startswith("~"):
        return path
    found = os.path.expanduser(path)
    if found.startswith("~"):
        name = printable(path.partition("/")[0])
        raise ValueError(f"'{name}' is no home directory; './{name}' means a file of that name")
    return found
