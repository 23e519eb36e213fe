"""nmt-plot: learning curves of runs as a picture."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nmt.cli.argument_types import names
from nmt.cli.common import execute, make_parser, say
from nmt.cli.output import output_stream

PROGRAM = "nmt-plot"
DESCRIPTION = """Draw learning curves of one or several runs from their logs alone: one panel for each number, one line
for each run. Thin lines with open markers are of training, thick ones of validation."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), draw_curves, argv)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-plot."""
    from nmt.plotting import AXES

    parser = make_parser(PROGRAM, DESCRIPTION, usage="RUN... -o FILE [options]")
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run directory of nmt-train, or its log.jsonl")
    _add_output(parser)
    parser.add_argument(
        "--axis",
        choices=tuple(AXES),
        default="updates",
        help="what the curves are drawn over: %(choices)s (of CPU time, in seconds); default: %(default)s",
    )
    parser.add_argument(
        "--panels",
        metavar="LIST",
        type=names,
        help="what is drawn, separated by commas: loss, lr, norm, speed, perplexity, a metric such as bleu, or any "
        "other number in the log, such as padding (default: loss, each metric, lr, norm, speed)",
    )
    parser.add_argument(
        "--labels",
        metavar="LABEL",
        nargs="+",
        help="what the legend calls the runs, one for each (default: names of their directories)",
    )
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="picture to write, FILE.png or FILE.svg; replaced if there",
    )


def draw_curves(arguments: argparse.Namespace) -> int:
    """Read the logs, draw and write."""
    from nmt.plotting import (
        AXES,
        check_ending,
        curves,
        default_panels,
        find_panels,
        picture,
        read_logs,
        remarks,
    )

    ending = check_ending(arguments.output)
    logs = read_logs(arguments.runs, labels=arguments.labels)
    panels = default_panels(logs) if arguments.panels is None else find_panels(arguments.panels, logs)
    figure = curves(logs, panels=panels, axis=arguments.axis)
    with output_stream(arguments.output, inputs=[str(log.path) for log in logs], models=arguments.runs) as stream:
        stream.write(picture(figure, ending))
    for remark in remarks(logs, panels, AXES[arguments.axis]):
        say(PROGRAM, remark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
