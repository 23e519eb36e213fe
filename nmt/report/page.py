"""The page: a template with its style, script and data inside, and nothing that is fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from nmt import __version__
from nmt.errors import NmtError

_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""Could end the element that holds the data, or cannot be written in UTF-8."""


def require_jinja() -> None:
    """Raise NmtError, with what to do, where the template's language is not installed."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise NmtError("jinja2 is not installed; pip install 'nmt-recurrent[report]'") from None


def page(contents: Mapping[str, Any], data: Mapping[str, Any], *, curves: tuple[str, str], map_reason: str) -> str:
    """The whole page as HTML.

    Args:
        contents: see `nmt.report.contents`.
        data: what the script reads, see `Sentences.as_data`.
        curves: learning curves as SVG, for a wide page and for a phone; empty where there are none.
        map_reason: which sentences have maps; empty where none has.

    Raises:
        NmtError: jinja2 is not installed.
    """
    require_jinja()
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(_file("template.html")).render(
        **contents,
        style=Markup(_file("style.css")),
        script=Markup(_file("page.js")),
        data=Markup(as_script(data)),
        curves=[Markup(svg) for svg in curves if svg],
        maps=len(data["maps"]),
        map_reason=map_reason,
        version=__version__,
    )


def as_script(data: Mapping[str, Any]) -> str:
    """`data` as JSON that no text in it can end: what HTML or JavaScript could take for their own is escaped."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _file(name: str) -> str:
    return resources.files("nmt.report").joinpath("pages").joinpath(name).read_text(encoding="utf-8")
