"""How all pictures look: colours, dashes, markers, fonts. Nothing of a user's matplotlibrc changes them."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from nmt.errors import NmtError

INK = "#1B1F24"
"""Text and axes; `as_svg` makes it the page's own colour, so nothing else has it."""
PAPER = "#FFFFFF"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Four colours of Okabe and Ito, distinguishable with all common kinds of colour blindness, contrast 3 on white and
dark."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GRID = 0.14
"""Opacity of the lines behind the curves."""

_SETTINGS: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.formatter.use_mathtext": False,
    "axes.labelcolor": INK,
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.unicode_minus": True,
    "figure.facecolor": PAPER,
    "font.size": 8.5,
    "font.family": ["DejaVu Sans"],
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "nmt",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
}


class LineStyle(NamedTuple):
    """The line style of one run."""

    colour: str
    dash: Any
    marker: str


def line_styles(count: int) -> list[LineStyle]:
    """Styles of `count` runs: without the colour 21 differ, with it 84; after these they repeat."""
    kinds = zip(itertools.cycle(COLOURS), itertools.cycle(DASHES), itertools.cycle(MARKERS), strict=False)
    return [LineStyle(*kind) for kind in itertools.islice(kinds, count)]


def check_installed() -> None:
    """Raise NmtError where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise NmtError("matplotlib is not installed; pip install 'nmt-recurrent[plot]'") from None


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """In the block matplotlib draws in this style. Raises NmtError where it is not installed."""
    check_installed()
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph ")  # see `nmt.plotting.fonts.font_remarks`
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams  # which some versions type by the name of each
        parameters.update(_SETTINGS)
        yield
