"""nmt-plot: draw learning curves of runs, and attention and memory maps of a sentence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nmt.cli.arguments import any_text, names
from nmt.cli.common import execute, make_parser, say
from nmt.cli.output import output_stream
from nmt.plotting import AXES
from nmt.plotting.map_commands import add_output, attention_parser, memory_parser

PROGRAM = "nmt-plot"
DESCRIPTION = f"""Draw learning curves of one or several runs from their logs: one panel for each quantity, one line for
each run. Thin lines with open markers show training, thick lines validation. Maps of a sentence have their own options:
{PROGRAM} attention --help, {PROGRAM} memory --help."""
USAGE = """RUN... -o FILE [options]
       %(prog)s attention MODEL --text TEXT -o FILE [options]
       %(prog)s memory MODEL --text TEXT -o FILE [options]"""
MAPS = {"attention": attention_parser, "memory": memory_parser}
"""Recognised as the first word; write ./attention for a run of that name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    kind = given[0] if given else ""
    if kind in MAPS:
        return execute(MAPS[kind](f"{PROGRAM} {kind}"), lambda arguments: arguments.run(arguments), given[1:])
    return execute(build_parser(), draw_curves, given)


EXAMPLES = (
    "runs/a runs/b -o curves.svg",
    "runs/a runs/b -o bleu.png --axis minutes --panels bleu",
)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-plot for learning curves."""
    parser = make_parser(PROGRAM, DESCRIPTION, examples=EXAMPLES, usage=USAGE)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run directory of nmt-train, or its log.jsonl")
    add_output(parser)
    parser.add_argument(
        "--axis",
        choices=tuple(AXES),
        default="updates",
        help="x axis: %(choices)s (CPU time, in seconds); default: %(default)s",
    )
    parser.add_argument(
        "--panels",
        metavar="LIST",
        type=names,
        help="quantities to draw, separated by commas: loss, lr, norm, speed, perplexity, a metric such as bleu, or "
        "any "
        "other number in the log, such as padding (default: loss, each metric, lr, norm, speed)",
    )
    parser.add_argument(
        "--labels",
        metavar="LABEL",
        type=any_text,
        nargs="+",
        help="names of the runs in the legend, one for each (default: names of their directories)",
    )
    return parser


def draw_curves(arguments: argparse.Namespace) -> int:
    """Read the logs, draw and write; report what the logs hold but the picture cannot show."""
    from nmt.plotting import (
        check_ending,
        curves,
        default_panels,
        find_panels,
        font_remarks,
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
    of_fonts = font_remarks([log.label for log in logs], ending=ending)
    for remark in [*remarks(logs, panels, AXES[arguments.axis]), *of_fonts]:
        say(PROGRAM, remark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
