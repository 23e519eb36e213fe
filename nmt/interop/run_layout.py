"""Where things lie in a run directory: names of files, the list of checkpoints, the record of the best ones.

    RUN/config.yaml  RUN/tokenizer/  RUN/log.jsonl  RUN/train.log
    RUN/checkpoints/step-<N>/{model.safetensors, training.pt, config.yaml}
    RUN/checkpoints/best.json

Standard library only: the trainer writes by these names, and loading and averaging read by them.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.errors import CheckpointError

CONFIG = "config.yaml"
TOKENIZER = "tokenizer"
WEIGHTS = "model.safetensors"
TRAINING_STATE = "training.pt"
CHECKPOINTS = "checkpoints"
BEST = "best.json"
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


def step_of(directory: Path) -> int | None:
    """The step in a checkpoint directory's name, None for any other name (such as a temporary one)."""
    match = STEP_NAME.fullmatch(directory.name)
    return int(match[1]) if match else None


def checkpoint_steps(run: Path) -> list[int]:
    """Steps of all complete checkpoints (those with weights) of a run, ascending."""
    if not checkpoints_dir(run).is_dir():
        return []
    found = ((step_of(entry), entry) for entry in checkpoints_dir(run).iterdir())
    return sorted(step for step, entry in found if step is not None and (entry / WEIGHTS).is_file())


def last_step(run: Path) -> int | None:
    """Step of the newest checkpoint, None without one."""
    return max(checkpoint_steps(run), default=None)


def read_best(run: Path) -> Best | None:
    """What best.json says; None when there is no such file, CheckpointError when it cannot be understood."""
    path = checkpoints_dir(run) / BEST
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
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
    temporary = path.with_name(f".{BEST}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(record, stream)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def best_steps(run: Path) -> list[int]:
    """Steps of the best checkpoints that still exist, best first; empty without validation."""
    best = read_best(run)
    existing = set(checkpoint_steps(run))
    return [row.step for row in best.steps if row.step in existing] if best else []


def best_step(run: Path) -> int | None:
    """Step of the best checkpoint, else of the newest, None without checkpoints."""
    ranked = best_steps(run)
    return ranked[0] if ranked else last_step(run)
