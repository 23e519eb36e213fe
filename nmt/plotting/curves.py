"""Logs of runs, and learning curves of them."""

from __future__ import annotations

import math
import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.errors import ConfigError, DataError, counted, missing, printable, refused
from nmt.files import is_file, is_folder
from nmt.interop.run_layout import EVENTS, read_log
from nmt.plotting.style import GRID, INK, LineStyle, drawing, line_styles, with_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    """Loss, each metric of the validation, both also of sets with names, learning rate, gradient norm and speed."""
    metrics = dict.fromkeys(name for log in logs for name in log.metrics())
    known = dict.fromkeys(key for log in logs for key in log.numbers())
    losses = [key for key in known if key.startswith("loss@")]
    panels = [panel_of(name) for name in ("loss", *losses, *metrics, *_OTHERS)]
    return [panel for panel in panels if panel.key in known]


def find_panels(names: Iterable[str], logs: Sequence[Log]) -> list[Panel]:
    """The panels of these names, or keys of the logs' events; ConfigError for one that no log has."""
    keys = dict.fromkeys(key for log in logs for key in log.numbers())
    named = {panel.key: panel.name for panel in _KNOWN.values()}
    known = [named.get(key, key) for key in keys]
    panels = list(dict.fromkeys(panel_of(named.get(name, name)) for name in names))
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


def panel_of(name: str) -> Panel:
    """The panel of a name, or of a key of the log, of which some are of one set, such as `bleu@NAME`."""
    first, at, text = name.partition("@")
    known = _KNOWN.get(first, Panel(first, first, first))
    return known._replace(name=name, key=f"{known.key}{at}{text}", title=f"{known.title}{at and ', '}{text}")


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


_WIDTH, _HEIGHT = 3.6, 2.5
"""Inches of a panel."""
_WIDTHS = {1: 6.5, 2: 8.4, 4: 8.4}
"""Inches of a picture of few panels, which are larger."""
_WIDEST = 6.0
"""Inches of a higher panel."""
_THIN, _THICK = 0.9, 1.7
"""Lines of training and validation, in points."""
_BEHIND = 0.7
"""Opacity of training's lines if validation's are drawn, too."""
_MARKS = 5
"""Markers on a line of training, about."""
_DENSEST = 25
"""Most points of a validation's line that all have their marker."""
_STEPS = (1, 2, 2.5, 5, 10)
"""Between ticks, times a power of ten."""
_FAR = 10
"""How many times the least value the largest must be for a scale to be logarithmic."""
_START = 0.05
"""Part of the axis in which the loss may leave the panel: it falls steeply there."""
_LETTER, _HANDLE = 0.075, 0.75
"""Inches that a letter of the legend takes, and the piece of line before it with the gap after it."""
_LEGEND_ROW = 0.19
_SHORTEST_LABEL = 12


def curves(
    logs: Sequence[Log],
    *,
    panels: Sequence[Panel] | None = None,
    axis: str = "updates",
    columns: int | None = None,
) -> Figure:
    """Learning curves of `logs`; thin lines with open markers show training, thick lines validation.

    Args:
        panels: see `find_panels`; by default `default_panels`.
        axis: one of AXES.
        columns: panels side by side, of 3.6 inches each (one column fits a phone); by default up to 3.

    Raises:
        DataError: there is nothing to draw.
        NmtError: matplotlib is not installed.
    """
    over = AXES[axis]
    chosen = list(default_panels(logs) if panels is None else panels)
    if not any(
        log.points(kind, panel.key, over) for log in logs for panel in chosen for kind in (TRAINING, VALIDATION)
    ):
        raise DataError(f"{', '.join(str(log.path) for log in logs)}: nothing to draw over {over.label}")
    with drawing():
        return _figure(logs, chosen, over, columns=columns)


