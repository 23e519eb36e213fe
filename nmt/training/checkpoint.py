"""Checkpoints of a run: written atomically, verified when read, deleted only when a newer one is complete."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from nmt.errors import CheckpointError, UnreadableError
from nmt.files.errors import reason
from nmt.files.new import new_directory
from nmt.files.whole import is_folder, sync, write_file
from nmt.interop import run_layout
from nmt.interop.weights_file import DamagedError
from nmt.light.output import remove_leftovers
from nmt.training.checkpoint_files import Loaded, read_checkpoint, write_arrays
from nmt.training.state import Ranking


class CheckpointStore:
    """RUN/checkpoints. `keep_last` newest and `keep_best` best checkpoints stay; others are deleted after a save."""

    def __init__(self, run: Path, *, keep_last: int, keep_best: int, config_text: str) -> None:
        self.run = run
        self._keep_last = keep_last
        self.keep_best = keep_best
        self._config_text = config_text

    def save(self, step: int, *, weights: dict[str, Tensor], state: dict[str, Any], ranking: Ranking) -> Path:
        """Write RUN/checkpoints/step-<step> and update best.json; then delete what need not be kept.

        Raises:
            CheckpointError: it could not be written; nothing that was there before has changed.
        """
        target = run_layout.step_dir(self.run, step)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with _whole_directory(target) as temporary:
                write_arrays(temporary, weights=weights, state=state)
                write_file(temporary / run_layout.CONFIG, self._config_text.encode())
            self.write_ranking(ranking)
        except (OSError, MemoryError, RuntimeError, safetensors.SafetensorError) as error:
            raise CheckpointError(
                f"{_place(error, target)}: cannot be written: {reason(error)}; {self._last()}"
            ) from error
        self._prune(ranking)
        return target

    def write_ranking(self, ranking: Ranking) -> None:
        """Bring best.json up to the ranking; no file without validations."""
        existing = set(run_layout.checkpoint_steps(self.run))
        rows = [run_layout.Scored(step, ranking.scores[step]) for step in ranking.ranked() if step in existing]
        if rows or run_layout.read_best(self.run) is not None:
            run_layout.write_best(self.run, run_layout.Best(metric=ranking.metric, steps=tuple(rows)))

    def load_newest(self, *, warn: Callable[[str], None]) -> Loaded | None:
        """Read the newest complete checkpoint; None if there are no checkpoints.

        A damaged one is reported through `warn` and renamed to damaged-step-<N>, so that neither
        translation nor the count of kept checkpoints takes it for a good one.

        Raises:
            UnreadableError: the newest cannot be read at this moment; all checkpoints stay unchanged.
            CheckpointError: there are checkpoints, but every one is damaged or has been set aside as damaged; or the
                newest complete one is of another version.
        """
        self._remove_leftovers()
        for step in reversed(run_layout.checkpoint_steps(self.run)):
            path = run_layout.step_dir(self.run, step)
            try:
                return read_checkpoint(path)
            except DamagedError as error:
                aside = _free_name(path.with_name(f"{run_layout.ASIDE}{path.name}"))
                path.rename(aside)
                warn(f"{error}; set aside as {aside.name}, trying the one before")
        if run_layout.set_aside(self.run):
            raise CheckpointError(
                f"{run_layout.checkpoints_dir(self.run)}: every checkpoint is damaged or set aside as damaged; "
                f"nmt-check {self.run} reports details, --overwrite starts a new run"
            )
        return None

    def _last(self) -> str:
        """The checkpoint to resume from, if a new one could not be written."""
        try:
            last = run_layout.last_step(self.run)
        except UnreadableError as error:
            return str(error)
        return f"the last good checkpoint is step-{last}" if last is not None else "there is no earlier one"

    def _prune(self, ranking: Ranking) -> None:
        steps = run_layout.checkpoint_steps(self.run)
        best = [step for step in ranking.ranked() if step in set(steps)][: self.keep_best]
        keep = {*steps[-self._keep_last :], *best}
        for step in steps:
            if step not in keep:
                # Renamed first: a half deleted directory must not look like a checkpoint.
                path = run_layout.step_dir(self.run, step)
                doomed = _free_name(path.with_name(f".deleting-{path.name}"))
                path.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
        if any(step not in keep for step in steps):
            self.write_ranking(ranking)

    def _remove_leftovers(self) -> None:
        """Delete what a killed process left half written or half deleted."""
        folder = run_layout.checkpoints_dir(self.run)
        for path in folder.glob(".replaced-*"):
            target = path.with_name(path.name.removeprefix(".replaced-"))
            if is_folder(target):
                shutil.rmtree(path, ignore_errors=True)
            else:  # killed between two renames: the old one is still the good one
                path.rename(target)
        for pattern in (".writing-*", ".deleting-*"):
            for path in folder.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)
        remove_leftovers(str(folder / run_layout.BEST))


class ReadOnlyCheckpoints(CheckpointStore):
    """The checkpoints as a process sees them that leaves it to another one to write them."""

    def save(self, step: int, *, weights: dict[str, Tensor], state: dict[str, Any], ranking: Ranking) -> Path:
        """Write nothing."""
        return run_layout.step_dir(self.run, step)

    def write_ranking(self, ranking: Ranking) -> None:
        """Write nothing."""


@contextlib.contextmanager
def _whole_directory(target: Path) -> Iterator[Path]:
    """A directory to fill, which takes the name `target` once the block ends without an error."""
    with new_directory(target) as temporary:
        yield temporary
        sync(temporary)
        if is_folder(target):  # saved again at the same step, say with another validation
            old = target.with_name(f".replaced-{target.name}")
            target.rename(old)
            try:
                temporary.rename(target)
            except BaseException:
                old.rename(target)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            temporary.rename(target)
        sync(target.parent)


def _place(error: BaseException, target: Path) -> Path:
    """Which file it is that could not be written, by the name that it would have had."""
    name = getattr(error, "filename", None)
    return target / Path(name).name if name and Path(name).parent.name.startswith(".writing-") else Path(name or target)


def _free_name(path: Path) -> Path:
    free, number = path, 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
