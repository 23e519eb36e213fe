"""nmt-export: a trained model as one small folder that every command takes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import add_plugins, execute, make_parser
from nmt.cli.models import MODEL, add_checkpoint
from nmt.errors import ConfigError

DESCRIPTION = """Write a model as a folder of its own: weights in the number format they are used in, vocabulary,
configuration, checksums, and a card that says what it is. All commands take it in place of the run."""
FORMATS = ("folder",)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-export."""
    parser = make_parser("nmt-export", DESCRIPTION)
    parser.add_argument("models", metavar="MODEL", nargs="+", help=MODEL)
    parser.add_argument("-o", "--output", metavar="FOLDER", type=Path, required=True, help="the new folder")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="what is written (default: %(default)s)")
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16", "int8", "int8_bf16"),
        default="fp32",
        help="what weights are stored as: fp32, as trained (default); bf16, matrices and embeddings rounded; int8, "
        "matrices of decoder and output layer, all else fp32, so that translations are those of the run with "
        "--precision int8; int8_bf16, all else bf16, which is smaller",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an exported folder that is there")
    add_checkpoint(parser)
    add_plugins(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Export, and say what was written."""
    from nmt.interop.export import export_model
    from nmt.interop.model_card import megabytes

    if len(arguments.models) > 1:
        raise ConfigError(
            "MODEL: an exported folder holds one model; export each by itself, and name the folders together for an "
            "ensemble"
        )
    (model,) = arguments.models
    exported = export_model(
        model,
        arguments.output,
        stored=arguments.precision,
        checkpoint=arguments.checkpoint,
        plugins=arguments.plugins,
        overwrite=arguments.overwrite,
    )
    weights = f"{megabytes(exported.weights)} of weights"
    if arguments.precision != "fp32":
        weights += f", in fp32 {megabytes(exported.weights_fp32)}"
    print(f"{arguments.output}: {exported.model.path} in {exported.stored}, {megabytes(exported.total)} ({weights})")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run nmt-export and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
