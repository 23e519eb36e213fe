"""How a command is told its models."""

from __future__ import annotations

import argparse

MODELS = "run directory, checkpoint in it, or output of nmt-average; of several the probabilities are averaged"


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Add `--checkpoint`."""
    parser.add_argument(
        "--checkpoint", metavar="STEP|best|last", default="best", help="which one of each run (default: best)"
    )
