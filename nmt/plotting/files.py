"""Pictures as files and as parts of pages: the same picture gives the same bytes, without date and random names."""

from __future__ import annotations

import io
import re
from pathlib import PurePath
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from nmt.errors import ConfigError
from nmt.plotting.style import INK, PAPER, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg")
_DOTS = 150
"""Dots per inch of a PNG."""
_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"
_HREF = f"{{{_LINK}}}href"
_LINES = "stroke-linejoin:round;stroke-linecap:butt"
"""What matplotlib has as a rule for all elements, which in a page would be a rule for the page."""
_FONTS = re.compile(r"font-family: [^;]*(; )?")


def check_ending(path: str) -> str:
    """`.png` or `.svg`, as `path` ends; ConfigError for another ending."""
    ending = PurePath(path).suffix.lower()
    if ending not in ENDINGS:
        raise ConfigError(f"{path}: ends in neither .png nor .svg, the two kinds of pictures that can be written")
    return ending


def picture(figure: Figure, ending: str) -> bytes:
    """The content of a file: a PNG of 150 dots an inch, or an SVG whose text is text, both on white."""
    if ending == ".png":
        stream = io.BytesIO()
        with drawing():
            figure.savefig(stream, format="png", dpi=_DOTS, facecolor=PAPER, metadata={"Software": None})
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
