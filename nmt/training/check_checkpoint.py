"""What one checkpoint of a run is good for: its checksum, training state, configuration and shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.config import Config, load_saved
from nmt.config.located import anchored
from nmt.errors import CheckpointError, NmtError, UnreadableError
from nmt.files.whole import is_file
from nmt.interop import run_layout
from nmt.interop.finite import not_finite
from nmt.interop.model_dir import weight_differences
from nmt.interop.weights_file import read_shapes, read_weights
from nmt.training.checkpoint_files import read_checkpoint, trained_weights
from nmt.training.run_dir import changes
from nmt.training.state import Progress

_PARTS = ("updater", "progress", "interval", "ranking", "random", "data_key")
_HEADER = 1 << 24


@dataclass(frozen=True, kw_only=True)
class CheckedCheckpoint:
    """The findings about one checkpoint; each problem is one line that names the file."""

    step: int
    resumable: bool
    """Training can resume from it."""
    translatable: bool
    """Its weights fit the configuration and the tokenizer."""
    readable: bool = True
    """Its files can be read at this moment; what is not readable may be good."""
    problems: tuple[str, ...] = ()
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Which encoded text it was trained (`train`) and validated (`dev`) on."""


def check_checkpoint(
    run: Path,
    step: int,
    *,
    config: Config | None,
    expected: Mapping[str, Tensor] | None,
    plugins: Sequence[str] = (),
) -> CheckedCheckpoint:
    """Check RUN/checkpoints/step-<step>.

    Args:
        config: the run's configuration, None where it cannot be used.
        expected: the model's parameters, of which shapes and types count; None where they are unknown.
        plugins: files that register the run's components.
    """
    path = run_layout.step_dir(run, step)
    problems: list[str] = []
    weights: dict[str, Tensor] | None = None
    resumable, readable = False, True
    keys: dict[str, str] = {}
    try:
        largest = None if expected is None else _most_bytes(expected)
        loaded = read_checkpoint(path, must_be_finite=False, largest=largest)  # every kind of problem is reported
        named = {name: loaded.state.get(f"{part}_key") for name, part in (("train", "data"), ("dev", "dev"))}
        keys = {name: key for name, key in named.items() if isinstance(key, str)}
        weights = loaded.weights
        wrong = _state_problems(loaded.state, step=step)
        problems += [f"{path / run_layout.TRAINING_STATE}: {problem}" for problem in wrong]
        resumable = not wrong
    except UnreadableError as error:
        problems.append(str(error))
        readable = False
        weights = _weights_alone(path, expected)  # enough to translate, as with nmt-average's output
    except NmtError as error:
        problems.append(str(error))
    wrong = [] if weights is None else _weight_problems(weights, expected)
    problems += [f"{path / run_layout.WEIGHTS}: {problem}" for problem in wrong]
    fits = weights is not None and expected is not None and not wrong
    other = _config_problems(path / run_layout.CONFIG, config, plugins)
    return CheckedCheckpoint(
        step=step,
        resumable=resumable and fits and config is not None and not other,
        translatable=fits and not other,
        readable=readable,
        problems=(*problems, *other),
        keys=keys,
    )


def _state_problems(state: dict[str, Any], *, step: int) -> list[str]:
    if missing := [name for name in _PARTS if name not in state]:
        return [f"not a whole training state: {', '.join(missing)} missing"]
    progress = state["progress"]
    counters = [item.name for item in dataclasses.fields(Progress)]
    if not isinstance(progress, dict) or not progress.keys() >= set(counters):
        return [f"not a whole training state: progress must hold {', '.join(counters)}"]
    if progress["step"] != step:
        return [f"belongs to step {progress['step']}, but the directory is named step-{step}"]
    return not_finite(trained_weights(state))


def _most_bytes(expected: Mapping[str, Tensor]) -> int:
    """How large a file of these weights can be, in whatever type, with a long header."""
    return sum(8 * weight.numel() for weight in expected.values()) + _HEADER


def _weights_alone(path: Path, expected: Mapping[str, Tensor] | None) -> dict[str, Tensor] | None:
    try:
        if expected is not None and weight_differences(expected, read_shapes(path / run_layout.WEIGHTS)):
            return None
        return read_weights(path / run_layout.WEIGHTS)
    except CheckpointError:  # the checkpoint's problem has been reported
        return None


def _weight_problems(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor] | None) -> list[str]:
    found = [] if expected is None else weight_differences(expected, weights)
    return [*found, *not_finite(weights)]


def _config_problems(file: Path, config: Config | None, plugins: Sequence[str]) -> list[str]:
    """Why the configuration stored with the weights differs from the run's."""
    if config is None or not is_file(file):  # without one of its own the checkpoint goes by the run's
        return []
    try:
        own = load_saved(file, plugins)
    except NmtError as error:
        return one_line_each(error)
    return [f"{file}: not the run's: {change}" for change in changes(anchored(own), anchored(config)) if change.fixed]


def one_line_each(error: NmtError) -> list[str]:
    """The mistakes an error lists, each as a line that names the file."""
    first, *rest = str(error).split("\n")
    return [f"{first} {line.strip()}" for line in rest] or [first]
