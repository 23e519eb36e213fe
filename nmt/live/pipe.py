"""`nmt-translate --live`: text as it arrives on a pipe, and its translation as soon as it is sure."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from nmt.cli.arguments import given
from nmt.cli.common import say
from nmt.cli.output import check_reader
from nmt.config import import_plugins
from nmt.errors import ConfigError, counted
from nmt.library.loading import load
from nmt.light.lines import arriving, line_by_line
from nmt.live.settings import settings
from nmt.registry import PIPES

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

    Raises ConfigError for an option that does not go together with `--live`, EngineError for what is no text.
    """
    for name, usual in _OTHERS.items():
        if getattr(arguments, name) != usual:
            raise ConfigError(f"--{name.replace('_', '-')}: does not go together with --live")
    if arguments.errors == "empty":
        raise ConfigError("--errors empty: does not go together with --live. Allowed: strict, replace.")
    import_plugins(arguments.plugins)
    chosen, *others = settings(arguments.live, called="--live")
    if others:
        raise ConfigError(
            f"--live {arguments.live}: stands for {len(others) + 1} settings. Allowed: one, such as wait_k,wait=3."
        )
    started, lines = time.perf_counter(), 0
    with load(
        arguments.models,
        device=arguments.device,
        precision=arguments.precision or "auto",
        checkpoint=arguments.checkpoint,
        plugins=arguments.plugins,
    ) as translator:
        search = {name: value for name, value in given(arguments).items() if name != "precision"}
        texts = arriving(None if arguments.input == "-" else arguments.input, arguments.errors)
        for text in line_by_line(texts, lambda: translator.live(chosen.policy, **chosen.options, **search)):
            check_reader(sys.stdout.buffer)  # so that nothing is translated after `| head` has ended
            sys.stdout.write(text)
            sys.stdout.flush()
            lines += text.endswith("\n")
    if not arguments.quiet:
        say(
            "nmt-translate",
            f"{counted(lines, 'line')} live by {chosen.policy} in {time.perf_counter() - started:.1f} s",
        )
    return 0
