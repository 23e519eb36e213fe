"""nmt-convert: models of the original Zero system as model directories, and back."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.arguments import add_checkpoint, add_model
from nmt.cli.common import add_debug, add_plugins, execute, make_parser, path_of_place
from nmt.errors import printable

DESCRIPTION = """Convert models of Zero (github.com/bzhangGo/zero) to model directories, which nmt-translate, nmt-eval,
nmt-score and training.init_from take, and back. Details: docs/from_zero.md."""
FROM_ZERO = "Convert a checkpoint of Zero to a model directory."
TO_ZERO = "Convert a model to an .npz and two vocabulary files, which Zero can read."
EXAMPLES = (
    "zero --checkpoint zero/best --source-vocab vocab.en \\\n      --target-vocab vocab.de -o mine",
    "to-zero runs/demo -o zero.npz",
)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-convert."""
    parser = make_parser("nmt-convert", DESCRIPTION, examples=EXAMPLES)
    kinds = parser.add_subparsers(dest="kind", metavar="zero|to-zero", required=True)

    def add(name: str, help: str, description: str) -> argparse.ArgumentParser:
        kind: argparse.ArgumentParser = kinds.add_parser(name, help=help, description=description, allow_abbrev=False)
        return kind

    _add_zero(add("zero", "from Zero: a checkpoint of TensorFlow, or an .npz", FROM_ZERO))
    _add_to_zero(add("to-zero", "to Zero: an .npz and vocabulary files", TO_ZERO))
    return parser


def _add_zero(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=from_zero)
    add_debug(parser)
    parser.add_argument(
        "--checkpoint",
        metavar="PATH",
        type=Path,
        required=True,
        help="DIR/model-1000, one of its files, a directory with a 'checkpoint' file (its newest), or FILE.npz",
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-vocab",
            metavar="FILE",
            type=Path,
            required=True,
            help=f"Zero's {side} vocabulary, one token per line",
        )
    parser.add_argument(
        "--hparams",
        metavar="FILE|KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="hyper-parameters that replace those in the param.json next to the checkpoint; FILE holds a Python "
        "dictionary of literals",
    )
    parser.add_argument(
        "--moving-averages", action="store_true", help="use the moving averages of the weights (ema_decay)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=path_of_place,
        required=True,
        help="new model directory; never overwritten",
    )


def _add_to_zero(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=to_zero)
    add_debug(parser)
    add_model(parser)
    add_checkpoint(parser)
    add_plugins(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.npz",
        type=Path,
        required=True,
        help="new file; FILE.src.vocab and FILE.tgt.vocab are written next to it",
    )


def from_zero(arguments: argparse.Namespace) -> int:
    """Convert a checkpoint of Zero."""
    from nmt.zero.convert import from_zero as convert

    converted = convert(
        arguments.checkpoint,
        arguments.output,
        source_vocab=arguments.source_vocab,
        target_vocab=arguments.target_vocab,
        hparams=arguments.hparams,
        averages=arguments.moving_averages,
    )
    _say(converted.notes)
    model, config = converted.model, converted.config.model
    parameters = sum(weight.numel() for weight in model.parameters())
    sizes = f"vocabularies {model.source_vocab_size:,} and {model.target_vocab_size:,}"
    print(f"{arguments.output}: {config.architecture} {config.cell}, {parameters:,} parameters, {sizes}")
    return 0


def to_zero(arguments: argparse.Namespace) -> int:
    """Export a model for Zero."""
    from nmt.zero.convert import to_zero as convert

    exported = convert(arguments.model, arguments.output, checkpoint=arguments.checkpoint, plugins=arguments.plugins)
    _say(exported.notes)
    print(f"{arguments.model} for Zero: {', '.join(str(path) for path in exported.files)}")
    return 0


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"nmt-convert: {printable(note)}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nmt-convert and return its exit code."""
    return execute(build_parser(), lambda arguments: int(arguments.run(arguments)), argv)


if __name__ == "__main__":
    sys.exit(main())
