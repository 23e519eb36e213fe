"""`nmt.train`: train a model from a program or a notebook, like nmt-train."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.errors import ConfigError, DataError, refused, shown
from nmt.library.loading import before_torch, path_of, several
from nmt.limits import MOST_MINUTES
from nmt.system import CpuClock

if TYPE_CHECKING:
    import torch

    from nmt.config import Config
    from nmt.config.load import Check
    from nmt.config.problems import Problem
    from nmt.training.state import Budget, Ending

logger = logging.getLogger("nmt.train")


@dataclass(frozen=True)
class Training:
    """The result of a training; `nmt.load(training.run_dir)` translates with its best checkpoint."""

    run_dir: Path
    ending: str
    """Why it ended, in words."""
    finished: bool
    """Whether the run is finished; if not, the same call resumes it."""
    interrupted: bool
    """Whether Ctrl-C has ended it, after the last weights were saved."""
    step: int
    """Updates done."""
    best_step: int | None
    """The best existing checkpoint; the newest one without validation, None if there is none."""
    metric: str | None
    """What decides which checkpoint is best, `loss` or the name of a metric; None without validation."""
    best_score: float | None
    """Its value for the best checkpoint."""
    validation: dict[str, Any] | None = field(repr=False)
    """The last validation, as in log.jsonl: step, loss, perplexity, scores, signatures."""
    test: list[dict[str, Any]] = field(repr=False)
    """The scores of the test text for each checkpoint that translated it, as in log.jsonl."""

    def log(self) -> list[dict[str, Any]]:
        """All lines of log.jsonl, as for a learning curve."""
        from nmt.training.logs import read_events

        return read_events(self.run_dir)


def train(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    plugins: Sequence[str | os.PathLike[str]] = (),
    device: str = "auto",
    max_minutes: float | None = None,
    max_cpu_minutes: float | None = None,
    overwrite: bool = False,
) -> Training:
    """Train a model, or resume its training, like nmt-train; the log goes to standard error and into the run.

    Ctrl-C stops after the next update, saves and returns; a second one raises KeyboardInterrupt. SIGTERM and SIGHUP
    also save first, and then have their usual effect. Outside the main thread, signals are not handled.

    Args:
        config: a YAML file, the name of a bundled configuration such as `demo.yaml`, or a mapping with the sections of
            such a file.
        overrides: new values for keys, as `{"training.lr": 3e-4}` or as `["training.lr=3e-4"]`.
        plugins: Python files that register components, in addition to those in the configuration.
        device: `cpu`, `cuda`, or `auto`, which takes a GPU if there is one.
        max_minutes: this many minutes after the call, stop, validate and save; the run can be resumed. max_cpu_minutes:
            when the run has used this many minutes of CPU time (earlier calls included), stop, validate and save; a
            call with more minutes resumes. CPU time of the rest of the program counts, too.
        overwrite: start a new run; an existing run is renamed to RUN.old-1, -2, ...

    Raises:
        ConfigError: the configuration has mistakes; all are listed, one per line.
        DataError: texts are missing or cannot be used.
        CheckpointError: the run directory cannot be used, or another process trains in it.
        NmtError: training cannot continue, for example for lack of memory.
    """
    started, cpu = time.monotonic(), CpuClock()
    for name, minutes in (("max_minutes", max_minutes), ("max_cpu_minutes", max_cpu_minutes)):
        if minutes is not None and not 0 < minutes <= MOST_MINUTES:
            raise ConfigError(f"{name}: {shown(minutes)} is not a number of minutes above 0")
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(refused("device", device, ("auto", "cpu", "cuda")))
    source = plain(config) if isinstance(config, Mapping) else path_of(config, "config")
    named = [path_of(plugin, "plugins") for plugin in several(plugins)]
    before_torch()
    from nmt.ops.dispatch import selected, selection
    from nmt.training.distributed import connected

    with connected(device) as world, selected(selection().choice, verified=selection().verified):
        from nmt.training.run import build_limits, run_training
        from nmt.training.state import Budget

        budget = Budget.of_minutes(max_minutes, max_cpu_minutes, started=started)
        resolved = training_config(
            source,
            _as_texts(overrides),
            plugins=named,
            device=world.device,
            budget=budget,
            overwrite=overwrite,
            warn=logger.warning if world.is_main else lambda line: None,
        )
        limits = build_limits(resolved, budget=budget)
        ending = run_training(resolved, world=world, limits=limits, cpu=cpu, overwrite=overwrite)
    number = ending.exit_code - 128
    if number in (signal.SIGTERM, signal.SIGHUP):  # which have asked the whole program to end
        signal.raise_signal(number)
    return outcome(Path(resolved.run_dir), ending)


def outcome(run: Path, ending: Ending) -> Training:
    """The result of a run, read from its files."""
    from nmt.files import is_file
    from nmt.interop import run_layout
    from nmt.training.logs import EVENTS, read_events

    events = read_events(run) if is_file(run / EVENTS) else []
    step = max((event.get("step") or 0 for event in events), default=0)
    best, best_step = run_layout.read_best(run), run_layout.best_step(run)
    scores = {} if best is None else {row.step: row.score for row in best.steps}
    of_kind: dict[str, list[dict[str, Any]]] = {"validation": [], "test": []}
    for event in events:
        of_kind.get(event["event"], []).append({key: value for key, value in event.items() if key != "event"})
    return Training(
        run,
        ending.reason,
        ending.finished,
        ending.exit_code == 128 + signal.SIGINT,
        step,
        best_step,
        best.metric if best is not None and best.steps else None,
        None if best_step is None else scores.get(best_step),
        of_kind["validation"][-1] if of_kind["validation"] else None,
        of_kind["test"],
    )


def plain(value: Any) -> Any:
    """A configuration in the form of a YAML file: paths as text, tuples as lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _as_texts(overrides: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """Overrides in the form of `--set`; JSON values are valid YAML."""
    if isinstance(overrides, str):
        return [overrides]
    if not isinstance(overrides, Mapping):
        return list(overrides)
    try:
        return [f"{key}={json.dumps(plain(value), allow_nan=False)}" for key, value in overrides.items()]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"overrides: {error}") from None


