"""A whole run directory put to the test: configuration, tokenizer, checkpoints, ranking, log."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.config import Config, load_saved
from nmt.config.located import anchored
from nmt.config.problems import MissingPluginError
from nmt.config.schema import DataConfig
from nmt.data.corpus import META, Corpus, corpus_folder
from nmt.data.saved_tokenizer import has_checksums, load_tokenizer
from nmt.errors import CheckpointError, DataError, NmtError, UnreadableError, missing
from nmt.files import LARGEST_LOG, RefusedError, check_size, is_file, is_folder, is_there, open_model_file, reason
from nmt.interop import run_layout
from nmt.interop.model_dir import planned_model, weight_differences
from nmt.interop.weights_file import DamagedError, not_finite, read_shapes, read_weights
from nmt.training.logs import EVENTS
from nmt.training.run_dir import OtherVersionError, changes, read_checkpoint, trained_weights
from nmt.training.state import Progress
from nmt.training.task import check_files, task_of

_PARTS = ("updater", "progress", "interval", "ranking", "random", "data_key")
_HEADER = 1 << 24


@dataclass
class CheckedCheckpoint:
    """The findings about one checkpoint."""

    step: int
    resumable: bool = False
    """Training can resume from it."""
    translatable: bool = False
    """Its weights fit the configuration and the tokenizer."""
    readable: bool = True
    """Its files can be read at this moment; what is not readable may be good."""
    problems: list[str] = field(default_factory=list)
    """Each one line that names the file."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Which encoded text it was trained (`train`) and validated (`dev`) on."""


def _check_checkpoint(run: RunCheck, step: int) -> CheckedCheckpoint:
    """Check RUN/checkpoints/step-<step>."""
    path, checked = run_layout.step_dir(run.run, step), CheckedCheckpoint(step)
    expected, weights, is_whole = run.parameters, None, False
    try:
        # As large as a file of these weights can be, in whatever type, with a long header.
        largest = None if expected is None else sum(8 * weight.numel() for weight in expected.values()) + _HEADER
        loaded = read_checkpoint(path, must_be_finite=False, largest=largest)  # every kind of problem is reported
        named = {name: loaded.state.get(f"{part}_key") for name, part in (("train", "data"), ("dev", "dev"))}
        checked.keys = {name: key for name, key in named.items() if isinstance(key, str)}
        weights = loaded.weights
        wrong = _state_problems(loaded.state, step=step)
        checked.problems += [f"{path / run_layout.TRAINING_STATE}: {problem}" for problem in wrong]
        is_whole = not wrong
    except UnreadableError as error:
        checked.problems.append(str(error))
        checked.readable = False
        with suppress(CheckpointError):  # which has been reported; enough to translate, as with nmt-average's output
            if expected is None or not weight_differences(expected, read_shapes(path / run_layout.WEIGHTS)):
                weights = read_weights(path / run_layout.WEIGHTS)
    except NmtError as error:
        checked.problems.append(str(error))
    wrong = []
    if weights is not None:
        wrong = [*(weight_differences(expected, weights) if expected is not None else ()), *not_finite(weights)]
    checked.problems += [f"{path / run_layout.WEIGHTS}: {problem}" for problem in wrong]
    own, other = path / run_layout.CONFIG, []
    if run.config is not None and is_file(own):  # without one of its own the checkpoint goes by the run's
        try:
            found = changes(anchored(load_saved(own, run.plugins)), anchored(run.config))
            other = [f"{own}: not the run's: {change}" for change in found if change.fixed]
        except NmtError as error:
            other = one_line_each(error)
    checked.problems += other
    checked.translatable = weights is not None and expected is not None and not wrong and not other
    checked.resumable = is_whole and checked.translatable and run.config is not None
    return checked


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


def one_line_each(error: NmtError) -> list[str]:
    """The mistakes an error lists, each as a line that names the file."""
    first, *rest = str(error).split("\n")
    return [f"{first} {line.strip()}" for line in rest] or [first]


