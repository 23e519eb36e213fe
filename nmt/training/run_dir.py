"""The run directory: its lock, moving an old run aside, comparing configurations, the translations of validations."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
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
    Raises CheckpointError where another living process holds it, or the directory cannot be written.
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
        remove_leftovers(str(run), prefix=NEW)
        try:
            yield
        finally:
            # A mistake that shows before anything is written should not leave a directory behind.
            with contextlib.suppress(OSError):
                if [entry.name for entry in run.iterdir()] == [LOCK]:
                    (run / LOCK).unlink()
                    run.rmdir()
    finally:
        with contextlib.suppress(OSError):  # of what has been written already
            os.close(descriptor)


def _take(descriptor: int, run: Path) -> None:
    """Lock the open file, and write into it which process has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise CheckpointError(f"{run}: another process (pid {holder}) is training in this directory") from error
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # without locks training must still be possible
            raise CheckpointError(f"{run / LOCK}: cannot be locked: {reason(error)}") from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    except OSError as error:
        raise CheckpointError(f"{run / LOCK}: cannot be written: {reason(error)}") from error


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

    Raises ConfigError, with a line for each differing key, where what decides the model, the order of the data or the
    optimizer's state differs.
    """
    found = changes(anchored(old), anchored(new))
    fixed = [change for change in found if change.fixed]
    if fixed:
        listed = "\n".join(f"  {change}" for change in fixed)
        advice = "choose another run_dir, or --overwrite to move the old run aside"
        raise ConfigError(f"{run}: the run there was started with other values, {advice}. Then -> now:\n{listed}")
    return [change for change in found if change.key != "run_dir"]


def kept_translations(run: Path, step: int | str) -> Path:
    """The file with a line for each translated line of the validation text, in its order, of this step's validation."""
    return run / "validation" / f"step-{step}.txt"


def rewind_translations(run: Path, step: int, *, validated: bool) -> int:
    """Delete the translations of later steps, which will be repeated; return how many.

    The translations of `step` itself are kept if it is `validated`, and otherwise repeated, too.
    """
    pattern, undone = kept_translations(run, "*"), 0
    for path in pattern.parent.glob(pattern.name):
        number = path.stem.removeprefix("step-")
        if number.isdecimal() and (int(number) > step or (int(number) == step and not validated)):
            path.unlink(missing_ok=True)
            undone += 1
    return undone


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write one line for each of `lines` to `path`, which has them all or is as it was before.

    Its directory is made if it is not there. Raises DataError naming the file where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({reason(error)})") from error
