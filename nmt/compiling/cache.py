"""The directory of compiled kernels and check results, which no other user can write to.

A user who can put a file there controls what this process runs.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger(__name__)

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class BuildError(Exception):
    """Why there is no library, in a few words."""


def cache_directory() -> Path:
    """NMT_CACHE, else nmt below XDG_CACHE_HOME, else ~/.cache/nmt."""
    chosen = os.environ.get("NMT_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "nmt"
    try:
        return Path.home() / ".cache" / "nmt"
    except RuntimeError:
        raise BuildError("there is no home directory to keep them in; set NMT_CACHE") from None


def own_directory() -> Path:
    """The cache directory, created for this user only; if others can write to it, another directory that they cannot.

    Raises:
        BuildError: it cannot be made.
    """
    directory = cache_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = _problem(directory)
    except OSError as error:
        where = error.filename or directory
        raise BuildError(f"{where}: {error.strerror or error}; set NMT_CACHE to another place") from None
    return directory if found is None else _elsewhere(directory, found)


def is_ours(path: Path) -> bool:
    """Whether `path` is a regular file, no link, that only we can have written."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid in _trusted() and not found.st_mode & _OTHERS


def _problem(directory: Path) -> str | None:
    """How another user could write into an existing directory; None if no other user can."""
    link = directory.lstat()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in _trusted():
        return "is a link that another user has made"
    real = Path(os.path.realpath(directory))  # which no link of another user can change any more
    found = real.stat()
    if found.st_uid not in _trusted():
        return "belongs to another user"
    if found.st_mode & _OTHERS:
        return f"can be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    for parent in real.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"can be replaced by others, who can write to {parent}"
    return None


def _trusted() -> tuple[int, int]:
    """This user and root."""
    return os.geteuid(), 0


@functools.cache
def _elsewhere(directory: Path, problem: str) -> Path:
    """A directory that later processes of this user can use again, else one for this process only, with a message."""
    import tempfile  # late, as few need it

    other = Path(tempfile.gettempdir()) / f"nmt-{os.geteuid()}"
    try:
        other.mkdir(mode=0o700, exist_ok=True)
        lasting = not other.is_symlink() and _problem(other) is None
    except OSError:
        lasting = False
    if not lasting:
        from nmt.light.output import remove, temporary_name

        other = Path(temporary_name(os.path.join(tempfile.gettempdir(), "nmt-kernels"), prefix=""))
        try:
            other.mkdir(mode=0o700)
        except OSError as error:
            raise BuildError(f"{directory}: {problem}; {error.filename}: {error.strerror}") from None
        atexit.register(remove, str(other))
    advice = "chmod go-w it, or set NMT_CACHE"
    logger.warning("kernels: %s %s, so they are kept in %s instead; %s", directory, problem, other, advice)
    return other
