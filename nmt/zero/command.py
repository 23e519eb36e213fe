"""The converters `zero` and `to-zero` of nmt-convert: models of the original Zero system, and back."""

from __future__ import annotations

import argparse
from pathlib import Path

from nmt.cli.arguments import add_checkpoint, add_model
from nmt.cli.common import add_plugins, path_of_place
from nmt.cli.convert import Converter, add_overwrite, say
from nmt.registry import CONVERTERS


@CONVERTERS.register("zero")
class FromZero(Converter):
    """A checkpoint of Zero becomes a model directory."""

    help = "from Zero: a checkpoint of TensorFlow, or an .npz"
    description = "Convert a checkpoint of Zero to a model directory."
    examples = ("--checkpoint zero/best --source-vocab vocab.en \\\n      --target-vocab vocab.de -o mine",)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
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
            help="new model directory",
        )
        add_overwrite(parser)

    @classmethod
    def run(cls, arguments: argparse.Namespace) -> int:
        from nmt.zero.convert import from_zero as convert

        converted = convert(
            arguments.checkpoint,
            arguments.output,
            source_vocab=arguments.source_vocab,
            target_vocab=arguments.target_vocab,
            hparams=arguments.hparams,
            averages=arguments.moving_averages,
            overwrite=arguments.overwrite,
        )
        say(converted.notes)
        model, config = converted.model, converted.config.model
        parameters = sum(weight.numel() for weight in model.parameters())
        sizes = f"vocabularies {model.source_vocab_size:,} and {model.target_vocab_size:,}"
        print(f"{arguments.output}: {config.architecture} {config.cell}, {parameters:,} parameters, {sizes}")
        return 0


@CONVERTERS.register("to-zero")
class ToZero(Converter):
    """A model becomes an .npz and two vocabulary files."""

    help = "to Zero: an .npz and vocabulary files"
    description = "Convert a model to an .npz and two vocabulary files, which Zero can read."
    examples = ("runs/demo -o zero.npz",)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
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
        add_overwrite(parser)

    @classmethod
    def run(cls, arguments: argparse.Namespace) -> int:
        from nmt.zero.convert import to_zero as convert

        exported = convert(
            arguments.model,
            arguments.output,
            checkpoint=arguments.checkpoint,
            plugins=arguments.plugins,
            overwrite=arguments.overwrite,
        )
        say(exported.notes)
        print(f"{arguments.model} for Zero: {', '.join(str(path) for path in exported.files)}")
        return 0
