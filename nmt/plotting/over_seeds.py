"""Systems that were trained with several seeds: learning curves with bands, and scores over what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.errors import DataError, printable
from nmt.plotting.curves import AXES, Axis, Point, panel_of, scale_axes, shortened
from nmt.plotting.style import GRID, INK, LineStyle, drawing, line_styles, with_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = Sequence[Mapping[str, Any]]
"""The validations of a run: places and scores."""
_WIDTH, _HEIGHT = 4.2, 3.0
"""Inches of a panel."""
_LEGEND_ROW = 0.19
_LETTER, _HANDLE = 0.075, 0.75
"""Inches that a letter of the legend takes, and the piece of line before it with the gap after it."""
_LONGEST_LABEL = 60
_BAND = 0.18
"""Opacity of a band."""
_NO_SCORES = {"perplexity", *(axis.key for axis in AXES.values())}


def bands(systems: Mapping[str, Sequence[Curve]], *, axis: str = "updates") -> Figure:
    """A panel for the loss and for each metric: for each system the mean over its runs, and the range that they fill.

    Between its validations a run is a straight line, as runs may be validated at different places; mean and band
    cover the part of the axis that all runs of the system have. A single run has no band, and runs that have no part in
    common are drawn as thin lines.

    Args:
        systems: the runs of each system by its name.
        axis: one of AXES.

    Raises:
        DataError: there is nothing to draw.
        NmtError: matplotlib is not installed.
    """
    keys = dict.fromkeys(key for runs in systems.values() for run in runs for event in run for key in event)
    lines = {
        key: {name: [_points(run, key, AXES[axis]) for run in runs] for name, runs in systems.items()}
        for key in keys
        if key not in _NO_SCORES
    }
    lines = {key: own for key, own in lines.items() if any(any(runs) for runs in own.values())}
    if not lines:
        raise DataError(f"{', '.join(systems)}: no validation to draw over {AXES[axis].label}")

    def draw(places: Sequence[Axes], styles: Mapping[str, LineStyle]) -> None:
        for place, (key, own) in zip(places, lines.items(), strict=True):
            seen: list[Point] = []
            for name, runs in own.items():
                runs = [run for run in runs if run]
                if not runs:
                    continue
                style = styles[name]
                x, rows = _joined(runs)
                mean = rows.mean(0)
                seen += [
                    *zip(x.tolist(), rows.min(0).tolist(), strict=True),
                    *zip(x, rows.max(0).tolist(), strict=True),
                ]
                look: dict[str, Any] = {"color": style.colour, "linestyle": style.dash, "marker": style.marker}
                every = max(1, len(x) // 8)
                place.plot(x, mean, linewidth=1.7, markersize=4.6, markevery=every, label=name, **look)
                if len(runs) > 1:
                    place.fill_between(x, rows.min(0), rows.max(0), color=style.colour, alpha=_BAND, linewidth=0)
            panel = panel_of(key)
            scale_axes(place, panel, seen)
            place.set_title(panel.title)
            place.set_title(panel.unit, loc="right", fontsize=8, fontweight="normal")
            place.set_xlabel(AXES[axis].label)
            place.grid(axis="y", color=INK, alpha=GRID, linewidth=0.7)

    return _figure(list(systems), len(lines), draw)


def scatter(systems: Mapping[str, Sequence[Point]], *, x: str, y: str) -> Figure:
    """The runs of each system as small open marks, their mean as a large one.

    Args:
        systems: cost and score of each run, by the name of its system; one without runs is left out.
        x: what the horizontal axis shows.
        y: what the vertical axis shows.

    Raises:
        DataError: there is nothing to draw.
        NmtError: matplotlib is not installed.
    """
    drawn = {name: points for name, points in systems.items() if points}
    if not drawn:
        raise DataError(f"no run has both {x} and {y}")

    def draw(places: Sequence[Axes], styles: Mapping[str, LineStyle]) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        (place,) = places
        for name, points in drawn.items():
            style, table = styles[name], np.array(points, dtype=float)
            if len(points) > 1:
                own: dict[str, Any] = {
                    "marker": style.marker,
                    "facecolors": "none",
                    "edgecolors": style.colour,
                    "linewidths": 0.9,
                }
                place.scatter(table[:, 0], table[:, 1], s=16, **own)
            x_mean, y_mean = table.mean(0)
            place.scatter(x_mean, y_mean, s=44, marker=style.marker, color=style.colour, label=name)
        place.xaxis.set_major_locator(MaxNLocator(5))
        place.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        place.set_xlabel(x)
        place.set_title(y)
        place.grid(color=INK, alpha=GRID, linewidth=0.7)
        place.margins(0.08)

    return _figure(list(drawn), 1, draw, line="None")


def _points(run: Curve, key: str, axis: Axis) -> list[Point]:
    """Place and value of each validation, in the order of the places; values that are not finite are left out."""
    pairs = [(event.get(axis.key), event.get(key)) for event in run]
    found = [(float(x) * axis.scale, float(y)) for x, y in pairs if x is not None and y is not None]
    return sorted(pair for pair in found if all(map(math.isfinite, pair)))


def _joined(runs: Sequence[Sequence[Point]]) -> tuple[Any, Any]:
    """Places that all runs reach, [X], none where they have no part in common; the value of each run there, [R, X]."""
    first, last = max(run[0][0] for run in runs), min(run[-1][0] for run in runs)
    places = np.array(sorted({x for run in runs for x, _ in run if first <= x <= last}))
    rows = [np.interp(places, [x for x, _ in run], [y for _, y in run]) for run in runs]
    return places, np.array(rows)


def _figure(
    names: Sequence[str],
    panels: int,
    draw: Callable[[Sequence[Axes], Mapping[str, LineStyle]], None],
    *,
    line: Any = None,
) -> Figure:
    """Panels side by side, two in a row, and the legend below them."""
    with drawing():
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
        from matplotlib.lines import Line2D

        columns = min(panels, 2)
        rows, width = math.ceil(panels / columns), _WIDTH * max(columns, 1.4)
        labels = [shortened(printable(name), _LONGEST_LABEL) for name in names]
        beside = max(1, min(len(labels), int(width / (_HANDLE + _LETTER * max(map(len, labels))))))
        figure = Figure(
            figsize=(width, rows * _HEIGHT + math.ceil(len(labels) / beside) * _LEGEND_ROW),
            layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, hspace=0.04, wspace=0.02),
        )
        places = list(figure.subplots(rows, columns, squeeze=False).flat)
        for unused in places[panels:]:
            unused.remove()
        styles = dict(zip(names, line_styles(len(names)), strict=True))
        draw(places[:panels], styles)
        handles = [
            Line2D([], [], color=own.colour, linestyle=line or own.dash, marker=own.marker) for own in styles.values()
        ]
        return with_legend(figure, handles, labels, beside=beside, columnspacing=1.6)
