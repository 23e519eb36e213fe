"""nmt-distill: training text translated by one or several teachers, for a student to learn from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.arguments import MODELS
from nmt.cli.common import execute, make_parser, place
from nmt.light.pretrained import add_models
from nmt.synthetic.options import Wishes, add_synthetic, make

if TYPE_CHECKING:
    from nmt.config import Config

DESCRIPTION = """Translate the source side of training text with one or several teachers, for a student to learn from
(sequence-level knowledge distillation: Kim and Rush, 2016). PREFIX.xx gets the source lines and PREFIX.yy their
translations; list PREFIX in data.train. After an interruption the same command resumes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), distill, argv)


EXAMPLES = (
    "runs/teacher -o data/distilled",
    "runs/a runs/b -o data/distilled --source more.en.gz",
)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-distill."""
    parser = make_parser(
        "nmt-distill", DESCRIPTION, examples=EXAMPLES, usage="MODEL... -o PREFIX [--train PREFIX...] [options]"
    )
    add_models(parser, help=MODELS)
    parser.add_argument(
        "-o", "--output", metavar="PREFIX", type=place, required=True, help="prefix of the files to write"
    )
    parser.add_argument(
        "--train",
        metavar="PREFIX",
        nargs="+",
        default=[],
        help="parallel text whose source is translated (default, without --source: data.train of the first model)",
    )
    parser.add_argument(
        "--source", metavar="FILE", nargs="+", default=[], help="further text in the source language only; may be .gz"
    )
    parser.add_argument(
        "--nearest",
        choices=("bleu", "chrf"),
        help="of the N best translations, keep only the one nearest to the reference, by sentence BLEU or chrF",
    )
    parser.add_argument(
        "--keep-original",
        action="store_true",
        help="also write each line of --train with its reference, after the others",
    )
    parser.add_argument(
        "--alignment",
        action="store_true",
        help="also write PREFIX.alignment, the words that belong together as the teacher's attention tells them, for "
        "training.guided_alignment; empty for references",
    )
    parser.add_argument(
        "--keep-best-share",
        metavar="S",
        type=float,
        help="keep only this share of the pairs, such as 0.95: those whose source is most probable given the "
        "translation, by --scored-by, for each token",
    )
    parser.add_argument(
        "--scored-by", metavar="MODEL", help=f"model that translates back, for --keep-best-share: {MODELS}"
    )
    add_synthetic(parser, n_best="number of translations to write for each line; each makes a pair (default: 1)")
    return parser


def distill(arguments: argparse.Namespace) -> int:
    """Write the text of the student."""

    def texts(config: Config) -> list[tuple[Path, Path | None]]:
        from nmt.synthetic.texts import files_to_translate

        return files_to_translate(config, train=arguments.train, source=arguments.source)

    return make(
        arguments,
        texts,
        program="nmt-distill",
        wishes=Wishes(
            nearest=arguments.nearest,
            keep_original=arguments.keep_original,
            alignment=arguments.alignment,
            keep_best_share=arguments.keep_best_share,
            scored_by=arguments.scored_by,
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
