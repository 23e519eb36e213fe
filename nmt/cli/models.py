"""The argument MODEL of commands, and its alias `--model` in nmt-score and nmt-eval."""

from __future__ import annotations

import argparse

from nmt.errors import ConfigError
from nmt.light.pretrained import names

MODEL = "run directory, checkpoint in it, or output of nmt-average, nmt-convert or nmt-export"
SEVERAL = "; the probabilities of several models are averaged"
MODELS = MODEL + SEVERAL
MODELS_OR_FILES = f"{MODEL} (folder or file), or a model of nmt's own ({', '.join(names())}){SEVERAL}"
"""For commands that also accept files for the engine."""
RUN = "run directory of nmt-train"
FIRST = "write it before the options, because an option with several values would take it"


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the one MODEL of a command, as `arguments.model`."""
    parser.add_argument("model", metavar="MODEL", help=MODEL)


def add_models(parser: argparse.ArgumentParser, *, help: str = MODELS) -> None:
    """Add MODEL..., which are one ensemble, and their alias `--model`; `named_models` reads both."""
    parser.add_argument("models", metavar="MODEL", nargs="*", help=help)
    parser.add_argument(
        "--model", dest="models_by_option", metavar="MODEL", nargs="+", default=[], help="alias of MODEL"
    )


def named_models(arguments: argparse.Namespace) -> list[str]:
    """The models that a command line names, in either way; empty if none.

    Raises:
        ConfigError: models are given in both ways, so that their order is unclear.
    """
    if arguments.models and arguments.models_by_option:
        listed = " ".join(arguments.models_by_option)
        raise ConfigError(f"--model {listed}: MODEL {' '.join(arguments.models)} is also given; use one of the two")
    return arguments.models or arguments.models_by_option


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Add `--checkpoint`."""
    parser.add_argument(
        "--checkpoint", metavar="STEP|best|last", default="best", help="checkpoint of each run to use (default: best)"
    )
