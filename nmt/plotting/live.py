"""Live translation: when which word was written, and quality against lag."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nmt.errors import ConfigError, DataError, missing, printable, refused
from nmt.files import is_file, naming
from nmt.plotting.curves import shortened
from nmt.plotting.style import COLOURS, GRID, INK, Page, drawing, families, line_styles, width, with_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAGS: Final = {
    "AL": "average lagging (AL), words",
    "LAAL": "length-adaptive average lagging (LAAL), words",
    "AP": "part of the source that has been read (AP)",
    "DAL": "differentiable average lagging (DAL), words",
    "ms": "CPU milliseconds for a word of the source",
}
"""What curves are drawn over, by the names that nmt-eval gives them."""
WHOLE: Final = "whole lines"
"""What nmt-eval calls translations that wait for the end."""
_LETTERS, _TITLE = 8.5, 10
"""Sizes of letters in points."""
_GAP, _LINE = 0.1, 0.2
"""Inches between parts, and of a line of text."""
_WIDEST = 9.0
"""Inches of the words that are side by side."""
_BLOCK = 1.5
"""Inches of the words that are written at once, where they have several lines."""
_LONGEST_WORD, _NARROW = 28, 30
"""Letters of a word, and of the names in a legend of two columns."""
_READ: Final = "read"


class Written(NamedTuple):
    """A translation and its time."""

    words: Sequence[str]
    delays: Sequence[int]
    """For each word how many of the source had been read when it was written."""


def timeline(source: Sequence[str], rows: Mapping[str, Written], *, title: str = "") -> Figure:
    """Time from left to right, a column for each word of the source, and below it what each policy wrote then.

    Args:
        source: the words that were read.
        rows: what was written, by the names of policies.

    Raises NmtError where matplotlib is not installed.
    """
    with drawing():
        fonts = families([*source, *(word for row in rows.values() for word in row.words), *rows, title])
        heard = [shortened(printable(word), _LONGEST_WORD) for word in source]
        cells = {name: _cells(row, columns=len(heard), fonts=fonts) for name, row in rows.items()}
        wide = []
        for place, word in enumerate(heard):
            own = [word, *(line for row in cells.values() for line in row[place])]
            wide.append(2 * _GAP + max(width(line, _LETTERS, fonts) for line in own))
        left = 2 * _GAP + max(width(name, _LETTERS, fonts, weight="bold") for name in (_READ, *rows))
        bands = [*_bands(wide)]
        high = {
            (first, name): _GAP + _LINE * max(1, *map(len, row[first:last]))
            for first, last in bands
            for name, row in cells.items()
        }
        tall = [_LINE + _GAP + sum(high[first, name] for name in cells) for first, _ in bands]
        heading = _LINE + 2 * _GAP if title else _GAP
        page = Page(
            width=2 * _GAP
            + max(left + max(sum(wide[slice(*band)]) for band in bands), width(title, _TITLE, fonts, weight="bold")),
            height=heading + sum(tall) + _LINE * len(bands),
        )
        page.text(_GAP, _GAP, title, fontsize=_TITLE, fontweight="bold", fontfamily=fonts)
        letters: dict[str, Any] = {"fontsize": _LETTERS, "fontfamily": fonts}
        y = heading
        for (first, last), height in zip(bands, tall, strict=True):
            edges = [sum(wide[first:place]) for place in range(first, last + 1)]
            axes = page.axes(left, y, edges[-1], height)
            axes.axis("off")
            axes.set(xlim=(0, edges[-1]), ylim=(0, height))
            for edge in edges:
                axes.axvline(edge, color=INK, alpha=GRID, linewidth=0.7)
            axes.axhline(height - _LINE, color=INK, alpha=2 * GRID, linewidth=0.7)
            page.text(_GAP, y, _READ, fontweight="bold", **letters)
            for x, word in zip(edges, heard[first:last], strict=False):
                page.text(left + x + _GAP, y, word, **letters)
            below = y + _LINE + _GAP / 2
            for number, (name, row) in enumerate(cells.items()):
                look = {"color": COLOURS[number % len(COLOURS)], **letters}
                page.text(_GAP, below, name, fontweight="bold", **look)
                for x, lines in zip(edges, row[first:last], strict=False):
                    for place, line in enumerate(lines):
                        page.text(left + x + _GAP, below + place * _LINE, line, **look)
                below += high[first, name]
            y += height + _LINE
        return page.figure


def _cells(row: Written, *, columns: int, fonts: Sequence[str]) -> list[list[str]]:
    """The lines of text of each column: what was written then."""
    cells: list[list[str]] = [[] for _ in range(columns)]
    for word, delay in zip(row.words, row.delays, strict=True):
        lines, word = cells[delay - 1], shortened(printable(word), _LONGEST_WORD)
        if lines and width(f"{lines[-1]} {word}", _LETTERS, fonts) <= _BLOCK:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return cells


def _bands(wide: Sequence[float]) -> Iterator[tuple[int, int]]:
    """The first column, and that after the last, of each part that is not too wide."""
    first, total = 0, 0.0
    for place, own in enumerate(wide):
        if total + own > _WIDEST and place > first:
            yield first, place
            first, total = place, 0.0
        total += own
    yield first, len(wide)


class Measured(NamedTuple):
    """What nmt-eval has measured of one policy with its options."""

    name: str
    values: Mapping[str, float]
    """By the names of metrics, of lag and `ms`."""

    @property
    def policy(self) -> str:
        """Without its options."""
        return self.name.split(",")[0]

    @property
    def options(self) -> str:
        """The values of its options, such as `3`."""
        return ",".join(part.partition("=")[2] for part in self.name.split(",")[1:])


def read_measured(path: str) -> list[Measured]:
    """What `nmt-eval --live ... --format json` has written into a file; DataError for another."""
    if not is_file(Path(path)):
        raise DataError(missing(path))
    with naming(path):
        text = Path(path).read_bytes()
    try:
        found = [
            Measured(system["system"], {one["name"]: float(one["score"]) for one in system["metrics"]})
            for system in json.loads(text)
        ]
    except (ValueError, TypeError, KeyError):
        found = []
    if not found or any("AL" not in one.values for one in found):
        raise DataError(f"{path}: is not what nmt-eval --live writes with --format json")
    return found


def lag_curves(results: Mapping[str, Sequence[Measured]], *, axis: str = "AL", metric: str = "BLEU") -> Figure:
    """Quality against lag: a line for each policy of each result, through its options, which are at the points.

    A dashed line is the quality of whole lines, in the colour of the first policy of the same result.

    Args:
        results: what was measured, by names for the legend, of which one alone is not shown.
        axis: one of `LAGS`.
        metric: BLEU, chrF2, ...

    Raises ConfigError for a metric that is not in all results, NmtError where matplotlib is not installed.
    """
    for name, found in results.items():
        known = [key for key in found[0].values if key not in LAGS]
        if metric not in known:
            raise ConfigError(refused("--metric", metric, known, problem=f"is not in {name}"))
    lines: dict[tuple[str, str], list[Measured]] = {}
    for name, found in results.items():
        for one in found:
            lines.setdefault((name, one.policy), []).append(one)
    labels = [f"{name}, {policy}" if len(results) > 1 else policy for name, policy in lines]
    with drawing():
        from matplotlib.figure import Figure

        beside = 1 if max(map(len, labels)) > _NARROW else 2
        figure = Figure(figsize=(6.5, 3.8 + _LINE * math.ceil(len(lines) / beside)), layout="constrained")
        place = figure.add_subplot()
        styles = iter(line_styles(len(lines)))
        colours: dict[str, str] = {}
        handles = []
        for (name, policy), found in lines.items():
            if policy == WHOLE:
                value, colour = found[0].values[metric], colours.get(name, INK)
                handles.append(place.axhline(value, color=colour, linestyle=(0, (5, 3)), linewidth=1.2))
                continue
            style = next(styles)
            colours.setdefault(name, style.colour)
            points = sorted((one.values[axis], one.values[metric], one.options) for one in found)
            (line,) = place.plot(
                [x for x, _, _ in points],
                [y for _, y, _ in points],
                color=style.colour,
                marker=style.marker,
                markersize=4.6,
                linewidth=1.6,
            )
            handles.append(line)
            for x, y, options in points:
                place.annotate(
                    options, (x, y), xytext=(4, -9), textcoords="offset points", fontsize=7.5, color=style.colour
                )
        place.set_title(metric)
        place.set_xlabel(LAGS[axis])
        place.grid(axis="y", color=INK, alpha=GRID, linewidth=0.7)
        return with_legend(figure, handles, labels, beside=beside)
