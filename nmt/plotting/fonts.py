"""Which installed fonts have the letters of a text, how wide it is, and letters that are in none of them."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from nmt.plotting.style import drawing

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
