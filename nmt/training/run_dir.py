"""The run directory: its lock, moving an old run aside, comparing configurations, the translations of validations."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.located import anchored
from nmt.config.schema import Config
from nmt.errors import CheckpointError, ConfigError, DataError
from nmt.files import RefusedError, check_directory, own_file, reason, replace_file
from nmt.interop import run_layout
from nmt.light.output import remove_leftovers

LOCK = "lock"
NEW = ".new-"
"""The beginning of the name of a directory that is made ready to take the place of a run."""
FOLDERS = (*run_layout.FOLDERS, "average")
"""Directories that training creates in a run directory."""


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run directory, made if needed, while the block runs.

    The kernel releases it when the process ends, however that happens.

    Raises:
        CheckpointError: another living process holds it, or the directory cannot be written.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        for name in FOLDERS:  # training deletes files in them, so they must not be links
            check_directory(run / name, within=run)
        descriptor = own_file(str(run / LOCK), os.O_RDWR | os.O_CREAT)
    except RefusedError as error:
        raise CheckpointError(f"{error.filename}: {error.strerror}") from error
    except OSError as error:
        raise CheckpointError(f"{run}: cannot be used as run directory: {reason(error)}") from error
    try:
        _take(descriptor, run)
        _say_who(descriptor, run)
        remove_leftovers(str(run), prefix=NEW)
        try:
            yield
        finally:
            _remove_if_unused(run)
    finally:
        with contextlib.suppress(OSError):  # of what has been written already
            os.close(descriptor)


def _say_who(descriptor: int, run: Path) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    except OSError as error:
        raise CheckpointError(f"{run / LOCK}: cannot be written: {reason(error)}") from error


def _remove_if_unused(run: Path) -> None:
    """A mistake that shows before anything is written should not leave a directory behind."""
    with contextlib.suppress(OSError):
        if [entry.name for entry in run.iterdir()] == [LOCK]:
            (run / LOCK).unlink()
            run.rmdir()


def _take(descriptor: int, run: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
            return  # a file system without locks: training there must still be possible
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise CheckpointError(f"{run / LOCK}: cannot be locked: {reason(error)}") from error
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise CheckpointError(f"{run}: another process (pid {holder}) is training in this directory") from error


def move_aside(run: Path) -> Path:
    """Rename an existing run, by its absolute path, to RUN.old-1, or the next free number; return the new name.

    Raises:
        CheckpointError: a living process trains there, or it cannot be renamed.
    """
    number = 1
    while (target := run.with_name(f"{run.name}.old-{number}")).exists():
        number += 1
    with locked(run):
        try:
            run.rename(target)
        except OSError as error:
            raise CheckpointError(f"{run}: cannot be moved to {target}: {reason(error)}") from error
    return target


@dataclass(frozen=True)
class Change:
    """A key whose value differs between a run and the configuration given now."""

    key: str
    old: Any
    new: Any
    fixed: bool
    """A run cannot be resumed with it."""

    def __str__(self) -> str:
        return f"{self.key}: {self.old!r} -> {self.new!r}"


def changes(old: Any, new: Any, *, prefix: str = "") -> list[Change]:
    """All keys in which two configurations (dataclasses of the same type) differ, sections included.

    Options that differ are named one by one, unless they are those of different components.
    """
    found = []
    for item in dataclasses.fields(new):
        before, after = getattr(old, item.name), getattr(new, item.name)
        key = f"{prefix}{item.name}"
        if dataclasses.is_dataclass(after):
            found += changes(before, after, prefix=f"{key}.")
        elif before != after:
            fixed = bool(item.metadata.get("fixed"))
            pairs = [(key, before, after)]
            if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
                pairs = [(f"{key}.{name}", before[name], after[name]) for name in after if before[name] != after[name]]
            found += [Change(name, then, now, fixed=fixed) for name, then, now in pairs]
    return found


def check_resumable(old: Config, new: Config, *, run: Path) -> list[Change]:
    """Return the accepted changes.

    Raises:
        ConfigError: what decides the model, the order of the data or the optimizer's state differs;
            each differing key is on a line.
    """
    found = changes(anchored(old), anchored(new))
    fixed = [change for change in found if change.fixed]
    if fixed:
        listed = "\n".join(f"  {change}" for change in fixed)
        advice = "choose another run_dir, or --overwrite to move the old run aside"
        raise ConfigError(f"{run}: the run there was started with other values, {advice}. Then -> now:\n{listed}")
    return [change for change in found if change.key != "run_dir"]


TRANSLATIONS = "validation"


@dataclass(frozen=True)
class KeptTranslations:
    """The files step-N.txt of a run, a line for each translated line of the validation text, in its order."""

    run: Path

    def write(self, step: int, lines: Sequence[str]) -> Path:
        """Write the translations of this step's validation atomically; DataError if that is not possible."""
        path = self.run / TRANSLATIONS / f"step-{step}.txt"
        write_lines(path, lines)
        return path

    def rewind(self, step: int, *, validated: bool) -> int:
        """Delete the translations of later steps, which will be repeated; return how many.

        The translations of `step` itself are kept if it is `validated`, and otherwise repeated, too.
        """
        undone = [path for number, path in self._files() if number > step or (number == step and not validated)]
        for path in undone:
            path.unlink(missing_ok=True)
        return len(undone)

    def _files(self) -> list[tuple[int, Path]]:
        found = (
            (re.fullmatch(r"step-(\d+)\.txt", path.name), path) for path in (self.run / TRANSLATIONS).glob("step-*.txt")
        )
        return [(int(match[1]), path) for match, path in found if match]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write one line for each of `lines` to `path`, which has them all or is as it was before.

    Its directory is made if it is not there. Raises DataError naming the file where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({reason(error)})") from error
