"""nmt-average: average the last or best checkpoints of a run and save the result as a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nmt.cli.arguments import RUN, positive
from nmt.cli.common import main_of, make_parser, path_of_place


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-average."""
    parser = make_parser(
        "nmt-average",
        "Average the weights of several checkpoints of a run.",
        examples=("runs/demo --best 3 -o averaged",),
        usage="RUN (--last N | --best N) -o DIR",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help=RUN)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", metavar="N", type=positive, help="average the newest N checkpoints")
    which.add_argument("--best", metavar="N", type=positive, help="average the best N checkpoints by validation")
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=path_of_place,
        required=True,
        help="new model directory; never overwritten",
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Choose the checkpoints, average them and print their names."""
    from nmt.interop.export import check_output
    from nmt.training.run_dir import average_checkpoints, chosen_checkpoints

    check_output(arguments.output, model=arguments.run)
    best = arguments.last is None
    checkpoints = chosen_checkpoints(arguments.run, arguments.best if best else arguments.last, best=best)
    average_checkpoints(checkpoints, arguments.output, run=arguments.run)
    print(f"averaged {', '.join(path.name for path in checkpoints)} of {arguments.run} into {arguments.output}")
    return 0


main = main_of(build_parser, run)

if __name__ == "__main__":
    sys.exit(main())
