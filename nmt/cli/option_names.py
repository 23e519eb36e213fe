"""Messages about settings name the option of the command line that gave them."""

from __future__ import annotations

import argparse

from nmt.data.text import NotUtf8Error
from nmt.errors import NmtError, SettingError
from nmt.light.options import command_option

_SECTION = "decoding."
_OF_SEARCH = "search_options."


def option_of(name: str) -> str:
    """The option that gives the argument `name`."""
    return "--plugin" if name == "plugins" else command_option(name)


def worded(error: NmtError, arguments: argparse.Namespace) -> str:
    """The message of an error for the user of a command line.

    Each setting that was given as an option is called by that option, one of the saved configuration by its key.
    """
    if isinstance(error, SettingError):
        return error.said(lambda key: _given_as(key, arguments))
    if isinstance(error, NotUtf8Error) and hasattr(arguments, "errors"):
        return f"{error}, or see --errors"
    return str(error)


def _given_as(key: str, arguments: argparse.Namespace) -> str:
    name = key.removeprefix(_SECTION)
    if name.startswith(_OF_SEARCH):
        name = name.removeprefix(_OF_SEARCH)
        options = getattr(arguments, "search_options", None) or ()
        given = {text.partition("=")[0].strip() for text in options}
        return f"{option_of('search_options')} {name}" if name.partition(".")[0] in given else key
    return option_of(name) if getattr(arguments, name, None) not in (None, []) else key