_MOST_LAYERS = 1000
_LONGEST_LINE = 1 << 24


@dataclass
class RunCheck:
    """What was found in a run directory."""

    run: Path
    plugins: Sequence[str] = ()
    """Files that register the run's components."""
    config: Config | None = None
    """Of the run; None where it cannot be used."""
    parameters: Mapping[str, Tensor] | None = None
    """Of its model, on the meta device, for their shapes and types; None where they are unknown."""
    checkpoints: list[CheckedCheckpoint] = field(default_factory=list)
    """Ascending by step."""
    best: int | None = None
    """The step that commands use by default."""
    problems: list[str] = field(default_factory=list)
    """Each one line that names the file."""
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no fault."""
    task: str = "translation"
    needs_plugin: bool = False
    """A plugin must be given before more can be checked."""

    @property
    def resume(self) -> int | None:
        """The step from which training resumes; None if there is none, or if a newer one cannot be read now."""
        newest = max((checked.step for checked in self.checkpoints if checked.resumable), default=None)
        return None if newest is not None and any(step > newest for step in self.unreadable) else newest

    @property
    def unreadable(self) -> list[int]:
        """Steps of checkpoints that cannot be read at this moment; nmt-train does not resume from an earlier one."""
        return [checked.step for checked in self.checkpoints if not checked.readable]

    @property
    def translate(self) -> list[int]:
        """Steps that can be translated with; of another task, whose models can be used."""
        return [checked.step for checked in self.checkpoints if checked.translatable]


def check_run(run: Path, *, plugins: Sequence[str] = ()) -> RunCheck:
    """Check everything that lies in `run`; nothing is changed, and no plugin that it names is imported.

    Raises:
        CheckpointError: `run` is no run directory.
        ConfigError: a file of `plugins` cannot be imported.
    """
    if not is_file(run / run_layout.CONFIG) and not is_folder(run_layout.checkpoints_dir(run)):
        what = "no such directory" if not is_there(run) else "not a run directory of nmt-train"
        raise CheckpointError(f"{run}: {what}")
    found = RunCheck(run, plugins)
    try:
        found.config = load_saved(run / run_layout.CONFIG, plugins)
        found.task = found.config.task
        tokenizer = load_tokenizer(run, found.config)
        if not has_checksums(run / run_layout.TOKENIZER):
            found.notes.append(f"{run / run_layout.TOKENIZER}: has no checksums, as an older version wrote none")
        model = planned_model(found.config, tokenizer, most_layers=_MOST_LAYERS, trusted=bool(plugins))
        found.parameters = model.state_dict()
    except NmtError as error:
        found.needs_plugin = isinstance(error, MissingPluginError)
        found.problems += one_line_each(error)
    for step in run_layout.checkpoint_steps(run):
        checked = _check_checkpoint(found, step)
        if is_folder(run_layout.step_dir(run, step)):  # else training is running and has deleted it in the meantime
            found.checkpoints.append(checked)
            found.problems += checked.problems
    _leftovers(found)
    _ranking(found)
    found.problems += _log_problems(run, last=run_layout.last_step(run))
    if found.config is not None:
        # All encoded text, even if it was verified before.
        keys = {name: {row.keys[name] for row in found.checkpoints if name in row.keys} for name in ("train", "dev")}
        for folder in corpora_of(found.config.data, run, keys=keys):
            try:
                Corpus(folder).verified(anew=True)
            except DataError as error:
                found.problems.append(f"{error}; the next start of nmt-train encodes this text again")
        try:
            check_files(task_of(found.config))
        except NmtError as error:
            found.notes += [f"resuming needs the training text: {line}" for line in str(error).splitlines()]
    return found


def _leftovers(found: RunCheck) -> None:
    """Directories among the checkpoints that are none."""
    for path in run_layout.entries(found.run):
        if run_layout.step_of(path) is not None and not is_file(path / run_layout.WEIGHTS):
            found.problems.append(f"{path}: has no {run_layout.WEIGHTS}")
        elif path.name.startswith(run_layout.ASIDE):
            found.notes.append(_about_damaged(path, spare=found.resume is not None))
        elif path.name.startswith((".writing-", ".replaced-", ".deleting-")):
            found.notes.append(f"{path}: unfinished, by a process that was killed or is at work")
    if not found.checkpoints and run_layout.set_aside(found.run):
        folder = run_layout.checkpoints_dir(found.run)
        found.problems.append(f"{folder}: all checkpoints are set aside: nmt-train starts only with --overwrite")
    elif not found.checkpoints:
        found.notes.append("no complete checkpoint yet: training starts from the beginning")


def _about_damaged(path: Path, *, spare: bool) -> str:
    """The state of a checkpoint that was set aside; `spare`: the run can resume without it."""
    original = path.name.removeprefix(run_layout.ASIDE)
    try:
        read_checkpoint(path)
    except DamagedError:
        return f"{path}: is damaged" + (" and can be deleted" if spare else "; nothing else is left of the run")
    except OtherVersionError as error:
        return f"{error}; it was set aside as damaged, but is not"
    except UnreadableError as error:
        return f"{error}; it was set aside as damaged, which may be wrong"
    return f"{path}: was set aside as damaged, but is whole; rename it to {original} to use it again"


def _ranking(found: RunCheck) -> None:
    """best.json, and what follows from it for translation."""
    file = run_layout.checkpoints_dir(found.run) / run_layout.BEST
    try:
        best = run_layout.read_best(found.run)
        found.best = run_layout.best_step(found.run)
    except CheckpointError as error:
        found.problems.append(str(error))
        return
    steps = [row.step for row in best.steps] if best else []
    if len(set(steps)) < len(steps):
        found.problems.append(f"{file}: a step is listed twice")
    if best and not all(math.isfinite(row.score) for row in best.steps):
        found.problems.append(f"{file}: a score is not finite")
    for step in sorted(set(steps) - {checked.step for checked in found.checkpoints}):
        found.problems.append(f"{file}: names step {step}, which has no checkpoint")


def _log_problems(run: Path, *, last: int | None) -> list[str]:
    """What is wrong with log.jsonl; `last` is the newest checkpoint's step."""
    path = run / EVENTS
    if not is_file(path):
        return [] if last is None else [missing(path)]
    try:
        with open_model_file(path) as stream:
            check_size(stream, largest=LARGEST_LOG)
            # A line that is too long is taken for several, so that memory stays bounded.
            lines = iter(partial(stream.readline, _LONGEST_LINE), b"")
            return [f"{path}{problem}" for problem in _line_problems(lines, last=last)]
    except RefusedError as error:
        return [f"{path}: {error.strerror}"]
    except OSError as error:
        return [f"{path}: cannot be read now: {reason(error)}"]


def _line_problems(lines: Iterator[bytes], *, last: int | None) -> Iterator[str]:
    step = -1.0
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line.decode("utf-8"))
            now = float(event["step"])
            named = isinstance(event["event"], str)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            named, now = False, step
        if not named or not line.endswith(b"\n"):
            yield f", line {number}: not a whole line of the log"
        elif now < step:
            yield f", line {number}: step {now:g} comes after step {step:g}"
        step = max(step, now)
    if last is not None and step < last:
        yield f": ends before step {last}, which has a checkpoint"


def corpora_of(data: DataConfig, run_dir: Path, *, keys: Mapping[str, Collection[str]]) -> list[Path]:
    """The existing folders of encoded text of a run: all of its own cache.

    In a cache shared with other runs (data.cache_dir), those with `keys`: by the name of a corpus, `train` or `dev`.
    """
    if data.cache_dir is None:
        found = [path.parent for path in (run_dir / "cache").glob(f"[!.]*/{META}")]
        return sorted(folder for folder in found if folder.suffix != ".partial")  # the work of a killed process
    folders = (corpus_folder(Path(data.cache_dir), name, key) for name, found in keys.items() for key in sorted(found))
    return [folder for folder in folders if (folder / META).is_file()]
