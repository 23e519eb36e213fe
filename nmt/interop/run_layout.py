"""Where things lie in a run directory: names of files, the list of checkpoints, the record of the best ones.

    RUN/config.yaml  RUN/tokenizer/  RUN/log.jsonl  RUN/train.log
    RUN/checkpoints/step-<N>/{model.safetensors, training.pt, config.yaml, SHA256SUMS}
    RUN/checkpoints/damaged-step-<N>/
    RUN/checkpoints/best.json

Standard library only: the trainer writes by these names, and loading and averaging read by them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt import files
from nmt.errors import CheckpointError
from nmt.files import (
    LARGEST_RECORD,
    check_directory,
    is_folder,
    is_there,
    read_file,
    read_sums,
    replace_file,
    unreadable,
)

CONFIG = "config.yaml"
TOKENIZER = "tokenizer"
WEIGHTS = "model.safetensors"
TRAINING_STATE = "training.pt"
CHECKPOINTS = files.CHECKPOINTS
BEST = "best.json"
SUMS = "SHA256SUMS"
CARD = "README.md"
"""Of an exported folder; in a run this name belongs to the user."""
ENCODER, STEP = "encoder.onnx", "step.onnx"
"""Of a folder of ONNX graphs, which is no model for commands."""
ASIDE = "damaged-"
FOLDERS = (CHECKPOINTS, TOKENIZER, "cache", "corpus", "validation", "tensorboard")
"""Directories that a run consists of."""
_FILES = frozenset({CONFIG, WEIGHTS, TRAINING_STATE, SUMS, "log.jsonl", "train.log", "lock", "facts.json"})
STEP_NAME = re.compile(r"step-(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Scored:
    """A checkpoint's step and its validation score."""

    step: int
    score: float


@dataclass(frozen=True)
class Best:
    """Contents of best.json: the metric, and the checkpoints it ranks, best first."""

    metric: str
    steps: tuple[Scored, ...] = ()


def checkpoints_dir(run: Path) -> Path:
    """RUN/checkpoints."""
    return run / CHECKPOINTS


def step_dir(run: Path, step: int) -> Path:
    """RUN/checkpoints/step-<step>, whether it exists or not."""
    return checkpoints_dir(run) / f"step-{step}"


def belongs_to(model: Path, path: Path) -> bool:
    """Whether `path` is, or would be, a file that a run or model directory consists of, or a directory of them.

    Anything else in there, such as translations or a shortlist, is the user's own. `model` may be a checkpoint in it.
    """
    root = Path(os.path.realpath(files.model_folder(model / WEIGHTS)))
    real = Path(os.path.realpath(path))
    if real == root:
        return True
    if not real.is_relative_to(root):
        return False
    first, *rest = real.relative_to(root).parts
    return first in FOLDERS or (not rest and (first in _FILES or first in _files_of_export(root)))


def check_no_part(output: Path, *, models: Iterable[str | Path]) -> None:
    """Raise CheckpointError if `output` is, or would be, among the files that one of `models` consists of."""
    for model in models:
        if belongs_to(Path(model), output):
            raise CheckpointError(f"{output}: is a part of the model {model}; choose another output")


def _files_of_export(root: Path) -> set[str]:
    """The names in the checksums of an exported folder, and its card; none of anything else."""
    sums = root / SUMS
    if not os.path.isfile(sums):
        return set()
    return {CARD, *(read_sums(read_file(sums, largest=LARGEST_RECORD)) or {})}


def step_of(directory: Path) -> int | None:
    """The step in a checkpoint directory's name, None for any other name (such as a temporary one)."""
    match = STEP_NAME.fullmatch(directory.name)
    return int(match[1]) if match else None


def checkpoint_steps(run: Path) -> list[int]:
    """Steps of all complete checkpoints (those with weights) of a run, ascending.

    Raises:
        UnreadableError: this cannot be determined at this moment.
    """
    found = ((step_of(entry), entry) for entry in entries(run))
    return sorted(step for step, entry in found if step is not None and is_there(entry / WEIGHTS))


def entries(run: Path) -> list[Path]:
    """All that lies in RUN/checkpoints, by name; nothing where there is no such directory. Raises UnreadableError."""
    folder = checkpoints_dir(run)
    if not is_folder(folder):
        return []
    try:
        check_directory(folder, within=run)
        return sorted(folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from error


def set_aside(run: Path) -> list[Path]:
    """Checkpoints that were renamed because they were taken for damaged."""
    return [path for path in entries(run) if path.name.startswith(ASIDE) and is_folder(path)]


def last_step(run: Path) -> int | None:
    """Step of the newest checkpoint, None without one."""
    return max(checkpoint_steps(run), default=None)


def read_best(run: Path) -> Best | None:
    """The content of best.json; None if there is no such file, CheckpointError if it is malformed."""
    path = checkpoints_dir(run) / BEST
    if not is_there(path):
        return None
    text = read_file(path, largest=LARGEST_RECORD)
    try:
        record: Any = json.loads(text.decode("utf-8"))
        steps = tuple(Scored(step=int(row["step"]), score=float(row["score"])) for row in record["steps"])
        return Best(metric=str(record["metric"]), steps=steps)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        wanted = '{"metric": NAME, "steps": [{"step": N, "score": X}, ...]}'
        raise CheckpointError(f"{path}: not a list of best checkpoints ({error!r}); expected {wanted}") from error


def write_best(run: Path, best: Best) -> None:
    """Replace best.json in one step, so that a reader never sees half a file."""
    path = checkpoints_dir(run) / BEST
    record = {"metric": best.metric, "steps": [{"step": row.step, "score": row.score} for row in best.steps]}
    replace_file(path, f"{json.dumps(record)}\n".encode())


def best_steps(run: Path) -> list[int]:
    """Steps of the best checkpoints that still exist, best first; empty without validation."""
    best = read_best(run)
    existing = set(checkpoint_steps(run))
    return [row.step for row in best.steps if row.step in existing] if best else []


def best_step(run: Path) -> int | None:
    """Step of the best checkpoint, else of the newest, None without checkpoints."""
    ranked = best_steps(run)
    return ranked[0] if ranked else last_step(run)
