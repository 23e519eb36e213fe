"""How all pictures look and become files: colours, dashes, markers, fonts, formats."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from nmt.errors import ConfigError, NmtError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    "pdf.fonttype": 42,
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
        warnings.filterwarnings("ignore", message="Glyph ")  # see `nmt.plotting.style.font_remarks`
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams  # which some versions type by the name of each
        parameters.update(_SETTINGS)
        yield


class Page:
    """A picture with positions in inches from the left and the top."""

    def __init__(self, *, width: float, height: float) -> None:
        from matplotlib.figure import Figure

        self._width, self._height = width, height
        self.figure = Figure(figsize=(width, height))

    def axes(self, x: float, y: float, wide: float, high: float) -> Axes:
        """New axes whose left upper corner is at `x` and `y`."""
        box = (x / self._width, 1 - (y + high) / self._height, wide / self._width, high / self._height)
        return self.figure.add_axes(box)

    def text(self, x: float, y: float, text: str, **look: Any) -> None:
        """Text, if there is any, whose left upper corner is at `x` and `y`."""
        if text:
            self.figure.text(x / self._width, 1 - y / self._height, text, va="top", **look)


def with_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], *, beside: int, **look: Any) -> Figure:
    """The figure with a legend below, so many names in a row, and its layout fixed, so that the order of writing files
    does not matter. `labels` are as they are shown."""
    legend = figure.legend(handles, [""] * len(labels), loc="outside lower left", ncols=beside, handlelength=4, **look)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_fontfamily(families(labels))
        text.set_text(label)  # not given above, because a label that begins with _ would be left out
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


FONT = "DejaVu Sans"
"""Comes with matplotlib."""
_UNFIT = ("Last Resort", "STIX", "cm", "DejaVu Math")
"""Fonts of boxes, and of formulas."""
_SHAPES = (3, 11)
"""The version of matplotlib that puts letters of right-to-left scripts in order and joins them."""
_ROUNDED = 1.06
"""Letters in a PNG are whole dots wide, words up to so many times as wide as drawn."""
_NAMED = 12
"""Missing letters that a remark names."""


def families(texts: Iterable[str]) -> list[str]:
    """Fonts that have the letters of `texts`, as far as any has: the usual one and others that are needed."""
    return _chosen(frozenset("".join(texts)))[0]


def width(text: str, size: float, fonts: Sequence[str], *, weight: str = "normal") -> float:
    """Inches that `text` takes in letters of `size` points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    properties = FontProperties(family=fonts, size=size, weight=weight)
    found: float = text_to_path.get_text_width_height_descent(text, properties, False)[0]
    return _ROUNDED * found / 72


def font_remarks(texts: Iterable[str], *, ending: str) -> list[str]:
    """What will not look right in a picture with `texts`, a line for each reason; an SVG is shown in others' fonts."""
    import matplotlib

    letters = frozenset("".join(texts))
    if ending == ".svg":
        return []
    remarks = []
    with drawing():
        missing = _chosen(letters)[1]
    if missing:
        named = " ".join(missing[:_NAMED]) + (" ..." if len(missing) > _NAMED else "")
        remarks.append(
            f"no installed font has {named}, drawn as boxes; install one, such as Noto Sans CJK, or write an .svg, "
            "which is shown in the fonts of its reader"
        )
    if matplotlib.__version_info__[:2] < _SHAPES and any(map(_from_the_right, letters)):
        remarks.append(
            f"matplotlib {matplotlib.__version__} draws words of right-to-left scripts in the wrong order; 3.11 "
            "does not, nor do readers of an .svg"
        )
    return remarks


def _from_the_right(letter: str) -> bool:
    return unicodedata.bidirectional(letter) in ("R", "AL")


@cache
def _chosen(letters: frozenset[str]) -> tuple[list[str], list[str]]:
    """Fonts, and the letters that none has."""
    missing = [letter for letter in sorted(letters) if letter.isprintable() and not letter.isspace()]
    fonts = [FONT]
    for name, known in _fonts():
        if not missing:
            break
        left = [letter for letter in missing if ord(letter) not in known]
        if len(left) < len(missing) and name != FONT:
            fonts.append(name)
        missing = left
    return fonts, missing


