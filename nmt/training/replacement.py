"""Moving an old run aside, once it is known that the new one can begin."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import torch

from nmt.errors import CheckpointError
from nmt.files.errors import reason
from nmt.files.new import new_directory
from nmt.files.whole import is_there
from nmt.training.distributed import World
from nmt.training.initial_weights import load_initial_weights
from nmt.training.run_dir import NEW, locked, move_aside
from nmt.training.task import Task, check_files


def replace_run(task: Task, *, device: torch.device, start: Path | None) -> Path | None:
    """Move an existing run aside; return its new name, None if there is none.

    Before that, the data of the new run is prepared in a new directory, and its model is built, from the weights in
    `start` if it is given. The new directory then takes the name of the run, so that nothing is prepared twice.

    Raises:
        ConfigError, DataError: the new run cannot begin.
        CheckpointError: a living process trains in the old run, or it cannot be renamed.
    """
    check_files(task)  # a wrong path should be reported before any work
    run = Path(os.path.abspath(task.config.run_dir))
    if not is_there(run):
        return None
    with locked(run):
        pass  # an error if another process trains there
    if not is_there(run):  # there was nothing but the lock
        return None
    try:
        with new_directory(run, prefix=NEW) as folder:
            _try(_outside(task, run), folder, device=device, start=start)
            moved = move_aside(run)
            folder.rename(run)
    except OSError as error:
        raise CheckpointError(f"{run}: cannot be replaced: {reason(error)}") from error
    return moved


def _try(task: Task, folder: Path, *, device: torch.device, start: Path | None) -> None:
    """Prepare the data in `folder`, and build what a mistake could prevent."""
    data = task.prepare(folder)
    task.build_validator(data, device=device, world=World(device))
    model = task.build_model(data.tokenizer, device=device)
    if start is not None:
        load_initial_weights(start, model, tokenizer=data.tokenizer)


def _outside(task: Task, run: Path) -> Task:
    """The task without a cache in the run, which would be moved with it."""
    data = task.config.data
    cache = None if data.cache_dir is None else Path(os.path.realpath(data.cache_dir))
    if cache is None or Path(os.path.realpath(run)) not in (cache, *cache.parents):
        return task
    return type(task)(dataclasses.replace(task.config, data=dataclasses.replace(data, cache_dir=None)))
