"""The report of an error raised by a plugin: its file and line, and the component that was running."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from types import FrameType

from nmt.registry import registrations

PREFIX = "nmt_plugin_"
"""Begins the names of the modules that plugins are."""


def plugin_error(error: BaseException) -> str | None:
    """`FILE, line N, in FUNCTION (KIND 'NAME'): TYPE: MESSAGE` for an error raised in a plugin, or below it; else None.

    The line is the innermost one of a plugin. The component is the innermost one of that plugin that was at work.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(frame, line) for frame, line in frames if _module(frame).startswith(PREFIX)]
    if not own:
        return None
    frame, line = own[-1]
    name = frame.f_code.co_name
    function = "" if name.startswith("<") else f", in {name}"
    component = next(_components((frame for frame, _ in reversed(frames)), module=_module(frame)), None)
    named = "" if component is None else f" ({component})"
    return f"{shown_path(frame.f_code.co_filename)}, line {line}{function}{named}: {worded(error)}"


def import_line(error: BaseException, *, module: str, path: str) -> int | None:
    """The line of a plugin at which its import failed, if it came so far."""
    if isinstance(error, SyntaxError) and error.filename is not None and os.path.samefile(error.filename, path):
        return error.lineno
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if _module(frame) == module]
    return lines[-1] if lines else None


def worded(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    text = error.msg if isinstance(error, SyntaxError) else str(error).strip()
    first = text.split("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def shown_path(path: str) -> str:
    """A path as a user of this directory would write it."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _components(frames: Iterator[FrameType], *, module: str) -> Iterator[str]:
    """The registered components of a module whose methods these frames run, by kind and name."""
    for frame in frames:
        found = frame.f_locals.get("self", frame.f_locals.get("cls"))
        kind = found if isinstance(found, type) else type(found)
        for registry, name, member in registrations():
            is_it = member in kind.__mro__ or getattr(member, "__code__", None) is frame.f_code
            if is_it and getattr(member, "__module__", None) == module:
                yield registry.described(name)