def _fonts() -> Iterator[tuple[str, frozenset[int]]]:
    """Upright fonts of usual weight with the characters they have, read as they are asked for; the usual one first."""
    from matplotlib.font_manager import fontManager, get_font

    entries = {
        entry.name: entry.fname
        for entry in fontManager.ttflist
        if entry.style == "normal" and entry.weight in (400, "normal") and not entry.name.startswith(_UNFIT)
    }
    for name in sorted(entries, key=lambda name: (name != FONT, not name.startswith("Noto Sans"), name)):
        with contextlib.suppress(OSError, RuntimeError):  # a font that cannot be read is as good as none
            yield name, frozenset(get_font(entries[name]).get_charmap())


ENDINGS = (".png", ".svg", ".pdf")
_DOTS = 150
"""Dots per inch of a PNG."""
_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"
_HREF = f"{{{_LINK}}}href"
_LINES = "stroke-linejoin:round;stroke-linecap:butt"
"""What matplotlib has as a rule for all elements, which in a page would be a rule for the page."""
_FONTS = re.compile(r"font-family: [^;]*(; )?")


def check_ending(path: str) -> str:
    """One of ENDINGS, as `path` ends; ConfigError for another one."""
    ending = PurePath(path).suffix.lower()
    if ending not in ENDINGS:
        raise ConfigError(f"{path}: ends in none of {', '.join(ENDINGS)}, the kinds of pictures that can be written")
    return ending


def picture(figure: Figure, ending: str) -> bytes:
    """The content of a file: a PNG of 150 dots an inch, or an SVG or PDF whose text is text, all on white."""
    if ending != ".svg":
        stream, nothing = io.BytesIO(), ("Software",) if ending == ".png" else ("Creator", "Producer", "CreationDate")
        with drawing():
            figure.savefig(stream, format=ending[1:], dpi=_DOTS, facecolor=PAPER, metadata=dict.fromkeys(nothing))
        return stream.getvalue()
    root = _svg(figure, background=PAPER)
    root.set("style", _LINES)
    for text in root.iter(f"{{{_SVG}}}text"):
        # For readers without the first of these fonts.
        text.set("style", text.get("style", "").replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif"))
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def as_svg(figure: Figure, *, name: str = "plot", title: str | None = None) -> str:
    """An SVG to put into a page: text and axes have the page's colour, text its font, and there is no background.

    It fills the width of its place, up to the width of the picture, and refers to nothing outside itself.

    Args:
        name: prefix of all ids; different for each SVG of a page.
        title: description for readers who cannot see the picture.
    """
    root = _svg(figure, background="none")
    width = float(root.attrib.pop("width").removesuffix("pt"))
    del root.attrib["height"]
    root.set("style", f"display:block;width:100%;max-width:{width / 72:.2f}in;height:auto;{_LINES}")
    root.set("role", "img")
    if title is not None:
        root.set("aria-label", title)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _of_page(key, value, name=name))
    return ElementTree.tostring(root, encoding="unicode")


def _of_page(key: str, value: str, *, name: str) -> str:
    """An attribute as a page needs it."""
    if key == "id":
        return f"{name}-{value}"
    if key == _HREF:
        return f"#{name}-{value[1:]}" if value.startswith("#") else value
    if key == "style":
        value = _FONTS.sub("", re.sub(INK, "currentColor", value, flags=re.IGNORECASE))
    return value.replace("url(#", f"url(#{name}-")


def _svg(figure: Figure, *, background: str) -> ElementTree.Element:
    """The parsed SVG, without a document type, metadata, and rules of style."""
    for prefix, namespace in (("", _SVG), ("xlink", _LINK)):
        ElementTree.register_namespace(prefix, namespace)
    stream = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with drawing():
        figure.savefig(stream, format="svg", facecolor=background, metadata=nothing)
    root = ElementTree.fromstring(stream.getvalue())
    for parent in list(root.iter()):
        for rules in parent.findall(f"{{{_SVG}}}style") + parent.findall(f"{{{_SVG}}}metadata"):
            parent.remove(rules)
    return root
