"""The data of learning curves: logs of runs, panels and axes, and messages about missing data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nmt.errors import ConfigError, DataError, counted, missing, refused
from nmt.files import is_file, is_folder
from nmt.interop.run_events import EVENTS, read_log

Point = tuple[float, float]
TRAINING, VALIDATION = "train", "validation"
"""Events of a log."""


class Axis(NamedTuple):
    """What curves are drawn over."""

    key: str
    """Key of an event of the log."""
    scale: float
    label: str
    """The counted quantity, in the plural; also used in remarks about logs without it."""


AXES = {
    "updates": Axis("step", 1, "updates"),
    "epochs": Axis("epoch", 1, "epochs"),
    "minutes": Axis("seconds", 1 / 60, "minutes of training"),
    "cpu": Axis("cpu_seconds", 1, "CPU seconds"),
}


class Panel(NamedTuple):
    """One small picture: a number of the log over the axis."""

    name: str
    key: str
    """Keys of the number in events of both kinds."""
    title: str
    unit: str = ""
    logarithmic: bool = False


_KNOWN = {
    panel.name: panel
    for panel in (
        Panel("loss", "loss", "Loss", "nats a target token"),
        Panel("perplexity", "perplexity", "Perplexity", logarithmic=True),
        Panel("bleu", "bleu", "BLEU"),
        Panel("chrf", "chrf", "chrF"),
        Panel("ter", "ter", "TER"),
        Panel("lr", "lr", "Learning rate"),
        Panel("norm", "grad_norm", "Gradient norm", logarithmic=True),
        Panel("speed", "target_tokens_per_second", "Speed", "target tokens/s"),
    )
}
_OTHERS = ("lr", "norm", "speed")
"""Panels after loss and metrics."""
_NO_CURVES = frozenset({"event", *(axis.key for axis in AXES.values())})


@dataclass(frozen=True, kw_only=True)
class Log:
    """What a run has logged."""

    path: Path
    """The log itself."""
    label: str
    events: tuple[dict[str, Any], ...]
    """Of training and validation, in their order, each step once."""
    damaged: int
    """Lines that cannot be read."""

    def points(self, kind: str, key: str, axis: Axis) -> list[Point]:
        """Positions on the axis and the numbers of `key` in events of a kind; NaN where the log has null.

        Events without the number, or without a position on the axis, are left out.
        """
        found = (event for event in self.events if event["event"] == kind and key in event)
        pairs = ((_number(event.get(axis.key)), event[key]) for event in found)
        return [
            (x * axis.scale, math.nan if y is None else float(y))
            for x, y in pairs
            if x is not None and (y is None or _number(y) is not None)
        ]

    def numbers(self) -> list[str]:
        """All numbers of its events."""
        found = dict.fromkeys(key for event in self.events for key in event if _number(event[key]) is not None)
        return [key for key in found if key not in _NO_CURVES]

    def metrics(self) -> list[str]:
        """The metrics of translations, in their order."""
        return list(dict.fromkeys(name for event in self.events for name in event.get("signatures") or ()))


def read_logs(runs: Sequence[str | Path], *, labels: Sequence[str] | None = None) -> list[Log]:
    """The logs of run directories, or of files log.jsonl; weights are not needed.

    Args:
        labels: one for each run; by default the name of its directory, with as much of the path as makes it unique.

    Raises:
        DataError: there is no such log. ConfigError: the numbers of labels and runs differ.
    """
    paths = [_log_of(Path(run)) for run in runs]
    if labels is not None and len(labels) != len(paths):
        raise ConfigError(
            f"--labels: {counted(len(labels), 'label')} for {counted(len(paths), 'run')}; give one for each"
        )
    return [_read(path, label) for path, label in zip(paths, labels or _names(paths), strict=True)]


def default_panels(logs: Sequence[Log]) -> list[Panel]:
    """Loss, each metric of the validation, learning rate, gradient norm and speed, as far as the logs have them."""
    metrics = dict.fromkeys(name for log in logs for name in log.metrics())
    known = {key for log in logs for key in log.numbers()}
    panels = [_panel(name) for name in ("loss", *metrics, *_OTHERS)]
    return [panel for panel in panels if panel.key in known]


def find_panels(names: Iterable[str], logs: Sequence[Log]) -> list[Panel]:
    """The panels of these names, or keys of the logs' events; ConfigError for one that no log has."""
    keys = dict.fromkeys(key for log in logs for key in log.numbers())
    named = {panel.key: panel.name for panel in _KNOWN.values()}
    known = [named.get(key, key) for key in keys]
    panels = list(dict.fromkeys(_panel(named.get(name, name)) for name in names))
    for panel in panels:
        if panel.key not in keys:
            raise ConfigError(refused("--panels", panel.name, known, problem="is in no log"))
    return panels


def remarks(logs: Sequence[Log], panels: Sequence[Panel], axis: Axis) -> list[str]:
    """What of the logs is not in their curves, one line for each log and reason."""
    found = []
    for log in logs:
        if log.damaged:
            found.append(f"{log.path}: left out {counted(log.damaged, 'damaged line')}")
        without = [event for event in log.events if _number(event.get(axis.key)) is None]
        if without:
            found.append(f"{log.path}: left out {counted(len(without), 'event')} without {axis.label}")
        keys = log.numbers()
        missing = [panel.name for panel in panels if panel.key not in keys]
        if missing:
            found.append(f"{log.path}: has no {', '.join(missing)}")
        training = [event for event in log.events if event["event"] == TRAINING and "loss" in event]
        if training and all("objective" not in event for event in training):
            found.append(f"{log.path}: is of version 0.1, whose training loss includes label smoothing")
    return found


def _panel(name: str) -> Panel:
    return _KNOWN.get(name) or Panel(name, name, name)


def _log_of(run: Path) -> Path:
    path = run / EVENTS if is_folder(run) else run
    if not is_file(path):
        wanted = f"is {run} a run directory?" if path != run else "give a run directory, or its log.jsonl"
        raise DataError(missing(path, wanted))
    return path


def _read(path: Path, label: str) -> Log:
    """A log; lines of steps that were repeated later are dropped."""
    events, damaged = read_log(path)
    kept: list[dict[str, Any]] = []
    for event in events:
        step = _number(event.get("step"))
        if step is None:
            damaged += 1
            continue
        while kept and kept[-1]["step"] > step:
            kept.pop()
        if event["event"] in (TRAINING, VALIDATION):
            kept.append(event)
    return Log(path=path, label=label, events=tuple(kept), damaged=damaged)


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the runs' directories that differ; of the same run the same."""
    folders = [Path(os.path.abspath(path)).parent.parts for path in paths]
    names = []
    for parts in folders:
        others = [other for other in folders if other != parts]
        length = next(n for n in range(1, len(parts) + 1) if all(other[-n:] != parts[-n:] for other in others))
        names.append("/".join(parts[-length:]).replace("//", "/"))
    return names


def _number(value: Any) -> float | None:
    """`value` where it is a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # of a whole number
        return None
    return number if math.isfinite(number) else None
