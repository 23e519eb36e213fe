"""nmt-backtranslate: add a source side to text of the target language, by a model of the other direction."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.arguments import MODELS
from nmt.cli.common import execute, make_parser, place
from nmt.light.pretrained import add_models
from nmt.synthetic.options import add_synthetic, make

if TYPE_CHECKING:
    from nmt.config import Config

DESCRIPTION = """Create a source side for text of the target language, with a model of the opposite direction
(back-translation: Sennrich et al., 2016). PREFIX.xx gets the text and PREFIX.yy its translations; list PREFIX in
data.monolingual, which puts a tag before these sources. After an interruption the same command resumes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), backtranslate, argv)


EXAMPLES = ("runs/de_en -i news.de -o data/back",)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-backtranslate."""
    parser = make_parser(
        "nmt-backtranslate", DESCRIPTION, examples=EXAMPLES, usage="MODEL... -i FILE... -o PREFIX [options]"
    )
    add_models(parser, help=f"model that translates from the language of the text: {MODELS}")
    parser.add_argument(
        "-i", "--input", metavar="FILE", nargs="+", required=True, help="text, one sentence per line; may be .gz"
    )
    parser.add_argument(
        "-o", "--output", metavar="PREFIX", type=place, required=True, help="prefix of the files to write"
    )
    add_synthetic(parser, n_best="number of sources to write for each line; each makes a pair (default: 1)")
    return parser


def backtranslate(arguments: argparse.Namespace) -> int:
    """Write the pairs."""

    def texts(config: Config) -> list[tuple[Path, Path | None]]:
        from nmt.synthetic.texts import files_to_translate

        return files_to_translate(config, train=[], source=arguments.input)

    return make(arguments, texts, program="nmt-backtranslate")


if __name__ == "__main__":
    sys.exit(main())