def training_config(
    path: str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    *,
    plugins: Sequence[str],
    device: torch.device,
    budget: Budget,
    overwrite: bool,
    warn: Callable[[str], None],
    dry: bool = False,
    only_shown: bool = False,
) -> Config:
    """Like `load_config`, with checks against this machine; a resumed run may lack text that it no longer needs.

    `budget`: how long training may take; `overwrite`: no run is resumed; `dry`: nothing is trained, so text may be
    missing; `only_shown`: the machine does not matter.

    Raises:
        ConfigError: all mistakes, one per line.
        DataError: the only mistakes are missing files.
    """

    from nmt.config import load_config
    from nmt.registry import STARTS
    from nmt.training import preflight

    def load(*checks: Check) -> Config:
        # Plugins are named in the saved configuration, so that loading the model can say what is missing.
        return load_config(path, overrides, plugins=plugins, checks=checks, is_begun=goes_on, add=added, warn=warn)

    def added(raw: dict[str, Any]) -> list[Problem]:
        found: list[Problem] = STARTS.get("model").settings(raw, overwrite=overwrite)
        return found

    def goes_on(config: Config) -> bool:
        return not overwrite and preflight.is_begun(config)

    def possible(config: Config) -> list[Problem]:
        return preflight.cannot_begin(config, device=device, budget=budget, dry=dry, resumes=goes_on(config))

    def kept(config: Config) -> Config:
        return preflight.as_begun(config, warn=warn) if goes_on(config) else config

    if only_shown:
        return load()
    replaced: list[Check] = [preflight.in_replaced_run] if overwrite else []
    try:
        return kept(load(possible, preflight.without_files, *replaced))
    except DataError:  # the only problem is missing files
        config = load(possible, *replaced)
        if not (dry or goes_on(config)):
            raise
        # A dry run says something without texts, too; a run that resumes needs neither these nor a new tokenizer.
        needed = partial(preflight.without_files, texts=False, tokenizer=not goes_on(config))
        return kept(load(possible, needed) if needed(config) else config)
