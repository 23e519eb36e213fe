"""`nmt-translate --live`: text as it arrives on a pipe, and its translation as soon as it is sure."""

from __future__ import annotations

import argparse
import codecs
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from nmt.cli.arguments import given
from nmt.cli.common import say
from nmt.cli.output import check_reader
from nmt.errors import ConfigError, DataError, counted, missing
from nmt.library.loading import load
from nmt.registry import PIPES

_STDIN, _SIZE = 0, 1 << 16
_OTHERS: Final = {
    "format": "text",
    "input_format": "text",
    "output": None,
    "prefix": None,
    "constraints": None,
    "alignment": None,
    "details": (),
    "n_best": None,
}
"""Options that live translation does not have, and what they are where they are not given."""


@PIPES.register("live")
def translate_pipe(arguments: argparse.Namespace) -> int:
    """Translate the input; each line is a session of its own, and has one line of output.

    Raises ConfigError for an option that does not go together with `--live`, DataError for what is no text.
    """
    for name, usual in _OTHERS.items():
        if getattr(arguments, name) != usual:
            raise ConfigError(f"--{name.replace('_', '-')}: does not go together with --live")
    if arguments.errors == "empty":
        raise ConfigError("--errors empty: does not go together with --live. Allowed: strict, replace.")
    policy, *rest = arguments.live.split(",")
    options = dict(_option(text) for text in rest)
    started, lines = time.perf_counter(), 0
    with load(
        arguments.models,
        device=arguments.device,
        precision=arguments.precision or "auto",
        checkpoint=arguments.checkpoint,
        plugins=arguments.plugins,
    ) as translator:
        search = {name: value for name, value in given(arguments).items() if name != "precision"}
        session: Any = translator.live(policy, **options, **search)
        is_open = False
        for text in _text(arguments.input, arguments.errors):
            for place, part in enumerate(text.split("\n")):
                if place:
                    _tell(session.end() + "\n")
                    session, is_open, lines = translator.live(policy, **options, **search), False, lines + 1
                if part:
                    is_open = True
                    _tell(session.feed(part))
        if is_open:
            _tell(session.end() + "\n")
            lines += 1
    if not arguments.quiet:
        say("nmt-translate", f"{counted(lines, 'line')} live by {policy} in {time.perf_counter() - started:.1f} s")
    return 0


def _option(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"--live: {text!r} is not an option of the policy, such as wait=3")
    return name, int(value) if value.isdigit() else value


def _tell(text: str) -> None:
    check_reader(sys.stdout.buffer)  # so that nothing is translated after `| head` has ended
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def _text(path: str | None, errors: str) -> Iterator[str]:
    """The input, in pieces that end wherever the sender has paused; a part of a character waits for its rest."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors)
    name = "standard input" if path in (None, "-") else path
    try:
        handle = _STDIN if path in (None, "-") else os.open(str(path), os.O_RDONLY)
    except FileNotFoundError:
        raise DataError(missing(name)) from None
    try:
        while True:
            block = os.read(handle, _SIZE)
            yield decoder.decode(block, final=not block).replace("\r\n", "\n")
            if not block:
                return
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: byte 0x{error.object[error.start]:02x} is not UTF-8, or see --errors") from None
    finally:
        if handle != _STDIN:
            os.close(handle)