def _figure(logs: Sequence[Log], panels: Sequence[Panel], axis: Axis, *, columns: int | None) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = _WIDTHS.get(len(panels), _WIDTH * 3) if columns is None else _WIDTH * columns
    columns = columns or {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    handles, labels = _legend(logs, panels)
    longest = max(_SHORTEST_LABEL, int((width - _HANDLE) / _LETTER))
    labels = [shortened(printable(label), longest) for label in labels]
    beside = max(1, min(len(labels), int(width / (_HANDLE + _LETTER * max(map(_columns, labels))))))
    row_height = 1.5 * _HEIGHT if width / columns > _WIDEST else _HEIGHT
    height = rows * row_height + math.ceil(len(labels) / beside) * _LEGEND_ROW
    figure = Figure(
        figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, hspace=0.04, wspace=0.02)
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    places = list(grid.flat)
    for place, panel in zip(places, panels, strict=False):
        _draw(place, panel, logs, axis)
    for place in places[len(panels) :]:
        place.set_visible(False)
    for place in places[max(0, len(panels) - columns) : len(panels)]:
        place.set_xlabel(axis.label)
    return with_legend(figure, handles, labels, beside=beside, columnspacing=1.6)


def _draw(place: Axes, panel: Panel, logs: Sequence[Log], axis: Axis) -> None:
    """One panel."""
    seen: list[Point] = []
    validated = {key for log in logs for event in log.events if event["event"] == VALIDATION for key in event}
    for number, (log, style) in enumerate(zip(logs, line_styles(len(logs)), strict=True)):
        for kind in (TRAINING, VALIDATION):
            points = log.points(kind, panel.key, axis)
            if not points:
                continue
            seen += [(x, y) for x, y in points if math.isfinite(y)]
            (line,) = place.plot([x for x, _ in points], [y for _, y in points], **_look(style, kind))
            line.set_alpha(_BEHIND if kind == TRAINING and panel.key in validated else 1)
            line.set_label(f"{log.label}, {kind}")
            line.set_markevery(_marked(len(points), kind, place=number / len(logs)))
    scale_axes(place, panel, seen)
    place.set_title(panel.title)
    place.set_title(panel.unit, loc="right", fontsize=8, fontweight="normal")
    place.grid(axis="y", color=INK, alpha=GRID, linewidth=0.7)


def _look(style: LineStyle, kind: str) -> dict[str, Any]:
    """Style of a line; validation is drawn over training."""
    is_training = kind == TRAINING
    return {
        "color": style.colour,
        "linestyle": style.dash,
        "linewidth": _THIN if is_training else _THICK,
        "marker": style.marker,
        "markersize": 3.6 if is_training else 4.6,
        "markeredgewidth": 0.9,
        "markerfacecolor": "none" if is_training else style.colour,
        "zorder": 2 if is_training else 3,
    }


def _marked(count: int, kind: str, *, place: float) -> tuple[int, int]:
    """First point with a marker, and how many further the next is; `place` of the run among others, from 0 to 1."""
    if kind == VALIDATION and count <= _DENSEST:
        return 0, 1
    every = max(1, count // _MARKS)
    return int(place * every), every


def scale_axes(place: Axes, panel: Panel, seen: Sequence[Point]) -> None:
    """Limits and ticks of a panel whose finite points are `seen`."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    place.xaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    place.xaxis.set_major_formatter(FuncFormatter(_shown))
    place.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    place.yaxis.set_major_formatter(FuncFormatter(_shown))
    if not seen:
        return
    last = max(x for x, _ in seen)
    place.set_xlim(0, last * 1.04 if last > 0 else 1)
    low, high = min(y for _, y in seen), max(y for _, y in seen)
    if panel.logarithmic and high > _FAR * low > 0:
        place.set_yscale("log")
        place.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        place.yaxis.set_minor_locator(NullLocator())
        place.yaxis.set_major_formatter(FuncFormatter(_shown))
    elif panel.name.partition("@")[0] == "loss":
        later = max((y for x, y in seen if x >= _START * last), default=high)
        room = 0.05 * (later - low) or 0.5
        place.set_ylim(low - room, later + room)
    elif panel.name in ("lr", "speed"):
        place.set_ylim(0, 1.05 * high or 1)
    elif low >= 0 > place.get_ylim()[0]:
        place.set_ylim(bottom=0)


def _shown(value: float, _: object = None) -> str:
    """A number at an axis."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}".replace("-", "\N{MINUS SIGN}")


def _legend(logs: Sequence[Log], panels: Sequence[Panel]) -> tuple[list[Any], list[str]]:
    """A piece of line for each run, then, where there are both, what lines of training and validation look like."""
    from matplotlib.lines import Line2D

    styles = line_styles(len(logs))
    handles = [Line2D([], [], **_look(style, VALIDATION)) for style in styles]
    labels = [log.label for log in logs]
    kinds = [
        kind
        for kind in (TRAINING, VALIDATION)
        if any(log.points(kind, panel.key, AXES["updates"]) for log in logs for panel in panels)
    ]
    if len(kinds) == 2:
        plain = LineStyle(INK, "-", "o")
        handles += [Line2D([], [], **_look(plain, kind)) for kind in kinds]
        labels += ["training", "validation"]
    return handles, labels


def shortened(text: str, longest: int) -> str:
    """`text` with its middle left out where it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    kept = longest - 1
    return f"{text[: kept // 2]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - (kept - kept // 2) :]}"


def _columns(text: str) -> int:
    """Letters of usual width that take as much room."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
