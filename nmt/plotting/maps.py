"""Maps of attention and of what units remember."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.errors import ConfigError, counted, printable, refused
from nmt.plotting.curves import shortened
from nmt.plotting.style import COLOURS, GRID, INK, Page, drawing
from nmt.plotting.style import families as families_of
from nmt.plotting.style import width as width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Numbers = np.ndarray[Any, Any]
MEAN, ALL = "mean", "all"
_SELF = ".self"
"""What names of self-attention end with."""


def is_self(name: str) -> bool:
    """Whether a layer attends to its own side."""
    return name.endswith(_SELF)


def sharpest(attention: Mapping[str, Numbers]) -> str:
    """The layer attending to the source whose weights (the mean of its heads) have the least entropy."""
    to_source = {name: weights for name, weights in attention.items() if not is_self(name)}
    if not to_source:
        raise ConfigError("--layer: no layer of this model reports its attention to the source")
    return min(to_source, key=lambda name: _entropy(to_source[name].mean(0)))


def named(wanted: Sequence[str], known: Sequence[str], *, option: str) -> list[str]:
    """Those of `known` that are meant by names, or by beginnings of names such as `encoder` or `decoder.0`.

    A beginning means self-attention only where nothing else begins so. Raises ConfigError naming `option`.
    """
    found: dict[str, None] = {}
    for name in wanted:
        below = [other for other in known if other.startswith(f"{name}.")]
        others = [other for other in below if not is_self(other)] or below
        chosen = [name] if name in known else others
        if not chosen:
            allowed = known or "none, because this model reports no attention"
            raise ConfigError(refused(option, name, allowed, problem="is not known"))
        found |= dict.fromkeys(chosen)
    return list(found)


def of_heads(name: str, weights: Numbers, heads: str | tuple[int, ...]) -> tuple[list[str], list[Numbers]]:
    """Titles and maps of a layer's heads [heads, T, S]: their mean, all, or those of some numbers, from 1.

    Raises ConfigError for a number that the layer does not have.
    """
    count = len(weights)
    if heads == MEAN:
        return [name if count == 1 else f"{name}, mean of {count} heads"], [weights.mean(0)]
    numbers = range(1, count + 1) if isinstance(heads, str) else heads
    for number in numbers:
        if not 1 <= number <= count:
            raise ConfigError(f"--heads: {name} has {counted(count, 'head')}; {number} is not one of them")
    return [f"{name}, head {number}" for number in numbers], [weights[number - 1] for number in numbers]


def _entropy(weights: Numbers) -> float:
    """The mean over rows, in nats."""
    logarithms = np.log(np.where(weights > 0, weights, 1))
    return float(-(weights * logarithms).sum(-1).mean())


_CELL, _SMALL_CELL = 0.25, 0.16
"""Inches of a cell; smaller are those of several maps and of long sentences."""
_USUAL, _LONGEST = 7.0, 40.0
"""Inches of a map: up to the first cells shrink to small ones, beyond the second to what fits."""
_LETTERS = 8.5
"""Size of letters in points, where cells are not smaller."""
_FILLED = 0.8
"""Part of a cell that letters fill at most."""
_LONGEST_TOKEN = 28
_GAP = 0.1
"""Inches between parts of a picture."""
_LINE = 0.2
"""Inches of a line of text."""
_BAR, _HIGHEST_BAR, _BAR_ROOM = 0.12, 1.6, 0.7
_CAPTION_ROOM = 0.9
_TITLE, _CAPTION = 10, 8
"""Sizes of letters in points."""
_SHAPE = 1.6
"""How many times as wide as high several maps are together, about."""
_MOST_GRIDDED = 120
"""Tokens of a side up to which there are lines between cells."""
_SHADES = 256
_WORD, _SPACE = "\N{LOWER ONE EIGHTH BLOCK}", "\N{OPEN BOX}"


def attention_map(
    weights: np.ndarray[Any, Any],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    title: str = "",
    names: Sequence[str] | None = None,
    sides: tuple[str, str] = ("target", "source"),
) -> Figure:
    """A row for each target token, a column for each source token; the darker, the more attention.

    Args:
        weights: [T, S], or [heads, T, S] for a map of each head. Shades go from 0 to 1 in all.
        names: names of the heads; by default their numbers, from 1.
        sides: names of rows and columns.

    Raises NmtError where matplotlib is not installed.
    """
    maps = weights[None] if weights.ndim == 2 else weights
    if names is None:
        names = [""] if weights.ndim == 2 else [f"head {number}" for number in range(1, len(maps) + 1)]
    with drawing():
        return _figure(maps, target_tokens, source_tokens, sides=sides, title=title, names=names, most=1)


def memory_map(
    weights: np.ndarray[Any, Any],
    tokens: Sequence[str],
    *,
    title: str = "",
    names: Sequence[str] | None = None,
) -> Figure:
    """A row for the state at each token, a column for the token it remembers; the darker, the more of it.

    Args:
        weights: [N, N], or [units, N, N] for a map of each unit. Shades go from 0 to the largest of all.
        names: of the units.

    Raises NmtError where matplotlib is not installed.
    """
    maps = weights[None] if weights.ndim == 2 else weights
    most = float(np.nanmax(maps, initial=0)) or 1.0
    with drawing():
        sides = ("state at", "remembers")
        return _figure(maps, tokens, tokens, sides=sides, title=title, names=names or [""] * len(maps), most=most)


def _figure(
    maps: np.ndarray[Any, Any],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    sides: tuple[str, str],
    title: str,
    names: Sequence[str],
    most: float,
) -> Figure:
    """Maps in a grid, tokens at its left and top only; everything has its place in inches."""
    rows, columns = [_shown(token) for token in rows], [_shown(token) for token in columns]
    families = families_of([*rows, *columns, title, *names])
    longest = max(len(rows), len(columns))
    cell = _SMALL_CELL if len(maps) > 1 else min(_CELL, max(_SMALL_CELL, _USUAL / longest))
    cell = min(cell, _LONGEST / longest)
    size = min(_LETTERS, 72 * cell * _FILLED)
    wide, high = cell * len(columns), cell * len(rows)
    beside = _beside(len(maps), wanted=math.sqrt(_SHAPE * len(maps) * high / wide))
    below = math.ceil(len(maps) / beside)
    next_column, next_row = wide + _GAP, high + _GAP + (_LINE if any(names) else 0)
    heading = _LINE + _GAP if title else 0
    left = _LINE + _GAP + max(width_of(token, size, families) for token in rows)
    top = heading + _LINE + _GAP + max(width_of(token, size, families) for token in columns)
    right = left + beside * next_column + _GAP
    page = Page(
        width=max(right + _BAR_ROOM, width_of(title, _TITLE, families, weight="bold") + 2 * _GAP),
        height=top + max(below * next_row, _CAPTION_ROOM),
    )
    page.text(_GAP, _GAP, title, fontsize=_TITLE, fontweight="bold", fontfamily=families)
    page.text(left, heading + _GAP / 2, f"{sides[1]} \N{RIGHTWARDS ARROW}", fontsize=_CAPTION)
    page.text(_GAP / 2, top, f"\N{LEFTWARDS ARROW} {sides[0]}", fontsize=_CAPTION, rotation=90)
    shades = _shades()
    letters: dict[str, Any] = {"fontsize": size, "fontfamily": families, "parse_math": False}
    for number, (weights, name) in enumerate(zip(maps, names, strict=True)):
        row, column = divmod(number, beside)
        x, y = left + column * next_column, top + row * next_row
        axes = page.axes(x, y, wide, high)
        axes.imshow(weights, cmap=shades, vmin=0, vmax=most, interpolation="none", aspect="auto")
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.set_xticks(*((range(len(columns)), columns) if row == 0 else ([], [])), rotation=90, **letters)
        axes.set_yticks(*((range(len(rows)), rows) if column == 0 else ([], [])), **letters)
        _grid(axes, rows=len(rows), columns=len(columns))
        page.text(x, y + high + _GAP / 2, name, fontfamily=families)
    _bar(page.axes(right, top, _BAR, min(high, _HIGHEST_BAR)), shades, most)
    return page.figure


def _beside(count: int, *, wanted: float) -> int:
    """How many maps lie in a row: near to `wanted`, so that few places of the last row stay empty."""
    near = [n for n in range(1, count + 1) if 0.6 * wanted <= n <= 1.6 * wanted] or [1 if wanted < 1 else count]
    return min(near, key=lambda n: (-count % n, abs(n - wanted)))


def _grid(axes: Axes, *, rows: int, columns: int) -> None:
    """Lines between the cells and around them; too many would hide the cells."""
    for spine in axes.spines.values():
        spine.set(visible=True, alpha=2 * GRID)
    if max(rows, columns) <= _MOST_GRIDDED:
        axes.set_xticks(np.arange(0.5, columns - 1), minor=True)
        axes.set_yticks(np.arange(0.5, rows - 1), minor=True)
        axes.grid(which="minor", color=INK, alpha=GRID / 2, linewidth=0.5)
        axes.tick_params(which="minor", length=0)


def _bar(axes: Axes, shades: Any, most: float) -> None:
    """What the shades mean."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.imshow(
        np.linspace(most, 0, _SHADES)[:, None],
        cmap=shades,
        vmin=0,
        vmax=most,
        interpolation="none",
        aspect="auto",
        extent=(0, 1, 0, most),
    )
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 2.5, 5, 10)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(length=2)
    for spine in axes.spines.values():
        spine.set(visible=True, alpha=2 * GRID)


def _shades() -> Any:
    """One colour from invisible to opaque, so that what is behind, paper or a dark page, is zero."""
    from matplotlib.colors import ListedColormap, to_rgb

    red, green, blue = to_rgb(COLOURS[0])
    return ListedColormap([(red, green, blue, opacity) for opacity in np.linspace(0, 1, _SHADES)], name="opacity")


def _shown(token: str) -> str:
    """A token as a label; where a word begins, SentencePiece's heavy block becomes the sign for a space."""
    return shortened(printable(token.replace(_WORD, _SPACE)), _LONGEST_TOKEN)
