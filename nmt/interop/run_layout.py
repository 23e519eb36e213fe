"""Where things lie in a run directory, and the small records in it: the best checkpoints, facts, and the log.

    RUN/config.yaml  RUN/tokenizer/  RUN/log.jsonl  RUN/train.log  RUN/facts.json
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nmt import files
from nmt.errors import CheckpointError, DataError, counted, missing, printable
from nmt.files import (
    LARGEST_LOG,
    LARGEST_RECORD,
    check_directory,
    is_file,
    is_folder,
    is_there,
    read_file,
    read_inside,
    read_sums,
    reason,
    replace_file,
    replace_text,
    unreadable,
)

if TYPE_CHECKING:
    from nmt.config import Config

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
EVENTS = "log.jsonl"
FACTS: Final = "facts.json"
CONFIDENCE: Final = "confidence.json"
ASIDE = "damaged-"
FOLDERS = (CHECKPOINTS, TOKENIZER, "cache", "corpus", "validation", "tensorboard")
"""Directories that a run consists of."""
_FILES = frozenset({CONFIG, WEIGHTS, TRAINING_STATE, SUMS, EVENTS, "train.log", "lock", FACTS, CONFIDENCE})
_LONGEST: Final = "longest_source"
_SEVERAL: Final = "sources_of_several_sentences"
STEP_NAME = re.compile(r"step-(0|[1-9][0-9]*)")


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
    if first in FOLDERS or rest:
        return first in FOLDERS
    sums = root / SUMS  # of an exported folder
    exported = {CARD, *(read_sums(read_file(sums, largest=LARGEST_RECORD)) or {})} if os.path.isfile(sums) else set()
    return first in _FILES or first in exported


def test_output(run: Path, language: str, *, name: str = "", average: bool = False) -> Path:
    """The translations of a test text, of one with a name, by the best checkpoint or by the average."""
    return run / f"test{'.average' if average else ''}{name and f'.{name}'}.{language}"


def check_no_part(output: Path, *, models: Iterable[str | Path]) -> None:
    """Raise CheckpointError if `output` is, or would be, among the files that one of `models` consists of."""
    for model in models:
        if belongs_to(Path(model), output):
            raise CheckpointError(f"{output}: is a part of the model {model}; choose another output")


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


class Scored(NamedTuple):
    """A checkpoint's step and its validation score."""

    step: int
    score: float


class Best(NamedTuple):
    """Contents of best.json: the metric, and the checkpoints it ranks, best first."""

    metric: str
    steps: tuple[Scored, ...] = ()


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


class LongestSource(NamedTuple):
    """The longest source sentence that a model was trained on."""

    tokens: int
    """Without the end symbol."""
    is_known: bool
    """False if only the limit data.max_length is known."""

    def __str__(self) -> str:
        what = "any in training" if self.is_known else "training allowed"
        return f"{what} ({counted(self.tokens, 'token')})"


class TrainingFacts(NamedTuple):
    """What is known of the sources that a model was trained on; None for what versions before did not write."""

    longest: int | None = None
    """Tokens of the longest one."""
    several: float | None = None
    """The share of them that have several sentences."""

    def longest_source(self, config: Config) -> LongestSource:
        """The longest one, else the limit in the configuration."""
        return (
            LongestSource(config.data.max_length, False) if self.longest is None else LongestSource(self.longest, True)
        )


def read_facts(directory: Path) -> TrainingFacts:
    """The facts of the model in `directory`: from its own file, else from the run around it.

    Raises CheckpointError for a malformed file.
    """
    path = find_facts(directory)
    if path is None:
        return TrainingFacts()
    try:
        record: Any = json.loads(read_inside(path, within=path.parent, largest=LARGEST_RECORD).decode("utf-8"))
        tokens, share = record[_LONGEST], record.get(_SEVERAL)
        if type(tokens) is not int or tokens < 0:
            raise ValueError(f"{_LONGEST} is {tokens!r}")
        if share is not None and not (type(share) in (int, float) and 0 <= share <= 1):
            raise ValueError(f"{_SEVERAL} is {share!r}")
        return TrainingFacts(tokens, share)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = reason(error) if isinstance(error, OSError) else repr(error)[:200]
        wanted = f'{{"{_LONGEST}": N}}'
        raise CheckpointError(f"{path}: cannot be used ({printable(problem)}); expected {wanted}") from error


def find_facts(directory: Path) -> Path | None:
    """The file of a model directory, or of the run around a checkpoint; None if there is neither."""
    places = [directory / FACTS]
    if directory.parent.name == CHECKPOINTS:
        places.append(directory.parent.parent / FACTS)
    return next((path for path in places if path.is_file()), None)


def write_facts(directory: Path, facts: TrainingFacts) -> None:
    """Write the file atomically; CheckpointError if it cannot be written."""
    path = directory / FACTS
    record = {_LONGEST: facts.longest, _SEVERAL: facts.several}
    try:
        replace_text(path, json.dumps({name: value for name, value in record.items() if value is not None}) + "\n")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({reason(error)})") from error


def read_events(run: Path) -> list[dict[str, Any]]:
    """All whole lines of RUN/log.jsonl."""
    path = run / EVENTS
    if not is_file(path):
        raise DataError(missing(path, f"is {run} a run directory?"))
    return read_log(path)[0]


def read_log(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of a log, and how many others it has: a crash, or a full disk, leaves half a line."""
    # Not splitlines: a sample translation may hold U+2028 and its like.
    lines = [line for line in read_file(path, largest=LARGEST_LOG).decode("utf-8", "replace").split("\n") if line]
    events = [event for event in map(_event, lines) if event is not None]
    return events, len(lines) - len(events)


def _event(line: str) -> dict[str, Any] | None:
    """What a line tells of; None where it is damaged."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
