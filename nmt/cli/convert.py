"""nmt-convert: models of other systems become models of nmt, and back. Each system is a satellite, found by name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from nmt.cli.common import add_debug, main_of, make_parser
from nmt.errors import printable
from nmt.registry import CONVERTERS

DESCRIPTION = """Convert models of other systems to model directories, which all commands take, and back: Zero
(github.com/bzhangGo/zero; docs/from_zero.md), Marian, Firefox Translations and OPUS-MT (docs/marian.md). And files for
the engine, to train them further."""


class Converter:
    """A way from one kind of model to another; one of yours derives from this and registers itself."""

    help: ClassVar[str]
    """In the list of all converters."""
    description: ClassVar[str]
    examples: ClassVar[Sequence[str]] = ()
    """Arguments of the command."""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Add what it needs to know."""
        raise NotImplementedError

    @classmethod
    def run(cls, arguments: argparse.Namespace) -> int:
        """Convert, print what was made, and return the exit code."""
        raise NotImplementedError

    @classmethod
    def converted(cls, path: Path) -> Path | None:
        """A model directory, kept for the next time, of the model at `path`; None if that is not of this kind."""
        return None


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add --overwrite."""
    parser.add_argument("--overwrite", action="store_true", help="replace what nmt-convert has written there before")


def say(notes: Sequence[str]) -> None:
    """Tell what a user should know, one line each."""
    for note in notes:
        print(f"nmt-convert: {printable(note)}", file=sys.stderr)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-convert."""
    converters = {name: CONVERTERS.get(name) for name in CONVERTERS.names()}
    examples = [f"{name} {example}" for name, each in converters.items() for example in each.examples]
    parser = make_parser("nmt-convert", DESCRIPTION, examples=examples)
    kinds = parser.add_subparsers(dest="kind", metavar="|".join(converters), required=True)
    for name, each in converters.items():
        kind = kinds.add_parser(name, help=each.help, description=each.description, allow_abbrev=False)
        add_debug(kind)
        each.add_arguments(kind)
        kind.set_defaults(run=each.run)
    return parser


main = main_of(build_parser, lambda arguments: int(arguments.run(arguments)))

if __name__ == "__main__":
    sys.exit(main())
